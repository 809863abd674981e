"""The policies that depend on the cost ratio, over a range of ratios (docs/maths.md, section 9).

AUDBC measures how well a policy ranks the steps and does not depend on calibration; the mean cost over ratios does.
Both are computed on the judged steps with the weights of acceptance labels, on the signals of the fast pass and without
a slow margin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.audbc import HIGH_RATIO, LOW_RATIO, Audbc, audbc, expected_cost, policy_signals
from prism_jax.decision.policies import ANSWERING_TO_RATIO
from prism_jax.evaluation.policies import FORMS, EvaluationData
from prism_jax.evaluation.results import Form, RatioRow, Ratios
from prism_jax.evaluation.signals import acceptance_weight

LEVEL, RESAMPLES, SEED = 0.95, 1000, 0


def compare_ratios(data: EvaluationData) -> Ratios:
    """One row per policy: the references, then each policy on calibrated signals, then on raw signals."""
    judged = data.judged
    weight = acceptance_weight(data.steps)[judged]
    need, accept = data.label("need")[judged], data.label("accept")[judged]
    streams = data.steps.stream[judged].astype(str)
    off = _no_area(need * accept, streams)
    rows = _references(need, accept, weight)
    for form in FORMS:
        signals = data.signal("need_fast", form)[judged], data.signal("accept_fast", form)[judged]
        for policy in ANSWERING_TO_RATIO:
            p = policy_signals(*signals, policy, base_rate=data.fits.accept_fast.base_rate)
            mean = expected_cost(*p, need, accept, low=LOW_RATIO, high=HIGH_RATIO, weight=weight)
            area = None
            if off is None:
                area = audbc(
                    *p, need * accept, streams=streams, weight=weight, level=LEVEL, resamples=RESAMPLES, seed=SEED
                )
            deployed = form == "calibrated" and policy == data.deployed()
            rows.append(_row(policy, form, deployed, area, mean.cost, mean.rescaled))
    return Ratios(
        rows=tuple(rows),
        steps=int(judged.sum()),
        streams=len(set(streams)),
        low_ratio=LOW_RATIO,
        high_ratio=HIGH_RATIO,
        level=LEVEL,
        resamples=RESAMPLES,
        seed=SEED,
        no_area=off,
    )


def _no_area(gold: Float64[np.ndarray, "judged"], streams: np.ndarray) -> str | None:
    """The reason why there is no AUDBC with an interval; None if there is one."""
    if ((gold != 0) & (gold != 1)).any():
        return "AUDBC: some labels are soft, neither 0 nor 1"
    if not gold.any():
        return "AUDBC: no judged step is gold"
    if len(set(streams)) < 2:
        return "AUDBC: all judged steps are of one stream, and its interval resamples streams"
    return None


def _references(
    need: Float64[np.ndarray, "judged"], accept: Float64[np.ndarray, "judged"], weight: Float64[np.ndarray, "judged"]
) -> list[RatioRow]:
    """The constants, and the gate on the labels; they do not rank steps, so they have no area."""
    known = expected_cost(need, accept, need, accept, low=LOW_RATIO, high=HIGH_RATIO, weight=weight)
    constant = min(float(known.always), float(known.never))
    gap = constant - float(known.oracle)
    costs = {"always": known.always, "never": known.never, "clairvoyant": known.oracle}
    return [
        _row(policy, None, False, None, cost, (constant - float(cost)) / gap if gap > 0 else np.nan)
        for policy, cost in costs.items()
    ]


def _row(policy: str, form: Form | None, deployed: bool, area: Audbc | None, cost: Any, rescaled: Any) -> RatioRow:
    return RatioRow(
        policy=policy,
        form=form,
        deployed=deployed,
        audbc=None if area is None else area.value,
        audbc_low=None if area is None else area.low,
        audbc_high=None if area is None else area.high,
        audbc_rescaled=None if area is None else area.rescaled,
        mean_cost=float(cost),
        mean_cost_rescaled=float(rescaled),
    )
