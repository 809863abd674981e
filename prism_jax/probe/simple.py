"""Simple features of the history and of an offer: lengths, repetition, kinds of activity, overlap, wording."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence

import numpy as np
from jaxtyping import Float

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


def _holds(found: Sequence[str], stem: str) -> bool:
    return any(word.startswith(stem) for word in found)


def _share(found: Sequence[str], among: Container[str]) -> float:
    return sum(word in among for word in found) / max(1, len(found))
