"""Uncertainty: intervals, paired differences, McNemar's test and equivalence; users import them from here.

Belongs here: intervals of few units (`jackknife`), the resampling engine and intervals of means (`bootstrap`, and
`hashed` for units that are spread over parts of the data), and their application to rates and pairs of policies
(`rates`), and to agreement and official scores (`agreements`).
Does not belong here: the choice of numbers in a table (`prism_jax.evaluation`, `prism_jax.report`).
"""

from prism_jax.decision.uncertainty.agreements import (
    PAIR_MEASURES,
    PANEL_MEASURES,
    PairedRate,
    agreement_intervals,
    paired_official_rates,
    panel_intervals,
)
from prism_jax.decision.uncertainty.bootstrap import (
    MOST_UNITS,
    UNDEFINED,
    Cells,
    Estimate,
    count_cells,
    interval,
    mean_interval,
    mean_interval_of,
    resample,
)
from prism_jax.decision.uncertainty.hashed import Resampled, poisson_weights, resampled_sums, unit_keys
from prism_jax.decision.uncertainty.jackknife import LEAST_UNITS, SHARE, UNBOUNDED, Bounds
from prism_jax.decision.uncertainty.rates import (
    HEADLINE,
    Equivalence,
    McNemar,
    joint_cell,
    mcnemar,
    mcnemar_of,
    paired_p_values,
    paired_p_values_of,
    paired_rates,
    paired_rates_of,
    rate_intervals,
    rate_intervals_of,
    tost,
)

__all__ = [
    "HEADLINE",
    "LEAST_UNITS",
    "MOST_UNITS",
    "PAIR_MEASURES",
    "PANEL_MEASURES",
    "SHARE",
    "UNBOUNDED",
    "UNDEFINED",
    "Bounds",
    "Cells",
    "Equivalence",
    "Estimate",
    "McNemar",
    "PairedRate",
    "Resampled",
    "agreement_intervals",
    "count_cells",
    "interval",
    "joint_cell",
    "mcnemar",
    "mcnemar_of",
    "mean_interval",
    "mean_interval_of",
    "paired_official_rates",
    "paired_p_values",
    "paired_p_values_of",
    "paired_rates",
    "paired_rates_of",
    "panel_intervals",
    "poisson_weights",
    "rate_intervals",
    "rate_intervals_of",
    "resample",
    "resampled_sums",
    "tost",
    "unit_keys",
]
