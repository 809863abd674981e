"""Words of a live stream: the columns of its newest step, at a cost that does not grow with the stream.

The columns are those that `words.describe` computes of the whole stream. The vectors of the texts inside the window are
kept; an event adds its own and drops those that leave the window.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from prism_jax.probe.ngrams import Idf, weigh
from prism_jax.probe.similarity import of_step
from prism_jax.probe.window import WINDOW, Newest, beginning
from prism_jax.probe.words import History, Steps, texts_of
from prism_jax.streams import Candidate

_SPARE = 256  # n-grams that may be numbered anew beside as many as were in use


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NewestStep(Steps):
    """The newest step of a live stream."""

    cosines: Float[np.ndarray, "offers 12"]  # `similarity.NAMES`, by the IDFs of the probe that reads the stream

    def similar(self, idf: Idf) -> Float[np.ndarray, "offers 12"]:
        """As in the class above."""
        return self.cosines


class _Vector(NamedTuple):
    """One text: its n-grams, their numbers, and their weights, of unit length together."""

    names: tuple[str, ...]
    numbers: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]


class LiveWords:
    """What is kept of the words of one live stream."""

    def __init__(self, name: str, idf: Idf) -> None:
        """Begins a stream of this name, without events, for a probe with these IDFs."""
        self._name, self._idf = name, idf
        self._history = History()
        self._events: deque[_Vector] = deque()
        self._earlier: deque[list[_Vector]] = deque()  # the offers of earlier steps
        self._newest = Newest(WINDOW.offers)
        self._numbers: dict[str, int] = {}
        self._used = 0  # n-grams in use when they were last numbered

    def step(self, event: str, offers: Sequence[Candidate]) -> NewestStep:
        """Adds an event, and offers at it; returns their step."""
        text, own_texts = beginning(event), texts_of(offers)
        for _ in range(self._history.add(text)):
            self._events.popleft()
        self._events.append(self._vector(text))
        own = [self._vector(own_text) for own_text in own_texts]
        seen = self._cosines(own)
        self._earlier.append(own)
        for _ in range(self._newest.add(len(own), sum(map(len, own_texts)))):
            self._earlier.popleft()
        self._renumber()
        return NewestStep(
            name=self._name,
            history=self._history.features()[None],
            offer=self._history.of_offers(own_texts),
            step=np.zeros(len(own), int),
            cosines=seen,
        )

    def _cosines(self, own: Sequence[_Vector]) -> Float[np.ndarray, "offers 12"]:
        earlier = [vector for step in self._earlier for vector in step]
        others = self._matrix([*self._events, *own, *earlier])
        cosines = (self._matrix(own) @ others.T).toarray()
        events, until = len(self._events), len(self._events) + len(own)
        return of_step(cosines[:, :events], cosines[:, events:until], cosines[:, until:])

    def _vector(self, text: str) -> _Vector:
        weighed, numbers = weigh(text), self._numbers
        names = tuple(weighed)
        weights = np.fromiter(weighed.values(), float, len(names)) * self._idf.of(names)
        length = np.sqrt((weights**2).sum())
        return _Vector(
            names,
            np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64),
            weights / length if len(names) else weights,
        )

    def _matrix(self, vectors: Sequence[_Vector]) -> scipy.sparse.csr_array:
        ends = np.cumsum([0, *(len(vector.names) for vector in vectors)])
        data, columns = (
            np.concatenate([getattr(vector, name) for vector in vectors]) for name in ("weights", "numbers")
        )
        return scipy.sparse.csr_array((data, columns, ends), shape=(len(vectors), max(1, len(self._numbers))))

    def _renumber(self) -> None:
        """Numbers the n-grams in use anew where most numbers may belong to n-grams that have left the window."""
        if len(self._numbers) <= 2 * self._used + _SPARE:
            return
        numbers = self._numbers = {}

        def anew(one: _Vector) -> _Vector:
            return one._replace(
                numbers=np.array([numbers.setdefault(name, len(numbers)) for name in one.names], np.int64)
            )

        self._events = deque(map(anew, self._events))
        self._earlier = deque([anew(vector) for vector in step] for step in self._earlier)
        self._used = len(numbers)
