"""Streams as JSON lines: one stream per line. The keys are the fields of the dataclasses; defaults are left out.

Reading checks every field and reports an error in one line that names the place. `read_streams` returns exactly what
`write_streams` was given.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import json
import reprlib
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from etils import epath

from prism_jax.runtime.files import check_folder_of, check_text, parse_json, read_lines, temporary_beside
from prism_jax.streams.types import Stream

_EXPECTED = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


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
      StreamError: when there are no streams, an id is used twice, or a text cannot be encoded in UTF-8.
    """
    path = epath.Path(path)
    check_folder_of(path)
    partial = temporary_beside(path)
    ids: set[str] = set()
    try:
        with partial.open("wb") as file:
            for number, stream in enumerate(streams, start=1):
                if stream.id in ids:
                    raise StreamError(f"{path}:{number}: id: found {stream.id!r} again, expected a new id")
                ids.add(stream.id)
                line = encode_stream(stream)
                check_text(line, f"{path}:{number}: stream {stream.id!r}", StreamError)
                file.write(line.encode("utf-8") + b"\n")
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
    value = parse_json(line, place, StreamError)
    try:
        return _decode(Stream, value, "")
    except StreamError as error:
        raise StreamError(f"{place}: {error}") from error


@functools.cache
def _fields(cls: type) -> dict[str, tuple[Any, bool]]:
    """Maps the name of each field of a dataclass to (type, required), in declaration order."""
    hints = typing.get_type_hints(cls)
    return {
        field.name: (
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    }


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


def _decode(kind: Any, value: Any, place: str) -> Any:
    """Converts the JSON `value` to the annotated type `kind`; a StreamError's message starts with `place`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):  # the only unions in these classes are `something | None`
        return None if value is None else _decode(arguments[0], value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise _mismatch(place, value, "a list")
        return tuple(_decode(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(value))
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            raise _mismatch(place, value, "an object with keys")
        return {_decode(str, key, place): _decode(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast(type, kind), value, place)
    return _decode_scalar(kind, value, place)


def _decode_scalar(kind: type, value: Any, place: str) -> Any:
    number = kind is float and isinstance(value, int | float)
    if not (isinstance(value, kind) or number) or (isinstance(value, bool) and kind is not bool):
        raise _mismatch(place, value, _EXPECTED[kind])
    if kind is str:
        check_text(value, place, StreamError)
    return float(value) if number else value


def _decode_record(cls: type, value: Any, place: str) -> Any:
    """Converts an object to the dataclass `cls`; errors of the dataclass's own checks are reported under `place`."""
    if not isinstance(value, dict):
        raise _mismatch(place or "the line", value, "an object with keys")
    prefix, fields = f"{place}." if place else "", _fields(cls)
    for key in value:
        if key not in fields:
            similar = difflib.get_close_matches(key, fields, n=1)
            hint = f"{similar[0]!r}" if similar else f"one of {', '.join(fields)}"
            raise StreamError(f"{prefix}{key}: found an unknown key, expected {hint}")
    for key, (_, required) in fields.items():
        if required and key not in value:
            raise StreamError(f"{prefix}{key}: found nothing, expected this key")
    labels = {key: float(value[key]) for key in ("y_need", "y_accept") if isinstance(value.get(key), bool)}
    values = {key: _decode(fields[key][0], item, f"{prefix}{key}") for key, item in {**value, **labels}.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise StreamError(f"{prefix}{error}") from error


def _mismatch(place: str, value: Any, expected: str) -> StreamError:
    return StreamError(f"{place}: found {reprlib.repr(value)} ({type(value).__name__}), expected {expected}")
