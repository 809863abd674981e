"""The reader of a probe: it keeps the words of the newest events and offers of live streams.

Every event is a step, so an offer is compared with the offers of the events before, as in evaluation on a stream with a
step at every event. Each event is read once, and what is kept of a stream has a bound (`prism_jax.probe.window`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prism_jax.agent.reader import FastOnly, FastReading, Item
from prism_jax.decision.arrays import log_odds
from prism_jax.probe.fitting import Probe
from prism_jax.probe.live_words import LiveWords

if TYPE_CHECKING:  # words alone load no language model
    from prism_jax.agent.live import LiveStates

_CERTAIN = 1e-15


@dataclasses.dataclass
class _Stream:
    """What is kept of one stream."""

    words: LiveWords
    time: float = -math.inf  # time of its newest event
    number: int = 0  # number of its events
    digest: bytes = b""  # hash of the texts of all its events and offers, each with the hash before it


class ProbeReader(FastOnly):
    """Reads events and offers by a probe; satisfies `prism_jax.agent.reader.Reader`."""

    no_more = "found a probe, which has no {}, expected a language model"

    def __init__(self, probe: Probe, live: LiveStates | None = None):
        """Makes a reader of no stream.

        `live` is the language model of a probe on states; None for words alone. Raises ValueError if they do not fit.
        """
        if (probe.acceptance.states is None) != (live is None):
            kind = "words alone with" if live else "words and states without"
            raise ValueError(f"probe: found one on {kind} a language model, expected both or neither")
        self._probe, self._live = probe, live
        self._streams: dict[str, _Stream] = {}

    def observe(self, items: Sequence[Item]) -> list[FastReading]:
        """Appends events and computes both signals after them; see `Reader.observe`. Words alone read no token."""
        for name, event, _ in items:
            before = self._streams.get(name)
            if before is not None and not event.time >= before.time:
                raise ValueError(
                    f"stream {name!r}: events[{before.number}].time: found {event.time}, expected at least "
                    f"{before.time}: events are in time order"
                )
        read: Sequence[tuple[Any, int]] = [(None, 0)] * len(items) if self._live is None else self._live.observe(items)
        readings = []
        for (name, event, offers), (states, tokens) in zip(items, read, strict=True):
            if name not in self._streams:
                self._streams[name] = _Stream(LiveWords(name, self._probe.acceptance.idf))
            stream = self._streams[name]
            stream.time, stream.number = event.time, stream.number + 1
            texts = json.dumps([event.text, [offer.text for offer in offers]])
            stream.digest = hashlib.sha256(stream.digest + texts.encode()).digest()
            words = stream.words.step(event.text, offers)
            p_need, p_accept = self._probe.signals(words, states)
            z_need, *z_accept = log_odds(np.array([*p_need, *p_accept]), _CERTAIN).tolist()
            readings.append(FastReading(z_need, tuple(z_accept), tokens))
        return readings

    def follow(self, items: Sequence[Item]) -> None:
        """Appends each event; see `Reader.follow`."""
        self.observe(items)

    def forget(self, stream: str) -> None:
        """Drops a stream; see `Reader.forget`."""
        self._streams.pop(stream, None)
        if self._live is not None:
            self._live.forget(stream)

    def history(self, stream: str) -> str:
        """SHA-256 of the texts of the newest event and its offers, and of the same hash after the event before."""
        return self._streams[stream].digest.hex()

    @property
    def programs(self) -> int:  # type: ignore[override]
        """Number of programs of the language model that were compiled so far; words need none."""
        return 0 if self._live is None else self._live.programs

    def warm_up(self) -> None:
        """Starts to compile the programs of the language model."""
        if self._live is not None:
            self._live.warm_up()
