"""Paired differences of two policies on the same steps: intervals, p-values, McNemar's test, equivalence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from prism_jax.decision.uncertainty import (
    LEAST_UNITS,
    Estimate,
    McNemar,
    joint_cell,
    mcnemar_of,
    paired_p_values_of,
    paired_rates_of,
    tost,
)
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references, systems
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study
from prism_jax.experiments.paper.systems import Systems
from prism_jax.experiments.paper.tallies import Gathered, Tally, Units, as_counts, counts_by_unit
from prism_jax.labelling.judges.robustness import Judged, compare_judged

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


PAPER = tuple(
    Line(cells.RATES[name].label, cells.beside({}, numbers), "the paper: PRISM minus DeepSeek-R1")
    for name, numbers in references.SIGNIFICANCE.items()
)


def make(study: Study) -> ExperimentResult:
    """Tests every pair whose policies the scores allow."""
    data = study.at()
    whole = data.whole
    if whole.units < LEAST_UNITS or whole.soft:
        raise SkippedError(
            f"paired tests: found {whole.units} {whole.unit}, expected labels of 0 and 1 in at least {LEAST_UNITS}"
        )
    lines: list[Line] = []
    counts: list[Line] = []
    for pair in PAIRS:
        known = {"static", "dynamic", *data.slow_policies}
        of_need = {pair.first[0], pair.second[0]} == {"static", "dynamic"}
        if pair.first[0] in known and pair.second[0] in known and (data.has_need or not of_need):
            first, second = (cells.decisions(data, *of) for of in (pair.first, pair.second))
            of_pair, test = _tests(study.tally, first, second, pair.words)
            lines += of_pair
            counts.append(test)
    lines += PAPER
    left_out = [] if data.has_need else ["There is no need, so the gate is p_accept alone and is not compared with it."]
    note = study.note(*left_out)
    title = "Steps that one of two policies got right"
    sheets = (
        Sheet("significance", "Paired differences", "rate", MEASURES, tuple(lines), note, signed=("difference",)),
        Sheet("significance_mcnemar", title, "pair", COUNTS, tuple(counts), f"On {study.source}."),
    )
    ours = [line for line in lines if line.section and not line.section.startswith("the paper")]
    return ExperimentResult(sheets, lambda figure: bars(figure, ours, {"difference": MEASURES["difference"]}))


def of_systems(of: Systems) -> ExperimentResult:
    """The paper's five metrics of each system minus those of --against, in one table per judge.

    Intervals and p-values are those of resampled streams, and, as in the paper, of resampled events.
    """
    against, judges, sheets = *of.compared(), list[Sheet]()
    for judge, members in judges.items():
        lines = [
            line
            for name, own in members.items()
            if name != against
            for by_stream in (True, False)
            for line in _compared(of, judge, (against, members[against]), (name, own), by_stream=by_stream)
        ]
        note = of.note(
            f"Judged by {judge}, on the steps that both have. {of.settings.resamples:,} resamples; events of a stream "
            "depend on each other, so their intervals and p-values are too small.",
            of=members,
        )
        measures = {key: measure for key, measure in MEASURES.items() if key != "p_equivalence"}
        name = systems.stem("significance", judge, judges)
        everything = (*lines, *PAPER)
        sheets.append(
            Sheet(name, "Paired differences", "rate", measures | systems.BOTH, everything, note, signed=("difference",))
        )
    return ExperimentResult(tuple(sheets))


def _compared(
    of: Systems, judge: str, first: tuple[str, Judged], second: tuple[str, Judged], *, by_stream: bool
) -> list[Line]:
    settings = of.settings.resampling
    row = compare_judged(judge, first[1], second[1], by_stream=by_stream, method="percentile", **settings)
    section = f"{second[0]} minus {first[0]}, over {'streams' if by_stream else 'events'}"
    lines = []
    for name in cells.RATES:
        before, after, difference = row.rates[name]
        values = {"first": Number(float(before.value)), "second": Number(float(after.value))}
        values |= {"difference": Number.of(difference), "p_value": Number(row.p_values[name])}
        undefined = math.isnan(row.p_values[name])  # the published rates are 0 there
        steps = {"steps": Number(float(row.steps))}
        lines.append(Line(cells.RATES[name].label, steps if undefined else values | steps, section))
    return lines


def _tests(tally: Tally, first: cells.Decisions, second: cells.Decisions, words: str) -> tuple[list[Line], Line]:
    """One row per rate that both policies define, and the row of McNemar's test."""
    data = first.data
    both = [cells.rates(tally, decisions) for decisions in (first, second)]
    names = [name for name in cells.RATES if not any(math.isnan(rates[name].value) for rates in both)]

    def gather() -> Gathered:
        # The decisions of the second policy have labels of their own only where steps have several candidates.
        labels = [of.gold == 1 for of in ((first, second) if data.whole.several_candidates else (first,))]
        offers = (decisions.decided.offer[data.judged] for decisions in (first, second))
        cell, number = joint_cell(*labels, *offers), 16 if len(labels) == 2 else 8
        totals = {"steps": np.bincount(cell, minlength=number), "weighted": int((data.weight != 1).sum())}
        return Gathered(counts_by_unit(data, f"pair.{first.name}.{second.name}", cell, number), totals)

    def tests(units: Units, totals: Mapping[str, Any]) -> tuple[dict[str, Estimate], dict[str, float], McNemar]:
        pairs, resampling = as_counts(units, totals["weighted"] > 0), tally.resampling
        p_values = paired_p_values_of(pairs, names, resamples=resampling["resamples"], seed=resampling["seed"])
        return paired_rates_of(pairs, names, **resampling), p_values, mcnemar_of(totals["steps"])

    tested = tally.number(f"pair.{first.name}.{second.name}", data, gather, tests)
    if tested is None:
        return [], Line(words, {})
    differences, p_values, mcnemar = tested
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
    test = {"only_first": mcnemar.only_first, "only_second": mcnemar.only_second, "p_mcnemar": mcnemar.p_value}
    return lines, Line(words, {name: Number(float(value)) for name, value in test.items()})
