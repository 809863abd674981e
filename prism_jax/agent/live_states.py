"""States of live offers: what a frozen model holds in the middle about each, read event by event.

The states are those that `prism_jax.probe.states` reads of a whole stream: every event is read once, into a trunk of
cached keys and values, and the offers as branches of it. Blocks above the highest that is read are not there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from prism_jax.agent.live import LiveConfig, check_room
from prism_jax.probe.states import Reader
from prism_jax.streams import Candidate, Event
from prism_jax.student import Qwen3, engine
from prism_jax.student.branches import Branch


class OfferStates(NamedTuple):
    """The states of one event's offers."""

    states: Float[np.ndarray, "offers width"]  # as `prism_jax.probe.states.Reader.read` gives them
    tokens: int  # number of tokens that were read


class LiveStates:
    """Reads the states of offers on many live streams.

    A stream that outgrows its context loses its oldest events, as a student's does (`prism_jax.agent.live`).
    """

    def __init__(self, reader: Reader, config: LiveConfig):
        """Allocates the pool; ValueError for a setting out of range, or a context or pool that is too small."""
        self._template, self._count = reader.template, len(reader.blocks)
        lowest = reader.blocks[-1]
        self._engine = engine.Engine(
            Qwen3(dataclasses.replace(reader.model.config, num_layers=lowest)),
            {**reader.params, "layers": jax.tree.map(lambda leaf: leaf[:lowest], reader.params["layers"])},
            (),
            budget=config.context,
            memory=config.memory,
            keep=config.keep,
            batches=config.batches,
            longest=config.longest,
            at=reader.blocks,
        )
        written = self._template.describe()
        self._before, self._after = (len(written[name]["ids"]) for name in ("offer", "accept"))
        self._newest: dict[str, Event] = {}

    def observe(self, items: Sequence[tuple[str, Event, tuple[Candidate, ...]]]) -> list[OfferStates]:
        """Appends each event to its stream's trunk, and reads the offers after it.

        `items` are (stream, event, offers) of distinct streams; a stream is opened when it first occurs.

        Raises:
          ValueError: naming the stream, for an event that does not fit into the context; no trunk has then changed.
        """
        head, readings = tuple(self._template.head()), []
        for stream, event, offers in items:
            ids = self._template.event(event, self._newest.get(stream))
            leaves = tuple(tuple(self._template.leaf(offer)) for offer in offers)
            branch = Branch(head, leaves, self._places(len(head), leaves))
            readings.append(engine.ReadRequest(stream, ids, [branch], len(branch.ids)))
            check_room(self._engine.budget, self._template, stream, len(ids), len(branch.ids))
        for reading in readings:
            if reading.stream not in self._engine:
                self._engine.open(reading.stream, self._template.system())
        results = self._engine.read(readings)
        self._newest |= {stream: event for stream, event, _ in items}
        return [
            OfferStates(
                self._of_offers(states, reading.branches[0].leaves), len(reading.event) + len(reading.branches[0].ids)
            )
            for reading, [states] in zip(readings, results, strict=True)
        ]

    def forget(self, stream: str) -> None:
        """Drops a stream."""
        self._engine.close(stream)
        del self._newest[stream]

    @property
    def programs(self) -> int:
        """Number of programs that were compiled so far."""
        return len(self._engine.programs)

    def warm_up(self) -> None:
        """Starts to compile every program that an event needs."""
        self._engine.compile_behind()

    def _own(self, leaf: Sequence[int]) -> range:
        """Where in its leaf the tokens of an offer's own text are."""
        return range(self._before, len(leaf) - self._after)

    def _places(self, first: int, leaves: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Of every leaf the tokens of the offer's own text, and the answer slot."""
        places: list[int] = []
        for leaf in leaves:
            places += [first + place for place in (*self._own(leaf), len(leaf) - 1)]
            first += len(leaf)
        return tuple(places)

    def _of_offers(
        self, states: Float[np.ndarray, "places width"], leaves: Sequence[Sequence[int]]
    ) -> Float[np.ndarray, "offers columns"]:
        """At each block the mean over the offer's tokens, then its answer slot."""
        stops = np.cumsum([len(self._own(leaf)) + 1 for leaf in leaves])
        rows = []
        for part in np.split(states, stops[:-1]):
            mean = part[:-1].sum(0) / max(len(part) - 1, 1)
            pairs = zip(np.split(mean, self._count), np.split(part[-1], self._count), strict=True)
            rows.append(np.concatenate([half for pair in pairs for half in pair]))
        return np.stack(rows)
