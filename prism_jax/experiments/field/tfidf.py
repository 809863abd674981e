"""Logistic regression on TF-IDF of words and a few numbers, with its strength chosen inside each fold's training part.

Need is predicted from the newest event and the two before it, acceptance from these and the offer. The settings are
scikit-learn's defaults except for bigrams and logarithmic counts.

The training part is divided into inner folds of whole streams or people. For each signal, the strength with the least
negative log-likelihood over the inner folds is chosen. The predictions of the inner folds, none of which saw its own
streams, are the fold's calibration split.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from prism_jax.experiments.field.interface import Baseline, Fold, LogFold, Run, has_need
from prism_jax.experiments.field.logs import scores_of
from prism_jax.scores import Scores
from prism_jax.scores.agreement import NEED
from prism_jax.scores.joining import joined
from prism_jax.streams import Candidate, Stream
from prism_jax.streams.splits import folds
from prism_jax.streams.stream_columns import offer_rows

_WORD = re.compile(r"\b\w\w+\b")
"""What scikit-learn takes for a word."""
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of scikit-learn's C, an inverse strength, that are compared; fixed before any result was known."""
INNER = 4


class WordRow(NamedTuple):
    """Features and label of one offer, or of one step's need."""

    texts: tuple[str, ...]  # each position has its own vocabulary
    numbers: tuple[float, ...]
    y: float | None  # label; None if unknown


Rows = Callable[[Sequence[Stream]], Iterable[WordRow]]
Inner = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Names of the units that each inner fold fits on, and of those that it predicts."""


def check_installed() -> None:
    """Raises RuntimeError if scikit-learn is missing."""
    if importlib.util.find_spec("sklearn") is None:
        raise RuntimeError("word_regression: found no scikit-learn, expected it: pip install 'prism_jax[study]'")


def score_rows(
    streams: Sequence[Stream],
    split: str,
    fold: int,
    p_need: Float[np.ndarray, " steps"],
    p_accept: Float[np.ndarray, " offers"],
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a scores table, one per offer.

    `p_need` is in the order of `needs`, `p_accept` in that of `offers`.
    """
    of_step, of_offer = iter(p_need.tolist()), iter(p_accept.tolist())
    for stream in streams:
        need = itertools.islice(of_step, len(stream.steps))
        yield from offer_rows(stream, need, of_offer, split=split, fold=fold)


def needs(streams: Sequence[Stream]) -> Iterator[WordRow]:
    """Yields a row per step, for need."""
    for stream in streams:
        for step in stream.steps:
            texts, numbers = _history(stream, step.event)
            yield WordRow(texts, numbers, step.y_need)


def offers(streams: Sequence[Stream]) -> Iterator[WordRow]:
    """Yields a row per offer, for acceptance."""
    for stream in streams:
        for step in stream.steps:
            for offer in step.candidates:
                texts, numbers = _history(stream, step.event)
                yield WordRow((*texts, offer.text or ""), (*numbers, *_of_offer(offer, texts[0])), offer.y_accept)


def _history(stream: Stream, event: int) -> tuple[tuple[str, str], tuple[float, ...]]:
    """Texts of the newest event and the two before it; number of earlier events, pause before it, and its length."""
    newest, before = stream.events[event], stream.events[max(0, event - 2) : event]
    pause = newest.time - before[-1].time if before else 0.0
    numbers = (math.log1p(event), math.log1p(pause), math.log1p(len(newest.text)))
    return (newest.text, " ".join(earlier.text for earlier in before)), numbers


def _of_offer(offer: Candidate, newest: str) -> tuple[float, float]:
    """An offer's length, and the share of its words that occur in the newest event."""
    words, seen = (offer.text or "").lower().split(), set(newest.lower().split())
    return math.log1p(len(offer.text or "")), sum(word in seen for word in words) / max(1, len(words))


class Fitted(NamedTuple):
    """A fitted regression: the vocabulary of each text that has words, the scale of the numbers, and the model."""

    vocabularies: dict[int, Any]
    scale: Any
    model: Any


def fit_words(rows: Iterable[WordRow], strengths: Sequence[float]) -> dict[float, Fitted]:
    """Fits one regression for each value of scikit-learn's C on the rows whose label is known.

    A label between 0 and 1 counts as that share of a 1 and the rest of a 0.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    rows = [row for row in rows if row.y is not None]
    texts = list(zip(*(row.texts for row in rows), strict=True))
    vocabularies = {
        place: TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(own)
        for place, own in enumerate(texts)
        if any(map(_WORD.search, own))
    }
    scale = StandardScaler().fit([row.numbers for row in rows])
    y = np.array([row.y for row in rows])
    some = np.concatenate([np.flatnonzero(y > 0), np.flatnonzero(y < 1)])  # a soft label is there as 1 and as 0
    label = np.repeat([1, 0], [(y > 0).sum(), (y < 1).sum()])
    weight = np.where(label == 1, y[some], 1 - y[some])
    features = _features(Fitted(vocabularies, scale, None), rows)[some]
    with threadpool_limits(1):  # several threads on so little work wait for each other
        models = {c: LogisticRegression(C=c, max_iter=1000).fit(features, label, weight) for c in strengths}
    return {c: Fitted(vocabularies, scale, model) for c, model in models.items()}


def predict_words(fitted: Fitted, rows: list[WordRow]) -> Float[np.ndarray, " rows"]:
    """The probability of label 1 of each row."""
    return fitted.model.predict_proba(_features(fitted, rows))[:, 1]


def _features(fitted: Fitted, rows: list[WordRow]) -> Any:
    from scipy import sparse

    texts = list(zip(*(row.texts for row in rows), strict=True))
    words = [vocabulary.transform(texts[place]) for place, vocabulary in fitted.vocabularies.items()]
    return sparse.hstack([*words, sparse.csr_array(fitted.scale.transform([row.numbers for row in rows]))]).tocsr()


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


TFIDF = Baseline(
    "tfidf",
    "TF-IDF, logistic regression",
    score_tfidf,
    takes=("streams", "log"),
    misfit=lambda source: "" if source.log is None or source.log.numbers.size else "no words, no numbers",
)
