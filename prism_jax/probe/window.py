"""How far back a probe looks: the newest events and offers of a stream, and the beginning of each text.

Bounds make the work and the memory per event the same at the first event of a stream and at the millionth, live and
offline alike. The number of events so far is carried along and has no bound.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Window(NamedTuple):
    """Bounds of what a probe reads before a step."""

    events: int  # most events, the step's own among them
    offers: int  # most offers of earlier steps; a step's offers are seen together or not at all
    characters: int  # most characters of these events, and of these offers
    text: int  # most characters of one text; of a longer one, the first so many are read


WINDOW = Window(events=32, offers=128, characters=16_384, text=4_096)
"""The window of every probe; the streams of ProactiveBench and of the simulator are shorter."""


def beginning(text: str) -> str:
    """The part of a text that is read."""
    return text[: WINDOW.text]


class Newest:
    """Which items of a growing sequence are inside bounds: the newest, as many as fit together."""

    def __init__(self, most: int) -> None:
        """Begins without items, of which at most `most` are kept."""
        self._most = most
        self._items: deque[tuple[int, int]] = deque()
        self._count = self._characters = 0

    def add(self, count: int, characters: int) -> int:
        """Adds the newest item, which counts as `count`; returns how many of the oldest no longer fit."""
        self._items.append((count, characters))
        self._count += count
        self._characters += characters
        dropped = 0
        while self._count > self._most or self._characters > WINDOW.characters:
            old = self._items.popleft()
            self._count -= old[0]
            self._characters -= old[1]
            dropped += 1
        return dropped
