"""Intervals of a mean over rows when the rows of one person depend on each other: people are resampled."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.decision.off_policy.estimators import Estimator, Logged, Rows, covered, difference_terms, savings
from prism_jax.decision.uncertainty import Estimate

LEAST_PEOPLE = 8
"""Smallest number of people; intervals of fewer miss the truth too often, or have no width."""


_KEPT = 1 << 22
"""Up to so many draws are kept for the next interval; of more, some resamples at a time are drawn again."""


@functools.lru_cache(maxsize=4)
def _drawn(people: int, resamples: int, seed: int) -> Float64[np.ndarray, "resamples people"]:
    """How often each person is in each resample."""
    return np.concatenate(list(_draws(people, resamples, seed)))


def _draws(people: int, resamples: int, seed: int) -> Iterator[Float64[np.ndarray, "block people"]]:
    """The same in blocks of bounded size."""
    generator, shares = np.random.default_rng(seed), np.full(people, 1 / people)
    block = max(1, _KEPT // people)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        yield generator.multinomial(people, shares, size=size).astype(np.float64)


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
    sums = np.stack([np.bincount(person, terms), np.bincount(person)], axis=1)
    return means_over_people(sums, level=level, resamples=resamples, seed=seed)[0]


def means_over_people(
    sums: Float64[np.ndarray, "people terms_and_rows"], *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> list[Estimate]:
    """`mean_over_people` of several terms on the same resamples: each person's sum of each, and last number of rows."""
    people = len(sums)
    if people < LEAST_PEOPLE:
        raise ValueError(f"person: found {people} people, expected at least {LEAST_PEOPLE} to resample")
    if not 0 < level < 1:
        raise ValueError(f"level: found {level}, expected a coverage strictly between 0 and 1")
    count = sums[:, -1]
    powers = np.concatenate([_powers(total, count) for total in sums[:, :-1].T], axis=1)
    few = people * resamples <= _KEPT
    blocks = [_drawn(people, resamples, seed)] if few else _draws(people, resamples, seed)
    resampled = np.concatenate([block @ powers for block in blocks])
    return [
        _studentised_interval(powers[:, part].sum(axis=0), resampled[:, part], level)
        for part in (slice(i, i + 5) for i in range(0, powers.shape[1], 5))
    ]


def _powers(total: Float64[np.ndarray, " people"], count: Float64[np.ndarray, " people"]) -> np.ndarray:
    return np.stack([total, count, total**2, total * count, count**2], axis=1)


def _studentised_interval(
    sums: Float64[np.ndarray, "5"], resampled: Float64[np.ndarray, "resamples 5"], level: float
) -> Estimate:
    """The bootstrap-t interval of a mean, from its sums over people and those of every resample."""
    mean, error = _studentised(sums)
    means, errors = _studentised(resampled)
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
    return widened(estimate, float(np.where(covered(logged), 0.0, target).mean()), c_fa, c_fn)


def widened(estimate: Estimate, unseen: float, c_fa: float, c_fn: float) -> Estimate:
    """The interval of a difference with what offers of the target that the log could not show may cost.

    `unseen` is their share of the rows.
    """
    return estimate._replace(low=estimate.low - c_fn * unseen, high=estimate.high + c_fa * unseen)


def _studentised(
    sums: Float64[np.ndarray, "*resamples 5"],
) -> tuple[Any, Any]:
    """The mean over rows and its standard error from sums over people of t, n, t^2, t n and n^2."""
    total, count, squares, cross, counts = np.moveaxis(sums, -1, 0)
    mean = total / count
    spread = np.maximum(squares - 2 * mean * cross + mean**2 * counts, 0.0)
    return mean, np.sqrt(spread) / count
