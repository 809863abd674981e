"""Means over seeds with their t intervals, and the form in which every experiment prints an interval."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats


class MeanInterval(NamedTuple):
    """A mean over seeds with its 95 % t interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float[np.ndarray, " seeds"]) -> MeanInterval:
        """Computes the interval of one value per seed; a difference paired by seed is such a value."""
        mean, error = float(values.mean()), float(stats.sem(values))
        low, high = stats.t.interval(0.95, len(values) - 1, mean, error)
        return cls(mean, float(low), float(high))


def show_interval(estimate: float, low: float, high: float, *, digits: int = 3, sign: str = "") -> str:
    """Formats an estimate with its interval as "0.139 [0.107, 0.171]"; alone where the ends are NaN.

    The sign "+" prints the sign of positive numbers too, as differences need it.
    """
    shown = f"{estimate:{sign}.{digits}f}"
    return shown if math.isnan(low) else f"{shown} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"
