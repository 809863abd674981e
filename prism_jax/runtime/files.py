"""Writes files and folders completely or not at all, and reads strict JSON with errors that name the place.

Paths may be local or in a bucket such as gs:// (`etils.epath`). Content is written under a temporary name beside its
destination and moved there once it is complete. Neither a reader nor a crash ever leaves a partial file.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import reprlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath


class JsonError(ValueError):
    """Invalid JSON in a file or line; the message names the place, what was found and what was expected."""


def on_disk(path: epath.PathLike) -> bool:
    """Whether a path is in a file system, which can append to files; buckets such as gs:// store whole files only."""
    return "://" not in epath.Path(path).as_posix()


def temporary_beside(path: epath.Path) -> epath.Path:
    """An unused name in the same folder, for content that will be moved to `path`."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


def write_files(contents: Mapping[str | os.PathLike[str], bytes]) -> None:
    """Writes several files; none appears under its own name before all are complete under temporary names."""
    paths = [epath.Path(path) for path in contents]
    partial = [temporary_beside(path) for path in paths]
    try:
        for temporary, content in zip(partial, contents.values(), strict=True):
            temporary.write_bytes(content)
        for temporary, path in zip(partial, paths, strict=True):
            temporary.replace(path)
    finally:
        for temporary in partial:
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file atomically: readers see the old file or the new one."""
    write_files({path: content})


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file of UTF-8 text atomically."""
    write_files({path: text.encode("utf-8")})


def encode_json(value: Any) -> bytes:
    """Encodes `value` as indented JSON with a final newline; raises ValueError for NaN and infinities."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes indented JSON atomically."""
    write_files({path: encode_json(value)})


def check_absent(path: epath.PathLike) -> None:
    """Raises FileExistsError if `path` already exists."""
    if epath.Path(path).exists():
        raise FileExistsError(f"{path}: found something there, expected a path that does not exist yet")


@contextlib.contextmanager
def new_folder(path: epath.PathLike) -> Iterator[epath.Path]:
    """A temporary folder that becomes `path` at the end of the block, and is removed if the block raises.

    Raises:
      FileExistsError: if `path` already exists.
    """
    path = epath.Path(path)
    check_absent(path)
    temporary = temporary_beside(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(path)
    except BaseException:
        temporary.rmtree(missing_ok=True)
        raise


def parse_json(data: bytes, place: str, error: type[ValueError] = JsonError) -> Any:
    """Reads one JSON value from UTF-8 bytes.

    Args:
      data: The bytes.
      place: What every message starts with, such as `FILE:LINE`.
      error: The class of the errors.

    Raises:
      error: for anything other than one JSON value whose objects name each key once.
    """
    if not data.strip():
        raise error(f"{place}: found nothing, expected a JSON value")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_object)
    except json.JSONDecodeError as broken:
        where = f"line {broken.lineno} column {broken.colno}" if broken.lineno > 1 else f"column {broken.colno}"
        raise error(f"{place}: found broken JSON at {where} ({broken.msg}), expected a JSON value") from broken
    except UnicodeDecodeError as broken:
        raise error(f"{place}: found byte {data[broken.start]:#04x} at {broken.start}, expected UTF-8") from broken
    except RecursionError as broken:
        raise error(f"{place}: found brackets nested too deep, expected a JSON value") from broken
    except JsonError as broken:
        raise error(f"{place}: {broken}") from broken
    except ValueError as broken:  # Python's limit on the number of digits of an integer
        raise error(f"{place}: found a number with too many digits, expected a JSON value") from broken


def read_object(path: epath.PathLike, source: str, error: type[ValueError] = JsonError) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Args:
      path: The file.
      source: What writes such files, for messages.
      error: The class of the errors about its content.

    Raises:
      FileNotFoundError: if there is no such file.
      error: naming the file, if it holds anything else.
    """
    path = epath.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected what {source} writes")
    value = parse_json(path.read_bytes(), str(path), error)
    if not isinstance(value, dict):
        raise error(f"{path}: found {reprlib.repr(value)}, expected an object with keys, as {source} writes it")
    return value


def check_text(text: str, place: str, error: type[ValueError] = JsonError) -> None:
    """Raises `error`, starting with `place`, if UTF-8 cannot encode `text`: JSON can escape half of a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as broken:
        raise error(
            f"{place}: found the lone surrogate {text[broken.start]!a}, expected text that UTF-8 can hold"
        ) from broken


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object and rejects repeated keys, of which the last would otherwise win silently."""
    value = dict(pairs)
    if len(value) < len(pairs):
        (twice, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
        raise JsonError(f"found key {twice!r} twice in one object, expected each key once")
    return value
