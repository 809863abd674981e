"""The file of records: appended to, one write per record, and read again when the agent restarts.

A record is whole or absent after kill -9: a line that was cut is the last one, and is removed when the file is opened
again. Records are in the kernel's hands once written, and forced to the disk when the file is closed; a machine that
fails can lose the newest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Mapping
from typing import Any

from etils import epath

from prism_jax.agent.personal import Prediction, prediction_from
from prism_jax.agent.records import FORMAT
from prism_jax.runtime.files import MOST_LINE_BYTES, JsonError, check_regular, parse_json, read_lines

_NULL, _NUMBER = type(None), (int, float)
_OUTCOME = {"stream": (str,), "offer": (str,), "outcome": (str,), "time": _NUMBER, "needed": (bool, _NULL)}
_DECISION: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("stream", "history", "reason", "domain"), (str,)),
    **dict.fromkeys(("event", "chosen"), (int,)),
    **dict.fromkeys(("time", "propensity", "p_need", "p_accept", "p_need_fast", "p_accept_fast"), _NUMBER),
    **dict.fromkeys(("spoke", "thought", "fired", "has_slow_pass", "critical", "explored"), (bool,)),
    **dict.fromkeys(("fast", "costs", "trigger", "policy", "budgets", "tokens", "seconds", "fingerprints"), (dict,)),
    **dict.fromkeys(("slow", "fields", "exploration"), (dict, _NULL)),
    **dict.fromkeys(("offer", "candidate", "response"), (str, _NULL)),
    "threshold": (*_NUMBER, _NULL),
    "candidates": (list,),
}
"""Keys of a record, and the types of their values."""
_INSIDE: Mapping[str, tuple[tuple[str, ...], type]] = {
    "tokens": (("read", "think", "respond"), int),
    "fingerprints": (("model", "calibration", "config"), str),
    "fields": ((), str),
}
"""Keys inside a value that must be there, and the type of all values inside it."""
_KEPT = ("event", "offer", "thought", "critical", "history")


class RecordsError(ValueError):
    """A file of records that cannot be used; the message names file and line, what was found and expected."""


class RecordsFile:
    """An open file of records, which no other process writes to at the same time.

    `decided` has by stream what a restart needs of the decisions in the file, in their order; the agent takes them out.
    `outcomes` has the outcome records by (stream, offer), and `torn` the number of bytes of a cut last line.
    """

    def __init__(self, path: epath.PathLike):
        """Opens or makes a file.

        Raises:
          RecordsError: naming the line that is not a record, or that another process has the file.
        """
        self._path = str(path)
        self.decided: dict[str, deque[dict[str, Any]]] = {}
        self.outcomes: dict[tuple[str, str], dict[str, Any]] = {}
        self.torn = 0
        with contextlib.suppress(FileNotFoundError):
            check_regular(self._path, RecordsError, "the records of an agent, or no file")
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            lock(self._descriptor, self._path)
            self._read()
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, line: bytes) -> None:
        """Appends one record.

        Raises:
          RecordsError: for one that a restart would refuse, before anything of it is written.
        """
        if len(line) > MOST_LINE_BYTES:
            raise RecordsError(f"{self._path}: found a record of {len(line)} bytes, expected at most {MOST_LINE_BYTES}")
        write_whole(self._descriptor, line)

    def close(self) -> None:
        """Forces all records to the disk and lets other processes have the file."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def _read(self) -> None:
        whole = 0
        for number, line in read_lines(self._path, RecordsError):
            if not line.endswith(b"\n"):
                self.torn = len(line)
                break
            self._note(f"{self._path}:{number}", line)
            whole += len(line)
        if self.torn:
            os.ftruncate(self._descriptor, whole)

    def _note(self, place: str, line: bytes) -> None:
        record = parse_record(line, place)
        if record["kind"] == "outcome":
            key = record["stream"], record["offer"]
            if key in self.outcomes:
                raise RecordsError(f"{place}: found a second outcome of offer {key[1]!r}, expected one per offer")
            self.outcomes[key] = record
            return
        earlier = self.decided.setdefault(record["stream"], deque())
        if record["event"] != len(earlier):
            raise RecordsError(
                f"{place}: event: found {record['event']!r}, expected {len(earlier)}, the next of stream "
                f"{record['stream']!r}"
            )
        kept = {key: record[key] for key in _KEPT}
        earlier.append({**kept, "person": record.get("person"), "stated": stated_in(record, place)})


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
    try:
        record = parse_json(line, place, RecordsError)
    except JsonError as error:
        raise RecordsError(str(error)) from error
    if not isinstance(record, dict) or record.get("kind") not in ("decision", "outcome"):
        raise RecordsError(f"{place}: found no record, expected a line that `python -m prism_jax.agent` wrote")
    if record.get("format") != FORMAT:
        raise RecordsError(f"{place}: format: found {record.get('format')!r}, expected {FORMAT}")
    for key, kinds in (_OUTCOME if record["kind"] == "outcome" else _DECISION).items():
        if key not in record or type(record[key]) not in kinds:
            raise RecordsError(f"{place}: {key}: found {record.get(key)!r:.80}, expected what the agent writes there")
    for key, (names, kind) in (_INSIDE if record["kind"] == "decision" else {}).items():
        inside = record[key] or {}
        for name in (*names, *inside):
            if type(found := inside.get(name)) is not kind:
                raise RecordsError(
                    f"{place}: {key}.{name:.40}: found {found!r:.80}, expected what the agent writes there"
                )
    record["time"] = float(record["time"])
    person = record.get("person")
    if person is not None and not (isinstance(person, dict) and isinstance(person.get("name"), str)):
        raise RecordsError(f"{place}: person: found no name, expected what the agent writes there")
    return record


def stated_in(record: Mapping[str, Any], place: str) -> Prediction | None:
    """Calls `prediction_from`; raises RecordsError naming the place, for other signals than the agent writes."""
    try:
        return prediction_from(record)
    except (KeyError, TypeError, IndexError) as error:
        raise RecordsError(f"{place}: fast, slow: found {error!r:.80}, expected what the agent writes there") from None


def write_whole(descriptor: int, data: bytes) -> None:
    """Writes all bytes, with one system call where the system takes them at once."""
    while data:
        data = data[os.write(descriptor, data) :]
