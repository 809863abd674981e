"""A policy as one threshold on the cost ratio per step.

A step intervenes at r = C_FN / C_FA exactly if r >= r* (docs/maths.md, section 2). With a slow margin it intervenes
exactly if r reaches the r* of the slow signals, clipped to the range of ratios in which the slow pass runs (section 3).
A curve over all ratios depends only on the order of the r*.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Array, Reals, Scalar, Vector
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.policies import POLICIES, answering_to_ratio


class CriticalRatio(NamedTuple):
    """The cost ratio from which each step intervenes."""

    ratio: Float[Array, " n"]  # the critical ratio; infinite where the step never intervenes
    # whether the step intervenes only above that ratio and not at the ratio itself, which happens where the slow pass
    # still runs at that ratio and decides for silence; None if no step does so
    beyond: Bool[Array, " n"] | None


def policy_signals(
    p_need: Vector, p_accept: Vector, policy: str = "dynamic", *, base_rate: Reals | None = None
) -> Pass:
    """The signals on which the dynamic gate decides as another policy does on the given ones, at every cost.

    `static` is the dynamic gate at p_need = 1; `product` at p_need = 1 and p_accept = p_need * p_accept; `need_only` at
    p_accept = `base_rate`. Curves, areas and surfaces of these policies are those of the dynamic gate on the result.

    Args:
      p_need: Need probability of each step.
      p_accept: Acceptance probability of each step.
      policy: One of `policies.answering_to_ratio`.
      base_rate: Acceptance rate of the calibration split; required by `need_only`, ignored by the others.

    Raises:
      ValueError: for a policy that does not depend on the cost ratio, `need_only` without a base rate, unequal lengths,
        or a probability outside [0, 1].
    """
    arrays.check_choice("policy", policy, answering_to_ratio())
    arrays.check_lengths(p_need=p_need, p_accept=p_accept)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    xp = arrays.namespace(p_need, p_accept)
    p_need, p_accept = (arrays.as_float(xp.asarray(p)) for p in (p_need, p_accept))
    chosen = POLICIES[policy]
    if chosen.needs_base_rate:
        if base_rate is None:
            raise ValueError("base_rate: found None, expected the acceptance rate of the calibration split")
        arrays.check_probability("base_rate", base_rate)
        base_rate = xp.full_like(p_accept, base_rate)
    return policy_signals_unchecked(p_need, p_accept, policy, base_rate)


def policy_signals_unchecked(p_need: Any, p_accept: Any, policy: str, base_rate: Any) -> Pass:
    """`policy_signals` without checks, on floating-point arrays that its caller has checked."""
    signals = POLICIES[policy].signals
    assert signals is not None, "a policy that answers to the cost ratio has signals"
    need, accept = signals(p_need, p_accept, base_rate)
    return Pass(need if np.ndim(need) else arrays.namespace(p_need).full_like(p_need, need), accept)


def critical_ratio(signals: BothPasses, margin: Any) -> CriticalRatio:
    """The critical ratio of each step, of checked signals; the slow pass takes part if `margin` is above 0."""
    xp = arrays.namespace(*signals.arrays)
    if margin == 0:
        return CriticalRatio(xp.asarray(gate.critical_ratio_unchecked(*signals.fast)), None)
    start, stop = slow_ratios(signals, margin)
    slow = gate.critical_ratio_unchecked(*signals.slow)
    return CriticalRatio(xp.clip(slow, start, stop), xp.asarray(slow > stop))


def slow_ratios(signals: BothPasses, margin: Any) -> tuple[Any, Any]:
    """The smallest and the largest cost ratio at which the slow pass of each step runs, for a margin above 0."""
    xp = arrays.namespace(*signals.arrays)
    high, low = signals.fast.accept + margin, signals.fast.accept - margin
    start = xp.where(high >= 1, 0.0, gate.critical_ratio_unchecked(signals.fast.need, xp.minimum(high, 1)))
    return start, gate.critical_ratio_unchecked(signals.fast.need, xp.maximum(low, 0))


def check_signals(fast: Pass, slow: Pass | None, margin: Scalar) -> BothPasses:
    """Fast and slow signals, checked and in one dtype; at margin 0 the fast ones stand for the slow ones."""
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    if margin > 0 and slow is None:
        raise ValueError(f"margin: found {margin} without p_need_slow and p_accept_slow, expected both, or margin 0")
    vectors = {"p_need": fast.need, "p_accept": fast.accept}
    if margin > 0 and slow is not None:
        vectors |= {"p_need_slow": slow.need, "p_accept_slow": slow.accept}
    arrays.check_lengths(**vectors)
    for name, value in vectors.items():
        arrays.check_probability(name, value)
    xp, *floats = arrays.as_floats(*vectors.values())
    dtype = np.result_type(*(value.dtype for value in floats))
    floats = [xp.asarray(value, np.float64 if dtype == np.float64 else np.float32) for value in floats]
    return BothPasses(Pass(*floats[:2]), Pass(*floats[-2:]))


def check_rows(signals: BothPasses, **named: Any) -> None:
    """Raises ValueError unless every given vector has one entry per step."""
    arrays.check_lengths(p_need=signals.fast.need, **named)


def check_slow_labels(margin: Scalar, **named: Any) -> None:
    """Raises ValueError for labels of the slow pass's candidates without a slow pass."""
    for name, value in named.items():
        if value is not None and margin == 0:
            raise ValueError(f"{name}: found labels at margin 0, expected none: no slow pass picks a candidate there")


def best_label(y: Any, y_slow: Any, y_best: Any, name: str = "y") -> Any:
    """The largest label of each step's candidates, with which silence counts: `y_best`, or the larger of the others.

    None where there is one label per step and it is `y`. A `y_best` below another label of its step raises ValueError.
    """
    if y_best is None:
        return None if y_slow is None else arrays.namespace(y, y_slow).maximum(y, y_slow)
    arrays.check_lengths(**{name: y, f"{name}_best": y_best})
    arrays.check_label(f"{name}_best", y_best)
    for which, label in ((name, y), (f"{name}_slow", y_slow)):
        if label is None or arrays.is_traced(label, y_best):
            continue
        below = np.asarray(y_best) < np.asarray(label)
        if below.any():
            index = int(below.argmax())
            raise ValueError(
                f"{name}_best: found {np.asarray(y_best)[index]} at index {index}, expected at least "
                f"{which} = {np.asarray(label)[index]}, a label of the same step"
            )
    return y_best


def check_gold(signals: BothPasses, y: Any, weight: Any = None, *, positive: bool) -> None:
    """Raises ValueError unless there is one label per step, 0 or 1.

    If `positive`, at least one label on a step of positive weight must be 1. Inside `jit` values are not checked.
    """
    check_rows(signals, y=y, weight=weight)
    arrays.check_hard("y", y)
    arrays.check_weight("weight", weight)
    if not positive or arrays.is_traced(y, weight):
        return
    gold = np.asarray(y) != 0
    if not (gold if weight is None else gold & (np.asarray(weight) > 0)).any():
        raise ValueError("y: found only 0s, expected at least one positive; benefit is undefined without")
