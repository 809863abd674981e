"""The confusions of N decisions that can have produced a row of printed rates: an exact search over integers.

Every rate is a ratio of sums of counts, so "the rate lies in an interval" is a linear inequality in TP, FP, FN and TN
with integer coefficients. With N fixed there are three unknowns. The search takes the sum m of two counts, then one of
the two; the third unknown then lies in an interval, which integer division gives. Of the six ways to choose the two
counts, the one with the fewest pairs is taken: where a rate ties the second unknown to m, there are about
N + N² × (width of the rate's interval) pairs instead of N³ confusions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Int

from studies.audit_tables.cells import Printed, Reading
from studies.audit_tables.quantities import COEFFICIENTS, COUNTS, RATIOS

MOST_STEPS = 1_000_000
"""Largest number of decisions: beyond it the products of the search could exceed 64 bits."""
_SCALE = 10**10  # ends of intervals are widened to multiples of this, which keeps the products below 64 bits
_CHUNK = 500_000
_MOST_PAIRS = 20_000_000
_MOST_CONFUSIONS = 2_000_000
_ORDERS = ((0, 1, 2, 3), (2, 3, 0, 1), (0, 2, 1, 3), (1, 3, 0, 2), (0, 3, 1, 2), (1, 2, 0, 3))


@dataclasses.dataclass(frozen=True)
class Solutions:
    """The confusions that fit a row."""

    number: int  # how many fit; a lower bound unless `complete`
    lowest: tuple[int, ...] = ()  # smallest TP, FP, FN and TN among those counted; empty if none fits
    highest: tuple[int, ...] = ()  # largest ones
    complete: bool = True  # whether all were counted; a search that would take too long stops once it has found some
    # agreement coefficients that were left out because too many confusions fit the rates
    unchecked: tuple[str, ...] = ()


def solve(cells: Mapping[str, Printed], steps: int, reading: Reading) -> Solutions:
    """Finds the confusions of N = `steps` decisions, from 1 to `MOST_STEPS`, whose rates print as given.

    A ratio without a denominator is 0 or 1, as scorers print it. Quantities that are no function of the confusion are
    ignored. ValueError if N is out of range.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps: found {steps}, expected 1 to {MOST_STEPS}")
    constraints = _constraints(cells, steps, reading)
    if constraints is None:
        return Solutions(0)
    ratios = {name: cells[name] for name in RATIOS if name in cells}
    search = min((_Search(order, steps, constraints) for order in _ORDERS), key=lambda candidate: candidate.pairs)
    counted = _CountRanges()
    for chunk in search.chunks():
        counted.add(_without_bad_zeros(chunk, ratios))
        if search.pairs > _MOST_PAIRS and counted.number:
            return counted.solutions(complete=False)
    coefficients = {name: cells[name] for name in COEFFICIENTS if name in cells}
    if not coefficients or not counted.number:
        return counted.solutions()
    if counted.number > _MOST_CONFUSIONS:
        return counted.solutions(unchecked=tuple(coefficients))
    kept = _CountRanges()
    for chunk in search.chunks():
        counts = _expanded(_without_bad_zeros(chunk, ratios))
        counts = counts[:, _fits(counts, coefficients, reading)]
        kept.add(_Chunk(counts, np.zeros(counts.shape[1], np.int64), np.zeros(4, np.int64)))
    return kept.solutions()


def coefficients_of(counts: Int[np.ndarray, "4 n"]) -> dict[str, np.ndarray]:
    """Cohen's kappa and Matthews' coefficient of confusions; NaN where they are undefined."""
    tp, fp, fn, tn = counts.astype(float)
    offers, positives, total = tp + fp, tp + fn, tp + fp + fn + tn
    chance = (offers * positives + (total - offers) * (total - positives)) / total
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = (tp + tn - chance) / (total - chance)
        spread = np.sqrt(offers) * np.sqrt(total - offers) * np.sqrt(positives) * np.sqrt(total - positives)
        return {"kappa": kappa, "MCC": (tp * tn - fp * fn) / spread}


def _fits(counts: np.ndarray, cells: Mapping[str, Printed], reading: Reading) -> np.ndarray:
    fits = np.ones(counts.shape[1], bool)
    values = coefficients_of(counts)
    for name, printed in cells.items():
        low, high = (float(end) for end in printed.interval(reading))
        close = (values[name] >= low - 1e-9) & (values[name] <= high + 1e-9)
        fits &= close | (np.isnan(values[name]) & (printed.value in (0, 1)))
    return fits


def _constraints(cells: Mapping[str, Printed], steps: int, reading: Reading) -> np.ndarray | None:
    """Rows (w_TP, w_FP, w_FN, w_TN, w_0): the counts fit where w · counts + w_0 >= 0. None if no counts can fit."""
    rows: list[tuple[int, ...]] = []
    for name, (part, whole) in RATIOS.items():
        if name not in cells:
            continue
        low, high = _ends(cells[name], reading)
        if high < 0 or low > _SCALE:
            return None
        rows.append((*(_SCALE * a - low * b for a, b in zip(part, whole, strict=True)), 0))
        rows.append((*(high * b - _SCALE * a for a, b in zip(part, whole, strict=True)), 0))
    for i, name in enumerate(COUNTS):
        if name in cells:
            value = int(cells[name].value)
            if value > steps:
                return None
            unit = [0] * 4
            unit[i] = 1
            rows += [(*unit, -value), (*(-w for w in unit), value)]
    return np.array(rows, np.int64).reshape(-1, 5)


def _ends(printed: Printed, reading: Reading) -> tuple[int, int]:
    """Both ends of a rate's interval in units of 1/_SCALE, widened to whole ones and cut to [0, 1]."""
    low, high = (end * _SCALE for end in printed.interval(reading))
    return max(0, low // 1), min(_SCALE, -(-high // 1))


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """Confusions on lines: starts, the number of further ones on each, and the direction of all lines."""

    starts: np.ndarray
    further: np.ndarray
    direction: np.ndarray


class _Search:
    """One order of the unknowns: m = c_i + c_j, then x = c_i, then z = c_k, with c_l = N - m - z."""

    def __init__(self, order: tuple[int, int, int, int], steps: int, constraints: np.ndarray) -> None:
        i, j, k, l = order  # noqa: E741 -- the names of the class docstring
        w = constraints
        self.order, self.steps = order, steps
        self.of_m, self.of_x, self.of_z = w[:, j] - w[:, l], w[:, i] - w[:, j], w[:, k] - w[:, l]
        self.rest = w[:, l] * steps + w[:, 4]
        m = np.arange(steps + 1)
        low, high = np.zeros_like(m), m.copy()
        for row in range(len(w)):
            # z from 0 to N - m helps this constraint by at most `help`; what is left bounds x.
            slack = self.rest[row] + self.of_m[row] * m + np.maximum(0, self.of_z[row] * (steps - m))
            _bound(low, high, slack, int(self.of_x[row]))
        self.m = m[low <= high]
        self.low, self.number = low[low <= high], (high - low + 1)[low <= high]
        self.pairs = int(self.number.sum())

    def chunks(self) -> Iterator[_Chunk]:
        """The confusions that fit, for up to _CHUNK values of (m, x) at a time."""
        ends = np.cumsum(self.number)
        for start in range(0, self.pairs, _CHUNK):
            pair = np.arange(start, min(start + _CHUNK, self.pairs))
            place = np.searchsorted(ends, pair, side="right")
            m = self.m[place]
            x = self.low[place] + pair - (ends - self.number)[place]
            low, high = np.zeros_like(m), self.steps - m
            for row in range(len(self.rest)):
                slack = self.rest[row] + self.of_m[row] * m + self.of_x[row] * x
                _bound(low, high, slack, int(self.of_z[row]))
            fits = low <= high
            m, x, low, high = m[fits], x[fits], low[fits], high[fits]
            i, j, k, l = self.order  # noqa: E741 -- the names of the class docstring
            starts, direction = np.empty((4, len(m)), np.int64), np.zeros(4, np.int64)
            starts[i], starts[j], starts[k], starts[l] = x, m - x, low, self.steps - m - low
            direction[k], direction[l] = 1, -1
            yield _Chunk(starts, high - low, direction)


def _bound(low: np.ndarray, high: np.ndarray, slack: np.ndarray, weight: int) -> None:
    """Tightens low and high in place to the integers v with weight * v + slack >= 0."""
    if weight > 0:
        np.maximum(low, -(slack // weight), out=low)
    elif weight < 0:
        np.minimum(high, slack // -weight, out=high)
    else:
        high[slack < 0] = -1


def _without_bad_zeros(chunk: _Chunk, ratios: Mapping[str, Printed]) -> _Chunk:
    """Drops confusions in which a ratio has no denominator, unless it is printed as 0 or 1."""
    strict = [RATIOS[name][1] for name, printed in ratios.items() if printed.value not in (0, 1)]
    if not strict or not chunk.starts.size:
        return chunk
    # A denominator is 0 on a whole line or at one of its ends, since it does not decrease faster than to 0.
    starts, further = chunk.starts.copy(), chunk.further.copy()
    for whole in np.array(strict):
        slope = int(whole @ chunk.direction)
        first = whole @ starts == 0
        if slope > 0:
            starts[:, first] += chunk.direction[:, None]
        further[first] -= 1 if slope > 0 else further[first] + 1
        last = (whole @ (starts + further * chunk.direction[:, None]) == 0) & (further >= 0)
        further[last] -= 1
    fits = further >= 0
    return _Chunk(starts[:, fits], further[fits], chunk.direction)


def _expanded(chunk: _Chunk) -> np.ndarray:
    """All confusions of a chunk, one column each."""
    line = np.repeat(np.arange(len(chunk.further)), chunk.further + 1)
    first = np.cumsum(chunk.further + 1) - (chunk.further + 1)
    return chunk.starts[:, line] + (np.arange(len(line)) - first[line]) * chunk.direction[:, None]


class _CountRanges:
    """Number and ranges of the confusions found so far."""

    def __init__(self) -> None:
        self.number = 0
        self.low, self.high = np.full(4, np.iinfo(np.int64).max), np.full(4, -1)

    def add(self, chunk: _Chunk) -> None:
        if not len(chunk.further):
            return
        self.number += int((chunk.further + 1).sum())
        for end in (chunk.starts, chunk.starts + chunk.further * chunk.direction[:, None]):
            self.low, self.high = np.minimum(self.low, end.min(1)), np.maximum(self.high, end.max(1))

    def solutions(self, complete: bool = True, unchecked: tuple[str, ...] = ()) -> Solutions:
        if not self.number:
            return Solutions(0, complete=complete)
        low, high = tuple(map(int, self.low)), tuple(map(int, self.high))
        return Solutions(self.number, low, high, complete, unchecked)
