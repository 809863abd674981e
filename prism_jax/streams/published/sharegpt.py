"""The official training data's layout as streams: conversations, which have no stream ids, are put together again.

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
import hashlib
import itertools
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.runtime.files import parse_json, read_bounded, read_lines
from prism_jax.streams import Event, Step, Stream
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.answers import candidates_of
from prism_jax.streams.published.content import Published
from prism_jax.streams.published.conversations import AssistantAnswer, Conversation, Moment, parse_conversation
from prism_jax.streams.times import iso_seconds, to_seconds

Events = tuple[Moment, ...]


class JoinedStream(NamedTuple):
    """A stream that was put together."""

    events: Events
    replies: dict[int, frozenset[AssistantAnswer]]  # the distinct answers at each event that has some, by its index


class Regrouping(NamedTuple):
    """The result of regrouping."""

    streams: tuple[JoinedStream, ...]  # sorted by their events
    left_out: tuple[str, ...]  # places of the conversations that contradict the stream they belong to, sorted


def regroup(conversations: Iterable[Conversation]) -> Regrouping:
    """Joins conversations to streams; the result does not depend on their order."""
    pieces = sorted(conversations, key=lambda piece: (-len(piece.events), piece.events, piece.place))
    families = _families([piece.events for piece in pieces])
    streams: list[JoinedStream] = []
    left_out: list[str] = []
    for numbers in families:
        joined, contradicting = _join([pieces[number] for number in numbers])
        streams.append(joined)
        left_out += contradicting
    return Regrouping(tuple(sorted(streams, key=lambda stream: stream.events)), tuple(sorted(left_out)))


def _families(pieces: Sequence[Events]) -> list[list[int]]:
    """Groups pieces that share two consecutive events, or the only event of one; longest pieces come first."""
    parent = list(range(len(pieces)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    piece_of_pair: dict[Events, int] = {}
    piece_of_first_event: dict[Moment, int] = {}
    piece_of_event: dict[Moment, int] = {}
    for number, events in enumerate(pieces):
        if len(events) > 1:
            for pair in itertools.pairwise(events):
                parent[root(number)] = root(piece_of_pair.setdefault(pair, number))
            piece_of_first_event.setdefault(events[0], number)
            for event in events:
                piece_of_event.setdefault(event, number)
    for number, events in enumerate(pieces):
        if len(events) == 1:  # a stream that begins with this event is likelier its own than one that contains it
            home = piece_of_first_event.get(events[0], piece_of_event.get(events[0], number))
            piece_of_first_event.setdefault(events[0], home)
            parent[root(number)] = root(home)
    families: dict[int, list[int]] = collections.defaultdict(list)
    for number in range(len(pieces)):
        families[root(number)].append(number)
    return list(families.values())


def _join(pieces: Sequence[Conversation]) -> tuple[JoinedStream, list[str]]:
    """Joins the pieces of a family, the longest first, until no other one fits."""
    events = pieces[0].events
    remaining = list(pieces)
    joined_pieces: list[tuple[Conversation, Events]] = []
    while True:
        misfits = []
        for piece in remaining:
            extended = _extended(events, piece.events)
            if extended is None:
                misfits.append(piece)
            else:
                events = extended
                joined_pieces.append((piece, piece.events))
        if len(misfits) == len(remaining):
            break
        remaining = misfits
    replies: dict[int, set[AssistantAnswer]] = collections.defaultdict(set)
    for piece, piece_events in joined_pieces:
        first = next(i for i in range(len(events)) if events[i : i + len(piece_events)] == piece_events)
        for index, reply in piece.replies:
            replies[first + index].add(reply)
    return (
        JoinedStream(events, {index: frozenset(answers) for index, answers in sorted(replies.items())}),
        [piece.place for piece in remaining],
    )


def _extended(events: Events, piece: Events) -> Events | None:
    """The stream with a piece laid onto it where both agree on the most events; None where they agree nowhere."""
    best: tuple[int, Events] | None = None
    for shift in range(-len(piece) + 1, len(events)):
        start, stop = max(0, shift), min(len(events), shift + len(piece))
        overlap = stop - start
        if events[start:stop] != piece[start - shift : stop - shift]:
            continue
        contained = overlap in (len(piece), len(events))
        if (contained or overlap > 1) and (best is None or overlap > best[0]):
            best = overlap, (*piece[: max(0, -shift)], *events, *piece[max(0, len(events) - shift) :])
    return None if best is None else best[1]


_EXPECTED = "conversations as JSON or JSON lines"
MOST_BYTES = 2**31
"""Largest file that holds one JSON list; a file with a row per line has no such limit."""
_SHOWN = 3


def read_sharegpt(path: epath.PathLike) -> Published:
    """Reads conversations as whole streams (`prism_jax.streams.published.conversations` says what a row may hold).

    The file has a JSON list of rows, or is named *.jsonl and has one row per line. One stream stands for all
    conversations that are pieces of it, sorted by id, which is a digest of its events. Each event with an answer is a
    step; the distinct offers of its answers are its candidates, with the answer as a response where it is complete, and
    a step whose answers are all silent has the constant one. Raises StreamError naming file, row and turn, for a row
    with another layout or without any answer in the whole file.
    """
    path = epath.Path(path)
    conversations = []
    for number, row in _rows(path):
        place = f"{path}: row {number}"
        conversation = parse_conversation(row, place)
        _seconds([time for time, _ in conversation.events], place)
        conversations.append(conversation)
    regrouped = regroup(conversations)
    dropped = collections.Counter[str]()
    if regrouped.left_out:
        rows = ", ".join(place.removeprefix(f"{path}: ") for place in regrouped.left_out[:_SHOWN])
        rows += ", ..." * (len(regrouped.left_out) > _SHOWN)
        what = f"of {len(conversations):,} conversations of {path}, which begin as another stream and end differently"
        dropped[f"{what}: {rows}"] = len(regrouped.left_out)
    streams = sorted((_stream(joined, str(path)) for joined in regrouped.streams), key=lambda stream: stream.id)
    if not any(stream.steps for stream in streams):
        raise StreamError(f"{path}: found no answer in {len(conversations)} rows, expected conversations with answers")
    return Published(streams, dropped=dropped)


def _rows(path: epath.Path) -> Iterator[tuple[int, Any]]:
    """The rows and their numbers: lines from 1 of a file named *.jsonl, or entries from 0 of a list."""
    if path.suffix == ".jsonl":
        for number, line in read_lines(path, StreamError, _EXPECTED):
            yield number, parse_json(line, f"{path}: row {number}", StreamError)
        return
    whole = parse_json(read_bounded(path, StreamError, MOST_BYTES, _EXPECTED), str(path), StreamError)
    if not isinstance(whole, list):
        raise StreamError(f"{path}: found {reprlib.repr(whole)}, expected a list of rows (or a file named *.jsonl)")
    yield from enumerate(whole)


def _seconds(times: Sequence[str], place: str) -> tuple[float, ...]:
    """Seconds of ProactiveBench's two formats, or of dates and times in ISO 8601."""
    try:
        return to_seconds(times)
    except ValueError as error:
        try:
            return iso_seconds(times)
        except ValueError as other:
            zones = str(other) if "zone" in str(other) else f"{error}, or a date and time in ISO 8601"
            raise StreamError(f"{place}, event {zones}") from error


def _stream(joined: JoinedStream, place: str) -> Stream:
    content = "\n".join(f"{time} {text}" for time, text in joined.events)
    name = f"sharegpt-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    # An event stamped before the one that precedes it takes that one's time: the order is what the assistant saw.
    seconds = itertools.accumulate(_seconds([time for time, _ in joined.events], f"{place}: stream {name}"), max)
    return Stream(
        id=name,
        events=tuple(
            Event(time=time, text=text, time_text=stamp)
            for time, (stamp, text) in zip(seconds, joined.events, strict=True)
        ),
        steps=tuple(
            Step(event=index, candidates=candidates_of(name, index, [dict(reply.fields) for reply in replies]))
            for index, replies in joined.replies.items()
        ),
    )
