"""Turns context columns into numbers for a regression, with statistics of the training rows only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.people.logs import ContextColumn

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
