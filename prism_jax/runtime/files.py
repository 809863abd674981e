"""Writes files and folders atomically, and reads strict JSON with errors that name the place.

Paths may be local or in a bucket such as gs:// (`etils.epath`). Content is written under a temporary name next to its
destination and moved there once it is complete, so that readers never see a partial file, even after a crash.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import fcntl
import itertools
import json
import math
import os
import pathlib
import re
import reprlib
import resource
import stat
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

MOST_LINE_BYTES = 64 * 2**20
"""Longest line of a file of JSON lines, and largest file of one JSON value; larger ones are refused before they are
parsed, which takes many times more."""


_BLOCK = 2**20
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 309
"""Integers of fewer digits are within the range of a double."""


class JsonError(ValueError):
    """Invalid JSON in a file or line; the message names the place, what was found and what was expected."""


def on_disk(path: epath.PathLike) -> bool:
    """Whether a path is in a file system, which can append to files; buckets such as gs:// store whole files only."""
    return "://" not in epath.Path(path).as_posix()


def temporary_beside(path: epath.Path) -> epath.Path:
    """An unused name in the same folder, for content that will be moved to `path`."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


@contextlib.contextmanager
def named(path: epath.PathLike) -> Iterator[None]:
    """Adds the path to errors of the system that lack one, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def writing(*paths: epath.PathLike) -> Iterator[None]:
    """Removes what killed writers left of files that the block writes, unless another block writes in the folder now.

    Blocks share a lock on the folder, which ends with the process. Where there are no locks of folders, such as in a
    bucket, everything stays.
    """
    names = collections.defaultdict(list)
    for path in map(epath.Path, paths):
        if on_disk(path):
            names[path.parent].append(re.escape(path.name))
    with contextlib.ExitStack() as stack:
        for folder, own in names.items():
            lock = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, lock)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for file in folder.iterdir():
                    if re.fullmatch(rf"\.({'|'.join(own)})\.[0-9a-f]{{32}}\.partial", file.name):
                        file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def write_files(contents: Mapping[str | os.PathLike[str], bytes]) -> None:
    """Writes several files, into folders that exist.

    All are completed under temporary names before any gets its final name. OSError says what a path cannot be.
    """
    paths = [epath.Path(path) for path in contents]
    partial = [temporary_beside(path) for path in paths]
    try:
        for path, temporary, content in zip(paths, partial, contents.values(), strict=True):
            with named(path):
                temporary.write_bytes(content)
        for temporary, path in zip(partial, paths, strict=True):
            temporary.replace(path)
    except OSError:
        for path in paths:
            check_folder_of(path)  # which says what is wrong with it
        raise
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
    """Raises FileExistsError if `path` already exists, or is a link to nothing."""
    if epath.Path(path).exists() or (on_disk(path) and os.path.lexists(path)):
        what = "something" if epath.Path(path).exists() else "a link to nothing"
        raise FileExistsError(f"{path}: found {what} there, expected a path that does not exist yet")


def check_folder_of(path: epath.PathLike) -> None:
    """Raises OSError if no file can be written at `path`, for want of its folder, say: before long work."""
    path = epath.Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: found no folder {path.parent}, expected an existing one")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: found a folder, expected a file or a new path")
    if on_disk(path) and not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path}: found the folder {path.parent}, which is read-only, expected one to write to")


def check_outputs(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raises ValueError if a flag of `outputs` names a file that another one of them, or of `inputs`, names, too.

    Both map names of flags to a path or None, and `inputs` also to lists of paths.
    """
    several = {flag: paths if isinstance(paths, list) else [paths] for flag, paths in inputs.items() if paths}
    flag_of = {without_links(path): flag for flag, paths in several.items() for path in paths}
    for flag, path in outputs.items():
        if path and (other := flag_of.setdefault(without_links(path), flag)) != flag:
            raise ValueError(f"--{flag}: found {path}, the file of --{other}, expected another one")


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


def check_regular(path: epath.PathLike, error: type[ValueError] = JsonError, expected: str = "a file") -> None:
    """Checks that a path is a regular file, or a link to one, without opening it; all files in a bucket are regular.

    Messages say what the file was `expected` to be.

    Raises:
      FileNotFoundError: if there is nothing.
      error: for a folder, FIFO, socket or device: opening one can wait forever, and reading one can be endless.
    """
    if not on_disk(path):
        if not epath.Path(path).exists():
            raise FileNotFoundError(f"{path}: no such file, expected {expected}")
        return
    try:
        status = os.stat(path)  # noqa: PTH116  follows links, as opening does
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file, expected {expected}") from None
    except ValueError:  # a NUL in the name
        raise error(f"{str(path)!a}: found no name of a file, expected {expected}") from None
    if not stat.S_ISREG(status.st_mode):
        raise error(f"{path}: found {_kind(status.st_mode)}, expected {expected} (a regular file or a link to one)")


def open_regular(path: epath.PathLike, error: type[ValueError] = JsonError, expected: str = "a file") -> Any:
    """Opens a file that somebody else may have written for reading bytes; raises what `check_regular` raises."""
    check_regular(path, error, expected)
    if not on_disk(path):
        return epath.Path(path).open("rb")
    # Another program may have put something else there since; opening it must not wait either.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise error(f"{path}: found it replaced while it was opened, expected {expected}")
    return file


def allow_files() -> int:
    """Lets this process have as many files open as it ever may; returns how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def read_lines(
    path: epath.PathLike,
    error: type[ValueError] = JsonError,
    expected: str = "a file",
    *,
    offset: int = 0,
    first: int = 1,
) -> Iterator[tuple[int, bytes]]:
    """Yields (line number from 1, line with its end) of a file; only a newline ends a line.

    Reading begins after `offset` bytes, with the line of number `first`. Raises `error` for anything but a regular
    file, and for a line of more than `MOST_LINE_BYTES`; no more than these are read of it.
    """
    with open_regular(path, error, expected) as file:
        file.seek(offset)
        for number in itertools.count(first):
            line = file.readline(MOST_LINE_BYTES + 1)
            if not line:
                return
            if len(line) > MOST_LINE_BYTES:
                raise error(
                    f"{path}:{number}: found a line of more than {MOST_LINE_BYTES} bytes, expected a shorter one"
                )
            yield number, line


def read_bounded(
    path: epath.PathLike, error: type[ValueError] = JsonError, most: int = MOST_LINE_BYTES, expected: str = "a file"
) -> bytes:
    """Reads a whole file that is parsed at once.

    Raises `error` for anything but a regular file, and for one of more than `most` bytes, of which nothing is read.
    """
    with open_regular(path, error, expected) as file:
        size = epath.Path(path).stat().length
        data = file.read(size + 1) if size <= most else b""
        while size <= most and len(data) <= most:  # it may grow meanwhile, and files of /proc report a size of 0
            more = file.read(_BLOCK)
            if not more:
                return data
            data += more
    raise error(f"{path}: found a file of more than {most} bytes, expected a smaller one")


def parse_json(data: bytes, place: str, error: type[ValueError] = JsonError) -> Any:
    """Reads one JSON value from UTF-8 bytes; a number beyond all doubles is infinite.

    Raises `error` unless the bytes are one JSON value in which no object repeats a key; the message begins with
    `place`, such as `FILE:LINE`.
    """
    data = data.removeprefix(codecs.BOM_UTF8)  # programs put the mark before a file, and so between joined ones
    if not data.strip():
        raise error(f"{place}: found nothing, expected a JSON value")
    read_integer = _integer if has_long_integers(data) else None  # the built-in reader of integers is faster
    try:
        text = data.decode("utf-8").rstrip()  # an error lies in what is there
        return json.loads(text, object_pairs_hook=_object, parse_int=read_integer)
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


def has_long_integers(data: bytes) -> bool:
    """Whether there are so many digits in a row that they may be an integer beyond all doubles."""
    return _LONG in data.translate(_ZEROS)


def read_object(path: epath.PathLike, source: str, error: type[ValueError] = JsonError) -> dict[str, Any]:
    """Reads a file that holds one JSON object; messages name the program `source`, which writes such files.

    Raises:
      FileNotFoundError: if there is no such file.
      error: if it is no regular file, holds anything else, or is larger than `MOST_LINE_BYTES`; the message names it.
    """
    return parse_object(read_bounded(path, error, expected=f"what {source} writes"), path, source, error)


def parse_object(data: bytes, path: epath.PathLike, source: str, error: type[ValueError] = JsonError) -> dict[str, Any]:
    """The JSON object in what was read of a file; errors as of `read_object`."""
    value = parse_json(data, str(path), error)
    if not isinstance(value, dict):
        raise error(f"{path}: found {reprlib.repr(value)}, expected an object with keys, as {source} writes it")
    return value


def check_text(text: str, place: str, error: type[ValueError] = JsonError) -> None:
    """Raises `error` if UTF-8 cannot encode `text`, because JSON can escape one half of a surrogate pair."""
    if problem := unencodable(text):
        raise error(f"{place}: {problem}")


def unencodable(text: str) -> str | None:
    """Why UTF-8 cannot encode a text, in words; None where it can."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as broken:
        return f"found the lone surrogate {text[broken.start]!a}, expected text that UTF-8 can encode"
    return None


def without_links(path: epath.PathLike) -> str:
    """The absolute path of the file itself; epath's own `resolve` follows no links."""
    return str(pathlib.Path(path).resolve()) if on_disk(path) else epath.Path(path).as_posix()


def _kind(mode: int) -> str:
    """What a path that is no regular file is, in words."""
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a FIFO", stat.S_ISSOCK: "a socket"}
    return next((name for is_one, name in kinds.items() if is_one(mode)), "a device")


def _integer(digits: str) -> int | float:
    """An integer of a JSON text; one beyond all doubles is infinite, as 1e999 is, so that one check refuses both."""
    value = int(digits)
    try:
        float(value)
    except OverflowError:
        return math.copysign(math.inf, value > 0 or -1)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object. Raises JsonError for repeated keys, because `dict` would silently keep the last value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        (repeated, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
        raise JsonError(f"found key {repeated!r} twice in one object, expected each key once")
    return value
