"""The official training data's layout as streams: conversations without stream ids, put together again."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging
from etils import epath

from prism_jax.runtime.files import parse_json, read_bounded, read_lines
from prism_jax.streams import Event, Step, Stream
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.times import to_seconds
from prism_jax.teacher.answers import candidates_of
from prism_jax.teacher.conversations import parse_conversation
from prism_jax.teacher.regrouping import Joined, regroup

_EXPECTED = "conversations as JSON or JSON lines"
MOST_BYTES = 2**31
"""Largest file that holds one JSON list; a file with a row per line has no such limit."""
_SHOWN = 3


def read_sharegpt(path: epath.PathLike) -> list[Stream]:
    """Reads conversations as whole streams (`prism_jax.teacher.conversations` says what a row may hold).

    The file has a JSON list of rows, or is named *.jsonl and has one row per line. One stream stands for all
    conversations that are pieces of it (`prism_jax.teacher.regrouping`), sorted by id, which is a digest of its events.
    Each event with an answer is a step; the distinct offers of its answers are its candidates, with the answer as a
    response where it is complete, and a step whose answers are all silent has the constant one.

    Raises:
      StreamError: naming file, row and turn, for a row with another layout or without any answer in the whole file.
    """
    path = epath.Path(path)
    conversations = []
    for number, row in _rows(path):
        place = f"{path}: row {number}"
        conversation = parse_conversation(row, place)
        _seconds([time for time, _ in conversation.events], place)
        conversations.append(conversation)
    regrouped = regroup(conversations)
    if regrouped.left_out:
        logging.warning(
            "%s: left out %d of %d conversations, which begin as another stream and end differently: %s%s",
            path,
            len(regrouped.left_out),
            len(conversations),
            ", ".join(place.removeprefix(f"{path}: ") for place in regrouped.left_out[:_SHOWN]),
            ", ..." if len(regrouped.left_out) > _SHOWN else "",
        )
    streams = sorted((_stream(joined, str(path)) for joined in regrouped.streams), key=lambda stream: stream.id)
    if not any(stream.steps for stream in streams):
        raise StreamError(f"{path}: found no answer in {len(conversations)} rows, expected conversations with answers")
    return streams


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
            dates = [datetime.datetime.fromisoformat(time) for time in times]
        except ValueError:
            raise StreamError(f"{place}, event {error}, or a date and time in ISO 8601") from error
    zones = {date.tzinfo is None for date in dates}
    if len(zones) > 1:
        raise StreamError(f"{place}: found times with and without a time zone, expected one kind")
    return tuple(date.replace(tzinfo=date.tzinfo or datetime.UTC).timestamp() for date in dates)


def _stream(joined: Joined, place: str) -> Stream:
    content = "\n".join(f"{time} {text}" for time, text in joined.events)
    name = f"sharegpt-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    # An event stamped before the one that precedes it takes that one's time: the order is what the assistant saw.
    seconds = itertools.accumulate(_seconds([time for time, _ in joined.events], f"{place}: stream {name}"), max)
    return Stream(
        id=name,
        events=tuple(Event(time=time, text=text) for time, (_, text) in zip(seconds, joined.events, strict=True)),
        steps=tuple(
            Step(event=index, candidates=candidates_of(name, index, [dict(reply.fields) for reply in replies]))
            for index, replies in joined.replies.items()
        ),
    )
