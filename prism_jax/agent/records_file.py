"""The file of records: what the agent's state has, appended to by one write per record once the state has it.

A record is whole or absent after kill -9: a line that was cut is the last one. When the file is opened again, that is
removed, and what the file lacks is appended.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.agent.personal import Prediction, prediction_from
from prism_jax.agent.records import FORMAT, SIGNALS
from prism_jax.runtime.files import check_regular, read_lines
from prism_jax.runtime.schema import Object, decode, read_json

_PERSONAL = {"person": Object({"name": str}), "shadow": Object({"would_speak": bool})}
_OUTCOME = {**dict.fromkeys(("stream", "offer", "outcome"), str), "time": float, "needed": bool | None, **_PERSONAL}
_DECISION = {
    **dict.fromkeys(("stream", "history", "reason", "domain"), str),
    **dict.fromkeys(("event", "chosen"), int),
    **dict.fromkeys(("time", "propensity", *SIGNALS[:4]), float),
    **dict.fromkeys(("spoke", "thought", "fired", "has_slow_pass", "critical", "explored"), bool),
    **dict.fromkeys(("fast", "costs", "trigger", "policy", "budgets", "seconds"), Mapping[str, Any]),
    **dict.fromkeys(("slow", "exploration"), Mapping[str, Any] | None),
    **dict.fromkeys(("offer", "candidate", "response"), str | None),
    "threshold": float | None,
    "candidates": tuple[Any, ...],
    "fields": Mapping[str, str] | None,
    "tokens": Object(dict.fromkeys(("read", "think", "respond"), int), others=int),
    "fingerprints": Object(dict.fromkeys(("model", "calibration", "config"), str), others=str),
    **_PERSONAL,
}
_KINDS = {
    "outcome": Object(_OUTCOME, _PERSONAL),
    "decision": Object(_DECISION, _PERSONAL),
    "unanswered": Object({**_DECISION, "unanswered": str, **dict.fromkeys(SIGNALS)}, _PERSONAL),
}
"""Keys of a record, and the types of their values; `unanswered` is a decision without signals."""
_BEGINNING = b'{"format": '


class RecordsError(ValueError):
    """A file of records that cannot be used; the message names file and line, what was found and expected."""


class RecordsFile:
    """An open file of records, which no other process writes to at the same time. `torn` is as of the constructor."""

    def __init__(self, path: epath.PathLike, kept: Iterator[bytes], note: Callable[[], None] = lambda: None):
        """Opens or makes a file, and appends what it lacks of the records that are `kept`, as their lines.

        A last line that was cut, of `torn` bytes, is removed first: the beginning of the record that follows. `note` is
        called before anything is appended, once the file is known to be one of these records.

        Raises:
          RecordsError: naming the line, for a file with other records, or that another process has.
        """
        self._path, self.torn = str(path), 0
        with contextlib.suppress(FileNotFoundError):
            check_regular(self._path, RecordsError, "the records of an agent, or no file")
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            lock(self._descriptor, self._path)
            lacking = self._compare(kept)
            note()
            for line in lacking:
                self.write(line)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, line: bytes) -> None:
        """Appends one record."""
        write_whole(self._descriptor, line)

    def close(self) -> None:
        """Forces all records to the disk and lets other processes have the file."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def _compare(self, kept: Iterator[bytes]) -> Iterator[bytes]:
        """The records that the file lacks."""
        whole = 0
        for number, line in read_lines(self._path, RecordsError):
            expected = next(kept, None)
            if line == expected:
                whole += len(line)
            elif expected is not None and not line.endswith(b"\n") and expected.startswith(line):
                self.torn = len(line)
                os.ftruncate(self._descriptor, whole)
                return itertools.chain([expected], kept)
            elif expected is None and whole:
                raise RecordsError(
                    f"{self._path}:{number}: found a record behind the {number - 1} that the state has, expected no "
                    "more: a machine that lost power can have lost the newest of the state; remove the file, or name "
                    "another one, which gets all that the state has"
                )
            else:
                raise RecordsError(
                    f"{self._path}:{number}: found another record than the state has there, expected the records of "
                    "this state: name another file, which gets all of them, or the state that goes with this one"
                )
        return kept


def lock(descriptor: int, path: str) -> None:
    """Takes an open file of records for this process alone, until the descriptor is closed or the process ends.

    Raises:
      RecordsError: if another process has it, or has replaced it by another file since it was opened.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordsError(f"{path}: found another agent writing to it, expected one at a time") from None
    if not os.path.samestat(os.fstat(descriptor), os.stat(path)):  # noqa: PTH116  beside fstat
        raise RecordsError(f"{path}: found it replaced while it was opened, expected one program at a time")


def parse_record(line: bytes, place: str) -> dict[str, Any]:
    """Reads one line of a records file; raises RecordsError unless it is a record of this format.

    Messages start with `place`, such as `FILE:LINE`.
    """
    record = read_json(line, place, RecordsError)
    if not isinstance(record, dict) or record.get("kind") not in ("decision", "outcome"):
        raise RecordsError(f"{place}: found no record, expected a line that `python -m prism_jax agent` wrote")
    if record.get("format") != FORMAT:
        raise RecordsError(f"{place}: format: found {record.get('format')!r}, expected {FORMAT}")
    kind = _KINDS["unanswered" if "unanswered" in record else record["kind"]]
    record["time"] = decode(kind, record, place, RecordsError)["time"]
    return record


def prediction_in(record: Mapping[str, Any], place: str) -> Prediction | None:
    """Calls `prediction_from`; raises RecordsError naming the place, for other signals than the agent writes."""
    try:
        return prediction_from(record)
    except (KeyError, TypeError, IndexError) as error:
        raise RecordsError(f"{place}: fast, slow: found {error!r:.80}, expected what the agent writes there") from None


def write_whole(descriptor: int, data: bytes) -> None:
    """Writes all bytes, with one system call where the system takes them at once."""
    while data:
        data = data[os.write(descriptor, data) :]


def remove_person(path: epath.PathLike, person: str) -> int:
    """Rewrites a file of records without the streams of a person; returns how many records were removed.

    The new file replaces the old one at once, so that a reader sees one or the other; without a record to remove, the
    old one stays. A last line that was cut is left out. The file is then readable by its owner only. Copies, backups
    and the input of the agent are not touched.

    Raises:
      RecordsError: naming the line that is not a record, or that an agent writes to the file.
    """
    check_regular(path, RecordsError, "the records of an agent")
    path = epath.Path(os.path.realpath(path))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock(descriptor, str(path))
        return _remove(path, person)
    finally:
        os.close(descriptor)


def _remove(path: epath.Path, person: str) -> int:
    temporary, removed = path.with_name(f".{path.name}.erasing"), 0
    temporary.unlink(missing_ok=True)  # of an earlier call that was killed; the lock on the file covers it
    streams, whole = set(), 0
    for line, record in _records(path):
        whole += len(line)
        if (record.get("person") or {}).get("name") == person:
            streams.add(record["stream"])
    with path.open("rb") as file:
        file.seek(whole)
        cut = file.read(len(_BEGINNING))
    if not streams and not (cut if whole else cut == _BEGINNING):  # what was cut can be the person's
        return 0
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            for line, record in _records(path):
                if record["stream"] in streams:
                    removed += 1
                else:
                    out.write(line)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that what was deleted does not come back after a power cut
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)
    return removed


def _records(path: epath.Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields every whole line with its record."""
    for number, line in read_lines(path, RecordsError, "the records of an agent"):
        if line.endswith(b"\n"):
            yield line, parse_record(line, f"{path}:{number}")
