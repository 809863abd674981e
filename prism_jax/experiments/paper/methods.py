"""The method as corrected beside the paper's as printed: AUDBC in its forms for all tables, and a table of everything.

The printed forms of AUDBC sweep C_FN through the paper's cost ratios with C_FA fixed (docs/maths.md, section 9).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from prism_jax.decision import gate
from prism_jax.decision.audbc import PaperAudbc, policy_signals
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, answering_to_ratio
from prism_jax.decision.surface import PAPER_COST_RATIOS
from prism_jax.evaluation import ratios
from prism_jax.evaluation.merged.sums import column
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.tallies import Gathered, Tally, Units
from prism_jax.training.pathway_config import Method

BAYES = {"audbc_printed_bayes": Measure("AUDBC, appendix by Eq. 1", "The same by the τ of Eq. 1.", "%")}
MEASURES = {**cells.RATES, **cells.COST, **cells.AREA, **BAYES}
ODDS = "gate in odds, as printed"
ROWS: dict[str, tuple[str, Form, str]] = {
    "always offers": ("always", "raw", "Offers at every step."),
    "never offers": ("never", "raw", "Stays silent at every step."),
    "gate": ("dynamic", "calibrated", "Eq. 1, on calibrated signals of the fast pass."),
    ODDS: ("dynamic", "calibrated", "Eq. app-odds, under which a higher C_FN gives fewer offers."),
    "need only": ("need_only", "calibrated", "p_accept is the acceptance rate of the calibration split's offers."),
    "need only, as printed": ("need_only_paper", "raw", "p_accept = τ(p_need), as ablation D prints it."),
}


def make(study: Study) -> ExperimentResult:
    """The gate, its printed odds form and need only, with AUDBC in each form, on one student or on two."""
    both, other = {"": study}, study.of_paper
    if other is not None:
        both = {"curated by the corrected R_DC": study, "curated by Eq. 2 with one cut": other}
    lines = tuple(line for section, of in both.items() for line in _lines(of, section))
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, margin {study.point.margin:g}. AUDBC is ours; of",
        "the main text, Eq. audbc-def with Eq. deltaU over FP / (TP + FP); of the appendix, by its τ = C_FN p_need /",
        f"(C_FA + C_FN p_need), or by Eq. 1. {ODDS!r} is p_accept / (1 − p_accept) ≥ p_need C_FN / C_FA, Eq. app-odds.",
        "" if other is None else f"The second section is {other.source}.",
    )
    sheet = Sheet("method", "Corrected and printed method", "policy", MEASURES, lines, note)
    shown = {key: MEASURES[key] for key in ("cost", "audbc", "audbc_printed_appendix")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def _lines(study: Study, section: str) -> Iterator[Line]:
    data, tally, rows = study.with_need(), study.tally, dict(ROWS)
    if data.deployed() != "dynamic":
        rows["deployed policy"] = (data.deployed(), "calibrated", "The policy of the operating point.")
    for name, (policy, form, meaning) in rows.items():
        decisions, of = cells.decisions(data, policy, form), areas(tally, data, policy, form, "paper")
        if name == ODDS:  # a larger ratio ends offers, so our AUDBC has no curve
            decisions = cells.Decisions(cells.name_of(data, "odds_paper"), data, lambda: _by_odds(data))
            of = printed(tally, data, decisions.name, _by_odds, lambda: data.signals("fast", "calibrated"))
        values = cells.rates(tally, decisions) | {"cost": cells.cost(tally, decisions), **of}
        yield Line(name, values, section, meaning, strong=name == "gate")


def _by_odds(data: EvaluationData) -> Decided:
    need, accept = data.signals("fast", "calibrated")
    offer = accept >= gate.threshold(need, data.point.c_fa, data.point.c_fn, "odds_paper")
    return Decided(np.asarray(offer), np.zeros(len(data.steps), bool))


def areas(tally: Tally, data: EvaluationData, policy: str, form: Form, method: Method) -> dict[str, Number]:
    """AUDBC of a policy where a cost ratio changes its decisions, and by `paper` in the printed forms.

    In the appendix's, an event has the signals of the pass that decides at the operating point.
    """
    cells.check_known(data, policy)

    def sweep() -> ratios.Sweep:
        curve = ratios.over_ratios(data, form, policy)
        assert isinstance(curve, ratios.Sweep), "read only where `has_curve`"
        return curve

    own = column(policy, form, *[data.point.margin] * (policy == "slow_on_margin"))
    has_curve = policy in (*answering_to_ratio(), "slow_only", "slow_on_margin")
    ours = {"audbc": tally.area(own, data, sweep)} if has_curve else {}
    if method == "corrected":
        return ours

    def signals() -> Pass:
        fast, constant = data.signals("fast", form), POLICIES[policy].constant if policy in POLICIES else None
        if constant is not None:
            return Pass(fast.need, np.full(len(data.steps), float(constant)))
        if policy in answering_to_ratio():
            return policy_signals(*fast, policy, base_rate=data.fits.offer_rates(data.steps))
        if policy not in data.slow_policies:
            return fast
        slow, thinks = data.signals("slow", form), data.decide(policy, form).slow
        return Pass(np.where(thinks, slow.need, fast.need), np.where(thinks, slow.accept, fast.accept))

    return ours | printed(tally, data, cells.name_of(data, policy, form), lambda at: at.decide(policy, form), signals)


def printed(
    tally: Tally,
    data: EvaluationData,
    name: str,
    decide: Callable[[EvaluationData], Decided],
    signals: Callable[[], Pass],
    shift: float = 0.0,
) -> dict[str, Number]:
    """The printed forms on judged steps: of what `decide` does at each cost, and of p_accept + `shift` ≥ τ(p_need)."""
    none = dict.fromkeys((*cells.PRINTED, *BAYES), Number())
    grid, c_fa, judged, weight = np.array(PAPER_COST_RATIOS), data.point.c_fa, data.judged, data.weight
    if data.whole.soft or not data.whole.has_gold:
        return none

    def gather() -> Gathered:
        (need, accept), sums = (p[judged] for p in signals()), []
        for c_fn in c_fa * grid:
            decided = decide(data.at(dataclasses.replace(data.point, c_fn=float(c_fn))))
            offer, gold = decided.offer[judged], data.counted(decided).gold[judged]
            terms = [offer * gold, offer * (1 - gold), ~offer * gold]
            for form in ("odds_paper", "bayes"):
                made = accept + shift >= gate.threshold(need, c_fa, c_fn, form)
                terms += [made, made * accept]
            sums.append([float((weight * term).sum()) for term in terms])
        mass, positives = float(weight.sum()), float((weight * data.missed[judged]).sum())
        return Gathered({}, {"sums": np.array(sums), "mass": mass, "positives": positives})

    def compute(_: Units, totals: Mapping[str, Any]) -> dict[str, Number]:
        tp, fp, fn, *made = totals["sums"].T / totals["mass"]
        text = PaperAudbc.of_counts(tp, fp, fn, totals["positives"] / totals["mass"], grid, c_fa)
        odds, bayes = (PaperAudbc.of_points(b, u, grid) for b, u in (made[:2], made[2:]))
        return {key: Number(float(of.area)) for key, of in zip(none, (text, odds, bayes), strict=True)}

    return tally.number(f"printed.{name}", data, gather, compute) or none
