"""AUROC, Brier score and ECE of a signal, with intervals over streams.

All four measures are functions of how often each stream counts. AUROC is a sum over pairs of streams, so leaving one
out costs a quadratic form instead of a sort. Pooled AUROC counts all pairs of rows; AUROC within streams counts only
the pairs within one stream, so each stream is weighted by its number of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from prism_jax.decision import arrays
from prism_jax.decision.uncertainty import SHARE, UNBOUNDED, UNDEFINED, Cells, Estimate, interval

MEASURES = ("auroc", "auroc_within", "brier", "ece")
BINS = 15
"""Number of equal-width bins of ECE, the same as in the evaluation."""

Measured = Callable[[np.ndarray], np.ndarray]
"""Maps how often each stream counts, [..., streams], to the four measures, [..., 4]."""


class Ranked(NamedTuple):
    """One signal on the rows where its label is known."""

    score: Float[np.ndarray, " n"]  # values that rank the rows, for AUROC
    p: Float[np.ndarray, " n"]  # calibrated probabilities, for Brier score and ECE
    y: Float[np.ndarray, " n"]  # labels, 0 or 1
    stream: Shaped[np.ndarray, " n"]  # the stream of each row

    @classmethod
    def joined(cls, parts: Sequence[Ranked]) -> Ranked:
        """The rows of all parts."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def intervals(*signals: Ranked, resamples: int = 10_000, seed: int = 0) -> dict[str, Estimate]:
    """The `MEASURES` of one signal, or the differences of two on the same streams (second minus first), by name.

    Each has a 95 % interval over resamples of whole streams. AUROC within streams is NaN, without an interval, if no
    stream has both labels. ValueError if a label is neither 0 nor 1.
    """
    streams = np.unique(np.concatenate([signal.stream for signal in signals]))
    measured = [measures(signal, streams.tolist()) for signal in signals]

    def statistic(drawn: np.ndarray) -> np.ndarray:
        first, *others = (measure(drawn) for measure in measured)
        return others[0] - first if others else first

    cells = Cells(None, np.ones(len(streams), np.int64))
    bounds = UNBOUNDED if len(signals) > 1 else SHARE
    known = np.flatnonzero(~np.isnan(statistic(np.ones(len(streams)))))
    joint = interval(cells, lambda drawn: statistic(drawn)[..., known], bounds=bounds, resamples=resamples, seed=seed)
    found = {MEASURES[of]: Estimate(*(field[place] for field in joint)) for place, of in enumerate(known.tolist())}
    return {name: found.get(name, UNDEFINED._replace(units=len(streams))) for name in MEASURES}


def measures(signal: Ranked, streams: Sequence[str]) -> Measured:
    """The four measures as a function of how often each of `streams` counts; AUROC is NaN if a label is missing."""
    arrays.check_lengths(score=signal.score, p=signal.p, y=signal.y, stream=signal.stream)
    arrays.check_hard("y", signal.y)
    row_of_S = signal.stream[:, None] == np.asarray(streams)[None, :]
    positive = signal.y == 1
    above = signal.score[positive][:, None] - signal.score[~positive][None, :]
    ones, zeros = row_of_S[positive].astype(float), row_of_S[~positive].astype(float)
    won_SxS = ones.T @ ((above > 0) + 0.5 * (above == 0)) @ zeros
    ones_S, zeros_S, rows_S = ones.sum(0), zeros.sum(0), row_of_S.sum(0)
    square_S = (signal.p - signal.y) ** 2 @ row_of_S
    bins = np.minimum((signal.p * BINS).astype(int), BINS - 1)
    gap_SxK = row_of_S.T @ ((signal.p - signal.y)[:, None] * (bins[:, None] == np.arange(BINS)))

    def measure(drawn: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            pooled = ((drawn @ won_SxS) * drawn).sum(-1) / ((drawn @ ones_S) * (drawn @ zeros_S))
            within = drawn @ np.diag(won_SxS) / (drawn @ (ones_S * zeros_S))
            brier = drawn @ square_S / (drawn @ rows_S)
            ece = np.abs(drawn @ gap_SxK).sum(-1) / (drawn @ rows_S)
        return np.stack([pooled, within, brier, ece], axis=-1)

    return measure


def ece_of_exact(p: Float[np.ndarray, " n"], *, draws: int = 1000) -> Estimate:
    """The ECE that these probabilities would have if they were exact: labels are drawn from them.

    ECE is never negative, so that it is above 0 even then, and more so for fewer labels. The estimate is the mean over
    the draws of all labels, the interval the range of the middle 95 % of them.
    """
    in_bin = np.minimum((p * BINS).astype(int), BINS - 1)[:, None] == np.arange(BINS)
    y = np.random.default_rng(0).random((draws, len(p))) < p
    errors = np.abs((p - y) @ in_bin).sum(axis=1) / len(p)
    low, high = np.percentile(errors, (2.5, 97.5))
    return Estimate(errors.mean(), low, high, errors.std(ddof=1), 0.0)
