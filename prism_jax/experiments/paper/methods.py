"""The method with corrected formulas beside the paper's as printed, on one set of scores or on two.

With `--scores_paper`, the first scores are of a student that was curated by the corrected R_DC, the second of one that
was curated by Eq. 2 as printed with one cut over all rows (`prism_jax curate --method=paper`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from prism_jax.decision import gate
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, printed
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

ODDS = "gate in odds, as printed"
ROWS: dict[str, tuple[str, Form, str]] = {
    "always offers": ("always", "raw", "Offers at every step."),
    "never offers": ("never", "raw", "Stays silent at every step."),
    "gate": ("dynamic", "calibrated", "Eq. 1, on calibrated signals of the fast pass."),
    ODDS: ("dynamic", "calibrated", "Eq. app-odds, under which a higher C_FN gives fewer offers."),
    "need only": ("need_only", "calibrated", "p_accept is the acceptance rate of the calibration split's offers."),
    "need only, as printed": ("need_only_paper", "raw", "p_accept = τ(p_need), as ablation D prints it."),
}
BAYES = "audbc_printed_bayes"
MEASURES = {
    **cells.RATES,
    **cells.COST,
    **cells.AREA,
    **printed.MEASURES,
    BAYES: Measure("AUDBC, appendix by Eq. 1", "The appendix's form by the τ of Eq. 1 in place of its odds τ.", "%"),
}


def make(study: Study) -> ExperimentResult:
    """The gate, its printed odds form and need only, with AUDBC in each form."""
    both, more = {"": study}, []
    if study.of_paper is not None:
        both = {"curated by the corrected R_DC": study, "curated by Eq. 2 as printed": study.of_paper}
        more = [f"The second section is {study.of_paper.source}."]
    lines = tuple(line for section, of in both.items() for line in _lines(of, section))
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, margin {study.point.margin:g}.",
        "AUDBC is ours. Main text: Eq. audbc-def, with ΔU of Eq. deltaU over FP / (TP + FP). Appendix: mean of "
        "offers × p_accept over mean offers, by its τ = C_FN p_need / (C_FA + C_FN p_need), or by that of Eq. 1. Both "
        "sweep C_FN, and are 0 where the burden does not change.",
        f"{ODDS!r} decides by Eq. app-odds, p_accept / (1 − p_accept) ≥ p_need C_FN / C_FA.",
        *more,
    )
    return ExperimentResult((Sheet("method", "Corrected and printed method", "policy", MEASURES, lines, note),))


def _lines(study: Study, section: str) -> Iterator[Line]:
    data, tally, rows = study.with_need(), study.tally, dict(ROWS)
    if data.deployed() != "dynamic":
        rows["deployed policy"] = (data.deployed(), "calibrated", "The policy of the operating point.")
    for name, (policy, form, meaning) in rows.items():
        decisions = cells.decisions(data, policy, form)
        areas = printed.areas(tally, data, policy, form, "paper")
        areas[BAYES] = printed.appendix_area(
            tally, data, decisions.name, functools.partial(printed.signals, data, policy, form), "bayes"
        )
        if name == ODDS:
            decisions = cells.Decisions(cells.name_of(data, "odds_paper"), data, lambda: _by_odds(data))
            text = printed.text_area(tally, data, decisions.name, _by_odds)
            areas |= {"audbc": Number(), "audbc_printed_text": text}  # a larger ratio ends offers, so ours has no curve
        values = cells.rates(tally, decisions) | {"cost": cells.cost(tally, decisions), **areas}
        yield Line(name, values, section, meaning, strong=name == "gate")


def _by_odds(data: EvaluationData) -> Decided:
    """The decisions by Eq. app-odds as printed, at the costs of the operating point."""
    need, accept = data.signals("fast", "calibrated")
    offer = accept >= gate.threshold(need, data.point.c_fa, data.point.c_fn, "odds_paper")
    return Decided(np.asarray(offer), np.zeros(len(data.steps), bool))
