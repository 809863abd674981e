"""The context head: a logistic regression from what was known at the moment of an offer to log-odds of acceptance.

Every choice (ridge, and whether numbers get pieces) is made by predictions for people who were left out, inside the
people of the training rows. The log-odds are those of the people as a whole; the person layer adds who is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int
from threadpoolctl import threadpool_limits

from prism_jax.decision.logistic import fit_path
from prism_jax.evaluation.answers.logs import ContextColumn

LEAST_ROWS = 10
"""Training rows that a level of a category, or a missing value, needs in order to get a weight of its own."""
_FARTHEST = 4.0
"""Standard deviations beyond which a number counts as this far."""


def design(
    columns: Sequence[ContextColumn], train: Bool[np.ndarray, " rows"], pieces: int = 0
) -> Float64[np.ndarray, "rows features"]:
    """One column per feature, each with mean 0 over the training rows; numbers have standard deviation 1.

    A number gives itself and its signed logarithm, and, with `pieces`, one step at each quantile that divides the
    training rows into that many parts. A category gives one indicator for each level with enough training rows; the
    other levels share one. Missing values of numbers and flags take the mean, and an indicator says that they miss.
    """
    features = [feature for column in columns for feature in _features(column, train, pieces)]
    if not features:
        return np.zeros((len(train), 0))
    return np.stack(features, axis=1)


def _features(
    column: ContextColumn, train: Bool[np.ndarray, " rows"], pieces: int
) -> Iterator[Float64[np.ndarray, " rows"]]:
    if column.kind == "category":
        counts = np.bincount(column.values[train & (column.values >= 0)].astype(np.int64), minlength=len(column.levels))
        common = counts >= LEAST_ROWS
        known = column.values >= 0
        rare = known & ~common[column.values]
        for group in (*(column.values == level for level in np.flatnonzero(common)), rare, ~known):
            yield from _indicator(group, train)
        return
    missing = np.isnan(column.values)
    yield from _indicator(missing, train)
    if column.kind == "flag":
        yield from _standard(column.values, train & ~missing, scaled=False)
        return
    yield from _standard(column.values, train & ~missing)
    yield from _standard(np.sign(column.values) * np.log1p(np.abs(column.values)), train & ~missing)
    known = column.values[train & ~missing]
    if pieces and len(known):
        for cut in np.unique(np.quantile(known, np.arange(1, pieces) / pieces)):
            yield from _standard(np.where(missing, np.nan, column.values > cut), train & ~missing, scaled=False)


def _indicator(group: Bool[np.ndarray, " rows"], train: Bool[np.ndarray, " rows"]) -> Iterator[np.ndarray]:
    """The group's indicator, if it has enough training rows on both sides."""
    if LEAST_ROWS <= group[train].sum() <= train.sum() - LEAST_ROWS:
        yield group - group[train].mean()


def _standard(
    values: Float64[np.ndarray, " rows"], known: Bool[np.ndarray, " rows"], scaled: bool = True
) -> Iterator[np.ndarray]:
    """The values without their mean, in standard deviations if `scaled`; nothing if the training rows are all equal."""
    if not known.any():
        return
    mean, spread = values[known].mean(), values[known].std()
    if spread > 1e-12 * max(1.0, abs(mean)):
        yield np.clip(np.nan_to_num((values - mean) / (spread if scaled else 1.0)), -_FARTHEST, _FARTHEST)


RIDGES = (1000.0, 200.0, 50.0, 15.0, 3.0)
"""Penalties lambda that are compared; the loss is the sum of negative log-likelihoods plus lambda |w|^2 / 2."""
PIECES = (0, 6)
"""Numbers of pieces that are compared."""
INNER_FOLDS = 5
_PRECISION = 1e-14
"""Distance of a fit's loss from its minimum, relative to the loss: log-odds are then right to about 1e-6."""


@dataclasses.dataclass(frozen=True)
class HeadFit:
    """Log-odds from context, and the settings that were chosen."""

    # a training row's comes from a fit without its person, another row's from the fit on all training rows
    log_odds: Float64[np.ndarray, " rows"]
    ridge: float
    pieces: int


def folds_of_people(
    person: Int[np.ndarray, " rows"], most: int, seed: int, among: Bool[np.ndarray, " rows"] | None = None
) -> Int[np.ndarray, " rows"]:
    """A fold for each row: whole people in `most` folds of about equal size; one per person where there are fewer.

    The seed orders the people. `among` marks the rows whose people are dealt out, None is all; the others get -1.
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

    Answers of rows that do not train are not read. Weights are about 1 on average; None is 1 everywhere.
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
            fits = path(features[inside], labels[inside], weight[inside], RIDGES)
            for ridge, (weights, intercept) in zip(RIDGES, fits, strict=True):
                held[pieces, ridge][outside] = features[outside] @ weights + intercept
    y, z = labels[train], {setting: log_odds[train] for setting, log_odds in held.items()}
    pieces, ridge = min(z, key=lambda setting: float(weight[train] @ (np.logaddexp(0, z[setting]) - y * z[setting])))
    features = design(columns, train, pieces)
    [(weights, intercept)] = path(features[train], labels[train], weight[train], [ridge])
    return HeadFit(np.where(train, held[pieces, ridge], features @ weights + intercept), ridge, pieces)


def path(
    features: Float64[np.ndarray, "rows features"],
    labels: Float64[np.ndarray, " rows"],
    weight: Float64[np.ndarray, " rows"],
    ridges: Sequence[float],
) -> list[tuple[Float64[np.ndarray, " features"], float]]:
    """Weights and intercept of a logistic regression for every ridge, a penalty of the weights.

    Each fit starts from the one before.
    """
    base = float(np.clip(np.average(labels, weights=weight), 1e-3, 1 - 1e-3))
    start = np.append(np.zeros(features.shape[1]), np.log(base / (1 - base)))
    penalties = (np.diag(np.append(np.full(features.shape[1], ridge), 1e-6)) for ridge in ridges)
    x = np.column_stack([features, np.ones(len(features))])
    with threadpool_limits(1, "blas"):  # threads would wait for each other longer than these products take
        fits = fit_path(x, labels, weight, penalties, start, precision=_PRECISION)
    return [(fit[:-1], float(fit[-1])) for fit in fits]
