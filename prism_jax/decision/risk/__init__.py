"""Promises about a gate that hold for new people: thresholds with a bounded risk; users import them from here.

Belongs here: losses of units under ordered rules (`losses`), bounds of their means (`bounds`), and the choice of rules
that keep promises (`promises`). docs/promises.md explains them; docs/maths.md, section 14, derives them.
Does not belong here: reading scores, splits or maps (`prism_jax.evaluation`).
"""

from prism_jax.decision.risk.bounds import (
    betting_p_values,
    hoeffding_bentkus_p_values,
    smallest_limit,
)
from prism_jax.decision.risk.losses import (
    MOST_RULES,
    RISKS,
    Promise,
    Risk,
    Slow,
    first_gate,
    first_gate_with_slow,
    first_rule,
    unit_losses,
)
from prism_jax.decision.risk.promises import (
    BOUNDS,
    Certified,
    Kept,
    certify,
    fixed_sequence,
    kept_in_expectation,
)

__all__ = [
    "BOUNDS",
    "MOST_RULES",
    "RISKS",
    "Certified",
    "Kept",
    "Promise",
    "Risk",
    "Slow",
    "betting_p_values",
    "certify",
    "first_gate",
    "first_gate_with_slow",
    "first_rule",
    "fixed_sequence",
    "hoeffding_bentkus_p_values",
    "kept_in_expectation",
    "smallest_limit",
    "unit_losses",
]
