"""Words of a stream as columns of numbers: for every offer, and for every step.

What does not depend on the IDFs is computed once per stream (`describe`), so that the folds of a nested fit are cheap.
A live stream has the same columns event by event (`live_words`).
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import math
import re
from collections import deque
from collections.abc import Container, Sequence

import numpy as np
from jaxtyping import Float, Int

from prism_jax.probe.ngrams import Counted, Idf, count_texts
from prism_jax.probe.similarity import NAMES, Sight, similarities
from prism_jax.probe.window import WINDOW, Newest, beginning
from prism_jax.streams import Candidate, Stream

ACTIVITIES = (
    *("search", "type", "click", "open", "close", "switch", "scroll", "copy", "paste", "select", "write"),
    *("edit", "delete", "save", "run", "debug", "error", "read", "navigate", "browse", "view", "focus", "remain"),
    *("start", "create", "add", "return", "continue", "pause", "code", "document"),
)
"""Stems of words for what a user does; an event holds one if some word of it begins with it."""
RECENT = ("search", "error", "switch", "type")
"""Stems that are looked for in the last `LAST` events too."""
LAST = 3

OF_HISTORY = (
    *("events", "newest_length", "newest_words", "newest_repeats"),
    *(f"newest_{stem}" for stem in ACTIVITIES),
    *(f"recent_{stem}" for stem in RECENT),
)
"""Names of the features of a history, in order."""
OF_OFFER = ("length", "words", "overlap_newest", "overlap_history", "quotes", "asks", "offers")
"""Names of the features of an offer, in order."""

_ASKS = re.compile(r"\?|^(would|do|can|could|shall|should|may|need|want|are|is)\b")
_OFFERS = re.compile(r"\b(offer|suggest|provide|recommend|assist|help|propose|i can|i could|let me)\b")
_QUOTE = re.compile(r"[\"'`“”‘’](?!s\b|t\b)")
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The lower-case words of a text."""
    return _WORD.findall(text.lower())


def history_features(events: Sequence[str], number: int) -> Float[np.ndarray, " history"]:
    """Computes `OF_HISTORY` from the texts of the events that are seen, oldest first, and the number of all events."""
    newest, recent = words(events[-1]), [word for text in events[-LAST:] for word in words(text)]
    return np.array(
        [
            math.log1p(number),
            math.log1p(len(events[-1])),
            math.log1p(len(newest)),
            events[-1] in events[:-1],
            *(_holds(newest, stem) for stem in ACTIVITIES),
            *(_holds(recent, stem) for stem in RECENT),
        ],
        float,
    )


def offer_features(offer: str, newest: Container[str], history: Container[str]) -> Float[np.ndarray, " offer"]:
    """Computes `OF_OFFER` from an offer, the words of the newest event and those of all events that are seen."""
    own = words(offer)
    lower = offer.lower()
    return np.array(
        [
            math.log1p(len(offer)),
            math.log1p(len(own)),
            _share(own, newest),
            _share(own, history),
            bool(_QUOTE.search(offer)),
            bool(_ASKS.search(lower)),
            bool(_OFFERS.search(lower)),
        ],
        float,
    )


def _holds(text: Sequence[str], stem: str) -> bool:
    return any(word.startswith(stem) for word in text)


def _share(text: Sequence[str], among: Container[str]) -> float:
    return sum(word in among for word in text) / max(1, len(text))


ACCEPT_COLUMNS = (*NAMES, *OF_HISTORY, *OF_OFFER)
"""Names of the columns from which acceptance is predicted."""
_SUMMARISED = ("newest", "decayed_mean", "newest_minus_older", "older_below_newest", "earlier_offers_max")
NEED_COLUMNS = (*OF_HISTORY, *(f"{how}_{name}" for how in ("max", "mean") for name in _SUMMARISED))
"""Names of the columns from which need is predicted: the history, and two summaries of the step's offers."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Steps(abc.ABC):
    """Steps of a stream as a probe reads them, in the order of the steps and their offers."""

    name: str  # name of the stream
    history: Float[np.ndarray, "steps history"]  # simple features of the history up to each step
    offer: Float[np.ndarray, "offers offer"]  # simple features of each offer
    step: Int[np.ndarray, " offers"]  # number of each offer's step

    @abc.abstractmethod
    def similar(self, idf: Idf) -> Float[np.ndarray, "offers 12"]:
        """Computes `similarity.NAMES` of every offer."""

    def accept_columns(self, idf: Idf) -> Float[np.ndarray, "offers columns"]:
        """Computes `ACCEPT_COLUMNS`; NaN where a value does not exist."""
        return np.concatenate([self.similar(idf), self.history[self.step], self.offer], axis=1)

    def need_columns(self, idf: Idf) -> Float[np.ndarray, "steps columns"]:
        """Computes `NEED_COLUMNS`; NaN where a value does not exist."""
        similar = self.similar(idf)[:, [NAMES.index(name) for name in _SUMMARISED]]
        largest = self.largest(similar)
        count = np.bincount(self.step, minlength=len(self.history))[:, None]
        total = np.zeros_like(largest)
        np.add.at(total, self.step, similar)
        return np.concatenate([self.history, largest, total / np.maximum(count, 1)], axis=1)

    def largest(self, values: Float[np.ndarray, "offers *rest"]) -> Float[np.ndarray, "steps *rest"]:
        """The largest value of each step's offers."""
        top = np.full((len(self.history), *values.shape[1:]), -np.inf)
        np.maximum.at(top, self.step, values)
        return top


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Described(Steps):
    """All steps of a stream."""

    stream: Stream
    counted: Counted  # n-grams of the events' texts, and after them of the offers' texts
    sights: Sequence[Sight]  # what the offers of each step see

    def similar(self, idf: Idf) -> Float[np.ndarray, "offers 12"]:
        """As in the class above."""
        vectors = idf.vectors(self.counted)
        events = len(self.stream.events)
        return similarities(vectors[:events], vectors[events:], self.sights)


class History:
    """The words of the events of one stream that a step at the newest of them sees."""

    def __init__(self) -> None:
        """Begins without events."""
        self._texts: deque[str] = deque()
        self._words: deque[set[str]] = deque()
        self._holding: collections.Counter[str] = collections.Counter()  # in how many events a word is
        self._number = 0
        self._newest = Newest(WINDOW.events)

    def add(self, text: str) -> int:
        """Adds the newest event, cut to its beginning; returns how many of the oldest are no longer seen."""
        self._number += 1
        self._texts.append(text)
        self._words.append(set(words(text)))
        self._holding.update(self._words[-1])
        dropped = self._newest.add(1, len(text))
        for _ in range(dropped):
            self._texts.popleft()
            old = self._words.popleft()
            self._holding.subtract(old)
            for word in old:
                if not self._holding[word]:
                    del self._holding[word]
        return dropped

    def features(self) -> Float[np.ndarray, " history"]:
        """Computes `OF_HISTORY`."""
        return history_features(list(self._texts), self._number)

    def of_offers(self, offers: Sequence[str]) -> Float[np.ndarray, "offers offer"]:
        """Computes `OF_OFFER` of the offers of a step at the newest event."""
        return np.stack([offer_features(offer, self._words[-1], self._holding) for offer in offers])


def texts_of(offers: Sequence[Candidate]) -> list[str]:
    """The texts of some offers, cut to their beginnings; empty for the constant "an offer"."""
    return [beginning(offer.text or "") for offer in offers]


def describe(stream: Stream) -> Described:
    """Counts n-grams and computes simple features. No label is read."""
    texts = [beginning(event.text) for event in stream.events]
    offers = [texts_of(step.candidates) for step in stream.steps]
    steps = {step.event: number for number, step in enumerate(stream.steps)}
    history, earlier = History(), Newest(WINDOW.offers)
    of_history, of_offer, sights = [np.zeros((0, len(OF_HISTORY)))], [np.zeros((0, len(OF_OFFER)))], []
    event = step = first = before = 0  # the first event and step that are seen; first offers, own and seen
    for until, text in enumerate(texts, 1):
        event += history.add(text)
        if (number := steps.get(until - 1)) is None:
            continue
        own = offers[number]
        of_history.append(history.features()[None])
        of_offer.append(history.of_offers(own))
        sights.append(Sight(event, until, before, first, first + len(own)))
        first += len(own)
        for _ in range(earlier.add(len(own), sum(map(len, own)))):
            before += len(offers[step])
            step += 1
    return Described(
        name=stream.id,
        history=np.concatenate(of_history),
        offer=np.concatenate(of_offer),
        step=np.repeat(np.arange(len(offers)), list(map(len, offers))),
        stream=stream,
        counted=count_texts([*texts, *(text for own in offers for text in own)]),
        sights=sights,
    )


def describe_all(streams: Sequence[Stream]) -> list[Described]:
    """Describes every stream."""
    return [describe(stream) for stream in streams]
