"""A baseline without a language model: logistic regression on TF-IDF of words and a few numbers (scikit-learn).

Need is predicted from the newest event and the two before it, acceptance from these and the offer. The baseline is
trained on the same streams as the student. Its settings are scikit-learn's defaults except for bigrams and logarithmic
counts.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.scores import Scores
from prism_jax.streams import Candidate, Stream
from prism_jax.streams.splits import Splits


class Row(NamedTuple):
    """Features and label of one offer, or of one step's need.

    Attributes:
      texts: Texts; each position has its own vocabulary.
      numbers: Numeric features.
      y: Label; None if unknown.
    """

    texts: tuple[str, ...]
    numbers: tuple[float, ...]
    y: float | None


def score_words(splits: Splits, fold: int) -> Scores:
    """Fits both signals on the training streams and scores the calibration and the test streams.

    Args:
      splits: Streams of each split.
      fold: Number of the fold, for the column of that name.

    Raises:
      RuntimeError: if scikit-learn is missing; the extra `study` installs it.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise RuntimeError("word_regression: found no scikit-learn, expected it: pip install 'prism_jax[study]'")
    need, accept = (_fit([row for row in rows(splits.train) if row.y is not None]) for rows in (_needs, _offers))
    table: list[dict[str, Any]] = []
    for split in ("calibration", "test"):
        streams: Sequence[Stream] = getattr(splits, split)
        of_step = iter(_predict(need, list(_needs(streams))).tolist())
        of_offer = iter(_predict(accept, list(_offers(streams))).tolist())
        for stream in streams:
            for number, step in enumerate(stream.steps):
                p_need = next(of_step)
                for index, offer in enumerate(step.candidates):
                    table.append(
                        {
                            "stream": stream.id,
                            "step": number,
                            "candidate": index,
                            "domain": stream.domain,
                            "split": split,
                            "fold": fold,
                            "p_need_fast": p_need,
                            "p_accept_fast": next(of_offer),
                            "y_need": step.y_need,
                            "y_accept": offer.y_accept,
                            "votes": list(offer.votes) or None,
                            "logged": offer.logged,
                            "propensity": offer.propensity,
                        }
                    )
    return Scores.from_rows(table)


def _needs(streams: Sequence[Stream]) -> Iterator[Row]:
    for stream in streams:
        for step in stream.steps:
            texts, numbers = _history(stream, step.event)
            yield Row(texts, numbers, step.y_need)


def _offers(streams: Sequence[Stream]) -> Iterator[Row]:
    for stream in streams:
        for step in stream.steps:
            for offer in step.candidates:
                texts, numbers = _history(stream, step.event)
                yield Row((*texts, offer.text or ""), (*numbers, *_of_offer(offer, texts[0])), offer.y_accept)


def _history(stream: Stream, event: int) -> tuple[tuple[str, str], tuple[float, ...]]:
    """Texts of the newest event and the two before it; number of earlier events, pause before it, and its length."""
    newest, before = stream.events[event], stream.events[max(0, event - 2) : event]
    pause = newest.time - before[-1].time if before else 0.0
    numbers = (math.log1p(event), math.log1p(pause), math.log1p(len(newest.text)))
    return (newest.text, " ".join(other.text for other in before)), numbers


def _of_offer(offer: Candidate, newest: str) -> tuple[float, float]:
    """An offer's length, and the share of its words that occur in the newest event."""
    words, seen = (offer.text or "").lower().split(), set(newest.lower().split())
    return math.log1p(len(offer.text or "")), sum(word in seen for word in words) / max(1, len(words))


class _Fitted(NamedTuple):
    vocabularies: list[Any]
    scale: Any
    model: Any


def _fit(rows: list[Row]) -> _Fitted:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    vocabularies = [
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(texts)
        for texts in zip(*(row.texts for row in rows), strict=True)
    ]
    scale = StandardScaler().fit([row.numbers for row in rows])
    fitted = _Fitted(vocabularies, scale, LogisticRegression(max_iter=1000))
    fitted.model.fit(_features(fitted, rows), [row.y for row in rows])
    return fitted


def _predict(fitted: _Fitted, rows: list[Row]) -> np.ndarray:
    return fitted.model.predict_proba(_features(fitted, rows))[:, 1]


def _features(fitted: _Fitted, rows: list[Row]) -> Any:
    from scipy import sparse

    columns = zip(fitted.vocabularies, zip(*(row.texts for row in rows), strict=True), strict=True)
    words = [vocabulary.transform(texts) for vocabulary, texts in columns]
    return sparse.hstack([*words, sparse.csr_array(fitted.scale.transform([row.numbers for row in rows]))]).tocsr()
