"""Puts conversations that are pieces of one stream together again: they have no stream ids.

A conversation holds the events of a stream up to one of its steps. Mostly it starts with the stream's first event; a
long one may have lost its oldest turns, so in general it is a window of consecutive events. Two conversations that
share two consecutive events (times and texts) are pieces of one stream, and so are two of which one begins with all
events of the other. The pieces of a stream are joined where they agree on the most events; where a stream repeats
events, times included, and conversations have lost their beginnings, that place may be another than the true one.

A piece that agrees up to some event and then tells another story would put one history into two streams, and these
could end up in different splits. It is left out and counted.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prism_jax.teacher.conversations import Conversation, Moment, Reply

Events = tuple[Moment, ...]


class Joined(NamedTuple):
    """A stream that was put together."""

    events: Events
    replies: dict[int, frozenset[Reply]]  # the distinct answers at each event that has some, by its index


class Regrouped(NamedTuple):
    """The result of regrouping."""

    streams: tuple[Joined, ...]  # sorted by their events
    left_out: tuple[str, ...]  # places of the conversations that contradict the stream they belong to, sorted


def regroup(conversations: Iterable[Conversation]) -> Regrouped:
    """Joins conversations to streams; the result does not depend on their order."""
    pieces = sorted(conversations, key=lambda piece: (-len(piece.events), piece.events, piece.place))
    families = _families([piece.events for piece in pieces])
    streams: list[Joined] = []
    left_out: list[str] = []
    for numbers in families:
        joined, contradicting = _join([pieces[number] for number in numbers])
        streams.append(joined)
        left_out += contradicting
    return Regrouped(tuple(sorted(streams, key=lambda stream: stream.events)), tuple(sorted(left_out)))


def _families(pieces: Sequence[Events]) -> list[list[int]]:
    """Groups pieces that share two consecutive events, or the only event of one; longest pieces come first."""
    parent = list(range(len(pieces)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    owner: dict[Events, int] = {}
    starts: dict[Moment, int] = {}
    inside: dict[Moment, int] = {}
    for number, events in enumerate(pieces):
        if len(events) > 1:
            for pair in itertools.pairwise(events):
                parent[root(number)] = root(owner.setdefault(pair, number))
            starts.setdefault(events[0], number)
            for event in events:
                inside.setdefault(event, number)
    for number, events in enumerate(pieces):
        if len(events) == 1:  # a stream that begins with this event is likelier its own than one that contains it
            home = starts.get(events[0], inside.get(events[0], number))
            starts.setdefault(events[0], home)
            parent[root(number)] = root(home)
    families: dict[int, list[int]] = collections.defaultdict(list)
    for number in range(len(pieces)):
        families[root(number)].append(number)
    return list(families.values())


def _join(pieces: Sequence[Conversation]) -> tuple[Joined, list[str]]:
    """Joins the pieces of a family, the longest first, until no other one fits."""
    events = pieces[0].events
    waiting = list(pieces)
    fitted: list[tuple[Conversation, Events]] = []
    while True:
        missed = []
        for piece in waiting:
            longer = _extended(events, piece.events)
            if longer is None:
                missed.append(piece)
            else:
                events = longer
                fitted.append((piece, piece.events))
        if len(missed) == len(waiting):
            break
        waiting = missed
    replies: dict[int, set[Reply]] = collections.defaultdict(set)
    for piece, own in fitted:
        first = _offset(events, own)
        for index, reply in piece.replies:
            replies[first + index].add(reply)
    return (
        Joined(events, {index: frozenset(answers) for index, answers in sorted(replies.items())}),
        [piece.place for piece in waiting],
    )


def _extended(events: Events, piece: Events) -> Events | None:
    """The stream with a piece laid onto it where both agree on the most events; None where they agree nowhere."""
    best: tuple[int, Events] | None = None
    for shift in range(-len(piece) + 1, len(events)):
        start, stop = max(0, shift), min(len(events), shift + len(piece))
        overlap = stop - start
        if events[start:stop] != piece[start - shift : stop - shift]:
            continue
        whole = overlap in (len(piece), len(events))
        if (whole or overlap > 1) and (best is None or overlap > best[0]):
            best = overlap, (*piece[: max(0, -shift)], *events, *piece[max(0, len(events) - shift) :])
    return None if best is None else best[1]


def _offset(events: Events, piece: Events) -> int:
    """The first place at which the stream holds a piece."""
    return next(i for i in range(len(events)) if events[i : i + len(piece)] == piece)
