"""The context head: a logistic regression from what was known at the moment of an offer to log-odds of acceptance.

Every choice (ridge, and whether numbers get pieces) is made by predictions for people who were left out, inside the
people of the training rows. The log-odds are those of the people as a whole; the person layer adds who is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int

from prism_jax.people.design import design
from prism_jax.people.logs import ContextColumn

RIDGES = (1000.0, 200.0, 50.0, 15.0, 3.0)
"""Penalties lambda that are compared; the loss is the sum of negative log-likelihoods plus lambda |w|^2 / 2."""
PIECES = (0, 6)
"""Numbers of pieces that are compared."""
INNER_FOLDS = 5
_STEPS = 30
_TOLERANCE = 1e-7
"""Gain of a Newton step, per row, at which a fit ends; the next step would gain about its square."""


@dataclasses.dataclass(frozen=True)
class HeadFit:
    """Log-odds from context."""

    # Of every row. A training row's comes from a fit without its person; the others' from the fit on all training rows.
    # ridge, pieces: The settings that were chosen.
    log_odds: Float64[np.ndarray, " rows"]
    ridge: float
    pieces: int


def folds_of_people(
    person: Int[np.ndarray, " rows"], most: int, seed: int, among: Bool[np.ndarray, " rows"] | None = None
) -> Int[np.ndarray, " rows"]:
    """A fold for each row: whole people, as many in each fold as possible; one per person where there are fewer.

    Args:
      person: Code of each row's person.
      most: Largest number of folds.
      seed: Seed of the order in which people are dealt out.
      among: Rows whose people are dealt out; the others get -1. None is all.
    """
    chosen = np.unique(person if among is None else person[among])
    fold = np.full(int(person.max()) + 1, -1)
    fold[np.random.default_rng(seed).permutation(chosen)] = np.arange(len(chosen)) % min(most, len(chosen))
    return fold[person]


def fit_head(
    columns: Sequence[ContextColumn],
    accepted: Float64[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    train: Bool[np.ndarray, " rows"],
    weight: Float64[np.ndarray, " rows"] | None = None,
) -> HeadFit:
    """Chooses the settings by left-out training people, fits, and predicts every row.

    Args:
      columns: The context.
      accepted: 1 or 0; anything on rows that do not train.
      person: Code of each row's person.
      train: Rows that train.
      weight: Weight of each row, about 1 on average; None is 1 everywhere.
    """
    labels = np.where(train, accepted, 0.0)
    weight = np.ones(len(labels)) if weight is None else weight
    fold = folds_of_people(person, INNER_FOLDS, 1, train)
    held = {(pieces, ridge): np.zeros(len(person)) for pieces in PIECES for ridge in RIDGES}
    for number in range(fold.max() + 1):
        inside, outside = train & (fold != number), train & (fold == number)
        if not inside.any():
            continue  # one person only: the head is the constant
        for pieces in PIECES:
            features = design(columns, inside, pieces)
            for ridge, weights, intercept in path(features[inside], labels[inside], weight[inside]):
                held[pieces, ridge][outside] = features[outside] @ weights + intercept
    y, z = labels[train], {setting: log_odds[train] for setting, log_odds in held.items()}
    pieces, ridge = min(z, key=lambda one: float(weight[train] @ (np.logaddexp(0, z[one]) - y * z[one])))
    features = design(columns, train, pieces)
    weights, intercept = regress(features[train], labels[train], ridge, weight[train])
    return HeadFit(np.where(train, held[pieces, ridge], features @ weights + intercept), ridge, pieces)


def path(
    features: Float64[np.ndarray, "rows features"],
    labels: Float64[np.ndarray, " rows"],
    weight: Float64[np.ndarray, " rows"],
) -> Sequence[tuple[float, Float64[np.ndarray, " features"], float]]:
    """(ridge, weights, intercept) for every ridge, each fit starting from the one before."""
    found, start = [], None
    for ridge in RIDGES:
        start = regress(features, labels, ridge, weight, start)
        found.append((ridge, *start))
    return found


def regress(
    features: Float64[np.ndarray, "rows features"],
    labels: Float64[np.ndarray, " rows"],
    ridge: float,
    weight: Float64[np.ndarray, " rows"],
    start: tuple[np.ndarray, float] | None = None,
) -> tuple[Float64[np.ndarray, " features"], float]:
    """Ridge logistic regression by Newton's method, with halved steps where the loss would grow.

    Args:
      features: One row per answer.
      labels: 1 or 0.
      ridge: Penalty of the weights; the intercept has none.
      weight: Of each row in the loss.
      start: What an earlier call returned for the same rows.

    Returns:
      The weights and the intercept.
    """
    x = np.column_stack([features, np.ones(len(features))])
    penalty = np.append(np.full(features.shape[1], ridge), 1e-6)
    base = float(np.clip(np.average(labels, weights=weight), 1e-3, 1 - 1e-3))
    w = np.append(np.zeros(features.shape[1]), np.log(base / (1 - base))) if start is None else np.append(*start)

    def loss(w: np.ndarray) -> float:
        z = x @ w
        return float(weight @ (np.logaddexp(0, z) - labels * z) + penalty @ w**2 / 2)

    here = loss(w)
    for _ in range(_STEPS):
        p = scipy.special.expit(x @ w)
        hessian = (x * (weight * p * (1 - p))[:, None]).T @ x + np.diag(penalty)
        step = scipy.linalg.solve(hessian, x.T @ (weight * (labels - p)) - penalty * w, assume_a="pos")
        length = 1.0
        while (there := loss(w + length * step)) > here + 1e-12 * abs(here) and length > 1e-6:
            length /= 2
        w = w + length * step
        if here - there < _TOLERANCE * len(labels):
            break
        here = there
    return w[:-1], float(w[-1])
