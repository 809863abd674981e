"""Reads streams with labels by any reader: rows of the scores table, as the agent itself would have read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.agent.reader import Item, Reader, Unanswered
from prism_jax.agent.signals import probabilities
from prism_jax.agent.steps import AN_OFFER
from prism_jax.streams import Stream
from prism_jax.streams.stream_columns import offer_columns


class Labelled(NamedTuple):
    """What a reader said at the steps of some streams."""

    rows: list[dict[str, Any]]  # rows of the scores table with raw p_need_fast and p_accept_fast
    log_odds: Mapping[tuple[str, int], tuple[float, ...]]  # need, then each candidate, by stream and step
    unanswered: Mapping[str, int]  # how many steps have no answer, by the reason in words


def read_labelled(reader: Reader, streams: Sequence[Stream], *, together: int = 16) -> Labelled:
    """Reads streams to their last step, `together` at once, and drops them again.

    Events without a step are read as ones after which an offer without a text could be made. ValueError names a stream
    that cannot be read.
    """
    rows: list[dict[str, Any]] = []
    log_odds: dict[tuple[str, int], tuple[float, ...]] = {}
    unanswered: dict[str, int] = {}
    for start in range(0, len(streams), together):
        group = [stream for stream in streams[start : start + together] if stream.steps]
        steps = [{step.event: number for number, step in enumerate(stream.steps)} for stream in group]
        for place in range(max((max(own) + 1 for own in steps), default=0)):
            asked: list[tuple[Stream, int]] = []
            passing: list[Item] = []
            for stream, own in zip(group, steps, strict=True):
                if place in own:
                    asked.append((stream, own[place]))
                elif place < max(own):
                    passing.append((stream.id, stream.events[place], AN_OFFER))
            if passing:
                reader.follow(passing)
            items = [(one.id, one.events[place], one.steps[number].candidates) for one, number in asked]
            for (stream, number), found in zip(asked, reader.observe(items) if items else (), strict=True):
                if isinstance(found, Unanswered):
                    unanswered[found.reason] = unanswered.get(found.reason, 0) + 1
                    continue
                log_odds[stream.id, number] = z = (found.z_need, *found.z_accept)
                p_need, *p_accept = probabilities(z, stream.id)
                for candidate, (offer, p) in enumerate(zip(stream.steps[number].candidates, p_accept, strict=True)):
                    columns = offer_columns(stream, stream.steps[number], offer, split="", fold=0)
                    del columns["split"], columns["fold"]
                    signals = {"p_need_fast": p_need, "p_accept_fast": p}
                    rows.append({**columns, "step": number, "candidate": candidate, **signals})
        for stream in group:
            reader.forget(stream.id)
    return Labelled(rows, log_odds, unanswered)
