"""The policies that depend on the cost ratio, over a range of ratios (docs/maths.md, section 9).

AUDBC measures how well a policy ranks the steps and does not depend on calibration; the mean cost over ratios does.
Both are computed on the judged steps with the weights of acceptance labels. A policy with a slow pass decides by its
own rule at every ratio: `slow_on_margin` replaces the signals of the steps whose p_accept is within the margin of that
ratio's threshold, `slow_on_value` those of the steps where thinking is worth its price at that ratio (`value_ratios`),
`slow_only` those of all steps. Offers and silence count as in `policies`; the areas of all policies are divided by that
of the best candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.audbc import HIGH_RATIO, LOW_RATIO, Audbc, audbc, expected_cost, policy_signals
from prism_jax.decision.policies import answering_to_ratio
from prism_jax.decision.thinking import Moves
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED, known
from prism_jax.evaluation.policies import FORMS, EvaluationData
from prism_jax.evaluation.results import Ratios
from prism_jax.evaluation.rows import Form, RatioRow
from prism_jax.evaluation.value_ratios import ByValue
from prism_jax.scores.labels import acceptance_weight
from prism_jax.scores.texts import numbered


def compare_ratios(data: EvaluationData) -> Ratios:
    """One row per policy: the references, then each policy on calibrated signals, then on raw signals."""
    judged = data.judged
    weight = acceptance_weight(data.steps)[judged]
    need, accept = data.label("need")[judged], data.label("accept")[judged]
    units = data.judged_units
    best, thought = data.best_accept[judged], data.label("accept", data.everywhere_slow)[judged]
    off = _no_area((need * accept, need * thought, need * best))
    rows = _references(need, accept, best, weight)
    for form in FORMS:
        for deciding in _deciding(data, form):
            area, mean = deciding.area_and_cost(weight, None if off else units)
            deployed = form == "calibrated" and deciding.policy == data.deployed()
            rows.append(_row(deciding.policy, form, deployed, area, mean.cost, mean.rescaled))
    return Ratios(
        rows=tuple(rows),
        steps=int(judged.sum()),
        streams=len(numbered(data.steps.stream[judged])[0]),
        low_ratio=LOW_RATIO,
        high_ratio=HIGH_RATIO,
        level=LEVEL,
        resamples=RESAMPLES,
        seed=SEED,
        no_area=off,
    )


class _Deciding(NamedTuple):
    """A policy that depends on the cost ratio."""

    policy: str
    p_need: Any  # the probabilities of need that it decides on, at each judged step
    p_accept: Any  # those of acceptance
    need: Float64[np.ndarray, "judged"]  # need labels
    accept: Float64[np.ndarray, "judged"]  # acceptance labels of the candidates that these signals are about
    slow: dict[str, Any]  # the signals of the slow pass and the margin; empty for a policy that reads one pass
    # acceptance labels of the slow pass's candidates; None where they are those of `accept`
    accept_slow: Float64[np.ndarray, "judged"] | None = None
    # those of each step's best candidates; None where every step has one candidate
    best: Float64[np.ndarray, "judged"] | None = None

    def area_and_cost(self, weight: Float64[np.ndarray, "judged"], streams: np.ndarray | None) -> tuple[Any, Any]:
        """Its AUDBC, None without streams, and its mean cost over ratios."""
        need, accept, slow = self.need, self.accept, self.accept_slow
        ratios: dict[str, Any] = {"low": LOW_RATIO, "high": HIGH_RATIO, "weight": weight, **self.slow}
        ratios |= {"y_accept_slow": slow, "y_accept_best": self.best}
        mean = expected_cost(self.p_need, self.p_accept, need, accept, **ratios)
        golds = (None if label is None else need * label for label in (slow, self.best))
        if streams is None:
            return None, mean
        resampling: dict[str, Any] = {"level": LEVEL, "resamples": RESAMPLES, "seed": SEED, "streams": streams}
        labels: dict[str, Any] = dict(zip(("y_slow", "y_best"), golds, strict=True))
        area = audbc(self.p_need, self.p_accept, need * accept, weight=weight, **resampling, **self.slow, **labels)
        return area, mean


def _deciding(data: EvaluationData, form: Form) -> Iterator[_Deciding | ByValue]:
    """Each policy that depends on the cost ratio."""
    judged = data.judged
    need, accept = data.label("need")[judged], data.label("accept")[judged]
    best = data.best_accept[judged] if data.several_candidates else None
    fast = data.signal("need_fast", form)[judged], data.signal("accept_fast", form)[judged]
    rates = data.fits.offer_rates(data.steps)[judged]
    for policy in (name for name in data.fast_policies if name in answering_to_ratio()):
        yield _Deciding(policy, *policy_signals(*fast, policy, base_rate=rates), need, accept, {}, None, best)
    if data.slow:
        slow = data.signal("need_slow", form)[judged], data.signal("accept_slow", form)[judged]
        thought = data.label("accept", data.everywhere_slow)[judged]
        accept_slow = thought if data.two_candidates else None

        def within(margin: float) -> dict[str, Any]:
            return {"p_need_slow": slow[0], "p_accept_slow": slow[1], "margin": margin}

        if accept_slow is None:
            yield _Deciding("slow_only", *slow, need, accept, {}, None, best)
        else:  # as margin 1, so that constants and oracle are those of the other policies
            yield _Deciding("slow_only", *fast, need, accept, within(1.0), accept_slow, best)
        if data.point.margin > 0:
            yield _Deciding("slow_on_margin", *fast, need, accept, within(data.point.margin), accept_slow, best)
        else:
            yield _Deciding("slow_on_margin", *fast, need, accept, {}, None, best)
        if data.has_value:
            moves, tokens = data.expected_thinking
            value_settings = (
                Moves(*(np.asarray(moment)[judged] for moment in moves)),
                tokens[judged],
                data.point.price / data.point.c_fa,
            )
            counted = accept if best is None else best
            yield ByValue("slow_on_value", (*fast, *slow), need, accept, thought, counted, *value_settings)


def _no_area(golds: tuple[Float64[np.ndarray, "judged"], ...]) -> str | None:
    """The reason why there is no AUDBC; None if there is one.

    Gold labels are those of the fast pass's, the slow pass's and the best candidates.
    """
    if any(((labels != 0) & (labels != 1)).any() for labels in golds):
        return "AUDBC: some labels are soft, neither 0 nor 1"
    if not golds[-1].any():
        return "AUDBC: no judged step is gold"
    return None


def _references(
    need: Float64[np.ndarray, "judged"],
    accept: Float64[np.ndarray, "judged"],
    best: Float64[np.ndarray, "judged"],
    weight: Float64[np.ndarray, "judged"],
) -> list[RatioRow]:
    """The constants, and the gate on the labels; they do not rank steps, so they have no area."""
    ratios: dict[str, Any] = {"low": LOW_RATIO, "high": HIGH_RATIO, "weight": weight}
    expected = expected_cost(need, accept, need, accept, **ratios, y_accept_best=best)
    constant = min(float(expected.always), float(expected.never))
    gap = constant - float(expected.oracle)
    costs = {"always": expected.always, "never": expected.never, "clairvoyant": expected.oracle}
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
        audbc_low=None if area is None else known(area.low),
        audbc_high=None if area is None else known(area.high),
        audbc_rescaled=None if area is None else area.rescaled,
        mean_cost=float(cost),
        mean_cost_rescaled=float(rescaled),
    )
