"""Many files of streams, checked as a whole and cut into shards of a bounded number of streams, in flat memory.

A shard names places in files, not streams, so that any process can read it. Of what was read, 8 bytes per stream stay
in memory, which find an id that occurs twice.
"""

from __future__ import annotations

import array
import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from etils import epath

from prism_jax.runtime.dataclass_config import check_at_least
from prism_jax.runtime.files import on_disk, read_lines
from prism_jax.streams.jsonl import StreamError, decode_stream, read_streams
from prism_jax.streams.types import Stream

T = TypeVar("T")

_EXPECTED = "JSON lines"
_MAGIC = "*?["


@dataclasses.dataclass(frozen=True)
class ShardSettings:
    """What the scores of shards depend on beside the model and the streams."""

    context: int  # maximum number of tokens up to the end of one decision
    split: str = "test"  # what stands in the column `split`
    batch: int = 16  # number of streams per forward pass
    shard: int = 500  # number of streams per shard

    def __post_init__(self) -> None:
        check_at_least(self, 1, "context", "batch", "shard")
        if not self.split:
            raise ValueError("split: found an empty name, expected one such as test")


class Piece(NamedTuple):
    """Consecutive lines of a file."""

    path: str
    offset: int  # number of bytes before the first line
    first: int  # number of the first line, from 1
    lines: int  # number of lines
    streams: int  # number of streams with steps among them
    sha256: str  # of the lines
    kept: Any = None  # what was kept of the streams with steps


class Shard(NamedTuple):
    """Consecutive streams with steps, from one file or several."""

    number: int  # from 0
    pieces: tuple[Piece, ...]

    @property
    def streams(self) -> int:
        """The number of streams."""
        return sum(piece.streams for piece in self.pieces)


class InputFile(NamedTuple):
    """A file that was read to its end."""

    path: str
    sha256: str
    streams: int


@dataclasses.dataclass(frozen=True)
class Shards:
    """What some files of streams hold."""

    files: tuple[InputFile, ...]
    shards: tuple[Shard, ...]
    decisions: int  # number of candidates of all steps
    left_out: tuple[str, ...]  # the error of each damaged file, which begins with its path

    @property
    def streams(self) -> int:
        """The number of streams with steps."""
        return sum(shard.streams for shard in self.shards)


def find_files(pattern: str) -> list[str]:
    """The files of streams that a path names: a file, the *.jsonl files of a folder, or those of a glob; sorted.

    In a glob on disk, `**` stands for any number of folders. FileNotFoundError if there is no such file.
    """
    path = epath.Path(pattern)
    if path.is_dir():
        files = list(path.glob("*.jsonl"))
    elif any(sign in pattern for sign in _MAGIC) and not path.exists():
        plain = list(itertools.takewhile(lambda part: not any(sign in part for sign in _MAGIC), path.parts))
        root = (pathlib.Path if on_disk(path) else epath.Path)(*plain)
        files = [file for file in root.glob("/".join(path.parts[len(plain) :])) if file.is_file()]
    else:
        files = [path]
    if not files:
        raise FileNotFoundError(f"{pattern}: found no file, expected files of streams, one stream per line (*.jsonl)")
    return sorted(map(str, files))


def read_files(pattern: str) -> list[Stream]:
    """The streams of all files that a path, a folder or a glob names (`find_files`), in order, with distinct ids.

    Errors are those of `read_streams`; a StreamError names both files that hold the same stream.
    """
    streams: list[Stream] = []
    files: dict[str, str] = {}
    for path in find_files(pattern):
        of_file = read_streams(path)
        for stream in of_file:
            if stream.id in files:
                raise StreamError(f"{path}: id: found {stream.id!r} of {files[stream.id]} again, expected a new id")
        files |= dict.fromkeys((stream.id for stream in of_file), path)
        streams += of_file
    return streams


def cut(
    files: Sequence[str],
    most: int,
    pack: Callable[[Stream], Sequence[T]],
    keep: Callable[[list[T]], Any] = lambda packed: None,
    *,
    skip_bad: bool = False,
    on_stream: Callable[[], object] = lambda: None,
) -> Shards:
    """Reads all files once and cuts their streams with steps into shards of `most` streams; the last may have fewer.

    `pack` raises ValueError for a stream that cannot be used. What it makes of the streams with steps of a piece is
    given to `keep`, and the piece has what that returns. With `skip_bad` a damaged file is left out as a whole.

    Raises:
      StreamError, OSError: naming file and line, for anything but streams, and for an id that occurs twice, even with
        `skip_bad`; or if no stream with steps is left.
    """
    read: list[InputFile] = []
    ids: list[array.array] = []
    shards: list[list[Piece]] = []
    left_out: list[str] = []
    decisions = filled = 0
    for path in files:
        file = _Reader(path, most, most - filled)
        try:
            file.read(pack, keep, on_stream)
        except (StreamError, OSError) as error:
            if not skip_bad:
                raise
            left_out.append(str(error) if path in str(error) else f"{path}: {error}")
            continue
        for piece in file.pieces:
            if not shards or filled == most:
                shards.append([])
                filled = 0
            shards[-1].append(piece)
            filled += piece.streams
        decisions += file.decisions
        read.append(InputFile(path, file.sha256.hexdigest(), len(file.ids)))
        ids.append(file.ids)
    _refuse_repeated(read, ids)
    if not shards:
        raise StreamError(
            f"{files[0]}: found no stream with steps in {len(files)} files, expected one to be scored; "
            "`python -m prism_jax label` makes a step per event"
        )
    whole = tuple(Shard(number, tuple(pieces)) for number, pieces in enumerate(shards))
    return Shards(tuple(read), whole, decisions, tuple(left_out))


def read_shard(shard: Shard) -> list[Stream]:
    """The streams with steps of a shard; StreamError if a file is not as it was when the shard was cut."""
    streams = []
    for piece in shard.pieces:
        digest = hashlib.sha256()
        lines = read_lines(piece.path, StreamError, _EXPECTED, offset=piece.offset, first=piece.first)
        part = []
        for number, line in itertools.islice(lines, piece.lines):
            digest.update(line)
            part.append((number, line))
        if digest.hexdigest() != piece.sha256:
            raise StreamError(
                f"{piece.path}:{piece.first}: found other lines than when the file was checked, expected a file that "
                "does not change meanwhile"
            )
        decoded = (decode_stream(line, f"{piece.path}:{number}") for number, line in part)
        streams += [stream for stream in decoded if stream.steps]
    return streams


class _Reader:
    """Reads a file once; cuts it into pieces of at most `most` streams with steps, the first of at most `room`."""

    def __init__(self, path: str, most: int, room: int) -> None:
        self.path, self.most, self.room = path, most, room or most
        self.sha256 = hashlib.sha256()
        self.ids = array.array("Q")  # a hash of each id
        self.pieces: list[Piece] = []
        self.decisions = 0

    def read(
        self, pack: Callable[[Stream], Sequence[T]], keep: Callable[[list[T]], Any], on_stream: Callable[[], object]
    ) -> None:
        """Reads to the end; errors are those of `cut`."""
        digest, offset, begin, first, streams = hashlib.sha256(), 0, 0, 1, 0
        number, packed = 0, list[T]()
        for number, line in read_lines(self.path, StreamError, _EXPECTED):
            stream = decode_stream(line, f"{self.path}:{number}")
            try:
                of_stream = pack(stream)
            except ValueError as error:
                raise StreamError(f"{self.path}:{number}: {error}") from error
            if stream.steps and streams == self.room:
                of_lines = digest.hexdigest()
                self.pieces.append(Piece(self.path, begin, first, number - first, streams, of_lines, keep(packed)))
                digest, begin, first, streams, self.room = hashlib.sha256(), offset, number, 0, self.most
                packed = []
            digest.update(line)
            self.sha256.update(line)
            self.ids.append(int.from_bytes(hashlib.blake2b(stream.id.encode(), digest_size=8).digest(), "little"))
            self.decisions += sum(len(step.candidates) for step in stream.steps)
            offset += len(line)
            streams += bool(stream.steps)
            packed += of_stream if stream.steps else ()
            on_stream()
        if not number:
            raise StreamError(f"{self.path}: found an empty file, expected one stream per line")
        if streams:
            lines = number + 1 - first
            self.pieces.append(Piece(self.path, begin, first, lines, streams, digest.hexdigest(), keep(packed)))


def _refuse_repeated(files: Sequence[InputFile], ids: Sequence[array.array]) -> None:
    """Raises StreamError, naming both places, for an id that occurs twice."""
    hashes = np.concatenate([np.frombuffer(part, np.uint64) for part in ids]) if ids else np.zeros(0, np.uint64)
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    order = np.argsort(hashes, kind="stable")
    pairs = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    for later, pair in sorted((int(order[pair + 1]), int(pair)) for pair in pairs):
        (place, name), (other, first) = _at(files, later), _at(files, int(order[pair]))
        if name == first:  # else two ids share a hash
            raise StreamError(f"{place}: id: found {name!r} again (first at {other}), expected a new id")


def _at(files: Sequence[InputFile], index: int) -> tuple[str, str]:
    """The place and the id of a stream, given its number among those of all files."""
    for file in files:
        if index < file.streams:
            number, line = next(itertools.islice(read_lines(file.path, StreamError, _EXPECTED), index, None))
            place = f"{file.path}:{number}"
            return place, decode_stream(line, place).id
        index -= file.streams
    raise AssertionError("every stream stands in a file")
