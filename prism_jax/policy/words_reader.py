"""The reader of a probe on words: it keeps the texts of live streams and needs no language model.

Every event is a step, so an offer is compared with the offers of all earlier events, as in evaluation on a stream with
a step at every event.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
from scipy import special

from prism_jax.policy.reader import Asked, Reading, Response, Thought
from prism_jax.probe.fitting import Probe, Seen
from prism_jax.probe.words import describe
from prism_jax.streams import Candidate, Event, Step, Stream

_CERTAIN = 1e-15


class WordsReader:
    """Reads events and offers by their words; satisfies `prism_jax.policy.reader.Reader`.

    Attributes:
      has_slow_pass: False.
      writes_responses: False.
    """

    has_slow_pass = False
    writes_responses = False

    def __init__(self, probe: Probe):
        """Makes a reader of no stream.

        Raises:
          ValueError: for a probe that needs the states of a language model.
        """
        if probe.acceptance.states is not None:
            raise ValueError(
                "probe: found one on words and states, expected one on words alone to decide on live streams"
            )
        self._probe = probe
        self._streams: dict[str, Stream] = {}

    def observe(self, items: Sequence[tuple[str, Event, tuple[Candidate, ...]]]) -> list[Reading]:
        """Appends events and computes both signals after them; see `Reader.observe`. No token is read."""
        longer = {name: self._after(name, event, offers) for name, event, offers in items}
        found = []
        for name, _, offers in items:
            p_need, p_accept = self._probe.predict(Seen(describe(longer[name])))
            z_need, *z_accept = special.logit(
                np.clip([p_need[-1], *p_accept[-len(offers) :]], _CERTAIN, 1 - _CERTAIN)
            ).tolist()
            found.append(Reading(z_need, tuple(z_accept), 0))
        self._streams |= longer
        return found

    def think(self, items: Sequence[Asked]) -> list[Thought]:
        """A probe has no slow pass."""
        _refuse("slow pass")

    def respond(self, items: Sequence[tuple[str, Candidate, Mapping[str, str] | None]]) -> list[Response]:
        """A probe writes no responses."""
        _refuse("responses")

    def forget(self, stream: str) -> None:
        """Drops a stream; see `Reader.forget`."""
        del self._streams[stream]

    def history(self, stream: str) -> str:
        """SHA-256 of the texts of a stream's events and offers."""
        read = self._streams[stream]
        texts = [[event.text for event in read.events], [[one.text for one in step.candidates] for step in read.steps]]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    def warm_up(self) -> int:
        """Compiles nothing."""
        return 0

    def _after(self, name: str, event: Event, offers: tuple[Candidate, ...]) -> Stream:
        """A stream with one more event and a step at it, whose offers are texts only."""
        step = tuple(Candidate(text=offer.text) for offer in offers)
        if name not in self._streams:
            return Stream(id=name, events=(event,), steps=(Step(event=0, candidates=step),))
        before = self._streams[name]
        try:
            return dataclasses.replace(
                before,
                events=(*before.events, event),
                steps=(*before.steps, Step(event=len(before.events), candidates=step)),
            )
        except ValueError as error:
            raise ValueError(f"stream {name!r}: {error}") from error


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"found a probe, which has no {what}, expected a language model")
