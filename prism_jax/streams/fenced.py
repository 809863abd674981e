"""Untrusted texts as JSON, for prompts of other models: nothing in an event or an offer can end its quotes.

The student's own prompt needs no such fence, because its texts are encoded apart from the template and special tokens
are impossible in them (prism_jax/student/prompting/template.py). A remote model is sent one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from prism_jax.streams.types import Event

_LINE_ENDS = re.compile("[\x7f-\x9f\u2028\u2029]")


def event_text(event: Event, before: Event | None) -> tuple[str, str]:
    """An event as two untrusted texts: what happened, and the time since the event before it, if a minute or more."""
    seconds = 0.0 if before is None else event.time - before.time
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return event.text, f" (+{seconds / size:.0f}{unit})"
    return event.text, ""


def fenced(text: str | None) -> str:
    """A text as one JSON string on one line; None as null."""
    # Some readers end a line at these as well; JSON escapes only the first 32 characters of its own accord.
    return _LINE_ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", json.dumps(text, ensure_ascii=False))


def fenced_events(events: Sequence[Event], most: int) -> str:
    """The newest `most` events, one JSON object per line, oldest first; a line says how many older ones are left out.

    Each object says what happened, and the time since the event before.
    """
    first = max(0, len(events) - most)
    lines = [f'{{"left_out": {first}}}'] if first else []
    for index in range(first, len(events)):
        what, when = event_text(events[index], events[index - 1] if index else None)
        since = f', "since": {fenced(when.strip(" ()"))}' if when else ""
        lines.append(f'{{"event": {fenced(what)}{since}}}')
    return "\n".join(lines)
