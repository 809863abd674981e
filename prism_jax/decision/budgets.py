"""Which steps to think about within a budget: four triggers, and the threshold of each for a stated slow rate.

A trigger ranks steps by urgency, and the slow pass runs on those at or above a threshold. Choosing the thresholds on
calibration rows for one slow rate makes triggers comparable: each then spends the same (docs/maths.md, section 12).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Array, Reals, Scalar, Vector
from prism_jax.decision.thinking import Moves, value_of_thinking

__all__ = ["TRIGGERS", "Trigger", "first_within", "threshold_at_rate", "threshold_before", "urgency"]

Trigger = Literal["margin", "value", "entropy", "random"]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
"""What the slow pass may be triggered by, in the order of tables."""


def urgency(
    trigger: str,
    p_need: Vector,
    p_accept: Vector,
    c_fa: Reals,
    c_fn: Reals,
    moves: Moves | None = None,
    *,
    seed: int | None = None,
) -> Float[Array, "_n"]:
    """One number per step by which a trigger ranks steps: those of highest urgency are thought about first.

    `margin` is -|p_accept - tau(p_need)|, so that `slow_band` takes the first steps; `value` is VOI. `entropy` is the
    binary entropy of p_accept * p_need, in nats: how uncertain it is that an offer would be needed and accepted. It
    looks at the outcome alone, as uncertainty sampling does, and knows neither costs nor moves. `random` is uniform.

    Args:
      trigger: One of `TRIGGERS`.
      p_need: Need probability of the fast pass.
      p_accept: Acceptance probability of the fast pass.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      moves: Moves of the log-odds; required by `value`, ignored by the others.
      seed: Seed of `random`, which requires it; ignored by the others.

    Raises:
      ValueError: for an unknown trigger, a missing argument, a value outside its range, or unequal lengths.
    """
    arrays.check_choice("trigger", trigger, TRIGGERS)
    arrays.check_lengths(p_need=p_need, p_accept=p_accept)
    arrays.check_broadcast(p_need=p_need, c_fa=c_fa, c_fn=c_fn)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    xp, need, accept = arrays.as_floats(arrays.as_array(p_need), arrays.as_array(p_accept))
    if trigger == "margin":
        return -xp.abs(accept - gate.threshold(need, c_fa, c_fn))
    if trigger == "value":
        if moves is None:
            raise ValueError("moves: found None, expected the moves of the log-odds, from `fit_moves`")
        return xp.asarray(value_of_thinking(p_need, p_accept, c_fa, c_fn, moves))
    if trigger == "entropy":
        p_both = accept * need
        special = arrays.special(xp)
        x_log_x = (lambda p: special.xlogy(p, p)) if xp is np else (lambda p: -special.entr(p))
        return -(x_log_x(p_both) + x_log_x(1 - p_both))
    if seed is None:
        raise ValueError("seed: found None, expected an integer for the trigger 'random'")
    return xp.asarray(np.random.default_rng(seed).random(len(need)))


def threshold_at_rate(urgency: Vector, rate: Scalar) -> float:
    """The threshold above which the slow pass runs on a given share of the steps, and never on more.

    It lies halfway between the urgencies of the last step inside and the first outside, so that rounding moves no step
    across it. Equal urgencies stay together, which may leave the share below the rate. Runs on the host.

    Args:
      urgency: One number per step, such as from `urgency`; higher is thought about first.
      rate: Share of steps in [0, 1].

    Returns:
      The threshold t: the slow pass runs where urgency >= t. -inf where it runs on all steps, inf where on none.

    Raises:
      ValueError: for a rate outside [0, 1], an urgency that is not finite, or empty input.
    """
    arrays.check_lengths(urgency=urgency)
    arrays.check_finite("urgency", urgency)
    arrays.check_probability("rate", rate)
    levels, steps = np.unique(arrays.host(urgency), return_counts=True)
    return threshold_before(levels, first_within(steps, rate))


def first_within(steps: Vector, rate: Scalar) -> int:
    """Which level is the lowest inside a budget, of levels in ascending order with so many `steps` each.

    It and those above hold at most the share `rate` of all steps; it is the number of levels where even the highest
    holds more.
    """
    from_above = np.cumsum(np.asarray(steps)[::-1])
    inside = np.floor(rate * from_above[-1] * (1 + 1e-12))  # 0.3 * 10 is below 3
    return len(from_above) - int(np.searchsorted(from_above, inside, side="right"))


def threshold_before(levels: Vector, first: int) -> float:
    """What urgencies of the level `first` and above reach, and those below do not: `levels` are distinct and ascend.

    It lies halfway between two levels; it is the higher one where rounding leaves no number between them.
    """
    if not 0 < first < len(levels):
        return np.inf if first else -np.inf
    inside, outside = levels[first], levels[first - 1]
    middle = inside / 2 + outside / 2
    return float(middle if middle > outside else inside)
