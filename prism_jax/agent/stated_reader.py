"""A reader for callers that have numbers of their own: an event's text states the probabilities.

    {"p_need": 0.8, "p_accept": [0.4, 0.1]}

`stated_event` writes such a text. Budgets, people, exploration and records then are those of any agent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from prism_jax.agent.reader import FastOnly, FastReading, Item
from prism_jax.decision import arrays
from prism_jax.runtime.files import parse_json
from prism_jax.streams import Candidate, Event


def stated_event(time: float, p_need: Any, p_accept: Sequence[Any]) -> Event:
    """An event that states probabilities: of need, and of the acceptance of each candidate.

    Raises:
      ValueError: naming the one that is no number in [0, 1].
    """
    for name, p in [("p_need", p_need), *((f"p_accept[{i}]", p) for i, p in enumerate(p_accept))]:
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
            raise ValueError(f"{name}: found {p!r:.80}, expected a number from 0 to 1")
    return Event(time=time, text=json.dumps({"p_need": float(p_need), "p_accept": list(map(float, p_accept))}))


class StatedReader(FastOnly):
    """Reads what events state; satisfies `prism_jax.agent.reader.Reader`."""

    no_more = "found numbers that a caller states, which neither think nor write, expected a student"

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def observe(self, items: Sequence[Item]) -> list[FastReading]:
        """The log-odds that each event states; ValueError naming a stream whose event states none."""
        readings = [_reading(*item) for item in items]
        self.follow(items)
        return readings

    def follow(self, items: Sequence[Item]) -> None:
        """Notes the events; see `Reader.follow`."""
        for stream, event, _ in items:
            before = self._digests.get(stream, b"")
            self._digests[stream] = hashlib.sha256(before + event.text.encode()).digest()

    def forget(self, stream: str) -> None:
        """Drops a stream."""
        self._digests.pop(stream, None)

    def history(self, stream: str) -> str:
        """SHA-256 of the newest event's text and of the same hash after the event before."""
        return self._digests[stream].hex()


def _reading(stream: str, event: Event, candidates: Sequence[Candidate]) -> FastReading:
    tree = parse_json(event.text.encode(), f"stream {stream!r}: text", ValueError)
    if not isinstance(tree, dict) or len(tree.get("p_accept", ())) != len(candidates):
        raise ValueError(f"stream {stream!r}: text: found no p_accept of each candidate, expected it")
    p = np.asarray([tree["p_need"], *tree["p_accept"]])
    arrays.check_probability(f"stream {stream!r}: text", p)
    z_need, *z_accept = arrays.log_odds(p).tolist()
    return FastReading(z_need, tuple(z_accept), 0)
