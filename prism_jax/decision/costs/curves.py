"""Benefit against burden as the cost ratio grows (docs/maths.md, section 9)."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Floats, Scalar, Vector
from prism_jax.decision.costs.sweep import (
    CriticalRatio,
    check_gold,
    check_signals,
    check_slow_labels,
    critical_ratio,
    slow_ratios,
)
from prism_jax.decision.passes import BothPasses, Pass


class BurdenBenefitCurve(NamedTuple):
    """Benefit against burden as the cost ratio grows through every value that the scores distinguish.

    Point 0 is silence, (0, 0). At point i the i-th step in the order of critical ratios intervenes, together with all
    earlier steps and all steps that tie with it, so tied steps share a point. At the last point every step intervenes,
    (1, pi).

    Attributes:
      cost_ratio: The smallest ratio at which a point applies; 0 at point 0, infinite where no finite ratio suffices.
      burden: Burden B, the share of steps with an intervention.
      benefit: Benefit U, the share of steps with a gold-positive intervention.
    """

    cost_ratio: Float[Array, " points"]
    burden: Float[Array, " points"]
    benefit: Float[Array, " points"]

    def area(self) -> Floats:
        """The trapezoid area under benefit over burden."""
        width = self.burden[1:] - self.burden[:-1]
        return (width * (self.benefit[1:] + self.benefit[:-1])).sum() / 2

    def normalised_area(self, prevalence: Any = None) -> Floats:
        """The area divided by the oracle's, pi - pi^2 / 2; NaN without a positive step.

        Args:
          prevalence: pi, the share of steps at which the oracle's offer is gold-positive; None is that of the curve's
            last point, where the policy offers at every step.
        """
        xp = arrays.namespace(self.benefit)
        prevalence = self.benefit[-1] if prevalence is None else prevalence
        empty = prevalence == 0
        return xp.where(empty, xp.nan, self.area() / xp.where(empty, 1.0, prevalence - prevalence**2 / 2))[()]


def burden_benefit_curve(
    fast: Pass,
    y: Vector,
    *,
    slow: Pass | None = None,
    margin: Scalar = 0.0,
    weight: Vector | None = None,
    y_slow: Vector | None = None,
) -> BurdenBenefitCurve:
    """The curve whose area is `audbc`: the gate's decisions at every cost ratio, against empirical labels.

    Arguments are those of `audbc`.

    Returns:
      The curve with n + 1 points regardless of ties, so that it can be jitted; with `y_slow` 2 n + 1.

    Raises:
      ValueError: for bad values, unequal lengths, empty input, a margin without slow signals, or `y_slow` at margin 0.
    """
    signals = check_signals(fast, slow, margin)
    check_gold(signals, y, weight, positive=False)
    return trace_events(offers_and_switches(signals, margin, y, y_slow, y, weight))  # the best labels move no point


class Events(NamedTuple):
    """What changes as the cost ratio grows: offers begin, and the slow pass leaves steps to the fast candidate."""

    at: CriticalRatio  # the cost ratio of each event
    mass: Any  # weight of the offers that begin
    gold: Any  # change of the weight of gold-positive offers
    best: Any  # weight of each step at which some candidate is gold-positive

    @property
    def prevalence(self) -> Any:
        """The share of steps at which an oracle's offer is gold-positive, because it picks the best candidate."""
        return self.best.sum() / self.mass.sum()


def offers_and_switches(
    signals: BothPasses, margin: Scalar, y: Vector, y_slow: Vector | None, best: Vector, weight: Vector | None
) -> Events:
    """The events of a policy whose slow pass picks its own candidates: n offers, then n switches.

    An offer begins with the slow candidate's label, and takes the fast one's above the last ratio at which the slow
    pass runs. Where that ratio is infinite there is no switch. Without `y_slow` there are offers only.
    """
    check_slow_labels(margin, y_slow=y_slow)
    xp = arrays.namespace(*signals.arrays, y, best, weight)
    if y_slow is None:
        mass = xp.ones(xp.shape(y), int) if weight is None else arrays.as_float(xp.asarray(weight))
        gold, at = mass * (xp.asarray(y) != 0), critical_ratio(signals, margin)
        return Events(at, mass, gold, mass * (xp.asarray(best) != 0))
    check_gold(signals, y_slow, positive=False)
    critical, (_, stop) = critical_ratio(signals, margin), slow_ratios(signals, margin)
    mass = xp.ones(stop.shape, int) if weight is None else arrays.as_float(xp.asarray(weight))
    slow, fast = mass * (xp.asarray(y_slow) != 0), mass * (xp.asarray(y) != 0)
    beyond = xp.concatenate([critical.beyond, xp.ones(stop.shape, bool)])
    return Events(
        CriticalRatio(xp.concatenate([critical.ratio, stop]), beyond),
        xp.concatenate([mass, xp.zeros_like(mass)]),
        xp.concatenate([slow, xp.where(xp.isinf(stop), 0, fast - slow)]),
        mass * (xp.asarray(best) != 0),
    )


def trace_events(events: Events, ranking: tuple[Any, Any] | None = None) -> BurdenBenefitCurve:
    """The curve of the events, and of their `rank` if known; unweighted counts are summed as integers."""
    order, last = rank(events.at) if ranking is None else ranking
    xp, total = arrays.namespace(events.at.ratio), events.mass.sum()
    burden, benefit = (xp.cumsum(values[order])[last] / total for values in (events.mass, events.gold))
    zero, ratio = xp.zeros(1, burden.dtype), events.at.ratio[order]
    return BurdenBenefitCurve(
        xp.concatenate([xp.zeros(1, ratio.dtype), ratio]),
        xp.concatenate([zero, burden]),
        xp.concatenate([zero, benefit]),
    )


def rank(critical: CriticalRatio) -> tuple[Any, Any]:
    """The steps sorted by the cost ratio at which they begin to intervene.

    Also gives, for each position, the last position that ties with it.
    """
    xp = arrays.namespace(critical.ratio)
    # The sort need not be stable, because tied steps share a point.
    order = xp.argsort(critical.ratio) if critical.beyond is None else xp.lexsort((critical.beyond, critical.ratio))
    ratio = critical.ratio[order]
    changes = ratio[1:] != ratio[:-1]
    if critical.beyond is not None:
        changes = changes | (critical.beyond[order][1:] != critical.beyond[order][:-1])
    n = order.shape[0]
    ends = xp.where(xp.append(changes, True), xp.arange(n), n)
    last = np.minimum.accumulate(ends[::-1])[::-1] if xp is np else sys.modules["jax"].lax.cummin(ends, reverse=True)
    return order, last
