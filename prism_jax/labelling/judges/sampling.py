"""Which events people are asked about: a seeded sample of those at which every system has a step, by domain.

People must not see which system would say what. A text that several systems would say is therefore asked once, and
its verdict counts at every place where it stands; neither the order of the systems nor that of their candidates shows.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.decision.curation import largest_remainders
from prism_jax.labelling.judges.labelling import Place
from prism_jax.labelling.judges.prompts import questions
from prism_jax.runtime.shown_text import visible
from prism_jax.streams import Event, Stream
from prism_jax.streams.traces import NULL_WORDS


class Proposal(NamedTuple):
    """A text that a system would say at an event, and every place where it stands."""

    text: str
    places: tuple[Place, ...]


class AskedEvent(NamedTuple):
    """An event that people are asked about."""

    stream: Stream  # that of the first system; the newest events are the same in all
    event: int  # number of the newest event
    silence: tuple[Place, ...]  # every place of the question about silence: systems may count their steps differently
    proposals: tuple[Proposal, ...]  # the distinct texts; none where every system would be silent


def common_events(systems: Mapping[str, Sequence[Stream]], most_events: int) -> list[AskedEvent]:
    """The events at which all systems have a step, sorted by stream and event, with the texts sorted.

    Offers without a text, or whose text says null, are left out, as nobody would say them. Places have the digests of
    questions that show at most `most_events` events.

    Raises:
      ValueError: if systems differ in the events that a question shows, or have no step in common.
    """
    owners: defaultdict[tuple[str, int], dict[str, Stream]] = defaultdict(dict)
    silences: defaultdict[tuple[str, int], set[Place]] = defaultdict(set)
    texts: defaultdict[tuple[str, int], defaultdict[str, set[Place]]] = defaultdict(lambda: defaultdict(set))
    for name, stream in ((name, stream) for name, streams in systems.items() for stream in streams):
        for question in questions(stream, most_events):
            step = stream.steps[question.step]
            key, place = (stream.id, step.event), Place(question.digest, *question[:3])
            if question.candidate is None:
                owners[key][name] = stream
                silences[key].add(place)
                if len({place.question for place in silences[key]}) > 1:
                    raise ValueError(
                        f"stream {stream.id!r}, event {step.event}: found other events in {name} than in "
                        f"{next(iter(owners[key]))}, expected the same history in all systems"
                    )
            elif (said := step.candidates[question.candidate].said or "").strip().lower() not in NULL_WORDS:
                texts[key][said].add(place)
    common = sorted(key for key, names in owners.items() if len(names) == len(systems))
    if not common:
        raise ValueError(f"{', '.join(systems)}: found no event at which all have a step, expected some")
    order = operator.attrgetter("step", "candidate")  # which does not depend on the system
    return [
        AskedEvent(
            next(iter(owners[key].values())),
            key[1],
            tuple(sorted(silences[key], key=operator.attrgetter("step"))),
            tuple(Proposal(text, tuple(sorted(where, key=order))) for text, where in sorted(texts[key].items())),
        )
        for key in common
    ]


def draw_events(events: Sequence[AskedEvent], count: int, seed: int) -> list[AskedEvent]:
    """Draws events without replacement, each domain in proportion to its events (largest remainders).

    Streams come in random order, so that who stops early has seen whole streams at random. The events of one stream
    stay in order: who has seen what comes later would judge with hindsight. The texts of an event are shuffled.

    Raises:
      ValueError: if `count` is below 1 or above the number of events.
    """
    if not 1 <= count <= len(events):
        raise ValueError(f"sample: found {count}, expected from 1 to the {len(events)} events that all systems share")
    rng = np.random.default_rng(seed)
    domains = sorted({event.stream.domain for event in events})
    groups = [[event for event in events if event.stream.domain == domain] for domain in domains]
    drawn: list[AskedEvent] = []
    for group, share in zip(groups, largest_remainders(np.array([*map(len, groups)]), count), strict=True):
        drawn += [group[index] for index in rng.choice(len(group), share, replace=False)]
    names = sorted({event.stream.id for event in drawn})
    turn = dict(zip(names, rng.permutation(len(names)).tolist(), strict=True))
    drawn.sort(key=lambda event: (turn[event.stream.id], event.event))
    return [
        event._replace(proposals=tuple(event.proposals[index] for index in rng.permutation(len(event.proposals))))
        for event in drawn
    ]


def page_data(events: Sequence[AskedEvent], most_events: int) -> dict[str, Any]:
    """What the page for people holds, which shows the newest `most_events` events; its digest names the page.

    It says nothing of systems, only where verdicts belong. Characters that act unseen are shown by their escapes.
    """
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
    return {**data, "digest": hashlib.sha256(json.dumps(data).encode("ascii")).hexdigest()}


def _written_time(event: Event) -> str | None:
    """The time as its source wrote it, unless that is a number, which says nothing to people."""
    text = (event.time_text or "").strip()
    return visible(text) if text and not text.replace(".", "", 1).isdigit() else None
