"""The page on which people judge: one file that opens from the disk and offline, and gives their answers as votes.

Texts stand in it as data, so that none of them is ever read as markup, and characters that act unseen are shown by
their escapes. The page says nothing of systems: only where its verdicts belong, by stream, step and candidate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from prism_jax.judges.sampling import AskedEvent
from prism_jax.report.controls import as_script_text
from prism_jax.report.templates import load_template
from prism_jax.runtime.shown_text import visible
from prism_jax.streams import Event, Stream


def voting_page(events: Sequence[AskedEvent], most_events: int) -> str:
    """The page's HTML, the same for the same arguments; at an event it shows the newest `most_events` events."""
    streams: dict[str, Stream] = {event.stream.id: event.stream for event in events}
    last = {event.stream.id: event.event for event in events}  # events of a stream are in order
    number = {name: index for index, name in enumerate(streams)}
    data = {
        "most": most_events,
        "streams": [
            [(event.time, visible(event.text), _written_time(event)) for event in stream.events[: last[name] + 1]]
            for name, stream in streams.items()
        ],
        "items": [
            {
                "stream": number[event.stream.id],
                "event": event.event,
                "silence": event.silence,
                "proposals": [(visible(proposal.text), proposal.places) for proposal in event.proposals],
            }
            for event in events
        ],
    }
    digest = hashlib.sha256(as_script_text(data).encode("ascii")).hexdigest()
    return load_template("voting.html.jinja").render(
        data=as_script_text({**data, "digest": digest}), events=len(events)
    )


def _written_time(event: Event) -> str | None:
    """The time as its source wrote it, unless that is a number, which says nothing to people."""
    text = (event.time_text or "").strip()
    return visible(text) if text and not text.replace(".", "", 1).isdigit() else None
