"""Fits a text calibrator on judged streams, with scikit-learn (the extra `text`).

Streams are the units: the penalty is chosen by cross-validation that holds out whole streams, and Platt's map is
fitted on the scores of held-out streams, because scores on the rows of a fit are too extreme. Where held-out scores do
not rise with the labels, the map is the base rate.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from prism_jax.decision.calibration import fit_platt
from prism_jax.labelling.teacher.text_calibrator import (
    Fields,
    TextCalibrator,
    TextMap,
    candidate_fields,
    step_fields,
    terms,
)
from prism_jax.streams import Stream

FOLDS = 5
REGULARISATION = (0.01, 0.1, 1.0, 10.0, 100.0)
"""The inverse strengths C that are compared."""
LEAST_ROWS = 2
"""Number of rows in which a term must occur."""


class Example(NamedTuple):
    """One judged row."""

    fields: Fields
    label: float  # in [0, 1]
    stream: str  # id of its stream


def fit_text_calibrator(streams: Sequence[Stream]) -> TextCalibrator:
    """Fits both maps on the steps with a need label and the candidates with an acceptance label that have any text.

    The streams must neither calibrate nor test a student.

    Raises:
      ValueError: if a signal has labels of one class only, or from fewer than two streams.
      RuntimeError: if scikit-learn is missing; the extra `text` installs it.
    """
    return TextCalibrator(
        fit_text_map(list(need_examples(streams)), "need"), fit_text_map(list(accept_examples(streams)), "accept")
    )


def need_examples(streams: Sequence[Stream]) -> Iterator[Example]:
    """One example for each step with a need label and some text."""
    for stream in streams:
        for step in stream.steps:
            if step.y_need is not None and (fields := step_fields(step)):
                yield Example(fields, step.y_need, stream.id)


def accept_examples(streams: Sequence[Stream]) -> Iterator[Example]:
    """One example for each candidate with an acceptance label and some text."""
    for stream in streams:
        for step in stream.steps:
            for candidate in step.candidates:
                if candidate.y_accept is not None and (fields := candidate_fields(step, candidate)):
                    yield Example(fields, candidate.y_accept, stream.id)


def fit_text_map(examples: Sequence[Example], name: str = "label") -> TextMap:
    """Fits the map of one signal on judged rows of at least two streams; messages name the signal."""
    if importlib.util.find_spec("sklearn") is None:
        raise RuntimeError("text calibrator: found no scikit-learn, expected it: pip install 'prism_jax[text]'")
    y = np.array([example.label for example in examples], dtype=float)
    streams = np.array([example.stream for example in examples], dtype=str)
    _check(y, streams, name)
    rows = [example.fields for example in examples]
    scores = {strength: np.zeros(len(rows)) for strength in REGULARISATION}
    for number in np.unique(fold := _folds(streams)):
        train, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        words = _Words.fit([rows[i] for i in train])
        for strength in REGULARISATION:
            # The same penalty per row as in the fit on all rows, on whose scores the map from here will be used.
            weights, intercept = words.regress(y[train], strength * len(rows) / len(train))
            scores[strength][held_out] = words.of([rows[i] for i in held_out]) @ weights + intercept
    best = min(REGULARISATION, key=lambda strength: float(np.mean(np.logaddexp(0, z := scores[strength]) - y * z)))
    scale, bias = _platt(scores[best], y)
    words = _Words.fit(rows)
    weights, intercept = words.regress(y, best)
    return TextMap(
        terms=words.terms,
        idf=words.idf,
        weights=weights,
        intercept=intercept,
        scale=scale,
        bias=bias,
        base_rate=float(y.mean()),
        regularisation=best,
        rows=len(rows),
        streams=len(np.unique(streams)),
    )


def _check(y: np.ndarray, streams: np.ndarray, name: str) -> None:
    if not y.size or y.min() < 0 or y.max() > 1 or not 0 < y.mean() < 1:
        summary = f"a mean of {y.mean():g} over {y.size} rows" if y.size else "none"
        raise ValueError(f"{name}: found {summary}, expected judged rows with labels in [0, 1] of both classes")
    if len(np.unique(streams)) < 2:
        raise ValueError(f"{name}: found rows of one stream, expected at least two: one is held out")


def _folds(streams: np.ndarray) -> Int[np.ndarray, " rows"]:
    """The fold of each row: whole streams, the largest first, each to the fold with the fewest rows."""
    names, sizes = np.unique(streams, return_counts=True)
    filled = np.zeros(min(FOLDS, len(names)), int)
    of_stream = {}
    for place in np.argsort(-sizes, kind="stable"):
        of_stream[names[place]] = int(np.argmin(filled))
        filled[of_stream[names[place]]] += sizes[place]
    return np.array([of_stream[stream] for stream in streams])


def _platt(z: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> tuple[float, float]:
    """Scale and bias for held-out scores; the base rate where the scale would not be positive."""
    fitted = fit_platt(1 / (1 + np.exp(-z)), y)
    if fitted.scale > 0:
        return fitted.scale, fitted.bias
    rate = float(y.mean())
    return 0.0, math.log(rate / (1 - rate))


class _Words(NamedTuple):
    """A vocabulary, and the features of the rows that it was fitted on."""

    vectorizer: Any
    rows: Any

    @classmethod
    def fit(cls, rows: Sequence[Fields]) -> _Words:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(analyzer=terms, sublinear_tf=True, min_df=min(LEAST_ROWS, len(rows)))
        return cls(vectorizer, vectorizer.fit_transform(rows))

    def of(self, rows: Sequence[Fields]) -> Any:
        return self.vectorizer.transform(rows)

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(map(str, self.vectorizer.get_feature_names_out()))

    @property
    def idf(self) -> Float[np.ndarray, " terms"]:
        return np.asarray(self.vectorizer.idf_, dtype=float)

    def regress(self, y: np.ndarray, strength: float) -> tuple[Float[np.ndarray, " terms"], float]:
        """Weights and intercept; a soft label counts as a positive and a negative row with weights y and 1 - y."""
        from scipy import sparse
        from sklearn.linear_model import LogisticRegression

        labels, weight = np.repeat([1, 0], len(y)), np.concatenate([y, 1 - y])
        if not 0 < y.mean() < 1:  # a fold without one class: half a row of each keeps the intercept finite
            weight = weight + 0.5 / len(y)
        weighted = weight > 0
        both = sparse.vstack([self.rows, self.rows]).tocsr()[np.flatnonzero(weighted)]
        model = LogisticRegression(C=strength, max_iter=2000)
        model.fit(both, labels[weighted], sample_weight=weight[weighted])
        return np.asarray(model.coef_[0], dtype=float), float(model.intercept_[0])
