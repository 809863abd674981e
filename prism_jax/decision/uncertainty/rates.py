"""Intervals of rates, paired differences, McNemar's test and equivalence (docs/maths.md, section 10).

If streams are given, they are the units, since the steps of one stream depend on each other. Two policies have eight
joint cells (label and both decisions). These vary together, so what the policies share cancels in their difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Num

from prism_jax.decision import arrays, metrics
from prism_jax.decision.arrays import Scalar, Vector
from prism_jax.decision.uncertainty import jackknife
from prism_jax.decision.uncertainty.bootstrap import (
    MOST_UNITS,
    Cells,
    Estimate,
    Method,
    count_cells,
    interval,
    jackknifed,
    resample,
)
from prism_jax.decision.uncertainty.hashed import Resampled
from prism_jax.decision.uncertainty.jackknife import Bounds

HEADLINE = ("precision", "recall", "f1", "false_alarm")


def rate_intervals(
    decision: Vector,
    y: Vector,
    *,
    streams: Any | None,
    weight: Vector | None = None,
    names: Sequence[str] = HEADLINE,
    level: float = 0.95,
    method: Method | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Intervals of some of the rates of one policy's decisions.

    Args:
      decision: Whether the policy intervened at each step.
      y: Gold labels, 0 or 1.
      streams: Stream of each step, the units. None, which must be given explicitly, takes steps as independent.
      weight: Importance of each step, such as an inverse-propensity weight; None is 1.
      names: Names of the rates, fields of `metrics.Rates`.
      level: Nominal coverage, in (0, 1).
      method: As in `uncertainty.interval`; None is its rule.
      resamples: Number of resamples.
      seed: Seed of the resamples. All rates use the same units or resamples, so the interval of 1 - precision mirrors
        that of precision.

    Raises:
      ValueError: as `uncertainty.interval`, and for unknown names, unequal lengths, or values other than 0 and 1.

    Examples:
      >>> offers, y = np.array([1, 1, 1, 0, 0, 1, 0, 1], bool), np.array([1, 1, 0, 0, 1, 1, 0, 0])
      >>> precision = rate_intervals(offers, y, streams=np.arange(8), seed=0)["precision"]
      >>> round(float(precision.value), 2), bool(precision.low <= precision.value <= precision.high)
      (0.6, True)
    """
    arrays.check_lengths(decision=decision, y=y, streams=streams, weight=weight)
    arrays.check_decision(decision=decision)
    _check_names(names)
    cells = count_cells(joint_cell(y, decision), 4, streams, weight)
    return rate_intervals_of(cells, names, level=level, method=method, resamples=resamples, seed=seed)


def rate_intervals_of(cells: Cells | Resampled, names: Sequence[str], **resampling: Any) -> dict[str, Estimate]:
    """`rate_intervals` of units that are counted already, by `joint_cell` of the label and the decision."""
    estimates = interval(cells, lambda counts: rates_of(counts, names), bounds=rates_between(names), **resampling)
    return _by_name(estimates, names)


def paired_rates(
    first: Vector,
    second: Vector,
    y: Vector,
    *,
    streams: Any | None,
    y_second: Vector | None = None,
    weight: Vector | None = None,
    names: Sequence[str] = HEADLINE,
    level: float = 0.95,
    method: Method | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Intervals of the differences, second minus first, between two policies' rates on the same steps.

    `first` is subtracted from `second`. `y_second` holds the gold labels with which the second policy's decisions
    count, where steps have several candidates; None is `y`. Other arguments and errors are those of `rate_intervals`.
    """
    _check_names(names)
    cells = _pairs(y, y_second, first, second, streams, weight)
    return paired_rates_of(cells, names, level=level, method=method, resamples=resamples, seed=seed)


def paired_rates_of(cells: Cells | Resampled, names: Sequence[str], **resampling: Any) -> dict[str, Estimate]:
    """`paired_rates` of units that are counted already, by `joint_cell` of the labels and both decisions."""
    return _by_name(interval(cells, lambda counts: _differences(counts, names), **resampling), names)


def paired_p_values(
    first: Vector,
    second: Vector,
    y: Vector,
    *,
    streams: Any | None,
    y_second: Vector | None = None,
    weight: Vector | None = None,
    names: Sequence[str] = HEADLINE,
    method: Method | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """Two-sided p-values of the differences of `paired_rates`, against no difference.

    For up to `MOST_UNITS` units it is that of the jackknife's t statistic: below 0.05 exactly if the interval of level
    0.95 leaves out 0. It is 1 for two policies that do not differ in any unit, and NaN where there is no interval
    otherwise, as with fewer than `LEAST_UNITS` units.

    With more units, it is twice the share of resamples on whose smaller side of 0 the difference lies, with 1 added to
    that count and to the number of resamples (Davison and Hinkley 1997, section 4.4), so it is never 0. It is NaN for a
    rate that is undefined on every resample.

    `method` may be `percentile`, which resamples any number of units. Other arguments and errors are those of
    `paired_rates`.
    """
    _check_names(names)
    cells = _pairs(y, y_second, first, second, streams, weight)
    return paired_p_values_of(cells, names, method=method, resamples=resamples, seed=seed)


def paired_p_values_of(
    cells: Cells | Resampled,
    names: Sequence[str],
    *,
    method: Method | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """`paired_p_values` of units that are counted already, as for `paired_rates_of`."""
    if isinstance(cells, Resampled):
        replicates = _differences(cells.replicates, names)
    elif method == "jackknife" or (method is None and cells.number <= MOST_UNITS):
        return _jackknife_p_values(cells, names)
    else:
        replicates = _differences(resample(cells, resamples, seed), names)
    p_values = {}
    for name, column in zip(names, replicates.T, strict=True):
        defined = column[~np.isnan(column)]
        smaller = min(np.count_nonzero(defined <= 0), np.count_nonzero(defined >= 0))
        p_values[name] = min(1.0, 2 * (smaller + 1) / (len(defined) + 1)) if len(defined) else np.nan
    return p_values


def _jackknife_p_values(cells: Cells, names: Sequence[str]) -> dict[str, float]:
    """P-values of the t statistics; NaN for a rate that is undefined for one of the policies."""
    defined = [name for name in names if not np.isnan(_differences(cells.totals(), [name])).any()]
    p_values = dict.fromkeys(names, np.nan)
    if defined:
        defined_p_values = jackknife.p_value(jackknifed(cells, lambda counts: _differences(counts, defined)))
        p_values |= {name: float(value) for name, value in zip(defined, defined_p_values, strict=True)}
    return p_values


class McNemar(NamedTuple):
    """An exact McNemar test.

    Attributes:
      only_first: Steps that only the first policy got right.
      only_second: Steps that only the second policy got right.
      p_value: Two-sided, for equal chances of being right.
    """

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: Vector, second: Vector, y: Vector, y_second: Vector | None = None) -> McNemar:
    """Tests whether two policies' decisions are right equally often, on the same independent steps.

    Steps on which both are right or both are wrong carry no information. Under the null hypothesis each policy is the
    right one with probability 1/2 on the other steps, so the p-value is binomial and exact (McNemar 1947). The test
    treats steps as independent; where steps come in streams, use `paired_rates` with `streams` instead.

    `y_second` holds the labels with which the second policy's decisions count; None is `y`.

    Raises:
      ValueError: for unequal lengths, empty input, or a decision or label other than 0 and 1.
    """
    return mcnemar_of(_pairs(y, y_second, first, second).totals())


def mcnemar_of(counts: Num[np.ndarray, " cells"]) -> McNemar:
    """`mcnemar` of numbers of steps, by `joint_cell` of the labels and both decisions."""
    shape = (2,) * (4 if len(counts) == 16 else 3)
    *labels, first, second = np.indices(shape)
    first_right, second_right = first == labels[0], second == labels[-1]
    only_first = int(counts.reshape(shape)[first_right & ~second_right].sum())
    only_second = int(counts.reshape(shape)[second_right & ~first_right].sum())
    discordant = only_first + only_second
    p_value = scipy.stats.binomtest(only_first, discordant).pvalue if discordant else 1.0
    return McNemar(only_first, only_second, float(p_value))


class Equivalence(NamedTuple):
    """Two one-sided tests of equivalence.

    Attributes:
      p_low: p-value against "at or below the lower bound".
      p_high: p-value against "at or above the upper bound".
      p_value: The larger of the two: reject "not equivalent" if it is small.
    """

    p_low: float
    p_high: float
    p_value: float


def tost(
    estimate: Scalar, standard_error: Scalar, low: Scalar, high: Scalar, degrees_of_freedom: Scalar = np.inf
) -> Equivalence:
    """Tests whether a difference lies between two bounds, by two one-sided t tests (Schuirmann 1987).

    Significant at level alpha exactly if the estimate's symmetric 1 - 2 alpha interval lies between the bounds.

    Args:
      estimate: The estimated difference.
      standard_error: Its standard error, above 0, such as that of an interval.
      low: The largest difference below 0 that would not matter.
      high: The smallest difference above 0 that would matter.
      degrees_of_freedom: Degrees of freedom of the standard error; infinity gives the normal test.

    Raises:
      ValueError: for a standard error or degrees of freedom that are not above 0, or bounds out of order.
    """
    arrays.check_finite("estimate", estimate)
    arrays.check_range("standard_error", standard_error, 0.0, np.inf, "a finite number above 0", open_low=True)
    if not low < high:
        raise ValueError(f"low, high: found {low} and {high}, expected low < high")
    if not degrees_of_freedom > 0:  # infinity gives the normal test
        raise ValueError(f"degrees_of_freedom: found {degrees_of_freedom}, expected a number above 0, or infinity")
    centre, error = float(estimate), float(standard_error)
    p_low = float(scipy.special.stdtr(degrees_of_freedom, (float(low) - centre) / error))
    p_high = float(scipy.special.stdtr(degrees_of_freedom, (centre - float(high)) / error))
    return Equivalence(p_low, p_high, max(p_low, p_high))


def joint_cell(y: Any, *decisions: Any) -> np.ndarray:
    """The joint cell of each step: its label, then a second one where there are two, and its decisions, as digits."""
    arrays.check_hard("y", y)
    code = np.asarray(y).astype(np.intp)
    for decision in decisions:
        code = 2 * code + np.asarray(decision, np.intp)
    return code


def _pairs(y: Any, y_second: Any, first: Any, second: Any, streams: Any = None, weight: Any = None) -> Cells:
    """The joint cells of two policies: 8, or 16 where their decisions count with labels of their own; checks them."""
    arrays.check_lengths(first=first, second=second, y=y, streams=streams, y_second=y_second, weight=weight)
    arrays.check_decision(first=first, second=second)
    if y_second is None:
        return count_cells(joint_cell(y, first, second), 8, streams, weight)
    arrays.check_hard("y_second", y_second)
    return count_cells(joint_cell(y, y_second, first, second), 16, streams, weight)


def rates_of(counts: np.ndarray, names: Sequence[str], compat: metrics.Compat | None = None) -> np.ndarray:
    """Some rates of counts [..., 4] in the order tn, fp, fn, tp, stacked last."""
    tn, fp, fn, tp = np.moveaxis(counts, -1, 0)
    rates = metrics.rates(metrics.Confusion(tp, fp, fn, tn), compat)
    return np.stack([getattr(rates, name) for name in names], axis=-1)


def rates_between(names: Sequence[str]) -> Bounds:
    """Smallest and largest value of each rate."""
    low = [{"matthews": -1.0, "steps": -np.inf}.get(name, 0.0) for name in names]
    high = [np.inf if name == "steps" else 1.0 for name in names]
    return Bounds(np.array(low), np.array(high))


def _differences(counts: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Rates of the second policy minus those of the first, of counts over the cells of `_pairs`."""
    four = (*counts.shape[:-1], 4)
    if counts.shape[-1] == 8:  # label, first and second decision
        cube = counts.reshape(*counts.shape[:-1], 2, 2, 2)
        first, second = cube.sum(-1), cube.sum(-2)
    else:  # label of the first, label of the second, first and second decision
        cube = counts.reshape(*counts.shape[:-1], 2, 2, 2, 2)
        first, second = cube.sum((-3, -1)), cube.sum((-4, -2))
    return rates_of(second.reshape(four), names) - rates_of(first.reshape(four), names)


def _by_name(together: Estimate, names: Sequence[str]) -> dict[str, Estimate]:
    """One interval per name, from the interval of a statistic that gives all of them."""
    return {name: Estimate(*(field[index] for field in together)) for index, name in enumerate(names)}


def _check_names(names: Sequence[str]) -> None:
    if isinstance(names, str) or not names:
        raise ValueError(f"names: found {names!r}, expected a sequence of names, at least one")
    for name in names:
        arrays.check_choice("names", name, tuple(field.name for field in dataclasses.fields(metrics.Rates)))
