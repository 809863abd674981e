"""Reads the records of a store while an agent writes to it: by a cursor that knows how far each partition was read."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Mapping
from typing import Any

from etils import epath

from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.store import partition_files


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
    offers: bool = False,
) -> tuple[list[dict[str, Any]], Cursor]:
    """At most so many records behind a cursor, those of a stream in their order, and the cursor behind them.

    `stream` and `person` take those of one alone, `since` those written at that time or later (seconds since 1970), and
    `offers` decisions with an offer alone. No record is given twice, and none that was there is left out. StateError
    names a file that cannot be read.
    """
    numbers = dict(cursor.numbers)
    found: list[dict[str, Any]] = []
    where, values = "log.number > ?", []
    for column, value in (("name = ?", stream), ("person = ?", person), ("written >= ?", since)):
        if value is not None:
            where += f" AND {column}"
            values.append(value)
    if offers:
        where += " AND event IS NOT NULL AND offer IS NOT NULL"
    for number, path in partition_files(folder):
        if len(found) == most:
            break
        try:
            uri = (
                f"{pathlib.Path(path).absolute().as_uri()}?mode=rw"  # a file without its journals cannot be read alone
            )
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as file:
                file.execute("PRAGMA query_only = ON")
                rows = file.execute(
                    f"SELECT log.number, record FROM log JOIN streams ON log.stream = streams.number WHERE {where} "
                    "ORDER BY log.number LIMIT ?",
                    (numbers.get(number, 0), *values, most - len(found)),
                ).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"{path}: found state that cannot be read ({error}), expected a whole one") from None
        found += [json.loads(record) for _, record in rows]
        if rows:
            numbers[number] = rows[-1][0]
    return found, Cursor(numbers)
