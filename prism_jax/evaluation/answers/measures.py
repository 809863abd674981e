"""How well predictions of acceptance rank and how well they are calibrated, with intervals over people.

auroc is the probability that an accepted offer is ranked above a rejected one, over all pairs of the log; within_person
is the same over the pairs that belong to one person, so that a difference between people cannot help. brier is the mean
of (p - y)^2 and ece the expected calibration error in 15 equal bins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int

from prism_jax.decision.uncertainty import SHARE, Bounds, Cells, Estimate, Resampled, interval, mean_interval_of
from prism_jax.evaluation.intervals import known

RESAMPLES = 1000
BINS = 15
CONSTANTS = ("always", "never")
"""The policies that look at nothing."""
MEANINGS = {
    "constant": "The acceptance rate of the other people.",
    "score": "The log's own score, as it is; the constant where it is missing.",
    "score, temperature": "The score with one temperature, fitted on the other people.",
    "score, Platt": "The score with scale and bias on its log-odds, fitted on the other people.",
    "person": "The person layer alone.",
    "score+person": "The person layer on the score.",
    "context": "A logistic regression on the context columns, and the score if there is one.",
    "context+person": "The person layer on the context head.",
    "truth": "The true probability, which knows every person's own rate.",
}
"""What each prediction is, in the order of the tables; `truth` is known of simulated logs only."""


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


def means_of(cells: Cells | Resampled, most: Float64[np.ndarray, " values"], seed: int = 0) -> list[Estimate]:
    """The weighted mean of each of some values, from sums over each person: weighted sums, then those of the weights.

    `most` is the largest value of each mean whose smallest is 0, and infinite for a difference.
    """
    bounds = Bounds(np.where(np.isfinite(most), 0.0, -np.inf), most)
    means = mean_interval_of(cells, bounds=bounds, resamples=RESAMPLES, seed=seed)
    return [Estimate(*ends) for ends in np.stack(means[:3], axis=1).tolist()]


def _pairs(scores: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    rank = np.unique(scores, return_inverse=True)[1]
    accepted, rejected = np.bincount(rank, weight * y), np.bincount(rank, weight * (1 - y))
    below = np.cumsum(rejected) - rejected / 2
    return float(accepted @ below), float(accepted.sum() * rejected.sum())
