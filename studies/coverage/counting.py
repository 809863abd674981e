"""Draws again and again from what is known, estimates, and counts how often the intervals hold the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float

Drawn = TypeVar("Drawn")


class Counted(NamedTuple):
    """One estimator over many samples; what it says is of those that were not refused and have an interval."""

    truth: float
    value: Float[np.ndarray, " times"]
    low: Float[np.ndarray, " times"]  # NaN where there is no interval
    high: Float[np.ndarray, " times"]
    refused: Bool[np.ndarray, " times"]

    @property
    def unrefused(self) -> Counted:
        """The same had no sample been refused."""
        return self._replace(refused=np.zeros_like(self.refused))

    @property
    def coverage(self) -> float:
        """Share of the intervals that hold the truth."""
        return self._mean((self.low <= self.truth) & (self.truth <= self.high))

    @property
    def bias(self) -> tuple[float, float]:
        """Mean error of the estimates, and its standard error over samples."""
        error = self.value - self.truth
        variance = self._mean((error - self._mean(error)) ** 2)
        return self._mean(error), float(np.sqrt(variance / max(self._answered.sum(), 1)))

    @property
    def width(self) -> float:
        """Mean width of the intervals."""
        return self._mean(self.high - self.low)

    @property
    def _answered(self) -> Bool[np.ndarray, " times"]:
        return ~self.refused & ~np.isnan(self.low)

    def _mean(self, values: np.ndarray) -> float:
        """NaN where no sample was answered."""
        return float(values[self._answered].mean()) if self._answered.any() else np.nan


def count(
    truth: float,
    draw: Callable[[np.random.Generator], Drawn],
    estimate: Callable[[Iterator[Drawn]], Iterable[np.ndarray]],
    times: int,
) -> list[Counted]:
    """Draws so many samples and counts.

    For each of its estimators, `estimate` makes a row for each sample: value, low, high, and 1 where it is refused.
    """
    rng = np.random.default_rng(0)
    found = estimate(draw(rng) for _ in range(times))
    return [Counted(truth, value, low, high, refused > 0) for value, low, high, refused in (rows.T for rows in found)]
