"""Streams as JSON lines: one stream per line. The keys are the fields of the dataclasses; defaults are left out.

Reading checks every field and reports an error in one line that names the place. `read_streams` returns exactly what
`write_streams` was given.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

from etils import epath

from prism_jax.runtime.files import check_folder_of, named, read_lines, temporary_beside
from prism_jax.runtime.schema import decode, read_json
from prism_jax.streams.types import Stream


class StreamError(ValueError):
    """Data that is not a valid set of streams, in one line: `FILE:LINE: field: found ..., expected ...`."""


def read_streams(path: epath.PathLike) -> list[Stream]:
    """Reads and checks a file of streams, local or in a bucket; returns them in file order, at least one.

    Raises:
      FileNotFoundError: when there is no such file.
      StreamError: naming file, line and field, when the file holds anything but valid streams with distinct ids.
    """
    return list(iterate_streams(path))


def iterate_streams(path: epath.PathLike) -> Iterator[Stream]:
    """Yields the streams of a file one by one, with the checks and errors of `read_streams`; keeps only their ids."""
    lines: dict[str, int] = {}
    for number, line in read_lines(path, StreamError, "JSON lines"):
        stream = decode_stream(line, f"{path}:{number}")
        if stream.id in lines:
            raise StreamError(
                f"{path}:{number}: id: found {stream.id!r} again (first on line {lines[stream.id]}), expected a new id"
            )
        lines[stream.id] = number
        yield stream
    if not lines:
        raise StreamError(f"{path}: found an empty file, expected one stream per line")


def write_streams(path: epath.PathLike, streams: Iterable[Stream]) -> None:
    """Writes streams atomically, one per line; replaces an older file.

    Raises:
      FileNotFoundError: when there is no such folder.
      StreamError: when there are no streams, or an id is used twice.
    """
    path = epath.Path(path)
    check_folder_of(path)
    partial = temporary_beside(path)
    ids: set[str] = set()
    try:
        with named(path), partial.open("wb") as file:
            for number, stream in enumerate(streams, start=1):
                if stream.id in ids:
                    raise StreamError(f"{path}:{number}: id: found {stream.id!r} again, expected a new id")
                ids.add(stream.id)
                file.write(encode_stream(stream).encode("utf-8") + b"\n")
        if not ids:
            raise StreamError(f"{path}: found no streams to write, expected at least one")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def encode_streams(streams: Iterable[Stream]) -> bytes:
    """The lines of some streams, as `write_streams` writes them."""
    return "".join(f"{encode_stream(stream)}\n" for stream in streams).encode()


def encode_stream(stream: Stream) -> str:
    """A stream as the JSON text of its line; equal streams have equal texts."""
    return json.dumps(_encode(stream), ensure_ascii=False, allow_nan=False)


def decode_stream(line: bytes, place: str) -> Stream:
    """The stream of one line of a file; a StreamError begins with `place`, such as FILE:LINE."""
    return decode(Stream, read_json(line, place, StreamError), place, StreamError)


def _encode(value: Any) -> Any:
    """Converts `value` to plain JSON values, leaving out fields that have their default value."""
    if isinstance(value, str | bool | int | float | None):
        return value
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    encoded = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if item != default:
            encoded[field.name] = _encode(item)
    return encoded
