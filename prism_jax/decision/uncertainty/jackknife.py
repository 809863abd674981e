"""Intervals and p-values of few units: the delete-one jackknife, studentised (docs/maths.md, section 10).

With few units, a percentile interval is too narrow, and the more so the more units differ in size. Here the standard
error is the jackknife's, and its degrees of freedom follow from how evenly the units share in it. A statistic with a
smallest and a largest value gets its interval on the log-odds between the two, one with a smallest value on the
logarithm. No random number is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

LEAST_UNITS = 5
"""With fewer units there is no interval and no p-value."""
_ROUNDING = 1e-12
"""Changes below this share of the largest value are rounding."""


class Bounds(NamedTuple):
    """Smallest and largest possible value of a statistic, or of each of its k numbers; infinite where there is none."""

    low: Any
    high: Any


UNBOUNDED = Bounds(-np.inf, np.inf)
SHARE = Bounds(0.0, 1.0)


class Spread(NamedTuple):
    """How a statistic varies between units.

    Attributes:
      estimate: The statistic on the data.
      error: Its standard error; 0 where the units do not differ, NaN where it is unknown: with fewer than `LEAST_UNITS`
        units, if only one of them matters, or if the statistic is undefined without one of them.
      freedom: Degrees of freedom of the standard error.
      units: Number of units on which the statistic depends.
      undefined: Share of the units without which the statistic is undefined.
    """

    estimate: Float[np.ndarray, "*k"]
    error: Float[np.ndarray, "*k"]
    freedom: Float[np.ndarray, "*k"]
    units: Int[np.ndarray, "*k"]
    undefined: Float[np.ndarray, "*k"]


def spread(
    estimate: Float[np.ndarray, "*k"],
    left_out: Float[np.ndarray, "types *k"],
    matters: Bool[np.ndarray, "types *k"],
    times: Int[np.ndarray, " types"],
) -> Spread:
    """The jackknife's standard error, and its degrees of freedom.

    With d_i the change of the statistic by leaving unit i out, the squared error is (n - 1)/n * sum of d_i^2. Its
    degrees of freedom are Satterthwaite's (1946), 2 E[S]^2 / Var[S] of the sum S of d_i^2, with the variance estimated
    by the sum of d_i^4; at most n - 1, and fewer where some units have much of the weight.

    `left_out` is the statistic without one unit, for each type of unit, NaN where undefined; `times` is the number of
    units of each type. `matters` says which units count: those that are `moved` or on which alone the statistic is
    defined. Others, such as a stream without an offer for precision, do not.
    """
    times = times.reshape(-1, *(1,) * estimate.ndim)
    defined, change = np.isfinite(left_out), _change(estimate, left_out)
    number = (times * matters).sum(axis=0)
    scale = np.maximum(np.abs(change).max(axis=0), np.finfo(np.float64).tiny)
    shares = (change / scale) ** 2  # so that fourth powers do not vanish
    total = (times * shares).sum(axis=0)
    fourth = (times * shares**2).sum(axis=0)
    freedom = np.clip(2 * total**2 / np.where(fourth == 0, 1.0, fourth), 1.0, np.maximum(number - 1, 1))
    error = scale * np.sqrt(total * np.maximum(number - 1, 0) / np.maximum(number, 1))
    undefined = (times * ~defined).sum(axis=0) / times.sum()
    few = (times.sum() < LEAST_UNITS) | (number < 2)
    error = np.where(few | (undefined > 0), np.nan, error)
    return Spread(estimate, error, freedom, number, undefined)


def moved(estimate: Float[np.ndarray, "*k"], left_out: Float[np.ndarray, "types *k"]) -> Bool[np.ndarray, "types *k"]:
    """Whether leaving out a unit of each type changes the statistic, or leaves it undefined."""
    return ~np.isfinite(left_out) | (_change(estimate, left_out) != 0)


def _change(
    estimate: Float[np.ndarray, "*k"], left_out: Float[np.ndarray, "types *k"]
) -> Float[np.ndarray, "types *k"]:
    """The change of the statistic by leaving a unit out; 0 where it is undefined or rounding."""
    defined = np.isfinite(left_out)
    scale = np.maximum(np.abs(estimate), np.max(np.abs(left_out), axis=0, initial=0.0, where=defined))
    change = np.where(defined, left_out - estimate, 0.0)
    return np.where(np.abs(change) > _ROUNDING * scale, change, 0.0)


def together(parts: Sequence[Spread]) -> Spread:
    """The spread of a statistic of several independent groups of units, from that over each group alone.

    The number of units is that of the smallest group.
    """
    if len(parts) == 1:
        return parts[0]
    squares = np.stack([part.error**2 for part in parts])
    total = squares.sum(axis=0)
    of_freedom = (squares**2 / np.stack([part.freedom for part in parts])).sum(axis=0)
    return Spread(
        parts[0].estimate,
        np.sqrt(total),
        np.where(total > 0, total**2 / np.where(total > 0, of_freedom, 1.0), parts[0].freedom),
        np.min([part.units for part in parts], axis=0),
        np.max([part.undefined for part in parts], axis=0),
    )


def ends(of: Spread, level: float, bounds: Bounds = UNBOUNDED) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the interval; NaN where there is none.

    An error that is larger than the way to a bound, as of a calibration error near 0, carries the end no further than
    expm1(t) errors, which is where it is carried to by an error as large as this way.
    A statistic between two bounds that lies on one of them has the interval of Clopper and Pearson (1934) with each
    unit as one trial. It holds under any dependence within units if rates are unrelated to their sizes. Elsewhere there
    is no interval if the units do not differ, as nothing tells how much they may: a constant prediction has the same
    Brier score everywhere.
    """
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), of.estimate.shape) for bound in bounds)
    quantile = scipy.special.stdtrit(of.freedom, (1 + level) / 2)
    varies, measured = of.error > 0, ~np.isnan(of.error)
    sides = [np.full(of.estimate.shape, np.nan) for _ in range(2)]
    free, above, bounded = np.isinf(low) & np.isinf(high), np.isfinite(low) & np.isinf(high), np.isfinite(high - low)
    if not (free | above | bounded).all():
        raise ValueError(f"bounds: found {bounds}, expected two numbers, a lower one, or none for each statistic")
    width = np.where(bounded, high - low, 1.0)
    share = np.where(bounded, (of.estimate - np.where(bounded, low, 0.0)) / width, np.nan)
    excess = np.where(above & (of.estimate > low), of.estimate - np.where(above, low, 0.0), np.nan)
    inside = bounded & varies & (share > 0) & (share < 1)
    odds = scipy.special.logit(np.where(inside, share, 0.5))
    step = quantile * np.where(inside, of.error / width / np.where(inside, share * (1 - share), 1.0), 0.0)
    edge, alike = bounded & measured & ((share <= 0) | (share >= 1)), ((1 - level) / 2) ** (1 / np.maximum(of.units, 1))
    exact = np.where(share >= 1, alike, 0.0), np.where(share >= 1, 1.0, 1 - alike)
    reach = of.error * np.expm1(np.minimum(quantile, 700.0))
    for sign, end, of_trials in zip((-1, 1), sides, exact, strict=True):
        ratio = quantile * of.error / excess
        np.copyto(end, low + excess * np.exp(sign * np.minimum(ratio, 700.0)), where=above & varies & ~np.isnan(excess))
        np.copyto(end, low + width * scipy.special.expit(odds + sign * step), where=inside)
        np.copyto(end, np.clip(end, of.estimate - reach, of.estimate + reach))
        np.copyto(end, of.estimate + sign * quantile * of.error, where=free & varies)
        np.copyto(end, low + width * of_trials, where=edge)
    return sides[0], sides[1]


def p_value(of: Spread) -> Float[np.ndarray, "*k"]:
    """Two-sided p-value against 0, of the t distribution; NaN where there is no standard error.

    Where the units do not differ it is 1 for an estimate of 0, and NaN for another.
    """
    certain = np.where(of.estimate == 0, 1.0, np.nan)
    ratio = np.abs(of.estimate) / np.where(of.error > 0, of.error, 1.0)
    tested = 2 * scipy.special.stdtr(of.freedom, -ratio)
    return np.where(np.isnan(of.error), np.nan, np.where(of.error > 0, tested, certain))
