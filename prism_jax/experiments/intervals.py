"""Means over seeds with their t intervals, and the form in which experiments print an interval."""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float

from prism_jax.decision.uncertainty import Estimate
from prism_jax.report.numbers import show_estimate


def mean_over_seeds(values: Float[np.ndarray, " seeds"]) -> Estimate:
    """The mean of one value per seed with its 95 % t interval; a difference paired by seed is such a value.

    There is no interval where all values are equal, as nothing tells how much they may differ; units that are equal
    have none either (`prism_jax.decision.uncertainty`).
    """
    mean, error = float(values.mean()), float(scipy.stats.sem(values))
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, mean, error)
    return Estimate(mean, float(low), float(high), error, units=len(values))


def show_interval(estimate: Estimate, *, digits: int = 3, sign: str = "") -> str:
    """Formats an estimate with its interval, with hyphens for minus.

    The sign "+" prints the sign of positive numbers and of 0 too, as differences need it.
    """
    return show_estimate(estimate, form=f"{{:{sign}.{digits}f}}".format)
