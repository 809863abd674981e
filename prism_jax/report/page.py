"""The HTML report: one file that opens offline and prints well; only the control surface needs its script.

The template escapes all text from outside (event texts, names, facts), and the page's content security policy forbids
every request and every script but its own two. The same arguments give the same bytes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prism_jax.evaluation.fits import SIGNALS, Calibration, SignalFit
from prism_jax.evaluation.policy_rows import ALL_POLICIES
from prism_jax.evaluation.results import LEAST_CAUTION, Evaluation, doubt
from prism_jax.evaluation.rows import PolicyRow
from prism_jax.evaluation.surfaces import Exploration
from prism_jax.report import controls, figures, tables
from prism_jax.report.templates import load_template
from prism_jax.report.timeline import choose_stream, timeline
from prism_jax.runtime.files import parse_json, read_lines
from prism_jax.streams import Stream


class Headline(NamedTuple):
    """A number at the top of the report, with its unit, its label and a note."""

    value: str
    unit: str
    label: str
    note: str


def render(
    evaluation: Evaluation,
    exploration: Exploration | str,
    calibration: Calibration,
    metrics_path: str | os.PathLike[str] | None = None,
    streams: Iterable[Stream] = (),
    facts: Mapping[str, str] = {},
) -> str:
    """Renders the page's HTML.

    Args:
      evaluation: What was evaluated.
      exploration: The gate over costs and slow triggers, or why its decisions cannot be counted.
      calibration: The map of each signal that the evaluation used.
      metrics_path: Path of the run's metrics.jsonl, one object per line with "step" and numbers; None draws no curves.
      streams: Streams whose event texts the timeline may show; the test split's streams are enough.
      facts: Further facts about the run, name to value: command, versions, definition of need, data.

    Raises:
      ValueError: if the metrics cannot be parsed, or a stream lacks a step of the scores.
    """
    by_id = {stream.id: stream for stream in streams}
    name = choose_stream(evaluation.trace, by_id)
    return load_template("report.html.jinja").render(
        title=finding(evaluation),
        measured=tables.what_was_measured(evaluation),
        streams=tables.streams_of(evaluation),
        headlines=headlines(evaluation),
        costs=figures.cost_figure(evaluation),
        decisions=tables.decision_tables(evaluation),
        signals=tables.signal_table(evaluation),
        thinking=figures.trigger_figure(evaluation),
        glossary=glossary(evaluation),
        diagrams=[figures.reliability_figure(row) for row in evaluation.signals],
        timeline=timeline(evaluation, name, by_id.get(name)),
        controls=None
        if isinstance(exploration, str)
        else controls.as_script_text(controls.control_data(exploration, name, by_id)),
        uncountable=exploration if isinstance(exploration, str) else None,
        curves=[] if metrics_path is None else loss_curves(metrics_path),
        fits=_fits(calibration),
        moves=_moves(calibration),
        evaluation=evaluation,
        facts=facts,
    )


def finding(evaluation: Evaluation) -> str:
    """States the result in one sentence: what the deployed policy costs beside the constants, and whom it disturbs."""
    row = evaluation.deployed
    name = ALL_POLICIES[row.policy].label
    who = f"The policy “{name}” on calibrated signals" if row.form else f"The policy “{name}”"
    compared = [
        f"{_against(row.realised_cost, evaluation.policy(constant))} {words}"
        for constant, words in (("always", "always offering"), ("never", "never offering"))
        if row.policy != constant
    ]
    if row.form and (raw := evaluation.policy(row.policy, "raw")).realised_cost < row.realised_cost - LEAST_CAUTION:
        compared.append(f"{_against(row.realised_cost, raw)} on the raw signals")
    answered = (
        "it makes no offer" if math.isnan(row.dismissed) else f"{_share(row.dismissed)} of its offers are dismissed"
    )
    return f"{who} costs {' and '.join(compared)}; {answered}"


def _against(cost: float, other: PolicyRow) -> str:
    """The deployed policy's cost beside another's in words: "66 % less than"."""
    if not other.realised_cost > 0:
        return f"{tables.number(cost)} per step against {tables.number(other.realised_cost)} for"
    change = 100 * (cost / other.realised_cost - 1)
    if round(change) == 0:
        return "as much as"
    known = " (not told apart)" if doubt(other) else ""
    return f"{abs(change):.0f} % {'less' if change < 0 else 'more'}{known} than"


def _share(value: float) -> str:
    return f"{tables.percent(value)} %"


def headlines(evaluation: Evaluation) -> list[Headline]:
    """The numbers at the top: of the deployed policy, and of the fast pass's calibrated signals."""
    row = evaluation.deployed
    cost, better = min((evaluation.policy(name).realised_cost, name) for name in ("always", "never"))
    against = f"{better} {tables.number(cost)}{doubt(evaluation.policy(better))}"
    if row.expected_cost is not None:
        against += f", Bayes {tables.number(evaluation.policy('bayes').realised_cost)}"
    shown = [Headline(tables.number(row.realised_cost), "", "realised cost per step", against)]
    if row.gap_closed is not None:
        labels = f"{tables.percent(row.gap_closed_realised)} % on this split's labels"
        shown.append(Headline(tables.percent(row.gap_closed), "%", "of the gap to Bayes closed", labels))
    slow = "no slow pass" if row.slow_rate is None else f"slow pass on {tables.percent(row.slow_rate)} %"
    shown.append(Headline(tables.percent(row.speak_rate), "%", "of steps with an offer", slow))
    shown.append(Headline(tables.percent(row.dismissed), "%", "of offers dismissed", _false_alarm(evaluation)))
    shown.append(Headline(tables.percent(row.recall), "%", "recall", f"precision {tables.percent(row.precision)} %"))
    for signal in evaluation.signals:
        if (signal.thinking, signal.form) == ("fast", "calibrated"):
            note = signal.map or f"T = {tables.number(signal.temperature, 3)}"
            if signal.distance is not None:
                note += f", {tables.number(signal.distance, 3)} from the truth"
            shown.append(Headline(tables.number(signal.ece, 3), "", f"ECE of p_{signal.signal}", note))
    return shown


def loss_curves(path: str | os.PathLike[str]) -> list[figures.CurveFigure]:
    """Makes a curve for each name that has a number at two or more steps of metrics.jsonl.

    Raises:
      ValueError: if a line is not an object with a numeric "step"; the message names file and line.
    """
    columns: dict[str, tuple[list[float], list[float]]] = {}
    for line, text in read_lines(path):
        values = parse_json(text, f"{path}, line {line}")
        if not isinstance(values, dict) or not _is_number(values.get("step")):
            raise ValueError(f'{path}, line {line}: found {text[:40]!r}, expected an object with a numeric "step"')
        for name, value in values.items():
            if name != "step" and _is_number(value):
                steps, series = columns.setdefault(name, ([], []))
                steps.append(float(values["step"]))
                series.append(float(value))
    return [figures.curve_figure(name, *series) for name, series in columns.items() if len(series[0]) > 1]


def _fits(calibration: Calibration) -> list[tuple[str, SignalFit, str]]:
    """Name, fit and map in words of each calibrated signal."""
    rows = []
    for name in SIGNALS:
        fit = getattr(calibration, name)
        if fit is not None:
            temperature = calibration.temperature(*name.split("_"))
            rows.append(
                (name, fit, calibration.in_words(*name.split("_")) if temperature is None else f"T = {temperature:.4f}")
            )
    return rows


def _moves(calibration: Calibration) -> str | None:
    """The moves and tokens of the slow pass in words; None where the calibration does not know them."""
    fit = calibration.thinking
    if fit is None:
        return None
    accept, need = (tables.number(float(moment) ** 0.5, 3) for moment in (fit.moves.accept, fit.moves.need))
    tokens = "" if fit.tokens is None else f", {fit.tokens:.1f} tokens on average"
    return (
        f"moves the log-odds of acceptance by {accept}, of need by {need} (root mean square, {fit.count} steps){tokens}"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def glossary(evaluation: Evaluation) -> dict[str, str]:
    """Each term of the tables with its meaning, once; a term of several meanings has all of them."""
    rows = [ALL_POLICIES[row.policy] for row in evaluation.policies if row.form != "raw"]
    columns = [column for table in tables.all_tables(evaluation) for column in table.columns]
    terms = [(entry.label, entry.meaning) for entry in rows] + [(entry.label, entry.meaning) for entry in columns]
    by_label: dict[str, list[str]] = {}
    for label, meaning in dict.fromkeys(terms):
        by_label.setdefault(label, []).append(meaning)
    return {label: " As a column: ".join(meanings) for label, meanings in by_label.items()}


def _false_alarm(evaluation: Evaluation) -> str:
    """The offers that were wrong in the paper's sense, where need makes them more than the dismissed ones."""
    share = _share(evaluation.deployed.false_alarm)
    return f"not needed or dismissed: {share}" if evaluation.has_need else "not accepted"
