"""KnowU-Bench's logs of phones: what a made-up person did over a month, each with a twin that has noise among it.

The publisher's file USER.json has entries of a time, a place and an action; USER_noise_25pct.json has the same entries
and others, which its `label` calls noise. Each file is one stream. Nothing is labelled: after every entry that is no
noise stands a step, so that the two streams of a person have the same steps, and what noise does to decisions can be
compared step by step. Neither the label nor the category of an entry is in its text.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

from etils import epath

from prism_jax.runtime.files import parse_json, read_bounded
from prism_jax.runtime.schema import Loose, Words, decode, some
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.content import Published
from prism_jax.streams.times import iso_seconds
from prism_jax.streams.types import Event, Step, Stream

FOLDERS = ("src/knowu_bench/user_logs", "src/mobile_world/user_logs")
"""Where the publisher's repository has the logs, in its older and newer versions."""
LAYOUT = f"files USER.json in the folder {' or '.join(FOLDERS)}"


@dataclasses.dataclass(frozen=True)
class _Entry(Loose):
    time: Words
    action: Words
    location: str | None = None
    label: str | None = None


_ENTRIES = Annotated[tuple[_Entry, ...], "a list of entries", some]


def read_knowu(source: epath.PathLike) -> Published:
    """Reads all logs of a folder with the publisher's layout; a stream's id is the file's name, its persona the user.

    Raises FileNotFoundError naming the folder without logs, and StreamError naming file, entry and key.
    """
    files = [path for folder in FOLDERS for path in (epath.Path(source) / folder).glob("*.json")]
    if not files:
        raise FileNotFoundError(f"{source}: found no logs of KnowU-Bench, expected {LAYOUT}")
    return Published(sorted(map(_stream, files), key=lambda stream: stream.id))


def _stream(path: epath.Path) -> Stream:
    value = parse_json(read_bounded(path, StreamError), str(path), StreamError)
    entries = decode(_ENTRIES, value, str(path), StreamError)
    try:
        seconds = iso_seconds([entry.time for entry in entries])
    except ValueError as error:
        raise StreamError(f"{path}: {error}") from error
    timed = sorted(zip(seconds, entries, strict=True), key=lambda pair: pair[0])
    events = tuple(
        Event(
            time=time,
            text=f"{entry.action} Location: {entry.location}" if entry.location else entry.action,
            time_text=entry.time,
        )
        for time, entry in timed
    )
    steps = tuple(Step(event=index) for index, (_, entry) in enumerate(timed) if entry.label != "noise")
    return Stream(id=path.stem, events=events, steps=steps, domain="life", persona=path.stem.partition("_noise")[0])
