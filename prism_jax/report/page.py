"""The report: one HTML file that opens offline, prints well and needs no script.

Everything that others wrote (event texts, names, facts) is escaped by the template, and the page forbids itself every
request and script by its content security policy. The same arguments give the same bytes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.results import Calibration, Evaluation
from prism_jax.report import figures, tables
from prism_jax.report.templates import load_template
from prism_jax.report.timeline import choose_stream, timeline
from prism_jax.runtime.files import parse_json, write_text
from prism_jax.scores import Scores
from prism_jax.streams import Stream


class Headline(NamedTuple):
    """A number to begin with, and what it is."""

    value: str
    unit: str
    label: str
    note: str


def write_report(
    path: str | os.PathLike[str],
    evaluation: Evaluation,
    scores: Scores,
    calibration: Calibration,
    point: OperatingPoint,
    metrics_path: str | os.PathLike[str] | None = None,
    streams: Iterable[Stream] | None = None,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Writes report.html, in one move.

    Args:
      path: Where to.
      evaluation: What `protocol.evaluate` found.
      scores: The table it was found on; times of steps are read from it.
      calibration: The temperatures it was found with.
      point: The operating point it was found at.
      metrics_path: The run's metrics.jsonl, one object a line with "step" and numbers; None draws no loss curves.
      streams: Streams whose event texts the timeline may show; those of the test split are enough.
      facts: What else the reader should know of the run, name to value: command, versions, need definition, data.

    Raises:
      ValueError: for another operating point than the evaluation's, broken metrics, or streams that lack a step.
    """
    if point != evaluation.point:
        raise ValueError(f"point: found {point}, expected the evaluation's own, {evaluation.point}")
    write_text(path, render(evaluation, scores, calibration, metrics_path, streams or (), facts or {}))


def render(
    evaluation: Evaluation,
    scores: Scores,
    calibration: Calibration,
    metrics_path: str | os.PathLike[str] | None,
    streams: Iterable[Stream],
    facts: Mapping[str, str],
) -> str:
    """The page's HTML."""
    known = {stream.id: stream for stream in streams}
    name = choose_stream(evaluation.trace, known)
    times = protocol.rows_of(scores, protocol.TEST).steps().time
    return load_template("report.html.jinja").render(
        title=finding(evaluation),
        measured=tables.what_was_measured(evaluation),
        headlines=headlines(evaluation),
        costs=figures.cost_figure(evaluation),
        tables=tables.all_tables(evaluation),
        policies=tables.POLICIES,
        diagrams=[figures.reliability_figure(row) for row in evaluation.signals],
        timeline=timeline(evaluation, name, times, known.get(name)),
        curves=[] if metrics_path is None else loss_curves(metrics_path),
        fits={key: fit for key, fit in calibration.to_dict().items() if fit is not None},
        evaluation=evaluation,
        facts=facts,
    )


def finding(evaluation: Evaluation) -> str:
    """The result in one sentence: what the deployed policy saves."""
    row = evaluation.deployed
    name = tables.POLICIES[row.policy][0]
    who = f"The policy “{name}” on calibrated signals" if row.form else f"The policy “{name}”"
    if row.gap_closed is not None and not math.isnan(row.gap_closed):
        better = min(("always", "never"), key=lambda constant: evaluation.policy(constant).expected_cost or 0.0)
        return f"{who} closes {tables.percent(row.gap_closed)} % of the cost gap from “{better}” to the Bayes oracle"
    better, cost = _better_constant(evaluation)
    return (
        f"{who} costs {tables.number(row.realised_cost)} a step; the better constant, “{better}”, {tables.number(cost)}"
    )


def headlines(evaluation: Evaluation) -> list[Headline]:
    """The numbers to begin with, of the deployed policy and of the fast pass's calibrated signals."""
    row = evaluation.deployed
    better, cost = _better_constant(evaluation)
    against = f"{better} {tables.number(cost)}"
    if row.expected_cost is not None:
        against += f", Bayes {tables.number(evaluation.policy('bayes').realised_cost)}"
    shown = [Headline(tables.number(row.realised_cost), "", "realised cost per step", against)]
    if row.gap_closed is not None:
        labels = f"{tables.percent(row.gap_closed_realised)} % on this split's labels"
        shown.append(Headline(tables.percent(row.gap_closed), "%", "of the gap to Bayes closed", labels))
    shown.append(Headline(tables.percent(row.speak_rate), "%", "of steps with an offer", _slow_note(row.slow_rate)))
    shown.append(
        Headline(
            tables.percent(row.recall), "%", "recall", f"false alarm {tables.percent(row.false_alarm)} % of offers"
        )
    )
    for signal in evaluation.signals:
        if (signal.thinking, signal.form) == ("fast", "calibrated"):
            note = f"T = {tables.number(signal.temperature, 3)}"
            if signal.distance is not None:
                note += f", {tables.number(signal.distance, 3)} from the truth"
            shown.append(Headline(tables.number(signal.ece, 3), "", f"ECE of p_{signal.signal}", note))
    return shown


def loss_curves(path: str | os.PathLike[str]) -> list[figures.CurveFigure]:
    """A curve for each number that metrics.jsonl holds at two steps or more.

    Raises:
      ValueError: naming file and line, for a line that is no object with a numeric "step" and finite numbers.
    """
    columns: dict[str, tuple[list[float], list[float]]] = {}
    with epath.Path(path).open("rb") as file:
        for line, text in enumerate(file, start=1):
            values = parse_json(text, f"{path}, line {line}")
            if not isinstance(values, dict) or not _is_number(values.get("step")):
                raise ValueError(f'{path}, line {line}: found {text[:40]!r}, expected an object with a numeric "step"')
            for name, value in values.items():
                if name != "step" and _is_number(value):
                    steps, series = columns.setdefault(name, ([], []))
                    steps.append(float(values["step"]))
                    series.append(float(value))
    return [figures.curve_figure(name, *series) for name, series in columns.items() if len(series[0]) > 1]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _better_constant(evaluation: Evaluation) -> tuple[str, float]:
    costs = {name: evaluation.policy(name).realised_cost for name in ("always", "never")}
    better = min(costs, key=lambda name: costs[name])
    return better, costs[better]


def _slow_note(slow_rate: float | None) -> str:
    return "no slow pass" if slow_rate is None else f"slow pass on {tables.percent(slow_rate)} %"
