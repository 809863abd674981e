"""Reads probabilities off a teacher's structured texts: logistic regression on their words, applied with NumPy alone.

For teachers and agents that only give text. `prism_jax.labelling.teacher.text_fit` fits a calibrator on judged streams;
this module saves, reads and applies it, and needs neither scikit-learn nor a model.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from jaxtyping import Float

from prism_jax.runtime.files import read_object, write_json
from prism_jax.runtime.schema import decode
from prism_jax.streams import RESPONSE_KEYS, Candidate, Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.streams.types import SLOW_FIELDS

RESPONSE_FIELDS = ("Purpose", "Proactive Task", "Response")
"""The keys of a response that are read; its thoughts are not, because an agent may not have them."""
FIELDS = (*SLOW_FIELDS, *RESPONSE_FIELDS)
"""The names of all fields."""

_WORDS = re.compile(r"\w+")

Fields = Mapping[str, str]


def step_fields(step: Step) -> dict[str, str]:
    """The texts from which need is read: the slow fields, and the texts of all candidates."""
    texts: dict[str, list[str]] = {name: [text] for name, text in (step.rationale or {}).items() if name in FIELDS}
    for candidate in step.candidates:
        for name, text in _own_fields(candidate).items():
            texts.setdefault(name, []).append(text)
    return {name: "\n".join(dict.fromkeys(lines)) for name, lines in texts.items()}


def candidate_fields(step: Step, candidate: Candidate) -> dict[str, str]:
    """The texts from which the acceptance of one candidate is read: the slow fields, and its own texts."""
    return {name: text for name, text in (step.rationale or {}).items() if name in FIELDS} | _own_fields(candidate)


def _own_fields(candidate: Candidate) -> dict[str, str]:
    """The fields of a response, or the whole response where it has no keys; the offer is the candidate's text."""
    texts: dict[str, str] = {}
    if candidate.response is not None:
        try:
            value = json.loads(candidate.response)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and value.keys() & set(RESPONSE_KEYS):
            texts = {
                name: value[name]
                for name in RESPONSE_FIELDS
                if isinstance(value.get(name), str) and value[name].strip()
            }
        else:
            texts["Response"] = candidate.response
    if candidate.text is not None:
        texts["Proactive Task"] = candidate.text
    return texts


def terms(fields: Fields) -> list[str]:
    """The words and pairs of consecutive words of each field, in lower case and with the field's name before them.

    A field with a text also has its bare name as a term, so that its presence counts.
    """
    parts = []
    for name, text in sorted(fields.items()):
        words = _WORDS.findall(text.lower())
        parts.append(f"{name}:")
        parts += [f"{name}:{word}" for word in words]
        parts += [f"{name}:{first} {second}" for first, second in itertools.pairwise(words)]
    return parts


FORMAT = 1


class TextCalibratorError(ValueError):
    """A file that is no text calibrator; the message names file and key."""


@dataclasses.dataclass(frozen=True, eq=False)
class TextMap:
    """Turns the texts of one row into one probability.

    A row's features are 1 + log(count) times `idf` for each known term, divided by their Euclidean norm. The
    probability is sigmoid(scale * z + bias) with z = weights @ features + intercept.
    """

    terms: tuple[str, ...]  # distinct terms (`prism_jax.labelling.teacher.text_calibrator.terms`)
    idf: Float[np.ndarray, " terms"]  # inverse document frequency of each term
    weights: Float[np.ndarray, " terms"]
    intercept: float  # the score z of a row without known terms
    scale: float  # Platt's, fitted on scores of streams that the weights were not fitted on; 0 where they told nothing
    bias: float  # Platt's
    base_rate: float  # mean label of the rows of the fit
    regularisation: float  # inverse strength C of the penalty, chosen by cross-validation over streams
    rows: int  # number of rows of the fit
    streams: int  # number of streams of the fit

    def __post_init__(self) -> None:
        for name in ("idf", "weights"):
            if len(values := getattr(self, name)) != len(self.terms):
                raise ValueError(
                    f"{name}: found {len(values)} numbers, expected {len(self.terms)}, one per entry of terms"
                )
        if len(set(self.terms)) < len(self.terms):
            raise ValueError("terms: found a term twice, expected distinct terms")
        if not (self.idf > 0).all():
            raise ValueError(f"idf: found {self.idf.min()}, expected numbers above 0")
        for name in ("rows", "streams"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a count from 1 on")

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {term: place for place, term in enumerate(self.terms)}

    def scores(self, rows: Sequence[Fields]) -> Float[np.ndarray, " rows"]:
        """The scores z of rows, before Platt's map."""
        return np.array([self._score(fields) for fields in rows], dtype=float)

    def __call__(self, rows: Sequence[Fields]) -> Float[np.ndarray, " rows"]:
        """The calibrated probabilities of rows, each given by its texts by field.

        A field that the fit never saw, or none at all, says nothing: a row without known terms gets the probability of
        the intercept.
        """
        return 1 / (1 + np.exp(-(self.scale * self.scores(rows) + self.bias)))

    def _score(self, fields: Fields) -> float:
        places = (self._places.get(term) for term in terms(fields))
        counts = collections.Counter(place for place in places if place is not None)
        if not counts:
            return self.intercept
        known_places = np.fromiter(counts, int)
        features = (1 + np.log(np.fromiter(counts.values(), float))) * self.idf[known_places]
        return self.intercept + float(features @ self.weights[known_places]) / float(np.linalg.norm(features))

    def to_dict(self) -> dict[str, Any]:
        """The map as plain JSON values."""
        return {
            field.name: value.tolist() if isinstance(value, np.ndarray) else value
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }


@dataclasses.dataclass(frozen=True, eq=False)
class TextCalibrator:
    """The maps of both signals."""

    need: TextMap  # reads `step_fields`
    accept: TextMap  # reads `candidate_fields`

    def fill(self, streams: Iterable[Stream]) -> list[Stream]:
        """Returns the streams with missing teacher probabilities filled in; those that are given stay.

        A step or a candidate without any text stays without a probability, because there is nothing to read it from.
        """
        return [map_steps(stream, self._fill) for stream in streams]

    def _fill(self, step: Step) -> Step:
        if step.teacher_need is None and (texts := step_fields(step)):
            step = dataclasses.replace(step, teacher_need=float(self.need([texts])[0]))
        candidates = tuple(self._fill_candidate(step, candidate) for candidate in step.candidates)
        return dataclasses.replace(step, candidates=candidates)

    def _fill_candidate(self, step: Step, candidate: Candidate) -> Candidate:
        if candidate.teacher_accept is not None or not (texts := candidate_fields(step, candidate)):
            return candidate
        return dataclasses.replace(candidate, teacher_accept=float(self.accept([texts])[0]))

    def save(self, path: epath.PathLike) -> None:
        """Writes the calibrator atomically, as JSON."""
        write_json(epath.Path(path), {"format": FORMAT, "need": self.need.to_dict(), "accept": self.accept.to_dict()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    format: Literal[1]
    need: TextMap
    accept: TextMap


def read_text_calibrator(path: epath.PathLike) -> TextCalibrator:
    """Reads what `TextCalibrator.save` wrote; raises TextCalibratorError naming file and key, for anything else."""
    value = read_object(path, "TextCalibrator.save", TextCalibratorError)
    file = decode(_File, value, str(path), TextCalibratorError)
    return TextCalibrator(file.need, file.accept)
