"""Writes files and folders atomically, and reads strict JSON with errors that name the place.

Paths may be local or in a bucket such as gs:// (`etils.epath`). Content is written under a temporary name next to its
destination and moved there once it is complete, so that readers never see a partial file, even after a crash.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import reprlib
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any

from etils import epath

MOST_LINE_BYTES = 64 * 2**20
"""Longest line of a file of JSON lines, and largest file of one JSON value; larger ones are refused before they are
parsed, which takes many times more."""


class JsonError(ValueError):
    """Invalid JSON in a file or line; the message names the place, what was found and what was expected."""


def on_disk(path: epath.PathLike) -> bool:
    """Whether a path is in a file system, which can append to files; buckets such as gs:// store whole files only."""
    return "://" not in epath.Path(path).as_posix()


def temporary_beside(path: epath.Path) -> epath.Path:
    """An unused name in the same folder, for content that will be moved to `path`."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


def write_files(contents: Mapping[str | os.PathLike[str], bytes]) -> None:
    """Writes several files. All are completed under temporary names before any gets its final name."""
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
    """Writes a file atomically: readers see either the old content or the new one."""
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


def check_folder_of(path: epath.PathLike) -> None:
    """Raises FileNotFoundError if the folder of `path` does not exist: before long work, and not after it."""
    path = epath.Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: found no folder {path.parent}, expected an existing one")


@contextlib.contextmanager
def new_folder(path: epath.PathLike) -> Iterator[epath.Path]:
    """Yields a temporary folder that is renamed to `path` when the block ends, or removed if the block raises.

    Raises:
      FileExistsError: if `path` already exists, before the block or after it. Of two at once, the first to end stays.
    """
    path = epath.Path(path)
    check_absent(path)
    temporary = temporary_beside(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        check_absent(path)  # another process may have made it meanwhile; a rename would replace an empty folder
        try:
            temporary.rename(path)
        except OSError:
            check_absent(path)
            raise
    except BaseException:
        temporary.rmtree(missing_ok=True)
        raise


def read_lines(file: IO[bytes], place: str, error: type[ValueError] = JsonError) -> Iterator[tuple[int, bytes]]:
    """Yields (line number from 1, line with its end) of a binary file; only a newline ends a line.

    Args:
      file: File opened for reading bytes.
      place: Path, for messages.
      error: Class of the errors to raise.

    Raises:
      error: for a line of more than `MOST_LINE_BYTES`; no more than these are read of it.
    """
    for number in itertools.count(1):
        line = file.readline(MOST_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MOST_LINE_BYTES:
            raise error(f"{place}:{number}: found a line of more than {MOST_LINE_BYTES} bytes, expected a shorter one")
        yield number, line


def read_bounded(path: epath.PathLike, error: type[ValueError] = JsonError, most: int = MOST_LINE_BYTES) -> bytes:
    """Reads a whole file that is parsed at once.

    Args:
      path: File to read.
      error: Class of the error about its size.
      most: Largest size in bytes.

    Raises:
      OSError: if it cannot be read.
      error: for a larger file, of which nothing is read.
    """
    path = epath.Path(path)
    if path.stat().length > most:
        raise error(f"{path}: found a file of more than {most} bytes, expected a smaller one")
    return path.read_bytes()


def parse_json(data: bytes, place: str, error: type[ValueError] = JsonError) -> Any:
    """Reads one JSON value from UTF-8 bytes.

    Args:
      data: Bytes to parse.
      place: Start of every message, such as `FILE:LINE`.
      error: Class of the errors to raise.

    Raises:
      error: unless the bytes are one JSON value in which no object repeats a key.
    """
    if not data.strip():
        raise error(f"{place}: found nothing, expected a JSON value")
    try:
        return json.loads(data.decode("utf-8").rstrip(), object_pairs_hook=_object)  # an error lies in what is there
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
      path: File to read.
      source: Name of the program that writes such files, for messages.
      error: Class of the errors about its content.

    Raises:
      FileNotFoundError: if there is no such file.
      error: if the file holds anything else, or is larger than `MOST_LINE_BYTES`; the message names the file.
    """
    path = epath.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected what {source} writes")
    value = parse_json(read_bounded(path, error), str(path), error)
    if not isinstance(value, dict):
        raise error(f"{path}: found {reprlib.repr(value)}, expected an object with keys, as {source} writes it")
    return value


def check_text(text: str, place: str, error: type[ValueError] = JsonError) -> None:
    """Raises `error` if UTF-8 cannot encode `text`, because JSON can escape one half of a surrogate pair.

    Args:
      text: Text to check.
      place: Start of the message.
      error: Class of the error to raise.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as broken:
        raise error(
            f"{place}: found the lone surrogate {text[broken.start]!a}, expected text that UTF-8 can encode"
        ) from broken


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object. Raises JsonError for repeated keys, because `dict` would silently keep the last value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        (twice, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
        raise JsonError(f"found key {twice!r} twice in one object, expected each key once")
    return value
