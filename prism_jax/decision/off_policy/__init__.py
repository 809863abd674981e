"""What another policy would have cost, from a log of another one; users import it from here.

Belongs here: estimators of the difference and of the level (`estimators`), the model of one of them (`models`), their
intervals over people (`intervals`), the checks of what a log can tell (`support`) and of its propensities
(`propensities`). All are made of sums over rows, which add up over the parts of a log. docs/counterfactual.md explains
them; docs/maths.md, section 15, derives them.
Runs on the host, on NumPy arrays.
Does not belong here: reading logs (`prism_jax.evaluation`) and making tables (`prism_jax.runs`).
"""

from prism_jax.decision.off_policy.estimators import (
    ESTIMATORS,
    Estimator,
    Logged,
    difference_terms,
    level_sums,
    level_terms,
    savings,
    weight_sums,
)
from prism_jax.decision.off_policy.intervals import (
    LEAST_PEOPLE,
    difference,
    mean_over_people,
    means_over_people,
    widened,
)
from prism_jax.decision.off_policy.models import Moments, coefficients, cross_fitted, normal_equations, predictions
from prism_jax.decision.off_policy.propensities import DOUBTED, MOST_OFF, Drawn, doubt, drawn, drawn_sums, edges_of
from prism_jax.decision.off_policy.support import (
    EXPLORATION,
    EstimateSettings,
    OverlapError,
    Support,
    check,
    check_support,
    effective_number,
    enough_exploration,
    explored,
    largest_change,
    measure_support,
    refusal,
    support_of,
    support_sums,
)

__all__ = [
    "DOUBTED",
    "ESTIMATORS",
    "EXPLORATION",
    "LEAST_PEOPLE",
    "MOST_OFF",
    "Drawn",
    "EstimateSettings",
    "Estimator",
    "Logged",
    "Moments",
    "OverlapError",
    "Support",
    "check",
    "check_support",
    "coefficients",
    "cross_fitted",
    "difference",
    "difference_terms",
    "doubt",
    "drawn",
    "drawn_sums",
    "edges_of",
    "effective_number",
    "enough_exploration",
    "explored",
    "largest_change",
    "level_sums",
    "level_terms",
    "mean_over_people",
    "means_over_people",
    "measure_support",
    "normal_equations",
    "predictions",
    "refusal",
    "savings",
    "support_of",
    "support_sums",
    "weight_sums",
    "widened",
]
