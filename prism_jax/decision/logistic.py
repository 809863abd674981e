"""Logistic regression with a quadratic penalty: what fits Platt's maps, the probe and the context head."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import scipy
from jaxtyping import Float64

PRECISION = 1e-18
"""Distance of the loss from its minimum, relative to the loss, at which a fit ends by default."""
_STEPS = 100
_CHUNK = 1 << 14  # numbers per chunk of rows, whose temporary arrays fit the cache and whose products need one thread
_LEAST_ROWS = 1 << 10  # of a chunk, so that the products of many columns stay fast
_FEW = 16  # columns up to which a Hessian costs hardly more than a gradient
_SLOW = 0.1  # what a step with an older Hessian may leave of the decrement of the step before


def fit_logistic(
    x: Float64[np.ndarray, "rows columns"],
    y: Float64[np.ndarray, " rows"],
    weight: Float64[np.ndarray, " rows"],
    ridge: Float64[np.ndarray, "columns columns"],
    around: Float64[np.ndarray, " columns"] | None = None,
) -> Float64[np.ndarray, " columns"]:
    """The coefficients t that minimise a weighted cross-entropy with a penalty; the fit begins at `around`.

        sum_i weight_i * (log(1 + exp(x_i t)) - y_i * x_i t) + (t - around)' ridge (t - around) / 2

    Args:
      x: One row per label; an intercept is a column of ones.
      y: Labels in [0, 1]; one in between counts as that share of a 1 and the rest of a 0.
      weight: Importance of each row, at least 0.
      ridge: Symmetric, without negative eigenvalues.
      around: Where the penalty is 0; None is the origin.
    """
    around = np.zeros(x.shape[1]) if around is None else around
    return fit_path(x, y, weight, [ridge], around, around)[0]


def fit_path(
    x: Float64[np.ndarray, "rows columns"],
    y: Float64[np.ndarray, " rows"],
    weight: Float64[np.ndarray, " rows"],
    ridges: Iterable[Float64[np.ndarray, "columns columns"]],
    start: Float64[np.ndarray, " columns"],
    around: Float64[np.ndarray, " columns"] | None = None,
    precision: float = PRECISION,
) -> list[Float64[np.ndarray, " columns"]]:
    """The coefficients of `fit_logistic` for each of several penalties, every fit beginning where the one before ended.

    Newton's method with halved steps, up to a distance of the loss from its minimum of `precision`, relative to the
    loss. With many columns a Hessian serves for as long as its steps converge fast, also for the next penalty. Where
    one is singular, the shortest step is taken.
    """
    around = np.zeros(x.shape[1]) if around is None else around
    rows = max(_LEAST_ROWS, _CHUNK // max(x.shape[1], 1))
    chunks = [slice(first, first + rows) for first in range(0, len(x), rows)]

    def at(theta: np.ndarray, ridge: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Loss, gradient, and the curvature of each row's own loss."""
        pull = ridge @ (theta - around)
        loss, gradient, curvature = float(pull @ (theta - around)) / 2, pull, np.empty(len(x))
        for part in chunks:
            z, w = x[part] @ theta, weight[part]
            tail = np.exp(-np.abs(z))
            p = np.where(z >= 0, 1.0, tail) / (1 + tail)
            loss += float(w @ (np.maximum(z, 0.0) + np.log1p(tail) - y[part] * z))
            gradient = gradient + (w * (p - y[part])) @ x[part]
            curvature[part] = w * p * (1 - p)
        return loss, gradient, curvature

    def second(curvature: np.ndarray) -> np.ndarray:
        """The Hessian without the penalty's."""
        scaled = (x[part] * np.sqrt(curvature[part])[:, None] for part in chunks)
        return sum((part.T @ part for part in scaled), np.zeros((x.shape[1], x.shape[1])))

    theta, hessian, fits = start, None, []
    for ridge in ridges:
        loss, gradient, curvature = at(theta, ridge)
        solve, last = None if hessian is None else _solver(hessian + ridge), np.inf
        for _ in range(_STEPS):
            step = None if solve is None else solve(gradient)
            if step is None or x.shape[1] <= _FEW or gradient @ step > _SLOW * last:
                hessian = second(curvature)
                solve = _solver(hessian + ridge)
                step = solve(gradient)
            decrement, size = float(gradient @ step), 1.0
            if decrement <= precision * loss:
                break
            new = at(theta - step, ridge)
            while new[0] > loss - 1e-4 * size * decrement + 1e-14 * loss:
                size /= 2
                new = at(theta - size * step, ridge)
            theta, last = theta - size * step, decrement
            loss, gradient, curvature = new
        fits.append(theta)
    return fits


def _solver(hessian: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Solves equations with a Hessian by its Cholesky factor, and by least squares where it is singular."""
    try:
        factor = scipy.linalg.cho_factor(hessian)
    except np.linalg.LinAlgError:
        pivots = np.zeros(1)
    else:
        pivots = np.diag(factor[0])
    if pivots.min() > 1e-6 * pivots.max():
        return lambda gradient: scipy.linalg.cho_solve(factor, gradient)
    return lambda gradient: np.linalg.lstsq(hessian, gradient, rcond=1e-12)[0]
