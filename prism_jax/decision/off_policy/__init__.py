"""What another policy would have cost, from a log of another one; users import it from here.

Belongs here: estimators of the difference and of the level (`estimators`), their intervals over people (`intervals`),
and the checks of what a log can tell (`support`). docs/counterfactual.md explains them; docs/maths.md, section 15,
derives them. Runs on the host, on NumPy arrays.
Does not belong here: reading logs and making tables (`prism_jax.runs`).
"""

from prism_jax.decision.off_policy.estimators import (
    ESTIMATORS,
    Logged,
    cross_fitted,
    difference_terms,
    level_terms,
    savings,
)
from prism_jax.decision.off_policy.intervals import LEAST_PEOPLE, difference, mean_over_people
from prism_jax.decision.off_policy.support import (
    OverlapError,
    Support,
    check_support,
    enough_exploration,
    measure_support,
    refusal,
)

__all__ = [
    "ESTIMATORS",
    "LEAST_PEOPLE",
    "Logged",
    "OverlapError",
    "Support",
    "check_support",
    "cross_fitted",
    "difference",
    "difference_terms",
    "enough_exploration",
    "level_terms",
    "mean_over_people",
    "measure_support",
    "refusal",
    "savings",
]
