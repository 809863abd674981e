"""The reader of a probe: it keeps the texts of live streams, and the states of their offers where it reads a model.

Every event is a step, so an offer is compared with the offers of all earlier events, as in evaluation on a stream with
a step at every event. The words of a stream are described anew at every event; a language model reads each event once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from jaxtyping import Float
from scipy import special

from prism_jax.policy.reader import Asked, Reading, Response, Thought
from prism_jax.probe.fitting import Probe, Seen
from prism_jax.probe.words import describe
from prism_jax.streams import Candidate, Event, Step, Stream

if TYPE_CHECKING:  # words alone load no language model
    from prism_jax.policy.live_states import LiveStates

_CERTAIN = 1e-15


class ProbeReader:
    """Reads events and offers by a probe; satisfies `prism_jax.policy.reader.Reader`.

    Attributes:
      has_slow_pass: False.
      writes_responses: False.
    """

    has_slow_pass = False
    writes_responses = False

    def __init__(self, probe: Probe, live: LiveStates | None = None):
        """Makes a reader of no stream.

        Args:
          probe: The probe.
          live: The language model of a probe on states; None for words alone.

        Raises:
          ValueError: for a probe on states without a language model, or the reverse.
        """
        if (probe.acceptance.states is None) != (live is None):
            found = "words alone with" if live else "words and states without"
            raise ValueError(f"probe: found one on {found} a language model, expected both or neither")
        self._probe, self._live = probe, live
        self._streams: dict[str, Stream] = {}
        self._states: dict[str, Float[np.ndarray, "offers width"]] = {}

    def observe(self, items: Sequence[tuple[str, Event, tuple[Candidate, ...]]]) -> list[Reading]:
        """Appends events and computes both signals after them; see `Reader.observe`. Words alone read no token."""
        longer = {name: self._after(name, event, offers) for name, event, offers in items}
        read = [None] * len(items) if self._live is None else self._live.observe(items)
        found = []
        for (name, _, offers), new in zip(items, read, strict=True):
            states = None
            if new is not None:
                before = [self._states[name]] if name in self._states else []
                states = self._states[name] = np.concatenate([*before, new.states])
            p_need, p_accept = self._probe.predict(Seen(describe(longer[name]), states))
            z_need, *z_accept = special.logit(
                np.clip([p_need[-1], *p_accept[-len(offers) :]], _CERTAIN, 1 - _CERTAIN)
            ).tolist()
            found.append(Reading(z_need, tuple(z_accept), 0 if new is None else new.tokens))
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
        if self._live is not None:
            self._live.forget(stream)
            del self._states[stream]

    def history(self, stream: str) -> str:
        """SHA-256 of the texts of a stream's events and offers."""
        read = self._streams[stream]
        texts = [[event.text for event in read.events], [[one.text for one in step.candidates] for step in read.steps]]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    def warm_up(self) -> int:
        """Compiles the programs of the language model; words need none."""
        return 0 if self._live is None else self._live.warm_up()

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
