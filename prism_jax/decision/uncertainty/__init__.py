"""Uncertainty: bootstrap intervals, paired differences, McNemar's test and equivalence; users import them from here.

Belongs here: the resampling engine (`bootstrap`), and its application to rates and to pairs of policies (`rates`).
Does not belong here: the choice of numbers in a table (`prism_jax.evaluation`, `prism_jax.report`).
"""

from prism_jax.decision.uncertainty.bootstrap import Cells, Interval, count_cells, interval, resample
from prism_jax.decision.uncertainty.rates import (
    HEADLINE,
    Equivalence,
    McNemar,
    mcnemar,
    paired_rates,
    rate_intervals,
    tost,
)

__all__ = [
    "HEADLINE",
    "Cells",
    "Equivalence",
    "Interval",
    "McNemar",
    "count_cells",
    "interval",
    "mcnemar",
    "paired_rates",
    "rate_intervals",
    "resample",
    "tost",
]
