"""Measures of calibration, and fits that improve it; users import both from here.

Belongs here: calibration errors, proper scores and reliability curves (`measures`) on bins (`binning`); temperature,
Platt and isotonic fits (`calibrators`, `isotonic`).
Does not belong here: the choice of the split on which a map is fitted (`prism_jax.evaluation`).
"""

from prism_jax.decision.calibration.calibrators import (
    CalibrationWarning,
    GroupedTemperature,
    Platt,
    apply_temperature,
    fit_grouped,
    fit_platt,
    fit_temperature,
)
from prism_jax.decision.calibration.isotonic import Isotonic, fit_isotonic
from prism_jax.decision.calibration.measures import (
    BrierDecomposition,
    Reliability,
    brier_decomposition,
    brier_score,
    expected_calibration_error,
    maximum_calibration_error,
    negative_log_likelihood,
    reliability_curve,
)

__all__ = [
    "BrierDecomposition",
    "CalibrationWarning",
    "GroupedTemperature",
    "Isotonic",
    "Platt",
    "Reliability",
    "apply_temperature",
    "brier_decomposition",
    "brier_score",
    "expected_calibration_error",
    "fit_grouped",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "reliability_curve",
]
