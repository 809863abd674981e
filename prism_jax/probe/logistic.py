"""Logistic regression with a ridge on standardised columns and one intercept per training stream.

The intercept of a stream takes up how often its user accepts anything, so that the weights explain differences within
streams. It is dropped for a stream that was not trained on.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy
from jaxtyping import Float, Shaped

from prism_jax.decision.calibration import Platt
from prism_jax.decision.logistic import fit_logistic
from prism_jax.probe.probe_config import StatesConfig

STREAM_RIDGE = 0.5
"""Ridge of the streams' intercepts."""
PLATT_RIDGE = 1e-3
"""Ridge of the two numbers of a Platt map, so that separable labels have an answer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Linear:
    """A fitted regression: log-odds = intercept + Σ weight · (x - mean) / scale, where a missing x is its mean."""

    mean: Float[np.ndarray, " d"]  # of each column over the training rows
    scale: Float[np.ndarray, " d"]  # standard deviation of each column; 1 for a constant one
    weight: Float[np.ndarray, " d"]  # of each standardised column
    intercept: float  # which all streams share

    def log_odds(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Computes the log-odds of rows; NaN is a missing value."""
        return standardise(x, self.mean, self.scale) @ self.weight + self.intercept


def moments(x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mean and standard deviation of each column over its known values; the deviation of a constant column is 1."""
    known = ~np.isnan(x)
    number = np.maximum(known.sum(0), 1)
    mean = np.where(known, x, 0.0).sum(0) / number
    deviation = np.sqrt(np.where(known, (x - mean) ** 2, 0.0).sum(0) / number)
    return mean, np.where(deviation > 1e-9, deviation, 1.0)


def standardise(
    x: Float[np.ndarray, "n d"], mean: Float[np.ndarray, " d"], scale: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "n d"]:
    """Standardises columns; a missing value becomes 0, the mean."""
    return np.nan_to_num((x - mean) / scale, nan=0.0)


def fit(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    stream: Shaped[np.ndarray, " n"],
    ridge: float,
) -> Linear:
    """Minimises Σ weight · cross-entropy + ridge/2 · |weights|² + STREAM_RIDGE/2 · |intercepts of streams|².

    The ridge is on the weights of the standardised columns; the shared intercept has none. NaN in `x` is a missing
    value. Labels lie in [0, 1]; a share of votes counts as that share of a 1.

    Raises:
      ValueError: for labels that are all 0, or all 1, or none.
    """
    if not len(y) or y.max() == 0 or y.min() == 1:
        labels = f"{len(y)} labels, all of them {y[0]:g}" if len(y) else "no label"
        raise ValueError(f"found {labels} on the training streams, expected some above 0 and some below 1")
    mean, scale = moments(x)
    _, index = np.unique(stream, return_inverse=True)
    own = np.eye(index.max() + 1)[index]
    design = np.concatenate([np.ones((len(y), 1)), standardise(x, mean, scale), own], axis=1)
    penalty = np.concatenate([[0.0], np.full(x.shape[1], ridge), np.full(own.shape[1], STREAM_RIDGE)])
    theta = fit_logistic(design, y, weight, np.diag(penalty))
    return Linear(mean, scale, theta[1 : 1 + x.shape[1]], float(theta[0]))


def fit_states(
    x: Float[np.ndarray, "n width"],
    y: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    stream: Shaped[np.ndarray, " n"],
    config: StatesConfig,
) -> Linear:
    """Fits a regression on the first principal components of standardised columns.

    The result is one weight per column: a component is a linear function of the columns, and the log-odds one of the
    components. Errors are those of `logistic.fit`.
    """
    x = np.asarray(x, np.float64)
    mean, scale = moments(x)
    z = standardise(x, mean, scale)
    directions = _components(z, config.components)
    fitted = fit(z @ directions, y, weight, stream, config.ridge)
    per_component = fitted.weight / fitted.scale
    return Linear(mean, scale, directions @ per_component, fitted.intercept - float(per_component @ fitted.mean))


def _components(z: Float[np.ndarray, "n width"], count: int) -> Float[np.ndarray, "width k"]:
    """The first principal directions, of unit length; fewer than `count` where the rank is lower."""
    n, width = z.shape
    gram = z @ z.T if n < width else z.T @ z
    size = len(gram)
    value, vector = scipy.linalg.eigh(gram, subset_by_index=(max(0, size - count), size - 1))
    vector = vector[:, value > 1e-9 * max(value.max(), 1e-30)]
    directions = z.T @ vector if n < width else vector
    return directions / np.maximum(np.linalg.norm(directions, axis=0), 1e-30)


def fit_platt_with_ridge(
    z: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]
) -> Platt:
    """Fits the map of least weighted cross-entropy from log-odds to labels in [0, 1].

    `calibration.fit_platt` smooths the labels instead of having a ridge, so its numbers are others.
    """
    theta = fit_logistic(np.stack([np.ones_like(z), z]).T, y, weight, PLATT_RIDGE * np.eye(2))
    return Platt(scale=float(theta[1]), bias=float(theta[0]))
