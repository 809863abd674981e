"""Words of a stream as columns of numbers: for every offer, and for every step.

What does not depend on the IDFs is computed once per stream (`describe`), so that the folds of a nested fit are cheap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from prism_jax.probe.ngrams import Counted, Idf, count_texts
from prism_jax.probe.similarity import NAMES, similarities
from prism_jax.probe.simple import OF_HISTORY, OF_OFFER, history_features, offer_features, words
from prism_jax.streams import Stream

ACCEPT_COLUMNS = (*NAMES, *OF_HISTORY, *OF_OFFER)
"""Names of the columns from which acceptance is predicted."""
_SUMMARISED = ("newest", "decayed_mean", "newest_minus_older", "older_below_newest", "earlier_offers_max")
NEED_COLUMNS = (*OF_HISTORY, *(f"{how}_{name}" for how in ("max", "mean") for name in _SUMMARISED))
"""Names of the columns from which need is predicted: the history, and two summaries of the step's offers."""


@dataclasses.dataclass(frozen=True, eq=False)
class Described:
    """What a probe reads of a stream, in the order of its steps and their offers.

    Attributes:
      stream: The stream.
      counted: N-grams of the events' texts, and after them of the offers' texts.
      history: [steps, history] simple features of the history up to each step.
      offer: [offers, offer] simple features of each offer.
      step: [offers] number of each offer's step.
    """

    stream: Stream
    counted: Counted
    history: Float[np.ndarray, "steps history"]
    offer: Float[np.ndarray, "offers offer"]
    step: Int[np.ndarray, " offers"]

    def accept_columns(self, idf: Idf) -> Float[np.ndarray, "offers columns"]:
        """Computes `ACCEPT_COLUMNS`; NaN where a value does not exist."""
        return np.concatenate([self._similar(idf), self.history[self.step], self.offer], axis=1)

    def need_columns(self, idf: Idf) -> Float[np.ndarray, "steps columns"]:
        """Computes `NEED_COLUMNS`; NaN where a value does not exist."""
        similar = self._similar(idf)[:, [NAMES.index(name) for name in _SUMMARISED]]
        largest = self.largest(similar)
        count = np.bincount(self.step, minlength=len(self.history))[:, None]
        total = np.zeros_like(largest)
        np.add.at(total, self.step, similar)
        return np.concatenate([self.history, largest, total / np.maximum(count, 1)], axis=1)

    def largest(self, values: Float[np.ndarray, "offers *rest"]) -> Float[np.ndarray, "steps *rest"]:
        """The largest value of each step's offers."""
        found = np.full((len(self.history), *values.shape[1:]), -np.inf)
        np.maximum.at(found, self.step, values)
        return found

    def _similar(self, idf: Idf) -> Float[np.ndarray, "offers 12"]:
        vectors = idf.vectors(self.counted)
        events = len(self.stream.events)
        return similarities(vectors[:events], vectors[events:], self.stream.steps)


def describe(stream: Stream) -> Described:
    """Counts n-grams and computes simple features. No label is read."""
    texts = [event.text for event in stream.events]
    offers = [offer.text or "" for step in stream.steps for offer in step.candidates]
    seen: list[set[str]] = []  # all words up to each event
    newest = [set(words(text)) for text in texts]
    for own in newest:
        seen.append(seen[-1] | own if seen else own)
    history = [history_features(texts[: step.event + 1]) for step in stream.steps]
    simple = [
        offer_features(offer.text or "", newest[step.event], seen[step.event])
        for step in stream.steps
        for offer in step.candidates
    ]
    sizes = [len(step.candidates) for step in stream.steps]
    return Described(
        stream,
        count_texts([*texts, *offers]),
        np.array(history).reshape(-1, len(OF_HISTORY)),
        np.array(simple).reshape(-1, len(OF_OFFER)),
        np.repeat(np.arange(len(sizes)), sizes),
    )


def describe_all(streams: Sequence[Stream]) -> list[Described]:
    """Describes every stream."""
    return [describe(stream) for stream in streams]
