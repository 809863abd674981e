"""Logistic regression on TF-IDF of words, with its strength chosen inside the training part of every fold.

The training part is divided into inner folds of whole streams or people. For each signal, the strength with the least
negative log-likelihood over the inner folds is chosen. The predictions of the inner folds, none of which saw its own
streams, are the fold's calibration split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from prism_jax.experiments.field.interface import Baseline, Fold, LogFold, Run, has_need
from prism_jax.experiments.field.logs import scores_of
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
from prism_jax.scores.agreement import NEED
from prism_jax.scores.joining import joined
from prism_jax.streams import Stream
from prism_jax.streams.splits import folds

STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of scikit-learn's C that are compared, fixed before any result was known."""
INNER = 4
Rows = Callable[[Sequence[Stream]], Iterable[WordRow]]
Inner = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Names of the units that each inner fold fits on, and of those that it predicts."""


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
    signal; need is none where no training stream has its labels. RuntimeError if scikit-learn is missing.
    """
    check_installed()
    divided = outer_folds(train, min(INNER, len(train)))
    inner = [([stream.id for stream in fit], [stream.id for stream in held]) for fit, held in divided]
    chosen, inside, outside = {}, {}, {}
    signals: dict[str, Rows] = {"need": needs, "accept": offers}
    for signal, rows in signals.items():
        if signal == "need" and not has_need(train):
            inside[signal], outside[signal] = (np.zeros(sum(len(one.steps) for one in side)) for side in (train, test))
            continue
        by_stream = {stream.id: list(rows([stream])) for stream in train}
        chosen[signal], inside[signal], outside[signal] = predict_nested(by_stream, inner, list(rows(test)))
    table = [
        *score_rows(train, "calibration", fold, inside["need"], inside["accept"]),
        *score_rows(test, "test", fold, outside["need"], outside["accept"]),
    ]
    if "need" not in chosen:
        table = [{name: value for name, value in row.items() if name not in ("p_need_fast", *NEED)} for row in table]
    return Scores.from_rows(table), chosen


def predict_nested(
    units: Mapping[str, Sequence[WordRow]], inner: Inner, test: list[WordRow]
) -> tuple[float, Float[np.ndarray, " train"], Float[np.ndarray, " test"]]:
    """The chosen strength, the units' rows by the inner folds that left them out, and the test rows by all units."""
    losses = dict.fromkeys(STRENGTHS, 0.0)
    predicted: dict[float, dict[str, np.ndarray]] = {strength: {} for strength in STRENGTHS}
    for train, held in inner:
        for strength, fitted in fit_words(_joined(units, train), STRENGTHS).items():
            for name in held:
                predicted[strength][name] = p = predict_words(fitted, list(units[name]))
                losses[strength] += _loss(p, units[name])
    best = min(STRENGTHS, key=lambda strength: losses[strength])
    outside = predict_words(fit_words(_joined(units, units), [best])[best], test)
    return best, np.concatenate([predicted[best][name] for name in units]), outside


def _joined(units: Mapping[str, Sequence[WordRow]], names: Iterable[str]) -> Iterable[WordRow]:
    return (row for name in names for row in units[name])


def _loss(p: Float[np.ndarray, " rows"], rows: Sequence[WordRow]) -> float:
    """Negative log-likelihood of the known labels."""
    pairs = [(value, row.y) for value, row in zip(p.tolist(), rows, strict=True) if row.y is not None]
    q, y = np.array(pairs).reshape(-1, 2).T
    return float(-(y * np.log(q) + (1 - y) * np.log1p(-q)).sum())


def score_tfidf(fold: Fold | LogFold, run: Run) -> Scores:
    """One fold of streams, or of a log, by its texts and numbers."""
    if isinstance(fold, Fold):
        return score_words_nested(fold.train, fold.test, fold.number)[0]
    check_installed()
    answers = fold.log.answers
    units: dict[str, Int[np.ndarray, " rows"]] = {
        str(person): fold.train[answers.person[fold.train] == person]
        for person in np.unique(answers.person[fold.train]).tolist()
    }
    parts = [list(units)[number::INNER] for number in range(min(INNER, len(units)))]
    inner = [([name for name in units if name not in part], part) for part in parts]
    rows = {name: _rows_of_log(fold, own) for name, own in units.items()}
    _, inside, outside = predict_nested(rows, inner, _rows_of_log(fold, fold.test))
    train = np.concatenate(list(units.values()))
    return joined(
        [
            scores_of(fold.log, train, inside, split="calibration", fold=fold.number),
            scores_of(fold.log, fold.test, outside, split="test", fold=fold.number),
        ]
    )


def _rows_of_log(fold: LogFold, rows: Int[np.ndarray, " n"]) -> list[WordRow]:
    numbers, accepted = fold.log.numbers, fold.log.answers.accepted
    return [WordRow(fold.log.texts[row], tuple(numbers[row].tolist()), float(accepted[row])) for row in rows.tolist()]


TFIDF = Baseline("tfidf", "TF-IDF, logistic regression", score_tfidf, takes=("streams", "log"))
