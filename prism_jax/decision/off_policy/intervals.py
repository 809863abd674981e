"""Intervals of a mean over rows when the rows of one person depend on each other: people are resampled."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.decision.off_policy.estimators import Estimator, Logged, Rows, covered, difference_terms, savings
from prism_jax.decision.uncertainty import Estimate

LEAST_PEOPLE = 8
"""Smallest number of people; intervals of fewer miss the truth too often, or have no width."""


@functools.lru_cache(maxsize=4)
def _drawn(people: int, resamples: int, seed: int) -> Float64[np.ndarray, "resamples people"]:
    """How often each person is in each resample."""
    shares = np.full(people, 1 / people)
    return np.random.default_rng(seed).multinomial(people, shares, size=resamples).astype(np.float64)


def mean_over_people(
    terms: Float64[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """The mean of terms over rows, with a bootstrap-t interval over resamples of whole people.

    Each resample is studentised by its own standard error (Efron and Tibshirani 1993, section 12.5), which covers
    better than percentiles where people have very different numbers of rows. People are numbered from 0 without gaps.

    Raises:
      ValueError: for fewer than `LEAST_PEOPLE` people, or a level outside (0, 1).
    """
    count = np.bincount(person).astype(np.float64)
    people = len(count)
    if people < LEAST_PEOPLE:
        raise ValueError(f"person: found {people} people, expected at least {LEAST_PEOPLE} to resample")
    if not 0 < level < 1:
        raise ValueError(f"level: found {level}, expected a coverage strictly between 0 and 1")
    total = np.bincount(person, terms)
    sums = np.stack([total, count, total**2, total * count, count**2], axis=1)
    mean, error = _studentised(sums.sum(axis=0))
    means, errors = _studentised(_drawn(people, resamples, seed) @ sums)
    usable = errors > 1e-12 * max(float(error), 1e-300)
    if error == 0 or not usable.any():  # all people have the same mean: nothing varies
        return Estimate(mean, mean, mean, error, 0.0)
    ratios = (means[usable] - mean) / errors[usable]
    low, high = np.quantile(ratios, [(1 + level) / 2, (1 - level) / 2])
    return Estimate(mean, mean - low * error, mean - high * error, error, 1 - usable.mean())


def difference(
    estimator: Estimator,
    target: Rows,
    logged: Logged,
    person: Int[np.ndarray, " rows"],
    *,
    c_fa: float,
    c_fn: float,
    model: Rows | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """What a target that offers with probability pi changes in the mean cost, with an interval over people.

    The estimate is about the offers that the log could show. Any other offer of the target changes the cost by between
    -C_FN and C_FA, so the interval is wider by their share of the rows times C_FA + C_FN. `check_support` says whether
    the log can answer. `model` predicts what an offer changes, for `dr`. People are numbered from 0 without gaps.
    """
    terms = difference_terms(estimator, target, logged, savings(logged, c_fa, c_fn), model)
    estimate = mean_over_people(terms, person, level=level, resamples=resamples, seed=seed)
    unseen = float(np.where(covered(logged), 0.0, target).mean())
    return estimate._replace(low=estimate.low - c_fn * unseen, high=estimate.high + c_fa * unseen)


def _studentised(
    sums: Float64[np.ndarray, "*resamples 5"],
) -> tuple[Any, Any]:
    """The mean over rows and its standard error from sums over people of t, n, t^2, t n and n^2."""
    total, count, squares, cross, counts = np.moveaxis(sums, -1, 0)
    mean = total / count
    spread = np.maximum(squares - 2 * mean * cross + mean**2 * counts, 0.0)
    return mean, np.sqrt(spread) / count
