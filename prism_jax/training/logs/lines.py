"""Logs of one JSON object a line, which a resumed run cuts back to its checkpoint and goes on writing."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.runtime.files import JsonError, on_disk, parse_json, write_text


class Lines:
    """A log, open for writing.

    Attributes:
      reached: The last step that the file told of before it was cut back; `step` if it went no further.
    """

    def __init__(self, path: epath.Path, step: int):
        """Opens or makes the file, without what it says of steps after `step`.

        Raises:
          ValueError: as `truncate_lines`.
        """
        self.reached = truncate_lines(path, step)
        self._path = path
        self._file = path.open("a") if on_disk(path) else _Whole(path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Adds a line.

        Raises:
          OSError: naming the file.
        """
        with named(self._path):
            self._file.write(json.dumps(values) + "\n")

    def flush(self) -> None:
        """Makes sure that what was logged can be read.

        Raises:
          OSError: naming the file.
        """
        with named(self._path):
            self._file.flush()

    def close(self) -> None:
        """Flushes and closes.

        Raises:
          OSError: naming the file.
        """
        with named(self._path):
            self._file.close()


class _Whole(io.StringIO):
    """A text that is put where it belongs as a whole, whenever it is flushed."""

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
    """Adds a path to errors such as a full disk, which come without."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def truncate_lines(path: epath.Path, step: int) -> int:
    """Drops the lines of a log after `step`: a resumed run writes them again.

    Returns:
      The last step that the log had reached; `step` if it went no further.

    Raises:
      ValueError: naming file and line, for a line that is no object with a "step".
    """
    if not path.exists():
        return step
    kept, reached = [], step
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break  # cut off by a crash, and so newer than any checkpoint
        found = _step(line, path, number)
        reached = max(reached, found)
        if found <= step:
            kept.append(line)
    if len(kept) < len(lines):
        write_text(path, b"".join(kept).decode())
    return reached


def _step(line: bytes, path: epath.Path, number: int) -> int:
    """The step that a line tells of."""
    mend = "move the file away to go on without its lines"
    try:
        value = parse_json(line, f"{path}, line {number}")
    except JsonError as error:
        raise ValueError(f"{error}; {mend}") from error
    step = value.get("step") if isinstance(value, dict) else None
    if not isinstance(step, int):
        raise ValueError(f'{path}, line {number}: found {line[:40]!r}, expected an object with a "step"; {mend}')
    return step
