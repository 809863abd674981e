"""The model of the doubly robust estimate: linear, and cross-fitted by folds of people.

All that it needs of a log are sums: `Moments` of the features, and from these `normal_equations`. Those of the parts of
a log add up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.decision.off_policy.estimators import Logged, Rows

_RIDGE = 1.0
"""Ridge of the model on standardised features: one pseudo-row."""
Features = Float64[np.ndarray, "rows features"]


class Moments(NamedTuple):
    """What standardises features."""

    rows: int
    mean: Float64[np.ndarray, " features"]
    squares: Float64[np.ndarray, " features"]  # sums of the squared distances to the mean

    @classmethod
    def of(cls, features: Features) -> Moments:
        """The moments of some rows."""
        return cls(len(features), features.mean(axis=0), features.var(axis=0) * len(features))

    def merge(self, other: Moments) -> Moments:
        """The moments of the rows of both (Chan, Golub and LeVeque 1983)."""
        rows, apart = self.rows + other.rows, other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * (self.rows * other.rows / rows)
        return Moments(rows, self.mean + apart * (other.rows / rows), squares)

    def standardised(self, features: Features) -> Float64[np.ndarray, "rows columns"]:
        """A column of ones, and features of mean 0 and standard deviation 1."""
        spread = np.sqrt(self.squares / self.rows)
        scaled = (features - self.mean) / np.where(spread > 0, spread, 1)
        return np.column_stack([np.ones(len(features)), scaled])


def normal_equations(
    x: Float64[np.ndarray, "rows columns"],
    outcomes: Float64[np.ndarray, "rows outcomes"],
    logged: Logged,
    fold: Int[np.ndarray, " rows"],
    folds: int,
) -> Float64[np.ndarray, "folds columns columns_and_outcomes"]:
    """X'X and beside it X'Y of each fold, over the offers that were made."""
    both = np.column_stack([x, np.where(logged.offered[:, None], outcomes, 0.0)])
    used = (logged.offered & (fold == number) for number in range(folds))
    # Without BLAS, whose threads would be in the way of other processes that work on parts.
    return np.stack([np.einsum("rc,ro->co", x[rows], both[rows]) for rows in used])


def coefficients(
    equations: Float64[np.ndarray, "folds columns columns_and_outcomes"],
) -> Float64[np.ndarray, "folds columns outcomes"]:
    """The coefficients for the rows of each fold, of the offers of all other folds."""
    size = equations.shape[1]
    ridge = _RIDGE * np.diag([1e-9, *np.ones(size - 1)])
    fitted = []
    for held_out in equations:
        training = sum(equations) - held_out
        fitted.append(np.linalg.solve(training[:, :size] + ridge, training[:, size:]))
    return np.stack(fitted)


def predictions(
    x: Float64[np.ndarray, "rows columns"],
    fitted: Float64[np.ndarray, "folds columns outcomes"],
    fold: Int[np.ndarray, " rows"],
) -> Float64[np.ndarray, "rows outcomes"]:
    """What the model for each row's fold predicts."""
    return np.einsum("rc,rco->ro", x, fitted[fold])


def cross_fitted(features: Features, outcome: Rows, logged: Logged, fold: Int[np.ndarray, " rows"]) -> Rows:
    """Predictions of an outcome for every row, by linear models that were fitted on the offers of the other folds.

    Features are what was known at the moment of the offer. The outcome is read only where the offer was made. Folds are
    numbered from 0, and all rows of a person are in one.
    """
    x = Moments.of(features).standardised(features)
    fitted = coefficients(normal_equations(x, outcome[:, None], logged, fold, int(fold.max()) + 1))
    return predictions(x, fitted, fold)[:, 0]
