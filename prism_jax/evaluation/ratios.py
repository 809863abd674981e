"""The policies that depend on the cost ratio, over a range of ratios (docs/maths.md, section 9).

AUDBC measures how well a policy ranks the steps and does not depend on calibration; the mean cost over ratios does.
Both are computed on the judged steps with the weights of acceptance labels. A policy with a slow pass decides by its
own rule at every ratio: `slow_on_margin` replaces the signals of the steps whose p_accept is within the margin of that
ratio's threshold, `slow_on_value` those of the steps where thinking is worth its price at that ratio,
`slow_only` those of all steps. Offers and silence count as in `policies`; the areas of all policies are divided by that
of the best candidates.

Which steps `slow_on_value` thinks about at one ratio says nothing about another, so a step has no critical ratio. It
decides every step at each ratio of a grid instead, with C_FA = 1 (docs/maths.md, section 12): O(steps) for each of at
most 2 * `RATIOS` ratios, in O(steps + streams * RATIOS) of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.decision import gate, metrics
from prism_jax.decision.audbc import (
    HIGH_RATIO,
    LOW_RATIO,
    Audbc,
    CostLabels,
    Events,
    ExpectedCost,
    best_label,
    expected_cost,
    mean_cost_unchecked,
    offers_and_switches,
    policy_signals_unchecked,
)
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.policies import answering_to_ratio
from prism_jax.decision.thinking import Moves, by_value_unchecked
from prism_jax.decision.uncertainty import SHARE, Cells, Resampled, interval
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED, known, totals_of
from prism_jax.evaluation.policy_rows import FORMS, EvaluationData
from prism_jax.evaluation.results import Ratios
from prism_jax.evaluation.rows import Form, RatioRow

RATIOS = 128
"""Largest number of cost ratios behind the area, and number of those behind the mean cost."""

Steps = Float64[np.ndarray, "judged"]


class ByValue(NamedTuple):
    """The policy on the judged steps."""

    policy: str
    fast: Pass  # probabilities of the fast pass
    slow: Pass  # those of the slow pass
    need: Steps  # need labels
    accept: Steps  # acceptance labels of the fast pass's candidates
    thought: Steps  # those of the slow pass's candidates
    best: Steps  # those of each step's best candidates, with which silence counts
    moves: Moves  # moves of the log-odds, one for each step
    tokens: Steps  # expected tokens of a slow pass
    price: float  # price of a slow token in units of C_FA

    def decide(self, ratio: float) -> tuple[Bool[np.ndarray, "judged"], Steps]:
        """The offers at one cost ratio, and the acceptance labels of the candidates decided about."""
        offer, thinks = by_value_unchecked(self.fast, self.slow, 1.0, ratio, self.moves, self.price, self.tokens)
        return np.asarray(offer), np.where(thinks, self.thought, self.accept)

    def mean_cost(self, weight: Steps) -> float:
        """Mean cost over log-uniform ratios, at the middle of equal intervals."""
        middle = (np.arange(RATIOS) + 0.5) / RATIOS
        total = 0.0
        for ratio in map(float, LOW_RATIO * (HIGH_RATIO / LOW_RATIO) ** middle):
            offer, accept = self.decide(ratio)
            costs = metrics.step_costs(offer, accept, self.best, 1.0, ratio * self.need) / (1 + ratio)
            total += float(np.average(costs, weights=weight)) / RATIOS
        return total

    def points(self, weight: Steps, turning: Sequence[float]) -> list[Steps]:
        """Weighted burden of each step at these ratios and everywhere, then benefit at both, then that of the best."""
        burdens, benefits = [], []
        for ratio in turning:
            offer, accept = self.decide(ratio)
            gold = self.need * accept
            burdens.append(weight * (offer * 1.0))
            benefits.append(weight * (offer * gold))
        # The curve ends with an offer at every step, about the candidates of the highest ratio.
        return [*burdens, weight, *benefits, weight * gold, weight * (self.need * self.best)]

    def critical_ratios(self) -> Float64[np.ndarray, "turns"]:
        """The finite critical ratios of both passes."""
        critical = np.concatenate([gate.critical_ratio(*self.fast), gate.critical_ratio(*self.slow)])
        return critical[np.isfinite(critical) & (critical < _LARGEST)]


_LARGEST = 1e15
"""Cost ratios above this one are left out: costs of 1 and more are then far from the limits of a float."""


def area_of_points(cells: Cells | Resampled) -> Audbc:
    """The area of the points of `ByValue.points`, summed by unit, with its interval."""
    area = interval(cells, _area_of, bounds=SHARE, level=LEVEL, resamples=RESAMPLES, seed=SEED)
    totals = totals_of(cells)
    points = (len(totals) - 1) // 2
    end, most = (float(totals[place] / totals[points - 1]) for place in (-2, -1))
    chance = end / (2 * most - most**2)
    rescaled = (area.value - chance) / (1 - chance) if chance < 1 else np.nan
    numbers = (area.value, area.low, area.high, area.standard_error, chance, rescaled)
    return Audbc(*map(float, numbers))


def _area_of(totals: Float64[np.ndarray, "*resamples cells"]) -> Float64[np.ndarray, "*resamples"]:
    """The normalised area of sums of burden and benefit at each ratio, and of the best ranking's benefit."""
    points = (totals.shape[-1] - 1) // 2
    mass, best = totals[..., points - 1, None], totals[..., -1]
    burden, benefit = totals[..., :points] / mass, totals[..., points:-1] / mass
    start = np.zeros((*burden.shape[:-1], 1))
    area = np.trapezoid(np.concatenate([start, benefit], -1), np.concatenate([start, burden], -1), axis=-1)
    most = best / mass[..., 0]
    oracle = most - most**2 / 2
    return np.asarray(np.where(oracle == 0, np.nan, area / np.where(oracle == 0, 1.0, oracle)))


def ratios_of(
    references: ExpectedCost,
    rows: Mapping[tuple[str, Form | None], tuple[Audbc | None, float, float]],
    deployed: str,
    number: tuple[int, int],
    off: str | None,
) -> Ratios:
    """The rows of policies, from the area, the mean cost and its rescaled form of each.

    `number` is that of judged steps and of their streams, and `off` the reason why there are no areas.
    """
    return Ratios(
        rows=(
            *_reference_rows(references),
            *(
                _row(policy, form, form == "calibrated" and policy == deployed, *numbers)
                for (policy, form), numbers in rows.items()
            ),
        ),
        steps=number[0],
        streams=number[1],
        low_ratio=LOW_RATIO,
        high_ratio=HIGH_RATIO,
        level=LEVEL,
        resamples=RESAMPLES,
        seed=SEED,
        no_area=off,
    )


class Sweep(NamedTuple):
    """A policy that depends on the cost ratio."""

    policy: str
    fast: Pass  # the probabilities that it decides on, at each judged step
    need: Float64[np.ndarray, "judged"]  # need labels
    accept: Float64[np.ndarray, "judged"]  # acceptance labels of the candidates that these signals are about
    slow: dict[str, Any]  # the signals of the slow pass and the margin; empty for a policy that reads one pass
    # acceptance labels of the slow pass's candidates; None where they are those of `accept`
    accept_slow: Float64[np.ndarray, "judged"] | None = None
    # those of each step's best candidates; None where every step has one candidate
    best: Float64[np.ndarray, "judged"] | None = None

    def events(self, weight: Float64[np.ndarray, "judged"]) -> Events:
        """Where its offers begin, and where they change candidates, as the ratio grows."""
        gold, gold_slow, gold_best = (
            None if label is None else self.need * label for label in (self.accept, self.accept_slow, self.best)
        )
        best = best_label(gold, gold_slow, gold_best)
        return offers_and_switches(*self.signals, gold, gold_slow, gold if best is None else best, weight)

    @property
    def signals(self) -> tuple[BothPasses, float]:
        """The signals of both passes, and the margin."""
        return BothPasses(self.fast, self.slow.get("slow", self.fast)), self.slow.get("margin", 0.0)

    def mean_cost(self, labels: Callable[[Steps], CostLabels]) -> float:
        """Mean cost over log-uniform ratios, with what labels of acceptance count as."""
        best = best_label(self.accept, self.accept_slow, self.best, "y_accept")
        of_slow = None if self.accept_slow is None else labels(self.accept_slow)
        of_best = labels(self.accept if best is None else best)
        return float(mean_cost_unchecked(*self.signals, labels(self.accept), of_slow, of_best, LOW_RATIO, HIGH_RATIO))


def mean_costs(policies: Sequence[tuple[Sweep | ByValue, Form]], weight: Steps) -> dict[tuple[str, Form], float]:
    """The mean cost of each of some policies on the same steps, with these weights."""
    known: dict[int, tuple[Steps, CostLabels]] = {}  # of arrays that several policies share, by their identity

    def labels(accept: Steps) -> CostLabels:
        if id(accept) not in known:
            known[id(accept)] = accept, CostLabels.of(policies[0][0].need, accept, weight)
        return known[id(accept)][1]

    return {
        (policy.policy, form): policy.mean_cost(weight) if isinstance(policy, ByValue) else policy.mean_cost(labels)
        for policy, form in policies
    }


def deciding(data: EvaluationData) -> list[tuple[Sweep | ByValue, Form]]:
    """Each policy that depends on the cost ratio, on calibrated and on raw signals."""
    fast = (name for name in data.fast_policies if name in answering_to_ratio())
    policies = (*fast, *data.slow_policies)
    return [(over_ratios(data, form, policy), form) for form in FORMS for policy in policies]


def over_ratios(data: EvaluationData, form: Form, policy: str) -> Sweep | ByValue:
    """One of `answering_to_ratio` or of the data's `slow_policies`."""
    whole, judged = data.whole, data.of_judged
    need, accept, best = data.judged_labels
    fast = Pass(*map(judged, data.signals("fast", form)))
    if policy in answering_to_ratio():
        signals = policy_signals_unchecked(*fast, policy, judged(data.offer_rates))
        return Sweep(policy, signals, need, accept, {}, None, best)
    slow = Pass(*map(judged, data.signals("slow", form)))
    thought = judged(data.label("accept", data.everywhere_slow))
    if policy == "slow_on_value":
        moves, tokens = data.expected_thinking
        value_settings = (
            Moves(*(judged(np.asarray(moment)) for moment in moves)),
            judged(tokens),
            data.point.price / data.point.c_fa,
        )
        counted = accept if best is None else best
        return ByValue(policy, fast, slow, need, accept, thought, counted, *value_settings)
    # With two candidates, `slow_only` is margin 1, so that constants and oracle are those of the other policies.
    margin = data.point.margin if policy == "slow_on_margin" else 1.0
    if margin == 0 or (policy == "slow_only" and not whole.two_candidates):
        return Sweep(policy, fast if margin == 0 else slow, need, accept, {}, None, best)
    accept_slow = thought if whole.two_candidates else None
    return Sweep(policy, fast, need, accept, {"slow": slow, "margin": margin}, accept_slow, best)


def no_area(soft: bool, gold: bool) -> str | None:
    """The reason why there is no AUDBC; None if there is one.

    `soft` says whether a gold label of the fast pass's, the slow pass's or the best candidates is soft, `gold` whether
    any best candidate is gold.
    """
    if soft:
        return "AUDBC: some labels are soft, neither 0 nor 1"
    if not gold:
        return "AUDBC: no judged step is gold"
    return None


def references_of(
    need: Float64[np.ndarray, "judged"],
    accept: Float64[np.ndarray, "judged"],
    best: Float64[np.ndarray, "judged"],
    weight: Float64[np.ndarray, "judged"],
) -> ExpectedCost:
    """Mean costs of the constants, and of the gate on the labels."""
    ratios: dict[str, Any] = {"low": LOW_RATIO, "high": HIGH_RATIO, "weight": weight}
    return expected_cost(Pass(need, accept), need, accept, **ratios, y_accept_best=best)


def _reference_rows(expected: ExpectedCost) -> list[RatioRow]:
    """The constants, and the gate on the labels; they do not rank steps, so they have no area."""
    costs = {"always": expected.always, "never": expected.never, "clairvoyant": expected.oracle}
    return [_row(policy, None, False, None, cost, rescaled(float(cost), expected)) for policy, cost in costs.items()]


def rescaled(cost: float, references: ExpectedCost) -> float:
    """The share of the gap from the better constant to the gate on the labels that a mean cost closes."""
    constant = min(float(references.always), float(references.never))
    gap = constant - float(references.oracle)
    return (constant - cost) / gap if gap > 0 else np.nan


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
