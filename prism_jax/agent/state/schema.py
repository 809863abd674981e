"""The tables of a partition, and how those of an earlier format become those of today."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.people.store import SCHEMA as PEOPLE

APPLICATION = 0x50525354
"""Marks the file as one of ours ("PRST")."""
FORMAT = 2
_FIRST = """
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT NOT NULL, epoch INTEGER NOT NULL,
    until REAL NOT NULL);
CREATE TABLE claims (stream TEXT PRIMARY KEY, person TEXT) WITHOUT ROWID;
CREATE TABLE streams (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, person TEXT,
    kind TEXT NOT NULL);
CREATE INDEX streams_of_person ON streams (person);
CREATE TABLE events (stream INTEGER NOT NULL REFERENCES streams ON DELETE CASCADE, number INTEGER NOT NULL,
    item TEXT NOT NULL, PRIMARY KEY (stream, number)) WITHOUT ROWID;
CREATE TABLE log (number INTEGER PRIMARY KEY AUTOINCREMENT,
    stream INTEGER NOT NULL REFERENCES streams ON DELETE CASCADE, event INTEGER, offer TEXT,
    time REAL NOT NULL, written REAL NOT NULL, record BLOB NOT NULL, answer TEXT);
CREATE UNIQUE INDEX decisions ON log (stream, event) WHERE event IS NOT NULL;
CREATE UNIQUE INDEX outcomes ON log (stream, offer) WHERE event IS NULL;
CREATE TABLE requests (key BLOB PRIMARY KEY, stream INTEGER NOT NULL REFERENCES streams ON DELETE CASCADE,
    digest BLOB NOT NULL, answer TEXT NOT NULL, written REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX requests_by_time ON requests (written);
"""
_STEPS = {
    1: """
CREATE TABLE preferences (person TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE signins (hash BLOB PRIMARY KEY, person TEXT NOT NULL, kind TEXT NOT NULL, until REAL NOT NULL)
    WITHOUT ROWID;
CREATE INDEX signins_of_person ON signins (person);
CREATE INDEX log_of_stream ON log (stream, written);
"""
}
"""What changes from each format to the next."""


class StateError(ValueError):
    """State that cannot be used or changed now; the message names the file, what was found and expected."""


class WrongFileError(StateError):
    """Another file than the partition that was made there, an emptied one or none, or of a format not known here."""


def prepare(path: str, ask: Callable[[str], list[tuple[Any, ...]]]) -> bool:
    """Makes the tables in an empty database, or brings those of an earlier format up to date, in its transaction.

    Returns:
      Whether the database was empty.

    Raises:
      WrongFileError: for a database of another program, or of a format that is not known here.
    """
    (kind,), (version,), (tables,) = (
        ask(question)[0]
        for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if tables and kind != APPLICATION:
        raise WrongFileError(f"{path}: found a database of another program, expected a partition")
    if tables and not 1 <= version <= FORMAT:
        raise WrongFileError(f"{path}: format: found {version}, expected {FORMAT}")
    scripts = [] if tables else [_FIRST + PEOPLE]
    scripts += [_STEPS[step] for step in range(version if tables else 1, FORMAT)]
    for script in scripts:
        for statement in script.split(";")[:-1]:
            ask(statement)
    if scripts:
        ask(f"PRAGMA application_id = {APPLICATION}")
        ask(f"PRAGMA user_version = {FORMAT}")
    return not tables


def parsed(text: Any, path: Any) -> dict[str, Any]:
    """The JSON object in a row of a partition; StateError, naming the file, for anything else."""
    try:
        if isinstance(found := json.loads(text), dict):
            return found
    except (ValueError, TypeError, RecursionError):
        pass
    raise StateError(f"{path}: found damaged JSON in a row, expected an object; restore the file from a backup")


def parsed_record(line: bytes | str, path: Any) -> dict[str, Any]:
    """The record in a row of a partition; StateError, naming the file, for anything else."""
    try:
        return parse_record(line if isinstance(line, bytes) else str(line).encode(), f"{path}: log")
    except RecordsError as error:
        raise StateError(f"{error}; restore the file from a backup") from None
