"""Statistics of the interaction log: whether its propensities are plausible, and how often its offers were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision.losses import NORMAL_975, propensity_weight
from prism_jax.streams import Stream

FOLDS = 5


class MeanAOverE(NamedTuple):
    """mean(A / e) over the logged offers that have a propensity, with its 95 % normal interval.

    Its expectation is 1 if the propensities are correct, and 2 if they are half of the true ones.
    """

    mean: float
    low: float
    high: float
    offers: int

    @property
    def plausible(self) -> bool:
        """Whether the interval contains 1."""
        return self.low <= 1 <= self.high

    def __str__(self) -> str:
        """One line for the terminal."""
        verdict = "" if self.plausible else "; 1 is outside: the recorded propensities do not fit the log"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] over {self.offers:,} offers{verdict}"


def mean_a_over_e(streams: Sequence[Stream]) -> MeanAOverE | None:
    """Checks the propensities of complete streams; returns None if none were recorded.

    The interval treats offers as independent, because each was drawn independently given what the logging policy saw.
    """
    offers = [
        (candidate.logged, candidate.propensity)
        for stream in streams
        for step in stream.steps
        for candidate in step.candidates
        if candidate.logged is not None and candidate.propensity is not None
    ]
    if not offers:
        return None
    logged, propensity = np.array(offers, dtype=float).T
    inverse = logged / propensity
    mean, error = float(inverse.mean()), float(inverse.std() / np.sqrt(len(inverse)))
    return MeanAOverE(mean, mean - NORMAL_975 * error, mean + NORMAL_975 * error, len(inverse))


def out_of_fold_acceptance(streams: Sequence[Stream], e_min: float, w_max: float) -> Float[np.ndarray, " streams"]:
    """Estimates mu of the doubly robust loss: how often offers in a stream's domain are accepted in other streams.

    It is the self-normalised inverse-propensity mean of y_accept over the streams of the same domain in the other four
    of five folds (stream i is in fold i mod 5). If these have no label, the mean is over all domains of those folds; if
    these have none either, it is 1/2. It does not depend on the history: a mean that is correct on average is enough to
    keep most doubly robust labels in [0, 1].

    Returns one probability per stream. Propensities below `e_min` are raised to it, and inverse propensities above
    `w_max` are lowered to it.
    """
    names = sorted({stream.domain for stream in streams})
    fold = np.arange(len(streams)) % FOLDS
    domain = np.array([names.index(stream.domain) for stream in streams])
    cells = np.zeros((FOLDS, len(names), 2))  # sum of w y, sum of w
    labelled = [
        (i, candidate.y_accept, 1.0 if candidate.propensity is None else candidate.propensity)
        for i, stream in enumerate(streams)
        for step in stream.steps
        for candidate in step.candidates
        if candidate.y_accept is not None
    ]
    if labelled:
        number, label, propensity = (np.array(column) for column in zip(*labelled, strict=True))
        weight = np.asarray(propensity_weight(np.ones(len(labelled)), propensity, e_min=e_min, w_max=w_max))
        np.add.at(cells, (fold[number], domain[number]), np.stack([weight * label, weight], axis=1))
    # Sum the other folds directly: subtracting a fold from the total would leave its rounding error behind.
    others = np.stack([np.delete(cells, own, axis=0).sum(axis=0) for own in range(FOLDS)])
    means = _ratio(others, _ratio(others.sum(axis=1, keepdims=True), np.full((FOLDS, 1), 0.5)))
    return means[fold, domain]


def _ratio(sums: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Divides the first entry of the last axis by the second; returns `otherwise` where the second is 0."""
    empty = sums[..., 1] <= 1e-9
    return np.where(empty, otherwise, sums[..., 0] / np.where(empty, 1.0, sums[..., 1]))
