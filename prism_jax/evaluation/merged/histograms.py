"""Histograms and what follows from them: of each distinct value, exactly, or on a grid, with a bound of the error.

A histogram without a grid has a bin for each distinct value, so every number that follows from it is exact. It takes
as much memory as the values, and is for tables of which all rows fit into memory. On a grid, a bin knows whether all
its values are equal. Where they are, nothing is lost: of a model with few distinct probabilities every number is exact.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Inexact, Int, Int32, Int64

from prism_jax.decision import arrays
from prism_jax.evaluation.merged.states import stored

Onto = Callable[[Any], Float64[np.ndarray, "rows"]]
"""Gives values their places on a grid."""
MOST = 999.0
"""What no logarithm of a finite number reaches."""


@stored
class Grid(NamedTuple):
    """Bins of equal width from `low` to `high`; on each side one for what lies beyond, and one for what is infinite."""

    low: float
    high: float
    bins: int

    @property
    def width(self) -> float:
        """The width of a bin."""
        return (self.high - self.low) / self.bins

    def bin_of(self, values: Float64[np.ndarray, "rows"]) -> Int64[np.ndarray, "rows"]:
        """The bin of each value, from 0 to `bins` + 3; NaN is not allowed, and `MOST` or more counts as infinite."""
        scaled = np.clip((values - self.low) * (1 / self.width), -1.0, self.bins)
        index = np.floor(scaled).astype(np.int64) + 2
        index[values <= -MOST] = 0
        index[values >= MOST] = self.bins + 3
        return index

    def middle(self) -> Float64[np.ndarray, "all_bins"]:
        """The middle of each bin; of those on the sides, the nearer end of the grid."""
        inner = self.low + self.width * (np.arange(self.bins) + 0.5)
        return np.concatenate([[self.low] * 2, inner, [self.high] * 2])


LOG_ODDS = Grid(-37.5, 37.5, 1 << 17)
"""For probabilities, by their log-odds; 0 and 1 are infinite, and what is nearer to 0 than 5e-17 lies beyond."""
LOG_RATIO = Grid(-16.0, 16.0, 1 << 16)
"""For critical cost ratios, by their logarithm."""
SHARE = Grid(0.0, 1.0, 1 << 16)
"""For urgencies, as shares of the largest that there can be."""


@stored
@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """Sums of some columns in each bin, with the first value of each bin and whether it has others."""

    grid: Grid | None  # None has a bin for each distinct value, in ascending order
    sums: dict[str, Float64[np.ndarray, "all_bins"]]
    value: Inexact[np.ndarray, "all_bins"]  # the first of each bin, or its identity; NaN for an empty bin
    mixed: Bool[np.ndarray, "all_bins"]  # whether a bin holds two different ones

    @classmethod
    def of(
        cls,
        grid: Grid | None,
        values: Inexact[np.ndarray, "rows"],
        columns: dict[str, Float64[np.ndarray, "rows"]],
        onto: Onto | None = None,
        **known: Any,
    ) -> Histogram:
        """The histogram of some values, with the sums of these columns; what is `known` goes to `_of_each`.

        `onto` gives the values their places on a grid, in the same order, None those that have them. Rounding may give
        two values one place: a bin is mixed where its values differ.
        """
        if grid is None:
            return cls._of_each(values, columns, **known)
        index, number = grid.bin_of(values if onto is None else onto(values)), grid.bins + 4
        value = np.full(number, np.nan, values.dtype)
        value[index[::-1]] = values[::-1]  # the first of each bin stays
        mixed = np.zeros(number, bool)
        mixed[index[values != value[index]]] = True
        sums = {name: np.bincount(index, column, minlength=number) * 1.0 for name, column in columns.items()}
        return cls(grid, sums, value, mixed)

    @classmethod
    def _of_each(
        cls,
        values: Inexact[np.ndarray, "rows"],
        columns: dict[str, Float64[np.ndarray, "rows"]],
        bins: Int32[np.ndarray, "rows"] | None = None,
        orders: Sequence[Int64[np.ndarray, "_"]] = (),
    ) -> Histogram:
        """The histogram with a bin for each distinct value; writes the bin of each row into `bins`, where given.

        Where one of some `orders` is, or reverses, that of the values, these need not be sorted.
        """
        order = _known_order(values, orders)
        order = np.argsort(values) if order is None else order
        values = values[order]
        begins = np.append(True, values[1:] != values[:-1])[: len(values)]
        first = np.flatnonzero(begins)
        same = {name: bool((column == column[:1]).all()) for name, column in columns.items()}  # in any order
        sums = {name: column if same[name] else column[order] for name, column in columns.items()}
        if len(first) < len(values):
            sums = {name: np.add.reduceat(column, first) for name, column in sums.items()}
        if bins is not None:
            bins[order] = np.cumsum(begins) - 1
        return cls(None, sums, values[first], np.zeros(len(first), bool))

    def merge(self, other: Histogram) -> Histogram:
        """The histogram of the rows of both."""
        if self.grid is None:
            both = {name: np.concatenate([column, other.sums[name]]) for name, column in self.sums.items()}
            return self._of_each(np.concatenate([self.value, other.value]), both)
        value = np.where(np.isnan(self.value), other.value, self.value)
        differs = (value != other.value) & ~np.isnan(other.value)
        sums = {name: column + other.sums[name] for name, column in self.sums.items()}
        return Histogram(self.grid, sums, value, self.mixed | other.mixed | differs)

    def __len__(self) -> int:
        """Number of bins, with those on the sides."""
        return len(self.value)


def _known_order(values: Inexact[np.ndarray, "rows"], orders: Sequence[Int64[np.ndarray, "_"]]) -> Any:
    """The first of some orders, or of their reverses, in which these values ascend; None where they do in none."""
    for order in (of[::step] for of in orders if len(of) == len(values) for step in (1, -1)):
        # One in a thousand values tells most orders from another.
        if all((at[1:] >= at[:-1]).all() for at in (values[order[::few]] for few in (1000, 1))):
            return order
    return None


class Area(NamedTuple):
    """The area under benefit over burden from a histogram of what decisions rank by, and what a step adds to it."""

    area: float  # sum over pairs of an offer and a gold offer, the latter at the same bin or before; ties count half
    error: float  # how far it can be from that of the values themselves
    mass: float  # weight of all offers
    before_benefit: Float64[np.ndarray, "all_bins"]  # gold weight of the offers before a bin, and half of its own
    after_burden: Float64[np.ndarray, "all_bins"]  # weight of the offers after a bin, and half of its own
    grid: Grid | None  # of the bins; None where each has a value of its own
    value: Inexact[np.ndarray, "all_bins"]  # of each bin

    def normalised(self, gold: float) -> tuple[float, float]:
        """The area divided by the oracle's, of `gold` weight, and its error; NaN without gold."""
        oracle = gold * self.mass - gold**2 / 2
        return (self.area / oracle, self.error / oracle) if oracle > 0 else (math.nan, math.nan)

    def bin_of(self, values: Inexact[np.ndarray, "events"], onto: Onto) -> Int64[np.ndarray, "events"]:
        """The bin of each of the events that the area is of, as in `Histogram.of`."""
        return np.searchsorted(self.value, values) if self.grid is None else self.grid.bin_of(onto(values))

    def shares(
        self,
        bins: Int[np.ndarray, "events"],
        mass: Float64[np.ndarray, "events"],
        gold: Float64[np.ndarray, "events"],
    ) -> Float64[np.ndarray, "events"]:
        """The part of each event in the area: the derivative by its weight. They add up to twice the area."""
        return mass * self.before_benefit[bins] + gold * self.after_burden[bins]

    def own_excess(
        self,
        bins: Int[np.ndarray, "events"],
        mass: Float64[np.ndarray, "events"],
        gold: Float64[np.ndarray, "events"],
        unit: Int64[np.ndarray, "steps"],
        parts: Float64[np.ndarray, "events"],
    ) -> Float64[np.ndarray, "events"]:
        """What the pairs of a unit's own events are above what its parts let expect, in all events of each unit.

        Each step, of which `unit` has the unit, has one or more events; the first of all steps stand before the second.
        `parts` are the `shares` of the events. With w the unit's share of all mass, that is its own area minus
        w * its parts, plus w^2 * the area.
        """
        columns = [column.reshape(-1, len(unit)) for column in (bins, mass, gold, parts)]
        excess = np.empty(columns[1].shape)
        for rows, of_step in _whole_units(unit):
            at, weight, won, part = (column[:, rows].ravel() for column in columns)
            of_events = self._own_excess(at, weight, won, part, np.tile(of_step, len(excess)))
            excess[:, rows] = of_events.reshape(len(excess), -1)
        return excess.ravel()

    def _own_excess(
        self,
        bins: Int[np.ndarray, "events"],
        mass: Float64[np.ndarray, "events"],
        gold: Float64[np.ndarray, "events"],
        parts: Float64[np.ndarray, "events"],
        unit: Int64[np.ndarray, "events"],
    ) -> Float64[np.ndarray, "events"]:
        """`own_excess` of all events of some units."""
        cell, order = _sorted(unit * len(self.before_benefit) + bins)
        benefit = np.append(0.0, np.cumsum(gold[order]))
        begins = np.append(True, cell[1:] != cell[:-1])
        edges, of_unit = benefit[np.append(np.flatnonzero(begins), len(cell))], np.bincount(unit, gold)
        before = np.empty(len(cell))
        before[order] = ((edges[1:] + edges[:-1]) / 2)[np.cumsum(begins) - 1]
        before -= (np.cumsum(of_unit) - of_unit)[unit]
        share = (np.bincount(unit, mass) / self.mass)[unit]
        return mass * before - share * (parts - self.area / self.mass * mass)


_BLOCK = 1 << 14
"""About how many steps of whole units fit the cache together."""


def _whole_units(unit: Int64[np.ndarray, "steps"]) -> Iterator[tuple[slice, Int64[np.ndarray, "some"]]]:
    """Blocks of steps with all steps of their units, and numbers of these; one block where a unit stands apart."""
    begins = np.flatnonzero(np.append(True, unit[1:] != unit[:-1])[: len(unit)])
    if len(begins) > np.count_nonzero(np.bincount(unit[begins])):
        yield slice(None), unit
        return
    ends, first = np.append(begins[1:], len(unit)), 0
    while first < len(begins):
        after = max(first + 1, int(np.searchsorted(ends, begins[first] + _BLOCK, side="right")))
        rows, sizes = slice(begins[first], ends[after - 1]), ends[first:after] - begins[first:after]
        yield rows, np.repeat(np.arange(after - first), sizes)
        first = after


def _sorted(keys: Int64[np.ndarray, "n"]) -> tuple[Int64[np.ndarray, "n"], Int64[np.ndarray, "n"]]:
    """Numbers of at least 0 in ascending order, and that order, in which equal ones stay in theirs.

    NumPy sorts numbers faster than it finds their order, so each has its place in its lowest bits, where there is room.
    """
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(keys, kind="stable")
        return keys[order], order
    placed = (keys << bits) | np.arange(len(keys))
    placed.sort()
    return placed >> bits, placed & ((1 << bits) - 1)


def area(histogram: Histogram) -> Area:
    """The area of a histogram with the columns `mass` and `gold`, and on a grid `abs_gold`, in the order of its values.

    The order within a bin is unknown. Equal values tie, and a tie counts half of its rectangle (docs/maths.md, section
    9); any other order changes the area by at most half the mass times the sum of all |gold|. Gold weight is negative
    where the slow pass's candidate was gold and the fast pass's is not.
    """
    mass, gold = histogram.sums["mass"], histogram.sums["gold"]
    burden, benefit = np.cumsum(mass), np.cumsum(gold)
    before = benefit - gold / 2
    total = float((mass * before).sum())
    mixed = np.flatnonzero(histogram.mixed)
    error = float((mass[mixed] * histogram.sums["abs_gold"][mixed]).sum()) / 2 if len(mixed) else 0.0
    after = float(mass.sum()) - (burden - mass / 2)
    return Area(total, error, float(mass.sum()), before, after, histogram.grid, histogram.value)


class Above(NamedTuple):
    """The bin that divides the highest values of a given weight from the others."""

    at: float  # its place, as `place` gives it: those above are inside
    share: float  # of the weight in the bin itself
    weight: float  # in the bin, which bounds what the order within it can change


def highest(histogram: Histogram, column: str, mass: float) -> Above:
    """Where the highest values add up to `mass` in a column of weights."""
    weights = histogram.sums[column]
    from_above = np.cumsum(weights[::-1])
    last = min(int(np.searchsorted(from_above, mass)), len(weights) - 1)
    number = len(weights) - 1 - last
    inside = float(weights[number])
    over = float(from_above[last]) - inside
    share = (mass - over) / inside if inside > 0 else 0.0
    at = number if histogram.grid is not None else histogram.value[number]
    return Above(float(at), min(max(share, 0.0), 1.0), inside if histogram.mixed[number] else 0.0)


def place(
    grid: Grid | None, values: Float64[np.ndarray, "rows"], onto: Onto
) -> Float64[np.ndarray, "rows"] | Int64[np.ndarray, "rows"]:
    """What tells where values stand in a histogram: the number of each one's bin on a grid, else the value itself."""
    return values if grid is None else grid.bin_of(onto(values))


@stored
class Rows(NamedTuple):
    """Weighted rows of labelled probabilities: the rows themselves, or others that stand for a histogram of them."""

    p: Float64[np.ndarray, "n"]
    y: Float64[np.ndarray, "n"]
    weight: Float64[np.ndarray, "n"]

    def merge(self, other: Rows) -> Rows:
        """The rows of both."""
        return Rows(*(np.concatenate(columns) for columns in zip(self, other, strict=True)))


def labelled(
    z: Float64[np.ndarray, "rows"],
    y: Float64[np.ndarray, "rows"],
    weight: Float64[np.ndarray, "rows"],
) -> Histogram:
    """The histogram of labelled log-odds: the weight of either label in each bin, and the log-odds that it adds up to.

    A soft label y counts as y of the label 1 and 1 - y of the label 0, as in every likelihood.
    """
    finite = np.clip(z, -_FINITE, _FINITE)
    one, zero = weight * y, weight * (1 - y)
    columns = {"one": one, "zero": zero, "z_one": one * finite, "z_zero": zero * finite}
    return Histogram.of(LOG_ODDS, z, columns)


_FINITE = float(np.log1p(-np.finfo(np.float64).eps / 2) - np.log(np.finfo(np.float64).eps / 2))
"""The largest finite log-odds of a float64, which stand for those of a certain probability."""


def by_label(histogram: Histogram) -> Rows:
    """Two rows for each bin, of either label, each with the mean log-odds of its own: for maps by likelihood.

    With these means the likelihood's terms that are linear in the log-odds are exact.
    """
    parts = []
    for label, name in ((1.0, "one"), (0.0, "zero")):
        weight = histogram.sums[name]
        filled = weight > 0
        z = histogram.sums[f"z_{name}"][filled] / weight[filled]
        parts.append((_probability(z, filled), np.full(len(z), label), weight[filled]))
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def by_bin(histogram: Histogram) -> Rows:
    """One row for each bin, with the mean log-odds and label of all: for isotonic maps."""
    one, zero = histogram.sums["one"], histogram.sums["zero"]
    weight = one + zero
    filled = weight > 0
    z = (histogram.sums["z_one"] + histogram.sums["z_zero"])[filled] / weight[filled]
    return Rows(_probability(z, filled), one[filled] / weight[filled], weight[filled])


def _probability(z: Float64[np.ndarray, "n"], filled: Bool[np.ndarray, "all_bins"]) -> Float64[np.ndarray, "n"]:
    """Probabilities of the finite log-odds of filled bins; those of infinite ones, the first and last, are 0 and 1."""
    # Above 1/2 from 1 - p, which is precise: near 1, sigmoid(z) can be a neighbour of the p that z came from.
    p = np.where(z > 0, 1 - np.asarray(arrays.sigmoid(-z)), np.asarray(arrays.sigmoid(z)))
    p = np.clip(p, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).eps / 2)
    p[: int(filled[0])], p[len(p) - int(filled[-1]) :] = 0.0, 1.0
    return p


def temperature_error(histogram: Histogram, temperature: float) -> float:
    """How far T can be from that of the rows themselves, to first order in the squared width of a bin.

    T solves a score equation sum w z (sigmoid(z / T) - y) = 0. Its part without y is a sum of f(z) = z sigmoid(b z),
    b = 1 / T; the mean of f over a bin differs from f of the mean by at most width^2 / 8 * max |f''|, and |f''| is at
    most b (2 |sigmoid'| + |b z sigmoid''|) <= 0.62 b. Divided by the slope of the score, that is the error of b. A fit
    takes all that lies beyond the grid for the largest finite log-odds, and leaves out 0 and 1, so these bins add
    nothing. The result is infinite where the rows say nothing of T, as where every probability is 1/2.
    """
    b = 1 / temperature
    rows = by_label(histogram)
    z = arrays.log_odds(np.where((rows.p == 0) | (rows.p == 1), 0.5, rows.p))
    slope = float((rows.weight * z**2 * rows.p**b * (1 - rows.p) ** b / (rows.p**b + (1 - rows.p) ** b) ** 2).sum())
    if slope <= 0:
        return math.inf
    assert histogram.grid is not None, "the rows themselves need no bound"
    inner = slice(2, -2)
    weight = (histogram.sums["one"] + histogram.sums["zero"])[inner]
    of_score = float(weight[histogram.mixed[inner]].sum()) * histogram.grid.width**2 / 8 * 0.62 * b
    return of_score / slope * temperature**2


class Isotonic(NamedTuple):
    """The Brier score after isotonic recalibration, and how far the rows' own can be below it."""

    score: float
    error: float


def isotonic_score(histogram: Histogram, squares: float) -> Isotonic:
    """The Brier score of the best non-decreasing function of bins; `squares` is the weighted sum of squared labels.

    Let g be the best non-decreasing function of the values themselves, and f its mean in each bin, which is one of the
    functions of bins. The score of f is that of g plus 2 * sum w (y - mean y) (g - f) - sum w (g - f)^2. In a bin of
    weight W where g changes by d and the labels have the standard deviation s, the first sum is at most W * s * d / 2,
    and all d together are at most 1. So the best function of bins is at most max(W * s) over the mixed bins worse.
    """
    one, zero = histogram.sums["one"], histogram.sums["zero"]
    weight = one + zero
    filled = weight > 0
    total = float(weight.sum())
    level = scipy.optimize.isotonic_regression(one[filled] / weight[filled], weights=weight[filled]).x
    score = (squares + float((weight[filled] * level**2 - 2 * one[filled] * level).sum())) / total
    mixed = histogram.mixed & filled
    rate = one[mixed] / weight[mixed]
    return Isotonic(score, float((weight[mixed] * np.sqrt(rate * (1 - rate))).max(initial=0.0)) / total)
