"""Words with every setting chosen inside the training streams of each fold: the strength of regularisation.

The training streams are divided into inner folds of whole streams. For each signal, the strength with the least
negative log-likelihood over the inner folds is chosen. The predictions of the inner folds, none of which saw its own
streams, are the fold's calibration split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float

from prism_jax.experiments.word_regression import (
    WordRow,
    check_installed,
    fit_words,
    needs,
    offers,
    predict_words,
    score_rows,
)
from prism_jax.scores import Scores
from prism_jax.streams import Stream
from prism_jax.streams.splits import folds

STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of scikit-learn's C that are compared, fixed before any result was known."""
INNER = 4
Rows = Callable[[Sequence[Stream]], Iterable[WordRow]]


def outer_folds(streams: Sequence[Stream], count: int | None) -> list[tuple[list[Stream], list[Stream]]]:
    """Divides streams into (training, test), so that each is tested once; without a count, one stream at a time."""
    number = len(streams) if count is None else count
    divided = []
    for fold in range(number):
        test = {stream.id for stream in folds(streams, number, fold).test}
        ordered = sorted(streams, key=lambda stream: stream.id)
        divided.append(
            (
                [stream for stream in ordered if stream.id not in test],
                [stream for stream in ordered if stream.id in test],
            )
        )
    return divided


def score_words_nested(train: Sequence[Stream], test: Sequence[Stream], fold: int) -> tuple[Scores, dict[str, float]]:
    """Scores one fold: its training streams by inner folds (split "calibration"), its test streams by all of them.

    The labels of the test streams have no influence on any probability. Beside the scores, the chosen strength of each
    signal. RuntimeError if scikit-learn is missing.
    """
    check_installed()
    inner = outer_folds(train, min(INNER, len(train)))
    chosen, inside, outside = {}, {}, {}
    signals: dict[str, Rows] = {"need": needs, "accept": offers}
    for signal, rows in signals.items():
        strength, by_stream = _choose(inner, rows)
        chosen[signal] = strength
        inside[signal] = np.concatenate([by_stream[stream.id] for stream in train])
        outside[signal] = predict_words(fit_words(rows(train), [strength])[strength], list(rows(test)))
    return Scores.from_rows(
        [
            *score_rows(train, "calibration", fold, inside["need"], inside["accept"]),
            *score_rows(test, "test", fold, outside["need"], outside["accept"]),
        ]
    ), chosen


def _choose(
    inner: Sequence[tuple[list[Stream], list[Stream]]], rows: Rows
) -> tuple[float, dict[str, Float[np.ndarray, " rows"]]]:
    """The best strength, and its prediction of each stream's rows by the inner fold that left the stream out."""
    losses = dict.fromkeys(STRENGTHS, 0.0)
    predicted: dict[float, dict[str, np.ndarray]] = {strength: {} for strength in STRENGTHS}
    for train, held in inner:
        for strength, fitted in fit_words(rows(train), STRENGTHS).items():
            for stream in held:
                own = list(rows([stream]))
                p = predict_words(fitted, own)
                predicted[strength][stream.id] = p
                losses[strength] += _loss(p, own)
    best = min(STRENGTHS, key=lambda strength: losses[strength])
    return best, predicted[best]


def _loss(p: Float[np.ndarray, " rows"], rows: Sequence[WordRow]) -> float:
    """Negative log-likelihood of the known labels."""
    pairs = [(value, row.y) for value, row in zip(p.tolist(), rows, strict=True) if row.y is not None]
    q, y = np.array(pairs).reshape(-1, 2).T
    return float(-(y * np.log(q) + (1 - y) * np.log1p(-q)).sum())
