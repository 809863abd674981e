"""Logistic regression on the principal components of states."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped
from scipy import linalg

from prism_jax.probe.config import StatesConfig
from prism_jax.probe.logistic import Linear, fit, moments, standardise


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
    value, vector = linalg.eigh(gram, subset_by_index=(max(0, size - count), size - 1))
    vector = vector[:, value > 1e-9 * max(value.max(), 1e-30)]
    directions = z.T @ vector if n < width else vector
    return directions / np.maximum(np.linalg.norm(directions, axis=0), 1e-30)
