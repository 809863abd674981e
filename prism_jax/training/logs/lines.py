"""Logs of one JSON object per line. A resumed run truncates them to the step of its checkpoint and appends to them."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.runtime.files import JsonError, on_disk, parse_json, read_lines, write_bytes


class Lines:
    """A log that is open for writing; every OSError names it."""

    def __init__(self, path: epath.Path, step: int):
        """Opens or creates the file, and truncates it, as `truncate_lines` does, whose result is `reached`."""
        self.reached = truncate_lines(path, step)
        self._path = path
        self._file = path.open("a") if on_disk(path) else _Whole(path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Adds a line with these values."""
        with named(self._path):
            self._file.write(json.dumps(values) + "\n")

    def flush(self) -> None:
        """Makes sure that everything logged so far can be read."""
        with named(self._path):
            self._file.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        with named(self._path):
            self._file.close()


class _Whole(io.StringIO):
    """A text that is written to its path as a whole at every flush, for buckets, which cannot append."""

    def __init__(self, path: epath.Path):
        super().__init__()
        self._path = path
        self.write(path.read_text() if path.exists() else "")

    def flush(self) -> None:
        self._path.write_text(self.getvalue())

    def close(self) -> None:
        self.flush()
        super().close()


@contextlib.contextmanager
def named(path: epath.Path) -> Iterator[None]:
    """Adds the path to errors that lack it, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def truncate_lines(path: epath.Path, step: int) -> int:
    """Removes the lines of a log about steps after `step`, which a resumed run will write again.

    Returns the last step in the log before truncation; `step` if the log had no later one.

    Raises:
      ValueError: naming the file and line, if a line is not an object with a "step".
    """
    if not path.exists():
        return step
    kept, reached = [], step
    complete = True
    for number, line in read_lines(path):
        if not line.endswith(b"\n"):
            complete = False
            break  # incomplete after a crash, so newer than any checkpoint
        line_step = _step(line, path, number)
        reached = max(reached, line_step)
        if line_step <= step:
            kept.append(line)
    if not complete or reached > step:
        write_bytes(path, b"".join(kept))
    return reached


def _step(line: bytes, path: epath.Path, number: int) -> int:
    """The step of a line."""
    fix = "move the file away to continue without its lines"
    try:
        value = parse_json(line, f"{path}, line {number}")
    except JsonError as error:
        raise ValueError(f"{error}; {fix}") from error
    step = value.get("step") if isinstance(value, dict) else None
    if not isinstance(step, int):
        raise ValueError(f'{path}, line {number}: found {line[:40]!r}, expected an object with a "step"; {fix}')
    return step
