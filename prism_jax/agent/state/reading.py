"""Reads the records of a store while an agent writes to it: by a cursor that knows how far each partition was read."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.store import partition_files

MOST_RECORDS = 1000
"""Most records that are read at once."""


class Logged(NamedTuple):
    """A record where it stands."""

    partition: int
    number: int  # in its partition
    record: dict[str, Any]
    answer: dict[str, Any] | None  # of an offer, what who sent the event was answered
    written: float  # when, in seconds since 1970


class Cursor:
    """How far each partition was read: the number of its last record."""

    def __init__(self, numbers: Mapping[int, int] | None = None) -> None:
        self.numbers = dict(numbers or {})

    @classmethod
    def read(cls, text: str | None) -> Cursor:
        """What `str` of a cursor gave; None is the beginning. ValueError for any other text."""
        if not text:
            return cls()
        try:
            tree = json.loads(base64.urlsafe_b64decode(text.encode("ascii")))
            numbers = {int(name): number for name, number in tree.items()}
            if not all(type(number) is int and 0 <= number < 2**63 for number in numbers.values()):
                raise ValueError
        except (ValueError, AttributeError, UnicodeError, RecursionError, binascii.Error):
            raise ValueError(f"after: found {text!r:.40}, expected what an earlier answer gave as next") from None
        return cls(numbers)

    def behind(self, one: Logged) -> Cursor:
        """The cursor behind a record that was read from here on."""
        return Cursor({**self.numbers, one.partition: one.number})

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self.numbers, separators=(",", ":")).encode()).decode()


def read_log(
    folder: epath.PathLike,
    cursor: Cursor,
    most: int,
    *,
    stream: str | None = None,
    person: str | None = None,
    since: float | None = None,
    until: float | None = None,
    offers: bool = False,
    partitions: Container[int] | None = None,
) -> tuple[list[Logged], Cursor]:
    """At most so many records behind a cursor, those of a stream in their order, and the cursor to read on from.

    `stream` and `person` take those of one alone, `since` and `until` those written in [since, until) (seconds since
    1970), `offers` decisions with an offer alone, and `partitions` those of some. No record is given twice, and none
    that was there is left out. StateError names a file that cannot be read.
    """
    where, values = "log.number > ?", []
    conditions = {"name = ?": stream, "person = ?": person, "written >= ?": since, "written < ?": until}
    for column, value in conditions.items():
        if value is not None:
            where += f" AND {column}"
            values.append(value)
    if offers:
        where += " AND answer IS NOT NULL"
    question = (
        "SELECT log.number, record, answer, written FROM log JOIN streams ON log.stream = streams.number "
        f"WHERE {where} ORDER BY log.number LIMIT ?"
    )
    found: list[Logged] = []
    numbers = dict(cursor.numbers)
    for number, path in partition_files(folder, person):
        if len(found) == most:
            break
        if partitions is not None and number not in partitions:
            continue
        with reading(path) as ask:
            if ask is None:
                continue
            end = _end(ask)
            rows = ask(question, (numbers.get(number, 0), *values, most - len(found)))
        found += [_logged(number, row) for row in rows]
        if len(found) == most:  # there may be more
            numbers[number] = rows[-1][0]
        elif end:
            numbers[number] = max(end, numbers.get(number, 0))
    return found, Cursor(numbers)


def read_latest(folder: epath.PathLike, person: str, since: float, most: int) -> list[Logged]:
    """A person's newest records that were written since a time, at most so many, the oldest of them first.

    StateError names a file that cannot be read.
    """
    question = (
        "SELECT log.number, record, answer, written FROM log JOIN streams ON log.stream = streams.number "
        "WHERE person = ? AND written >= ? ORDER BY log.number DESC LIMIT ?"
    )
    found: list[Logged] = []
    for number, path in partition_files(folder, person):
        with reading(path) as ask:
            rows = [] if ask is None else ask(question, (person, since, most))
        found += [_logged(number, row) for row in reversed(rows)]
    return found


def all_records(folder: epath.PathLike, **conditions: Any) -> Iterator[dict[str, Any]]:
    """Every record that `read_log` gives under its conditions, those of a stream in their order."""
    cursor = Cursor()
    while True:
        found, cursor = read_log(folder, cursor, MOST_RECORDS, **conditions)
        yield from (one.record for one in found)
        if len(found) < MOST_RECORDS:
            return


def newest(folder: epath.PathLike, partitions: Container[int] | None = None) -> Cursor:
    """The cursor behind all records that are there, or are in some of the partitions."""
    numbers = {}
    for number, path in partition_files(folder):
        if partitions is not None and number not in partitions:
            continue
        with reading(path) as ask:
            if ask is not None and (end := _end(ask)):
                numbers[number] = end
    return Cursor(numbers)


_Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


def _logged(partition: int, row: tuple[Any, ...]) -> Logged:
    number, record, answer, written = row
    return Logged(partition, number, json.loads(record), None if answer is None else json.loads(answer), written)


def _end(ask: _Ask) -> int:
    """The number of the newest record; 0 where there is none."""
    return int(ask("SELECT coalesce(max(number), 0) FROM log", ())[0][0])


@contextlib.contextmanager
def reading(path: epath.Path) -> Iterator[_Ask | None]:
    """Asks a file, as it is at one moment; None for one that is being made."""
    try:
        # A file without its journals cannot be opened to be read alone.
        uri = f"{pathlib.Path(path).absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None)) as file:
            file.execute("PRAGMA query_only = ON")
            file.execute("BEGIN")
            is_made = file.execute("PRAGMA user_version").fetchone()[0]
            yield (lambda question, values: file.execute(question, values).fetchall()) if is_made else None
    except sqlite3.Error as error:
        raise StateError(f"{path}: found state that cannot be read ({error}), expected a whole one") from None
