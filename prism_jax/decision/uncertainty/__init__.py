"""How sure a number is: bootstrap intervals, paired differences, McNemar's test, equivalence. The one door to them.

Lives here: the resampling engine (`bootstrap`) and what it says of rates and of pairs of policies (`rates`).
May not live here: which numbers a table shows (`prism_jax.evaluation`, `prism_jax.report`).
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
