"""Reads the records of a store while an agent writes to it: by a cursor that knows how far each partition was read."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.state.places import UNKNOWN, Ask, Place, made_in, readable
from prism_jax.agent.state.schema import parsed, parsed_record

MOST_RECORDS = 1000
"""Most records that are read at once."""
_MOST_BYTES = 2**17
"""Most bytes that a cursor unpacks to."""
_ANEW = "which is no longer as it was, expected one of this store; after=e30= begins with its first record"


class Logged(NamedTuple):
    """A record where it stands."""

    place: Place
    number: int  # in its partition
    record: dict[str, Any]
    answer: dict[str, Any] | None  # of an offer, what who sent the event was answered
    written: float  # when, in seconds since 1970


class CursorError(ValueError):
    """No cursor, one of another store, or of a partition that is no longer as it was."""


class Cursor:
    """How far each partition was read: the number of its last record, and the partition's id where it is known."""

    def __init__(self, numbers: Mapping[int, int] | None = None, ids: Mapping[int, str] | None = None) -> None:
        self.numbers, self.ids = dict(numbers or {}), dict(ids or {})

    @classmethod
    def read(cls, text: str | None) -> Cursor:
        """What `str` of a cursor gave; None is the beginning. CursorError for any other text."""
        if not text:
            return cls()
        numbers: dict[int, int] = {}
        ids: dict[int, str] = {}
        try:
            data = base64.urlsafe_b64decode(text.encode("ascii"))
            if not data.startswith(b"{"):
                data = zlib.decompressobj().decompress(data, _MOST_BYTES)
            for name, number in json.loads(data).items():
                partition, _, own = name.partition(".")
                if type(number) is not int or not 0 <= number < 2**63:
                    raise ValueError
                numbers[int(partition)] = number
                ids |= {int(partition): own} if own else {}
        except (ValueError, AttributeError, UnicodeError, RecursionError, binascii.Error, zlib.error):
            raise CursorError(f"after: found {text!r:.40}, expected what an earlier answer gave as next") from None
        return cls(numbers, ids)

    def behind(self, one: Logged) -> Cursor:
        """The cursor behind a record that was read from here on."""
        after = Cursor(self.numbers, self.ids)
        after.move(one.place, one.number)
        return after

    def move(self, place: Place, number: int) -> None:
        """Moves it behind a record of a partition."""
        if number:
            self.numbers[place.number] = number
            if place.id is not None and place.id != UNKNOWN:
                self.ids[place.number] = place.id

    def check(self, made: Mapping[int, str]) -> None:
        """Raises CursorError unless the partitions of the store have the ids that it knows."""
        for number in self.numbers:
            if number not in made or self.ids.get(number, made[number]) != made[number]:
                raise CursorError(f"after: found a cursor of another store, or of a partition {number} {_ANEW}")

    def check_end(self, number: int, end: int) -> None:
        """Raises CursorError where it is behind the newest record that a partition ever had."""
        if self.numbers.get(number, 0) > end:
            words = f"record {self.numbers[number]} of a partition {number} with {end} records, {_ANEW}"
            raise CursorError(f"after: found a cursor behind {words}")

    def within(self, newest: Cursor) -> Cursor:
        """This cursor; CursorError as of `check` and `check_end`, where all records are behind another one."""
        self.check({number: newest.ids.get(number, UNKNOWN) for number in newest.numbers})
        for number, end in newest.numbers.items():
            self.check_end(number, end)
        return self

    def __str__(self) -> str:
        names = {number: f"{number}.{self.ids[number]}" if number in self.ids else number for number in self.numbers}
        tree = {name: self.numbers[number] for number, name in names.items()}
        data = json.dumps(tree, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(data if len(data) < 1000 else zlib.compress(data)).decode()


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
    that was there is left out: CursorError refuses a cursor that could. StateError names a file that cannot be read.
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
    found: list[tuple[Place, tuple[Any, ...]]] = []
    cursor.check(made_in(folder))
    after = Cursor(cursor.numbers, cursor.ids)
    for place, ask in readable(folder, person, partitions):
        end = _end(ask)
        cursor.check_end(place.number, end)
        rows = ask(question, (cursor.numbers.get(place.number, 0), *values, most - len(found)))
        found += [(place, row) for row in rows]
        if len(found) == most:  # there may be more
            after.move(place, rows[-1][0])
            break
        after.move(place, end)
    return [_logged(*one) for one in found], after


def read_latest(folder: epath.PathLike, person: str, since: float, most: int) -> list[Logged]:
    """A person's newest records that were written since a time, at most so many, the oldest of them first.

    StateError names a file that cannot be read.
    """
    question = (
        "SELECT log.number, record, answer, written FROM log JOIN streams ON log.stream = streams.number "
        "WHERE person = ? AND written >= ? ORDER BY log.number DESC LIMIT ?"
    )
    found = [(place, ask(question, (person, since, most))) for place, ask in readable(folder, person)]
    return [_logged(place, row) for place, rows in found for row in reversed(rows)]


def all_logged(folder: epath.PathLike, **conditions: Any) -> Iterator[Logged]:
    """Everything that `read_log` gives under its conditions, that of a stream in its order."""
    cursor, more = Cursor(), True
    while more:
        found, cursor = read_log(folder, cursor, MOST_RECORDS, **conditions)
        yield from found
        more = len(found) == MOST_RECORDS


def all_records(folder: epath.PathLike, **conditions: Any) -> Iterator[dict[str, Any]]:
    """The records of `all_logged`."""
    return (one.record for one in all_logged(folder, **conditions))


def newest(folder: epath.PathLike, partitions: Container[int] | None = None) -> Cursor:
    """The cursor behind all records that are there, or are in some of the partitions."""
    found = Cursor()
    for place, ask in readable(folder, numbers=partitions):
        found.move(place, _end(ask))
    return found


def _logged(place: Place, row: tuple[Any, ...]) -> Logged:
    number, record, answer, written = row
    told = None if answer is None else parsed(answer, place.path)
    return Logged(place, number, parsed_record(record, place.path), told, written)


def _end(ask: Ask) -> int:
    """The largest number that any record has had; 0 where there was none."""
    return int(ask("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'log'", ())[0][0])
