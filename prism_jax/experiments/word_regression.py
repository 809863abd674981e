"""A baseline without a language model: logistic regression on TF-IDF of words and a few numbers (scikit-learn).

Need is predicted from the newest event and the two before it, acceptance from these and the offer. The baseline is
trained on the same streams as the student. Its settings are scikit-learn's defaults except for bigrams and logarithmic
counts.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from prism_jax.streams import Candidate, Stream
from prism_jax.streams.stream_columns import offer_rows

_WORD = re.compile(r"\b\w\w+\b")
"""What scikit-learn takes for a word."""
DEFAULT = 1.0
"""scikit-learn's own C, the inverse strength of regularisation."""


class WordRow(NamedTuple):
    """Features and label of one offer, or of one step's need."""

    texts: tuple[str, ...]  # each position has its own vocabulary
    numbers: tuple[float, ...]
    y: float | None  # label; None if unknown


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


def fit_words(rows: Iterable[WordRow], strengths: Sequence[float] = (DEFAULT,)) -> dict[float, Fitted]:
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
