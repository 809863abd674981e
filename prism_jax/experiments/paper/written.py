"""Whether p_accept, read before anything is written, ranks what is then written; and what a second reading adds.

The labels are verdicts on the written texts (`python -m prism_jax judge --scores_out`), the second reading is that of
`p_accept_written`. Both are measured where something was written, each with maps of its own, by the fast pass.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.uncertainty import Estimate, mean_interval
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.experiments import ranking
from prism_jax.experiments.paper import cells
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study
from prism_jax.experiments.paper.tallies import Tally
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import read

MOST_ROWS = 10_000
"""Most labels whose pairs are compared."""
MEASURES = {
    "t": Measure("T", "Temperature of the reading, fitted on the calibration split, where one applies.", digits=3),
    "auroc": Measure("AUROC", "Share of pairs of an accepted and a rejected text that are in this order.", "%"),
    "auroc_within": Measure("AUROC within", "The same of pairs within a stream.", "%"),
    "brier": Measure("Brier", "Mean of (p − y)² of the calibrated reading.", "%", 2),
    "ece": Measure("ECE", "Expected calibration error of the calibrated reading, 15 bins of equal width.", "%", 2),
    **cells.COST,
}


class _Reading(NamedTuple):
    """One reading of the accept slot on the test split."""

    data: EvaluationData
    ranked: ranking.Ranked
    temperature: float | None


def make(study: Study) -> ExperimentResult:
    """Measures both readings, and the second minus the first."""
    scores, settings = study.scores, study.settings
    if scores.p_accept_written is None:
        raise SkippedError("there is no column p_accept_written, which `python -m prism_jax score --reread` writes")
    if study.of_parts is not None:
        raise SkippedError("it compares pairs of rows, and these are read part by part: there are too many for memory")
    written = ~np.isnan(scores.p_accept_written)
    if not written.any():
        raise SkippedError("p_accept_written: found null everywhere, expected texts that were written")
    rows = scores.take(written)
    assert rows.p_accept_written is not None, "it is there"
    first, second = (_reading(study, rows, p) for p in (rows.p_accept_fast, rows.p_accept_written))
    lines = []
    for name, reading in (("before writing", first), ("after writing", second)):
        of_policy = cells.decisions(reading.data, reading.data.deployed(), "calibrated")
        t = np.nan if reading.temperature is None else reading.temperature
        cost = cells.cost(Tally(settings.keywords()), of_policy)
        lines.append(Line(name, {"t": Number(t), **_ranked(study, reading), "cost": cost}))
    change = {**_ranked(study, first, second), "cost": Number.of(_change(first, second, study))}
    lines.append(Line("after minus before", change, "paired"))
    steps = len(splits.evaluated_rows(scores).steps())
    note = study.note(
        f"{len(first.data.steps)} of {steps} test steps, where a text was written; labels are those of the table, "
        "which `python -m prism_jax judge --scores_out` makes of verdicts on these texts."
    )
    title = "p_accept before and after the text is written"
    return ExperimentResult((Sheet("written", title, "reading", MEASURES, tuple(lines), note),))


def _reading(study: Study, rows: Scores, p_accept: Float64[np.ndarray, "rows"]) -> _Reading:
    """The table with this reading of acceptance, by the fast pass alone."""
    table = dataclasses.replace(rows, p_accept_fast=p_accept, p_need_slow=None, p_accept_slow=None)
    try:
        fits = protocol.calibrate(table)
        data, _ = protocol.prepare(table, fits, study.point)
    except ScoresError as error:
        raise SkippedError(f"where a text was written, {error}") from None
    readings = read(splits.evaluated_rows(table), "accept", "fast")
    raw, y, weight = readings.labelled()
    if len(y) > MOST_ROWS or ((y != 0) & (y != 1)).any() or (weight != 1).any():
        raise SkippedError(f"y_accept: expected at most {MOST_ROWS} labels of 0 and 1 without weights")
    unit = readings.rows.stream if data.whole.unit == "streams" else readings.rows.person
    assert unit is not None, "a unit has a column"
    p = fits.calibrated("accept", "fast", readings.rows)[readings.known]
    return _Reading(data, ranking.Ranked(raw, p, y, unit[readings.known]), fits.temperature("accept", "fast"))


def _change(first: _Reading, second: _Reading, study: Study) -> Estimate:
    """The paired difference of realised costs on the steps that are judged under both readings."""
    both = first.data.judged & second.data.judged
    costs = [of.data.costs(of.data.decide(of.data.deployed(), "calibrated"))[both] for of in (first, second)]
    unit = first.data.steps.numbered("stream" if first.data.whole.unit == "streams" else "person")[1]
    return mean_interval(costs[1] - costs[0], unit[both], **study.settings.keywords())


def _ranked(study: Study, *readings: _Reading) -> dict[str, Number]:
    """The measures of `ranking` of one reading, or their paired differences of two."""
    settings = study.settings
    of = ranking.intervals(*(reading.ranked for reading in readings), resamples=settings.resamples, seed=settings.seed)
    return {name: Number.of(estimate) for name, estimate in of.items()}
