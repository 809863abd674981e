"""Scale and bias on the log-odds, by maximum likelihood or with a penalty (docs/maths.md, section 7)."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Reals, Vector
from prism_jax.decision.calibration.calibrators import (
    BETA_RANGE,
    CalibrationWarning,
    certain,
    fit_inputs,
    logit,
    need_two_classes,
)
from prism_jax.decision.logistic import fit_logistic

IDENTITY_ROWS = 20.0
"""What the probabilities so far count for in a fit with a penalty, in labels."""
LEAST_BOUND = math.log1p(IDENTITY_ROWS)
"""The log-odds of 1 label in 22: the least bound of a map, which the probabilities so far are worth."""
SLOPE, BIAS = 1.0, 1 / 20
"""Penalty of each on the squared relative change of the slope, and of the log-odds at their mean.

Chosen by simulation, on other labels and steps than those of the table (`python benchmarks/maps.py --choose`).
"""


@dataclasses.dataclass(frozen=True)
class Platt:
    """The map p -> sigmoid(scale * logit(p) + bias).

    Attributes:
      scale: What log-odds are multiplied by.
      bias: What is added to them.
      bound: The largest log-odds, in size, on which the map was fitted, or `LEAST_BOUND` if that is larger: any beyond,
        such as those of a probability of 0 or 1, are taken for it. None only keeps them finite.
    """

    scale: float
    bias: float
    bound: float | None = None

    def of_log_odds(self, z: Any) -> Any:
        """Scale * z + bias of log-odds within the bound: the map from log-odds to log-odds."""
        if self.bound is not None:
            z = arrays.namespace(z).clip(z, -self.bound, self.bound)
        return self.scale * z + self.bias

    def __call__(self, p: Reals) -> Floats:
        """Calibrated probabilities.

        Raises:
          ValueError: for a probability outside [0, 1].
        """
        arrays.check_probability("p", p)
        xp, prob = arrays.as_floats(p)
        return arrays.sigmoid(self.of_log_odds(logit(xp, prob, finite=True)))


def fit_platt(p: Vector, y: Vector, weight: Vector | None = None) -> Platt:
    """Scale and bias on the logit, by maximum likelihood (Platt 1999).

    With N1 and N0 the weights of the two classes, his targets (N1 + 1) / (N1 + 2) and 1 / (N0 + 2) stand for 1 and 0;
    they keep the optimum finite where scores separate the labels.

    Args:
      p: Probabilities of the positive class; exactly 0 and 1 count as the bound of the map.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, or labels of one class only.
    """
    z, labels, w, bound = _inputs(p, y, weight)
    need_two_classes(labels, w)
    positive, total = float(np.dot(w, labels)), float(w.sum())
    high, low = (positive + 1) / (positive + 2), 1 / (total - positive + 2)
    return Platt(*_fit(z, low + (high - low) * labels, w, np.array([1.0, 0.0]), np.zeros((2, 2))), bound)


def fit_penalised(
    p: Vector,
    y: Vector,
    weight: Vector | None = None,
    *,
    around: tuple[float, float] = (1.0, 0.0),
    identity_rows: int | float = IDENTITY_ROWS,
    effective: float | None = None,
) -> Platt:
    """Scale and bias on the logit that few labels move little, and that never reverse the order.

    With z = logit(p), m the mean of z, and a scale and bias (s0, b0) so far, they minimise

        NLL(s, b) + n/2 * ((s / s0 - 1)^2 + 1/20 * (s m + b - s0 m - b0)^2),    s in [1/20, 20]

    for n = `identity_rows`. The second penalty is on what the map does to log-odds at their mean, so a slope can be
    learnt without a bias. Labels of one class are enough, and labels that the scores separate.

    Args:
      p: Probabilities of the positive class; exactly 0 and 1 count as the bound of the map.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.
      around: The scale and bias so far; by default the probabilities as they are.
      identity_rows: What these count for, in labels, above 0.
      effective: How many labels the weights are worth; None is (sum w)^2 / sum w^2.

    Raises:
      ValueError: for unequal lengths, empty input or a value outside its range.

    Warns:
      CalibrationWarning: if the scale ends at a bound.
    """
    z, labels, w, bound = _inputs(p, y, weight)
    effective = arrays.effective_count(w) if effective is None else effective
    mean, start = np.array([float(np.average(z, weights=w)), 1.0]), np.array(around)
    strength = identity_rows * float(w.sum()) / effective
    ridge = strength * (np.diag([SLOPE / start[0] ** 2, 0.0]) + BIAS * np.outer(mean, mean))
    scale, bias = _fit(z, labels, w, start, ridge)
    if not BETA_RANGE[0] < scale < BETA_RANGE[1]:
        why = "scores that do not agree with the labels" if scale < 1 else "separable data"
        scale = float(np.clip(scale, *BETA_RANGE))
        held = np.array([scale, start[1] - ridge[0, 1] / ridge[1, 1] * (scale - start[0])])
        bias = _fit(z, labels, w, held, np.diag([1e9 * (strength + w.sum()), ridge[1, 1]]))[1]
        warnings.warn(f"scale: found {scale:g}, a bound of its range, as for {why}", CalibrationWarning, stacklevel=2)
    return Platt(scale, bias, bound)


def _inputs(p: Any, y: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Checked log-odds within a bound, labels and weights, and the bound.

    The bound is the largest log-odds, in size, of probabilities that are not stated as certain, and `LEAST_BOUND` at
    least, so that a few middling ones do not cut off all that are clear. It does not grow with the number of labels:
    certainties far from the others would turn the map of these.
    """
    z, labels, w = fit_inputs(p, y, weight)
    bound = float(np.abs(z[~certain(p) & (w > 0)]).max(initial=LEAST_BOUND))
    return np.clip(z, -bound, bound), labels, w, bound


def _fit(z: np.ndarray, y: np.ndarray, w: np.ndarray, around: np.ndarray, ridge: np.ndarray) -> tuple[float, float]:
    """Scale and bias of least logistic loss, with a penalty on their distance from `around`."""
    scale, bias = fit_logistic(np.stack([z, np.ones_like(z)]).T, y, w, ridge, around).tolist()
    return scale, bias
