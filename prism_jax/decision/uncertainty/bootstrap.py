"""Units with their joint cells, intervals of any statistic of these, and the bootstrap (docs/maths.md, section 10).

If n steps are resampled with replacement and counted by cell, the counts are one multinomial draw over the cells. A
resample of a confusion therefore takes four numbers instead of n. Steps of one stream are not independent: if the
streams are given, whole streams are drawn, and a resample is a multinomial draw over the count vectors of the streams.
Both draws have exactly the distribution of resampling rows by index.

Everything here runs on the host, on concrete arrays; `seed` is the only source of randomness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy
from jaxtyping import Float, Int, Num, Shaped

from prism_jax.decision import arrays
from prism_jax.decision.uncertainty import jackknife
from prism_jax.decision.uncertainty.hashed import Resampled
from prism_jax.decision.uncertainty.jackknife import UNBOUNDED, Bounds

Method = Literal["jackknife", "percentile", "bca"]
MOST_UNITS = 1000
"""Up to so many units, intervals are the studentised jackknife's; above, where it takes long, percentile intervals."""
Statistic = Callable[[np.ndarray], Any]
"""Maps counts [..., cells] to one number each, [...], or to k numbers each, [..., k]."""

_BLOCK = 1 << 20
"""Largest number of values held at once while resampling."""
_NEAR = 1 << 18
"""As many at which units are left out one by one; they fit the level-2 cache."""
_EXACT = 1 << 24
"""Single precision holds every integer up to this one."""
_DRAWS_PER_BINOMIAL = 5
"""Number of uniform draws that take as long as one binomial draw."""


class Cells(NamedTuple):
    """Independent units (steps, or streams of steps), grouped into types by their contribution to the cells.

    Attributes:
      units: Counts (or weights) of each type of unit: [types, cells], dense or sparse; None if each type is one cell.
      multiplicity: Number of units of each type.
    """

    units: np.ndarray | scipy.sparse.csr_array | None
    multiplicity: Int[np.ndarray, " types"]

    @classmethod
    def of_units(cls, sums: np.ndarray | scipy.sparse.csr_array) -> Cells:
        """Units that are each of a type of its own, from the sums of each: [units, cells]."""
        return cls(sums, np.ones(sums.shape[0], np.int64))

    def totals(self) -> Num[np.ndarray, " cells"]:
        """The counts of the data, without resampling."""
        return self.multiplicity if self.units is None else self.multiplicity @ self.units

    @property
    def number(self) -> int:
        """The number of independent units."""
        return int(self.multiplicity.sum())


class Estimate(NamedTuple):
    """A number with its interval; or arrays of k where the statistic gives k numbers.

    Attributes:
      value: The statistic on the data.
      low: Lower end; NaN if there is no interval, as with fewer than `LEAST_UNITS` units.
      high: Upper end, or NaN.
      standard_error: Standard error; of the bootstrap, the standard deviation of the replicates.
      undefined: Share of resamples, or of samples without one unit, on which the statistic is NaN, such as a precision
        without interventions. Bootstrap intervals leave those out; the jackknife then has none.
      units: Number of units on which the statistic depends.
    """

    value: Any
    low: Any
    high: Any
    standard_error: Any = math.nan
    undefined: Any = 0.0
    units: Any = 0


UNDEFINED = Estimate(math.nan, math.nan, math.nan, undefined=1.0)
"""The estimate of a statistic that is undefined on the data."""


def count_cells(
    cell: Int[np.ndarray, "_n"], number: int, streams: Any | None = None, weight: Any | None = None
) -> Cells:
    """Counts steps by joint cell, in units that are independent of each other.

    Args:
      cell: The cell of each step, in 0 .. number - 1.
      number: Number of cells.
      streams: Stream of each step, of any sortable kind; None treats steps as independent.
      weight: Importance of each step, such as an inverse-propensity weight; it is resampled with its step. None is 1.

    Raises:
      ValueError: for unequal lengths, empty input, or a cell or weight outside its range.
    """
    arrays.check_lengths(cell=cell, streams=streams, weight=weight)
    arrays.check_range("cell", cell, 0.0, float(number - 1), f"a cell in [0, {number - 1}]")
    if weight is not None:
        arrays.check_weight("weight", weight)
        unit = np.arange(len(cell)) if streams is None else arrays.in_order(streams)[1]
        units = scipy.sparse.csr_array((arrays.host(weight), (unit, cell)), shape=(int(unit.max()) + 1, number))
        return Cells.of_units(units)
    if streams is None:
        return Cells(None, np.bincount(cell, minlength=number))
    distinct, stream = arrays.in_order(streams)
    counts = np.bincount(stream.astype(np.int64) * number + cell, minlength=distinct * number).reshape(-1, number)
    units, multiplicity = np.unique(counts, axis=0, return_counts=True)
    return Cells(units, multiplicity)


def resample(cells: Cells, resamples: int, seed: int) -> Num[np.ndarray, "resamples cells"]:
    """Counts of `resamples` bootstrap resamples of the units.

    Raises:
      ValueError: for fewer than one resample.
    """
    return np.concatenate(list(_resample_blocks(cells, resamples, seed)))


def interval(
    cells: Cells | Resampled,
    statistic: Statistic,
    *,
    bounds: Bounds = UNBOUNDED,
    level: float = 0.95,
    method: Method | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """Interval of a statistic of cell counts.

    Args:
      cells: Units from `count_cells`, or the sums of resamples that are drawn already, whose interval is percentile.
      statistic: Function of counts, vectorised over their leading axes.
      bounds: Smallest and largest value of the statistic, or of its k numbers, between which the jackknife stays.
      level: Nominal coverage, in (0, 1).
      method: `jackknife` (studentised), `percentile`, or `bca` (bias-corrected and accelerated; Efron 1987). None is
        the jackknife for up to `MOST_UNITS` units, and percentile above.
      resamples: Number of resamples of the two latter.
      seed: Seed of NumPy's default generator; equal seeds give equal resamples.

    Returns:
      The interval. That of the jackknife has NaN for ends with fewer than `LEAST_UNITS` units, if the statistic is
      undefined without one of the units, and if the units do not differ and `bounds` do not hold two numbers.

    Raises:
      ValueError: for a level, method or number of resamples outside its range, a statistic undefined on the data; with
        resamples, fewer than two units, a statistic undefined on every resample, or a BCa interval whose replicates all
        lie on one side of the estimate.
    """
    if method is not None:
        arrays.check_choice("method", method, get_args(Method))
    _check_level(level)
    _check_resamples(resamples)
    if isinstance(cells, Resampled):
        estimate = np.asarray(statistic(cells.sums), np.float64)
        result = summarise(estimate, np.asarray(statistic(cells.replicates), np.float64), level)
        return result._replace(units=np.full(estimate.shape, cells.number)[()])
    if method == "jackknife" or (method is None and cells.number <= MOST_UNITS):
        spread = jackknifed(cells, statistic)
        low, high = jackknife.ends(spread, level, bounds)
        fields = (spread.estimate, low, high, spread.error, spread.undefined, spread.units)
        return Estimate(*(field[()] for field in fields))
    if cells.number < 2:
        raise ValueError(f"cells: found {cells.number} independent unit, expected at least 2 to resample")
    estimate = np.asarray(statistic(cells.totals()), np.float64)
    replicates = np.concatenate(
        [np.asarray(statistic(counts), np.float64) for counts in _resample_blocks(cells, resamples, seed)]
    )
    if method == "bca":
        left_out, times = leave_one_out(cells, statistic)
        result = summarise(estimate, replicates, level, left_out, times)
    else:
        result = summarise(estimate, replicates, level)
    return result._replace(units=np.full(estimate.shape, cells.number)[()])


def jackknifed(cells: Cells, statistic: Statistic) -> jackknife.Spread:
    """How a statistic varies between units, from the data without each of them.

    Raises:
      ValueError: for a statistic that is undefined on the data.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = np.asarray(statistic(cells.totals()), np.float64)
        _check_defined(estimate)
        left_out, times = leave_one_out(cells, statistic)
        matters = jackknife.moved(estimate, left_out)
        unmoved = np.flatnonzero(~matters.reshape(len(matters), -1).all(axis=1))
        if unmoved.size:
            blocks = _one_by_one(cells, unmoved)
            matters[unmoved] |= np.concatenate([np.isfinite(np.asarray(statistic(block))) for block in blocks])
    return jackknife.spread(estimate, left_out, matters, times)


def summarise(
    estimate: Float[np.ndarray, "*k"],
    replicates: Float[np.ndarray, "resamples *k"],
    level: float,
    left_out: Float[np.ndarray, "types *k"] | None = None,
    times: Int[np.ndarray, " types"] | None = None,
) -> Estimate:
    """The interval of given replicates: percentile, or BCa where leave-one-out values are given.

    Replicates are NaN where the statistic is undefined. `left_out` and `times` are those of `leave_one_out`.

    Raises:
      ValueError: as `interval`.
    """
    _check_level(level)
    _check_defined(estimate)
    shape = estimate.shape
    columns = replicates.reshape(len(replicates), -1)
    rows = []
    for index, (value, column) in enumerate(zip(estimate.reshape(-1), columns.T, strict=True)):
        defined = column[~np.isnan(column)]
        if len(defined) == 0:
            raise ValueError("statistic: found NaN on every resample, expected a number on some")
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        if left_out is not None and times is not None:
            tails = _bca_tails(value, defined, left_out.reshape(len(left_out), -1)[:, index], times, tails)
        low, high = np.quantile(defined, tails)
        error = defined.std(ddof=1) if len(defined) > 1 else np.nan
        rows.append((value, low, high, error, 1 - len(defined) / len(column)))
    return Estimate(*(np.reshape(field, shape)[()] for field in zip(*rows, strict=True)))


def leave_one_out(
    cells: Cells, statistic: Statistic
) -> tuple[Float[np.ndarray, "types *k"], Int[np.ndarray, " types"]]:
    """The statistic on the data without one unit, for each type of unit that occurs, and the number of its units."""
    totals = cells.totals()
    values = [np.asarray(statistic(totals - block), np.float64) for block in _one_by_one(cells)]
    return np.concatenate(values), cells.multiplicity[cells.multiplicity > 0]


def _one_by_one(
    cells: Cells, chosen: Int[np.ndarray, " chosen"] | slice = slice(None)
) -> Iterator[Num[np.ndarray, "block cells"]]:
    """The counts of one unit of each type that occurs, or of chosen ones of these, in blocks of bounded size."""
    types = np.flatnonzero(cells.multiplicity)[chosen]
    width = len(cells.multiplicity) if cells.units is None else cells.units.shape[1]
    for block in _split(types, width, _NEAR):
        if cells.units is None:
            counts = np.zeros((len(block), width), cells.multiplicity.dtype)
            counts[np.arange(len(block)), block] = 1
        else:
            counts = cells.units[block]
            counts = counts.toarray() if scipy.sparse.issparse(counts) else counts
        yield counts


def _resample_blocks(cells: Cells, resamples: int, seed: int) -> Iterator[Num[np.ndarray, "block cells"]]:
    """The resamples of `resample` in blocks of bounded size; the draws do not depend on the size."""
    _check_resamples(resamples)
    generator = np.random.default_rng(seed)
    number, types = cells.number, len(cells.multiplicity)
    by_draws = _DRAWS_PER_BINOMIAL * np.count_nonzero(cells.multiplicity) > number
    unit_type = np.repeat(np.arange(types), cells.multiplicity) if by_draws else None
    shares = cells.multiplicity / number
    width = types if cells.units is None else max(types, cells.units.shape[1])
    sums = None if cells.units is None else _sums_of(cells.units, number)
    for block in _split(np.arange(resamples), width, _BLOCK):
        if unit_type is None:
            times = generator.multinomial(number, shares, size=len(block))
        else:
            times = np.stack(
                [np.bincount(unit_type[generator.integers(0, number, number)], minlength=types) for _ in block]
            )
        yield times if sums is None else sums(times)


def _sums_of(units: np.ndarray | scipy.sparse.csr_array, number: int) -> Callable[[np.ndarray], np.ndarray]:
    """The product with `units` of how often each of them is drawn, where `number` are drawn.

    That of a sparse matrix goes cell by cell, so that one cell's sums stay at hand while its units are added in order.
    Integers of which no sum is too large are added in single precision, which is exact as well and takes half the time.
    """
    if not scipy.sparse.issparse(units):
        return lambda times: times @ units
    by_cell = scipy.sparse.csr_array(units.T)
    dtype = np.result_type(np.int64, units.dtype)
    if (by_cell.data == np.rint(by_cell.data)).all() and number * np.abs(by_cell.data).max(initial=0) <= _EXACT:
        by_cell = by_cell.astype(np.float32)
    return lambda times: (by_cell @ times.T.astype(by_cell.dtype)).T.astype(dtype)


def _split(rows: np.ndarray, width: int, most: int) -> list[np.ndarray]:
    """`rows` in blocks of at most `most` values, where each row has `width` of them."""
    size = max(1, most // max(width, 1))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _bca_tails(
    estimate: float, replicates: np.ndarray, left_out: np.ndarray, times: np.ndarray, tails: np.ndarray
) -> np.ndarray:
    """The replicates' quantile levels of a BCa interval (Efron and Tibshirani 1993, section 14.3).

    Half of the replicates equal to the estimate count as below it, so that the interval of 1 - x mirrors that of x.
    """
    below = (np.count_nonzero(replicates < estimate) + 0.5 * np.count_nonzero(replicates == estimate)) / len(replicates)
    if not 0 < below < 1:
        raise ValueError(
            f"method: found every replicate on one side of the estimate {estimate}, where bca is undefined; "
            f"expected percentile for such a statistic"
        )
    bias = scipy.special.ndtri(below)
    defined = ~np.isnan(left_out)
    weight = times[defined]
    influence = np.average(left_out[defined], weights=weight) - left_out[defined]
    spread = (weight * influence**2).sum()
    acceleration = (weight * influence**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    shifted = bias + scipy.special.ndtri(tails)
    stretch = np.maximum(1 - acceleration * shifted, np.finfo(np.float64).tiny)  # 0 and below select the last replicate
    return scipy.special.ndtr(bias + shifted / stretch)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level: found {level}, expected a coverage strictly between 0 and 1")


def _check_resamples(resamples: int) -> None:
    if resamples < 1:
        raise ValueError(f"resamples: found {resamples}, expected at least 1")


def _check_defined(estimate: np.ndarray) -> None:
    if np.isnan(estimate).any():
        raise ValueError(
            "statistic: found NaN on the data, expected a number; there is nothing to give an interval for"
        )


def mean_interval(
    values: Num[np.ndarray, "*values rows"],
    units: Shaped[np.ndarray, " rows"],
    weight: Num[np.ndarray, " rows"] | None = None,
    *,
    bounds: Bounds = UNBOUNDED,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """The weighted mean of values over rows, with its interval over units.

    Args:
      values: One value per row, or several, whose means vary together.
      units: The independent unit of each row, of any sortable kind.
      weight: Importance of each row, at least 0; None is 1 everywhere.
      bounds: Smallest and largest possible mean, or of each of the values.
      level: Nominal coverage, in (0, 1).
      resamples: Number of resamples, drawn for more than `MOST_UNITS` units.
      seed: Seed of the resamples.

    Returns:
      The mean in the unit of the values; arrays [values] for several values.

    Raises:
      ValueError: as `uncertainty.interval`.

    Examples:
      >>> cost, stream = np.array([0.0, 1.0, 0.0, 2.0, 1.0, 0.0]), np.array([0, 0, 1, 2, 3, 4])
      >>> mean = mean_interval(cost, stream)
      >>> round(float(mean.value), 3), bool(mean.low < mean.value < mean.high)
      (0.667, True)
    """
    unit = arrays.in_order(units)[1]
    weight = np.ones(len(unit)) if weight is None else weight
    columns = [np.bincount(unit, row * weight) for row in np.atleast_2d(values)]
    cells = Cells.of_units(np.stack([*columns, np.bincount(unit, weight)], axis=1))
    means = mean_interval_of(cells, bounds=bounds, level=level, resamples=resamples, seed=seed)
    return means if values.ndim > 1 else Estimate(*(field[0] for field in means))


def mean_interval_of(cells: Cells | Resampled, **resampling: Any) -> Estimate:
    """The weighted means whose weighted sums are the columns of `cells`, the last of which is the weight.

    `resampling` and errors are those of `uncertainty.interval`.
    """
    return interval(cells, lambda totals: totals[..., :-1] / totals[..., -1:], **resampling)
