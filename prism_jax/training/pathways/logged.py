"""What the log says of itself: whether its propensities fit it, and how often its offers were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision.losses import NORMAL_975, propensity_weight
from prism_jax.streams import Stream

FOLDS = 5


class MeanAOverE(NamedTuple):
    """mean(A / e) over the offers of a log that have a propensity, with its 95 % normal interval.

    Its expectation is 1 if the propensities are right: with e half of what it was, it is 2.
    """

    mean: float
    low: float
    high: float
    offers: int

    @property
    def plausible(self) -> bool:
        """Whether the interval holds 1."""
        return self.low <= 1 <= self.high

    def __str__(self) -> str:
        """One line for the terminal."""
        verdict = "" if self.plausible else "; 1 lies outside: the recorded propensities do not fit the log"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] over {self.offers:,} offers{verdict}"


def mean_a_over_e(streams: Sequence[Stream]) -> MeanAOverE | None:
    """The check of the propensities over whole streams; None where none were recorded.

    Offers count one by one: given what the logging policy saw, each was drawn by itself.
    """
    found = [
        (candidate.logged, candidate.propensity)
        for stream in streams
        for step in stream.steps
        for candidate in step.candidates
        if candidate.logged is not None and candidate.propensity is not None
    ]
    if not found:
        return None
    logged, propensity = np.array(found, dtype=float).T
    inverse = logged / propensity
    mean, error = float(inverse.mean()), float(inverse.std() / np.sqrt(len(inverse)))
    return MeanAOverE(mean, mean - NORMAL_975 * error, mean + NORMAL_975 * error, len(inverse))


def out_of_fold_acceptance(streams: Sequence[Stream], e_min: float, w_max: float) -> Float[np.ndarray, " streams"]:
    """The mu of the doubly robust loss: how often offers of a stream's domain are accepted in other streams.

    The self-normalised inverse-propensity mean of y_accept over the same domain's streams in the other four of five
    folds (stream i is in fold i mod 5); over all domains where these hold no label, and 1/2 where none does. It knows
    nothing else of the history: a mean that is right on average is what keeps most doubly robust labels in [0, 1].
    """
    names = sorted({stream.domain for stream in streams})
    fold = np.arange(len(streams)) % FOLDS
    domain = np.array([names.index(stream.domain) for stream in streams])
    cells = np.zeros((FOLDS, len(names), 2))  # sum of w y, sum of w
    found = [
        (i, candidate.y_accept, 1.0 if candidate.propensity is None else candidate.propensity)
        for i, stream in enumerate(streams)
        for step in stream.steps
        for candidate in step.candidates
        if candidate.y_accept is not None
    ]
    if found:
        number, label, propensity = (np.array(column) for column in zip(*found, strict=True))
        weight = np.asarray(propensity_weight(np.ones(len(found)), propensity, e_min=e_min, w_max=w_max))
        np.add.at(cells, (fold[number], domain[number]), np.stack([weight * label, weight], axis=1))
    # Added up without the own fold, since subtracting it would leave its rounding behind.
    others = np.stack([np.delete(cells, own, axis=0).sum(axis=0) for own in range(FOLDS)])
    means = _ratio(others, _ratio(others.sum(axis=1, keepdims=True), np.full((FOLDS, 1), 0.5)))
    return means[fold, domain]


def _ratio(sums: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """First over second of the last axis, `otherwise` where there is no weight."""
    empty = sums[..., 1] <= 1e-9
    return np.where(empty, otherwise, sums[..., 0] / np.where(empty, 1.0, sums[..., 1]))
