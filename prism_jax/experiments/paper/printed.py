"""AUDBC of a policy, and with `--method=paper` in the paper's two printed forms (docs/maths.md, section 9).

The paper's forms sweep C_FN through its cost ratios with C_FA fixed, and have no intervals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prism_jax.decision import gate, metrics
from prism_jax.decision.costs.cost_grid import PAPER_COST_RATIOS
from prism_jax.decision.costs.paper_audbc import PaperAudbc
from prism_jax.decision.costs.sweep import policy_signals
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, answering_to_ratio
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells
from prism_jax.experiments.paper.sheet import Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult
from prism_jax.experiments.paper.tallies import Gathered, Tally, Units
from prism_jax.training.pathways.table import Method

MEASURES = {
    "audbc_printed_text": Measure(
        "AUDBC, main text", "As Eq. audbc-def prints it: the benefit of Eq. deltaU over FP / (TP + FP).", "%"
    ),
    "audbc_printed_appendix": Measure(
        "AUDBC, appendix", "As the appendix prints it: mean of offers × p_accept over mean offers, by the odds τ.", "%"
    ),
}
NOTE = "AUDBC of main text and appendix is as printed; the paper says that its numbers are of the latter."


def shown(result: ExperimentResult) -> ExperimentResult:
    """The result with the printed forms after our AUDBC, in the sheets that have them."""
    return dataclasses.replace(result, sheets=tuple(map(_shown, result.sheets)))


def _shown(sheet: Sheet) -> Sheet:
    if MEASURES.keys() <= sheet.measures.keys() or not any(MEASURES.keys() & line.cells.keys() for line in sheet.lines):
        return sheet
    measures: dict[str, Measure] = {}
    for key, measure in sheet.measures.items():
        measures |= {key: measure} | (MEASURES if key == "audbc" else {})
    return dataclasses.replace(sheet, measures=measures, note=f"{sheet.note} {NOTE}")


def areas(tally: Tally, data: EvaluationData, policy: str, form: Form, method: Method) -> dict[str, Number]:
    """AUDBC of a policy, by `paper` in the printed forms too; ours is left out where the ratio changes nothing.

    In the appendix's form, an event has the signals of the pass that decides at the operating point.
    """
    of_policy = {} if _constant(policy) else {"audbc": cells.area(tally, data, policy, form)}
    if method == "corrected":
        return of_policy
    name = cells.name_of(data, policy, form)
    return of_policy | {
        "audbc_printed_text": text_area(tally, data, name, lambda at: at.decide(policy, form)),
        "audbc_printed_appendix": appendix_area(tally, data, name, lambda: signals(data, policy, form)),
    }


def signals(data: EvaluationData, policy: str, form: Form) -> Pass:
    """The signals on which a policy compares p_accept with τ(p_need): of the pass that decides at each step.

    A policy that always offers, or never, has p_accept of 1 or 0.
    """
    fast = data.signals("fast", form)
    if _constant(policy):
        return Pass(fast.need, np.full(len(data.steps), float(bool(POLICIES[policy].constant))))
    if policy in answering_to_ratio():
        return policy_signals(*fast, policy, base_rate=data.fits.offer_rates(data.steps))
    slow, thinks = data.signals("slow", form), data.decide(policy, form).slow
    return Pass(np.where(thinks, slow.need, fast.need), np.where(thinks, slow.accept, fast.accept))


def text_area(tally: Tally, data: EvaluationData, name: str, decide: Callable[[EvaluationData], Decided]) -> Number:
    """The main text's area of what is decided at each cost, on judged steps, with their weights."""

    def gather() -> Gathered:
        judged, counts = data.judged, []
        for ratio in PAPER_COST_RATIOS:
            decided = decide(data.at(dataclasses.replace(data.point, c_fn=data.point.c_fa * ratio)))
            gold = data.counted(decided).gold[judged]
            counts.append(metrics.confusion(decided.offer[judged], gold, data.weight) if judged.any() else [0.0] * 4)
        positives = float((data.weight * data.missed[judged]).sum())
        return Gathered({}, {"counts": np.array(counts, np.float64), "positives": positives})

    def area(_: Units, totals: Mapping[str, Any]) -> Number:
        counts = metrics.Confusion(*totals["counts"].T)
        ratios = np.array(PAPER_COST_RATIOS)
        return Number(float(PaperAudbc.of_counts(counts, totals["positives"], ratios, data.point.c_fa).area))

    return _number(tally, data, f"text.{name}", gather, area)


def appendix_area(
    tally: Tally,
    data: EvaluationData,
    name: str,
    of: Callable[[], Pass],
    form: gate.Form = "odds_paper",
    shift: float = 0.0,
) -> Number:
    """The appendix's area on judged steps, of offers where p_accept + `shift` reaches τ(p_need) in a form."""

    def gather() -> Gathered:
        need, accept = (p[data.judged] for p in of())
        costs = ((data.point.c_fa, data.point.c_fa * ratio) for ratio in PAPER_COST_RATIOS)
        mass = [data.weight * (accept + shift >= gate.threshold(need, *pair, form)) for pair in costs]
        sums = [[offers.sum(), (offers * accept).sum()] for offers in mass]
        return Gathered({}, {"sums": np.array(sums), "steps": float(data.weight.sum())})

    def area(_: Units, totals: Mapping[str, Any]) -> Number:
        burden, benefit = totals["sums"].T / totals["steps"]
        return Number(float(PaperAudbc.of_points(burden, benefit, np.array(PAPER_COST_RATIOS)).area))

    return _number(tally, data, f"appendix.{form}.{name}", gather, area)


def _number(tally: Tally, data: EvaluationData, name: str, gather: Callable[[], Gathered], area: Any) -> Number:
    if data.soft or not data.has_gold:  # as ours
        return Number()
    return tally.number(f"printed.{name}", gather, area) or Number()


def _constant(policy: str) -> bool:
    return policy in POLICIES and POLICIES[policy].constant is not None
