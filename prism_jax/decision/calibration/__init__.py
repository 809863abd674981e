"""Measures of calibration, and fits that improve it; users import both from here.

Belongs here: calibration errors, proper scores and reliability curves (`measures`) on bins (`binning`); temperature,
Platt and isotonic fits (`calibrators`, `platt`, `isotonic`), the choice among them and their numbers for JSON
(`maps`), and thresholds on what they are applied to (`thresholds`).
Does not belong here: the choice of the split on which a map is fitted (`prism_jax.evaluation`).
"""

from prism_jax.decision.calibration.calibrators import (
    CalibrationWarning,
    GroupedTemperature,
    Temperature,
    apply_temperature,
    certain,
    fit_grouped,
    fit_temperature,
)
from prism_jax.decision.calibration.isotonic import Isotonic, fit_isotonic
from prism_jax.decision.calibration.maps import (
    CALIBRATORS,
    OF_SCORES,
    CalibrationConfig,
    Calibrator,
    Map,
    apply_map,
    fit_map,
    fit_shrunk,
    in_words,
    map_from_dict,
    map_to_dict,
)
from prism_jax.decision.calibration.measures import (
    BinSums,
    BrierDecomposition,
    Reliability,
    brier_decomposition,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_curve,
)
from prism_jax.decision.calibration.platt import IDENTITY_ROWS, LEAST_BOUND, Platt, fit_penalised, fit_platt
from prism_jax.decision.calibration.thresholds import Rule, rule_of_map, rules_by_group

__all__ = [
    "CALIBRATORS",
    "IDENTITY_ROWS",
    "LEAST_BOUND",
    "OF_SCORES",
    "BinSums",
    "BrierDecomposition",
    "CalibrationConfig",
    "CalibrationWarning",
    "Calibrator",
    "GroupedTemperature",
    "Isotonic",
    "Map",
    "Platt",
    "Reliability",
    "Rule",
    "Temperature",
    "apply_map",
    "apply_temperature",
    "brier_decomposition",
    "brier_score",
    "certain",
    "expected_calibration_error",
    "fit_grouped",
    "fit_isotonic",
    "fit_map",
    "fit_penalised",
    "fit_platt",
    "fit_shrunk",
    "fit_temperature",
    "in_words",
    "map_from_dict",
    "map_to_dict",
    "negative_log_likelihood",
    "reliability_curve",
    "rule_of_map",
    "rules_by_group",
]
