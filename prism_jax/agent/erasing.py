"""Deletes a person's decisions and outcomes from a file of records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from etils import epath

from prism_jax.agent.records_file import RecordsError, lock, parse_record
from prism_jax.runtime.files import check_regular, read_lines


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
    streams = {record["stream"] for _, record in _records(path) if (record.get("person") or {}).get("name") == person}
    if not streams:
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
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return removed


def _sync_folder(folder: epath.Path) -> None:
    """Puts a rename on the disk, so that what was deleted does not come back after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _records(path: epath.Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields every whole line with its record."""
    for number, line in read_lines(path, RecordsError, "the records of an agent"):
        if line.endswith(b"\n"):
            yield line, parse_record(line, f"{path}:{number}")
