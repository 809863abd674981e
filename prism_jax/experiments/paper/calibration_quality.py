"""How well the signals are calibrated before and after their maps, and what that changes in the decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from prism_jax.decision.calibration import BinSums
from prism_jax.evaluation.policy_rows import FORMS, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.tallies import Gathered, Tally, Units
from prism_jax.scores.labels import Signal, Thinking, read

MEASURES = {
    "t_need": Measure("T need", "Temperature of p_need, where one applies to all rows.", digits=3),
    "t_accept": Measure("T accept", "Temperature of p_accept.", digits=3),
    "ece_need": Measure("ECE need", "Expected calibration error of p_need, 15 bins of equal width.", "%", 2),
    "ece_accept": Measure("ECE accept", "The same of p_accept.", "%", 2),
    "debiased_need": Measure(
        "partly debiased need", "ECE of p_need minus part of what the labels' noise adds to it.", "%", 2
    ),
    "debiased_accept": Measure("partly debiased accept", "The same of p_accept.", "%", 2),
    "brier_need": Measure("Brier need", "Mean of (p − y)² of p_need.", "%", 2),
    "brier_accept": Measure("Brier accept", "The same of p_accept.", "%", 2),
    "f1": cells.RATES["f1"],
    "false_alarm": cells.RATES["false_alarm"],
}


def make(study: Study) -> ExperimentResult:
    """Measures both passes that the scores have, raw and calibrated, and the gate on each."""
    data, tally = study.at(), study.tally
    passes: tuple[Thinking, ...] = ("fast", "slow") if data.slow else ("fast",)
    forms: tuple[Form, ...] = ("raw", "calibrated")
    kinds: tuple[Signal, ...] = ("need", "accept") if data.has_need else ("accept",)
    shown = {key: measure for key, measure in MEASURES.items() if data.has_need or not key.endswith("_need")}
    lines, drawn = [], {}
    for thinking in passes:
        measured = {signal: _bins(tally, data, signal, thinking) for signal in kinds}
        if thinking == "fast":
            drawn = measured
        for form in forms:
            rates = cells.rates(tally, cells.decisions(data, "dynamic" if thinking == "fast" else "slow_only", form))
            values: dict[str, Number] = {}
            for signal, of_form in measured.items():
                temperature = 1.0 if form == "raw" else study.fits.temperature(signal, thinking)
                values |= _measured(of_form[form], temperature, signal) if form in of_form else {}
            values |= {key: rates[key] for key in ("f1", "false_alarm")}
            printed = references.CALIBRATION[form] if thinking == "fast" else {}
            printed = {key: number for key, number in printed.items() if key in shown}
            lines.append(Line(form, cells.beside(values, printed), f"{thinking} pass"))
    maps = ", ".join(f"{name}: {study.fits.in_words(name, 'fast')}" for name in kinds)
    note = study.note(f"Maps of the fast pass: {maps}.", "Errors have no interval; labels as in the report.")
    title = "Quality of calibration"
    sheet = Sheet("calibration_quality", title, "signals", shown, tuple(lines), note)
    return ExperimentResult((sheet,), lambda figure: _reliability(figure, drawn))


def _bins(tally: Tally, data: EvaluationData, signal: Signal, thinking: Thinking) -> Mapping[Form, BinSums]:
    """The sums of a signal's bins, raw and calibrated; none where no row has a label."""

    def gather() -> Gathered:
        raw = read(data.rows, signal, thinking)
        if not raw.known.any():
            return Gathered({})
        calibrated = raw._replace(p=data.fits.calibrated(signal, thinking, raw.rows))
        return Gathered({}, {"raw": BinSums.of(*raw.labelled()), "calibrated": BinSums.of(*calibrated.labelled())})

    def of_form(_: Units, totals: Mapping[str, Any]) -> dict[Form, BinSums]:
        return {form: totals[form] for form in FORMS[::-1] if form in totals}

    return tally.number(f"bins.{signal}.{thinking}", data, gather, of_form) or {}


def _measured(bins: BinSums, temperature: float | None, signal: str) -> dict[str, Number]:
    errors = {"ece": bins.error(), "debiased": bins.error(debiased=True), "brier": bins.brier_score}
    values = {"t": math.nan if temperature is None else temperature, **errors}
    return {f"{name}_{signal}": Number(value) for name, value in values.items()}


def _reliability(figure: Any, drawn: Mapping[Signal, Mapping[Form, BinSums]]) -> None:
    """A reliability diagram per signal and form: raw above, calibrated below."""
    forms = len(next(iter(drawn.values())))
    figure.set_size_inches(3.6 * len(drawn), 3.2 * forms)
    panels = figure.subplots(forms, len(drawn), sharex=True, sharey=True, squeeze=False)
    for column, (signal, of_form) in enumerate(drawn.items()):
        for axes, (form, sums), colour in zip(panels[:, column], of_form.items(), ("#d1812a", "#3b8f5a"), strict=True):
            bins = sums.reliability()
            used = bins.count > 0
            axes.plot([0, 1], [0, 1], "--", color="grey", linewidth=1)
            axes.plot(bins.mean_p[used], bins.mean_y[used], color=colour, alpha=0.4)
            size = 3 + 60 * bins.count[used] / bins.count.max()
            axes.scatter(bins.mean_p[used], bins.mean_y[used], s=size, color=colour)
            axes.set_title(f"p_{signal}, {form}: ECE {100 * sums.error():.1f} %")
    figure.supxlabel("mean probability of the bin; the area of a dot grows with its labels", fontsize=9)
    figure.supylabel("share of labels that are 1", fontsize=9)
