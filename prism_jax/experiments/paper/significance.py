"""Paired differences of two policies on the same steps: intervals, p-values, McNemar's test, equivalence."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from prism_jax.decision.uncertainty import LEAST_UNITS, mcnemar, paired_p_values, paired_rates, tost
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study
from prism_jax.scores.labels import acceptance_weight

BOUND = 0.02
"""The largest difference of a rate, either way, that the test of equivalence takes for none."""
MEASURES = {
    "first": Measure("first", "The rate of the first policy.", "%"),
    "second": Measure("second", "The rate of the second policy.", "%"),
    "difference": Measure("difference", "Second minus first, with its paired interval.", "%", 2),
    "p_value": Measure("p-value", "Two-sided p-value of no difference.", digits=4, averaged=False),
    "p_equivalence": Measure(
        "p, equivalence",
        f"Two one-sided tests: not within ±{100 * BOUND:g} points.",
        digits=4,
        averaged=False,
    ),
}
COUNTS = {
    "only_first": Measure("only first right", "Steps that only the first policy got right.", digits=0),
    "only_second": Measure("only second right", "Steps that only the second policy got right.", digits=0),
    "p_mcnemar": Measure(
        "McNemar's p", "Exact, but takes the steps of a stream as independent.", digits=4, averaged=False
    ),
}


class Pair(NamedTuple):
    """Two policies to compare, each with the form of its signals, and the words for both."""

    first: tuple[str, Form]
    second: tuple[str, Form]
    words: str


PAIRS = (
    Pair(("static", "calibrated"), ("dynamic", "calibrated"), "gate minus p_accept alone"),
    Pair(("dynamic", "raw"), ("dynamic", "calibrated"), "gate: calibrated minus raw"),
    Pair(("dynamic", "calibrated"), ("slow_on_margin", "calibrated"), "slow on margin minus fast only"),
    Pair(("slow_only", "calibrated"), ("slow_on_margin", "calibrated"), "slow on margin minus slow only"),
)


def make(study: Study) -> ExperimentResult:
    """Tests every pair whose policies the scores allow."""
    data = study.at()
    units = int(data.judged_units.max()) + 1
    labels = (data.label("accept"), data.label("accept", data.everywhere_slow), data.best_accept)
    gold = np.concatenate([(data.label("need") * label)[data.judged] for label in labels])
    if units < LEAST_UNITS or not cells.hard(gold):
        raise SkippedError(
            f"paired tests: found {units} {data.unit}, expected labels of 0 and 1 in at least {LEAST_UNITS}"
        )
    lines: list[Line] = []
    counts: list[Line] = []
    for pair in PAIRS:
        known = {"static", "dynamic", *data.slow_policies}
        of_need = {pair.first[0], pair.second[0]} == {"static", "dynamic"}
        if pair.first[0] in known and pair.second[0] in known and (data.has_need or not of_need):
            first, second = data.decide(*pair.first), data.decide(*pair.second)
            lines += _tests(study, data, first, second, pair.words)
            counts.append(_counts(data, first, second, pair.words))
    lines += [
        Line(cells.RATES[name].label, cells.beside({}, numbers), "the paper: PRISM minus DeepSeek-R1")
        for name, numbers in references.SIGNIFICANCE.items()
    ]
    left_out = [] if data.has_need else ["There is no need, so the gate is p_accept alone and is not compared with it."]
    note = study.note(*left_out)
    title = "Steps that one of two policies got right"
    sheets = (
        Sheet("significance", "Paired differences", "rate", MEASURES, tuple(lines), note, signed=("difference",)),
        Sheet("significance_mcnemar", title, "pair", COUNTS, tuple(counts), f"On {study.source}."),
    )
    ours = [line for line in lines if line.section and not line.section.startswith("the paper")]
    return ExperimentResult(sheets, lambda figure: bars(figure, ours, {"difference": MEASURES["difference"]}))


def _labels(data: EvaluationData, first: Decided, second: Decided) -> tuple[np.ndarray, np.ndarray | None]:
    """Gold labels with which two policies' decisions count on judged steps; the second's are None where the same."""
    first_gold, second_gold = (data.counted(decided).gold[data.judged] for decided in (first, second))
    return first_gold, second_gold if data.several_candidates else None


def _tests(study: Study, data: EvaluationData, first: Decided, second: Decided, words: str) -> list[Line]:
    """One row per rate that both policies define."""
    judged, settings = data.judged, study.settings
    both = [cells.rates(data, decided, settings) for decided in (first, second)]
    names = [name for name in cells.RATES if not any(math.isnan(rates[name].value) for rates in both)]
    gold, y_second = _labels(data, first, second)
    decisions = (first.offer[judged], second.offer[judged], gold)
    weight = acceptance_weight(data.steps)[judged]
    shared: dict[str, Any] = {
        "streams": data.judged_units,
        "y_second": y_second,
        "weight": None if (weight == 1).all() else weight,
        "names": names,
        "resamples": settings.resamples,
        "seed": settings.seed,
    }
    differences = paired_rates(*decisions, **shared, level=settings.level)
    p_values = paired_p_values(*decisions, **shared)
    lines = []
    for name in names:
        difference = differences[name]
        error = float(difference.standard_error)
        equivalence = (
            tost(float(difference.value), error, -BOUND, BOUND, difference.units - 1).p_value if error > 0 else math.nan
        )
        row = {
            **{key: Number(rates[name].value) for key, rates in zip(("first", "second"), both, strict=True)},
            "difference": Number.of(difference),
            "p_value": Number(p_values[name]),
            "p_equivalence": Number(equivalence),
        }
        lines.append(Line(cells.RATES[name].label, row, words))
    return lines


def _counts(data: EvaluationData, first: Decided, second: Decided, words: str) -> Line:
    judged = data.judged
    test = mcnemar(first.offer[judged], second.offer[judged], *_labels(data, first, second))
    row = {"only_first": test.only_first, "only_second": test.only_second, "p_mcnemar": test.p_value}
    return Line(words, {name: Number(float(value)) for name, value in row.items()})
