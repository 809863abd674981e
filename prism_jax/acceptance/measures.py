"""How well predictions of acceptance rank and how well they are calibrated, with intervals over people.

auroc is the probability that an accepted offer is ranked above a rejected one, over all pairs of the log; within_person
is the same over the pairs that belong to one person, so that a difference between people cannot help. brier is the mean
of (p - y)^2 and ece the expected calibration error in 15 equal bins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int

from prism_jax.decision.calibration import brier_score, expected_calibration_error
from prism_jax.decision.uncertainty import SHARE, Bounds, Cells, Estimate, Resampled, interval, mean_interval_of
from prism_jax.evaluation.intervals import known

RESAMPLES = 1000
BINS = 15
_MOST_RANKS = 512
"""Distinct ranks in the interval of auroc; the estimate itself uses every rank."""


class Measures(NamedTuple):
    """One row of the results; None where a measure is not defined for the row."""

    auroc: Estimate | None
    within_person: Estimate | None
    brier: Estimate | None
    ece: Estimate | None

    def as_dict(self) -> dict[str, Any]:
        """The measures as JSON values, by name."""
        return {name: None if value is None else as_json(value) for name, value in self._asdict().items()}


def as_json(estimate: Estimate) -> dict[str, float | None]:
    """A number and its 95 % interval as JSON values, null ends where there are too few people."""
    return {"value": float(estimate.value), "low": known(estimate.low), "high": known(estimate.high)}


def auroc(
    scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"], weight: Float[np.ndarray, " rows"] | None = None
) -> float:
    """Weighted share of pairs of an accepted and a rejected offer that the scores rank right; ties count half.

    The weight of a pair is the product of its two.
    """
    concordant, pairs = _pairs(scores, y, np.ones(len(y)) if weight is None else weight)
    return concordant / pairs if pairs else float("nan")


def pairs_by_person(
    scores: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
) -> Float64[np.ndarray, "people 2"]:
    """For each person, the weight of pairs that are ranked right (ties count half) and the weight of all pairs."""
    order = np.argsort(person, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(person[order])) + 1)
    return np.array([_pairs(scores[rows], y[rows], weight[rows]) for rows in parts])


def measure(
    scores: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    *,
    probability: bool = True,
    ranking: Float[np.ndarray, " rows"] | None = None,
    weight: Float[np.ndarray, " rows"] | None = None,
    seed: int = 0,
) -> Measures:
    """Measures predictions against answers, 1 or 0.

    Scores are probabilities, or any numbers that rank; without `probability`, brier and ece are None. `ranking` are
    numbers that rank in place of the scores. Weights of None are 1 everywhere.
    """
    ranked_by = scores if ranking is None else ranking
    weight = np.ones(len(y)) if weight is None else weight
    person = np.unique(person, return_inverse=True)[1]
    people = int(person.max()) + 1

    def with_interval(units: np.ndarray, statistic: Any, value: float) -> Estimate:
        return share_of(Cells.of_units(units), statistic, value, seed)

    rank = _coarse_ranks(ranked_by)
    ranks = int(rank.max()) + 1
    cell = person * 2 * ranks + np.where(y == 1, rank, ranks + rank)
    cells = np.bincount(cell, weight, people * 2 * ranks).reshape(people, -1)
    over_all = with_interval(cells, _auroc_of_counts, auroc(ranked_by, y, weight))
    pairs = pairs_by_person(ranked_by, y, person, weight)
    within = with_interval(pairs, ratio, float(ratio(pairs.sum(axis=0)))) if pairs[:, 1].any() else None
    if not probability:
        return Measures(over_all, within, None, None)
    squares = np.stack([np.bincount(person, weight * (scores - y) ** 2), np.bincount(person, weight)], axis=1)
    gaps = np.bincount(person * BINS + bin_of(scores), weight * (scores - y), people * BINS).reshape(people, BINS)
    return Measures(
        over_all,
        within,
        with_interval(squares, ratio, float(brier_score(scores, y, weight))),
        with_interval(
            np.column_stack([gaps, squares[:, 1]]),
            mean_gap,
            float(expected_calibration_error(scores, y, weight, bins=BINS)),
        ),
    )


def share_of(cells: Cells | Resampled, statistic: Any, value: float, seed: int) -> Estimate:
    """A measure between 0 and 1 with its interval over people, of whom `cells` has sums."""
    estimate = interval(cells, statistic, bounds=SHARE, resamples=RESAMPLES, seed=seed)
    return Estimate(value, float(estimate.low), float(estimate.high))


def ratio(sums: Any) -> Any:
    """The first of some sums, [..., 2], divided by the second."""
    with np.errstate(invalid="ignore"):
        return sums[..., 0] / sums[..., 1]


def mean_gap(sums: Any) -> Any:
    """The expected calibration error from the sums of w (p - y) in each bin and of w, [..., bins + 1]."""
    return np.abs(sums[..., :-1]).sum(axis=-1) / sums[..., -1]


def bin_of(p: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """The bin of each probability in the expected calibration error."""
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def weighted_means(
    values: Float64[np.ndarray, "values rows"],
    weight: Float64[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    most: Float64[np.ndarray, " values"],
    seed: int = 0,
) -> list[Estimate]:
    """The weighted mean of each of the values.

    `most` is the largest value of each mean whose smallest is 0, and infinite for a difference.
    """
    unit = np.unique(person, return_inverse=True)[1]
    sums = [np.bincount(unit, row * weight) for row in values]
    return means_of(Cells.of_units(np.stack([*sums, np.bincount(unit, weight)], axis=1)), most, seed)


def means_of(cells: Cells | Resampled, most: Float64[np.ndarray, " values"], seed: int = 0) -> list[Estimate]:
    """The same from sums over each person: weighted sums of the values, then of the weights."""
    bounds = Bounds(np.where(np.isfinite(most), 0.0, -np.inf), most)
    means = mean_interval_of(cells, bounds=bounds, resamples=RESAMPLES, seed=seed)
    return [Estimate(*ends) for ends in np.stack(means[:3], axis=1).tolist()]


def _pairs(scores: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    rank = np.unique(scores, return_inverse=True)[1]
    accepted, rejected = np.bincount(rank, weight * y), np.bincount(rank, weight * (1 - y))
    below = np.cumsum(rejected) - rejected / 2
    return float(accepted @ below), float(accepted.sum() * rejected.sum())


def _coarse_ranks(scores: np.ndarray) -> Int[np.ndarray, " rows"]:
    """Ranks from 0; equal scores share one, and so do neighbours where there are too many."""
    levels, rank = np.unique(scores, return_inverse=True)
    if len(levels) <= _MOST_RANKS:
        return rank
    place = np.searchsorted(np.sort(scores), levels)
    coarse = place * _MOST_RANKS // len(scores)
    return np.unique(coarse, return_inverse=True)[1][rank]


def _auroc_of_counts(counts: Any) -> Any:
    """AUROC from counts of accepted and rejected offers at every rank, [..., 2 ranks]."""
    accepted, rejected = np.split(counts, 2, axis=-1)
    below = np.cumsum(rejected, axis=-1) - rejected / 2
    with np.errstate(invalid="ignore"):
        return (accepted * below).sum(axis=-1) / (accepted.sum(axis=-1) * rejected.sum(axis=-1))
