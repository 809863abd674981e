"""What an agent knows of each person, in tables of its state: two numbers, a time, and the state of their alarm.

An answer counts once: one that is learnt again changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.decision import alarm
from prism_jax.decision.person import DEFAULT, Belief, Population, believe
from prism_jax.people import exports
from prism_jax.people.exports import FORMAT, StoreError, population_from
from prism_jax.runtime.files import check_regular, parse_json, read_object

APPLICATION = 0x5052534D
"""Marks the files that earlier versions had for people ("PRSM")."""
SCHEMA = """
CREATE TABLE watched (person TEXT PRIMARY KEY, offer TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE people (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, mean REAL NOT NULL, variance REAL NOT NULL,
    answers INTEGER NOT NULL, time REAL, alarm TEXT NOT NULL, rang INTEGER NOT NULL);
CREATE TABLE answers (
    run TEXT NOT NULL, offer TEXT NOT NULL, person INTEGER NOT NULL REFERENCES people ON DELETE CASCADE,
    PRIMARY KEY (run, offer)) WITHOUT ROWID;
CREATE INDEX answers_of_person ON answers (person);
CREATE TABLE records (number INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, run TEXT NOT NULL);
"""
_PERSON = "number, name, mean, variance, answers, time, alarm, rang"


class Person(NamedTuple):
    """What is known of one person."""

    name: str  # as the events have it
    belief: Belief  # mean and variance of the person's own rate, in log-odds
    answers: int = 0  # number of answers so far
    time: float | None = None  # time of the newest answer, on the clock of its stream; None before the first
    alarm: tuple[float, ...] = (0.0,) * alarm.COMPONENTS  # state of the person's alarm (`prism_jax.decision.alarm`)
    rang: bool = False  # whether the alarm has ever rung
    number: int = 0  # in the store, from 1, which no other person ever gets; 0 for one who is not in it


class PeopleStore:
    """The people of an open database with the tables of `SCHEMA`, which its owner has locked and closes.

    Changes are part of a transaction that the owner has begun.
    """

    def __init__(self, file: sqlite3.Connection, path: str, population: Population | None = None) -> None:
        """Takes the people of a database that messages call `path`.

        With another `population` than the one that is kept, the store has it from now on; None keeps the present one,
        and is `DEFAULT` for a new store.

        Raises:
          StoreError: for a database whose population cannot be read.
        """
        self.path, self._file = path, file
        if (kept := self.fact("population")) is None:
            self._write("population", (population or DEFAULT)._asdict())
            kept = self.fact("population")
        self.population = population_from(kept, f"{path}: population")
        if population not in (None, self.population):
            assert population is not None
            self._write("population", population._asdict())
            self._rows("DELETE FROM facts WHERE name = 'recalibration'")
            self.population = population

    def person(self, name: str) -> Person:
        """What is known of a person; somebody who is not in the store is like the population."""
        rows = people_of(self._rows, self.path, "WHERE name = ?", (name,))
        return rows[0] if rows else Person(name, believe(self.population))

    def __iter__(self) -> Iterator[Person]:
        return iter(people_of(self._rows, self.path))

    def has_answer(self, offer: str, run: str = "") -> bool:
        """Whether the answer to an offer was learnt before; `run` names offers that no stream of the store made."""
        return bool(self._rows("SELECT 1 FROM answers WHERE run = ? AND offer = ?", (run, offer)))

    def learn(self, offer: str, person: Person, run: str = "", **facts: Mapping[str, Any]) -> None:
        """Keeps what an answer, or an offer that was withdrawn, has changed.

        The offer must not have an answer yet. `person` is the person after the answer; somebody new is added. Facts are
        about everybody, and replace the earlier ones of the same name.
        """
        values = (*person.belief, person.answers, person.time, json.dumps(person.alarm), person.rang)
        self._rows(
            "UPDATE people SET mean = ?, variance = ?, answers = ?, time = ?, alarm = ?, rang = ? WHERE name = ?",
            (*values, person.name),
        )
        if not self._rows("SELECT changes()")[0][0]:
            self._rows(
                "INSERT INTO people (mean, variance, answers, time, alarm, rang, name) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*values, person.name),
            )
        self._rows("INSERT INTO answers SELECT ?, ?, number FROM people WHERE name = ?", (run, offer, person.name))
        for name, value in facts.items():
            self._write(name, value)

    def waits_for(self, name: str) -> str | None:
        """The offer whose answer a person's alarm waits for; None where it waits for none."""
        rows = self._rows("SELECT offer FROM watched WHERE person = ?", (name,))
        return rows[0][0] if rows else None

    def wait_for(self, name: str, offer: str) -> None:
        """Lets a person's alarm wait for the answer to an offer, unless it waits for another one already."""
        self._rows("INSERT OR IGNORE INTO watched VALUES (?, ?)", (name, offer))

    def wait_no_more(self, name: str) -> None:
        """Lets a person's alarm wait for no offer."""
        self._rows("DELETE FROM watched WHERE person = ?", (name,))

    def forget(self, name: str) -> bool:
        """Deletes a person; False if there was no such person.

        Of the person's alarm its log capital stays where it is below 0, without a name: the product of all people's
        would otherwise rise by forgetting. What it has won goes, since answers that are read again would win it twice.
        """
        person = self.person(name)
        if person.number:
            capital = (self.fact("forgotten") or {"log": 0.0})["log"]
            self._write("forgotten", {"log": capital + min(0.0, float(alarm.log_martingale(np.array(person.alarm))))})
        self._rows("DELETE FROM people WHERE name = ?", (name,))
        self.wait_no_more(name)
        return bool(person.number)

    def note_records(self, path: epath.PathLike) -> None:
        """Notes a file of decision records in which people of this store occur."""
        place = os.path.realpath(path)  # a link can be changed, and deletion must reach the file
        self._rows("INSERT OR IGNORE INTO records (path, run) VALUES (?, '')", (place,))

    def records(self) -> list[str]:
        """The files of decision records in which people of this store occur, the first noted first."""
        return [path for (path,) in self._rows("SELECT path FROM records ORDER BY number")]

    def drop_records(self, path: str) -> None:
        """Takes a file of records that is gone out of the list."""
        self._rows("DELETE FROM records WHERE path = ?", (path,))

    def describe(self) -> dict[str, Any]:
        """The whole store as plain data, which `restore` reads."""
        learnt: dict[int, list[list[str]]] = {}
        for run, offer, number in self._rows("SELECT run, offer, person FROM answers"):
            learnt.setdefault(number, []).append([run, offer])
        return {
            "format": FORMAT,
            "population": self.population._asdict(),
            "recalibration": self.fact("recalibration"),
            "forgotten": self.fact("forgotten"),
            "highest_number": self._highest_number(),
            "records": [list(row) for row in self._rows("SELECT path, run FROM records ORDER BY number")],
            "people": [{**_plain(person), "answered": learnt.get(person.number, [])} for person in self],
        }

    def restore(self, content: exports.StoreContent, run: str | None = None) -> None:
        """Fills a new store with what `describe` gave; answers of the `run` are those to offers of this store.

        Raises StoreError for a store that has or had people, or other data; its owner then takes all of it back.
        """
        if highest := self._highest_number():  # a deleted person's number, and with it their alarm's level, was used
            raise StoreError(f"{self.path}: found {highest} people, expected a store that never had one")
        for name in ("recalibration", "forgotten"):
            if (fact := getattr(content, name)) is not None:
                self._write(name, fact)
        try:
            for path, _ in content.records:
                self._rows("INSERT OR IGNORE INTO records (path, run) VALUES (?, '')", (path,))
            for person in content.people:
                self._restore(person, run)
        except sqlite3.IntegrityError as error:
            raise StoreError(
                f"{self.path}: found something twice ({error}), expected what --people_out writes"
            ) from None
        if content.highest_number:
            self._rows("DELETE FROM sqlite_sequence WHERE name = 'people'")
            self._rows("INSERT INTO sqlite_sequence VALUES ('people', ?)", (content.highest_number,))

    def _highest_number(self) -> int:
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'people'")
        return int(rows[0][0]) if rows else 0

    def _restore(self, person: Any, run: str | None) -> None:
        columns = ("number", "name", "mean", "variance", "answers", "time")
        self._rows(
            f"INSERT INTO people ({_PERSON}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*(getattr(person, name) for name in columns), json.dumps(person.alarm), person.rang),
        )
        for of_run, offer in person.answered:
            self._rows("INSERT INTO answers VALUES (?, ?, ?)", ("" if of_run == run else of_run, offer, person.number))

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self.path}: found a store that cannot be used ({error}), expected a whole one"
            ) from None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        self._rows("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def fact(self, name: str) -> dict[str, Any] | None:
        """A fact about everybody that `learn` kept; None if there is none."""
        rows = self._rows("SELECT value FROM facts WHERE name = ?", (name,))
        try:
            return _json(rows[0][0]) if rows else None
        except (TypeError, ValueError):
            raise StoreError(f"{self.path}: {name}: found no JSON, expected what an agent keeps there") from None


def people_of(
    rows: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
    path: str,
    which: str = "ORDER BY number",
    values: Sequence[Any] = (),
) -> list[Person]:
    """The people of a database with the tables of `SCHEMA`, or some of them; `rows` runs a statement.

    StoreError, naming its `path`, for a person who cannot be read.
    """
    found = rows(f"SELECT {_PERSON} FROM people {which}", values)
    try:
        return [_person(row) for row in found]
    except (TypeError, ValueError):
        raise StoreError(f"{path}: found a person who cannot be read, expected numbers") from None


def _json(value: Any) -> Any:
    """A value that is kept as JSON; raises TypeError or ValueError for anything else in its place."""
    if not isinstance(value, str):
        raise TypeError("found no text, expected JSON")
    return parse_json(value.encode("utf-8", "surrogatepass"), "")


def _person(row: tuple[Any, ...]) -> Person:
    number, name, mean, variance, answers, time, state, rang = row
    return Person(name, Belief(mean, variance), answers, time, tuple(_json(state)), bool(rang), number)


def _plain(person: Person) -> dict[str, Any]:
    values = person._asdict()
    mean, variance = values.pop("belief")
    return {"name": values.pop("name"), "mean": mean, "variance": variance, **values, "alarm": list(person.alarm)}


def read_file(path: epath.PathLike) -> exports.StoreContent:
    """What a store of people in a file of its own has, as earlier versions kept it, or an export of one as JSON.

    Raises:
      StoreError: for any other file, or one that another program uses.
    """
    check_regular(path, StoreError, "a store of people, or an export of one")
    with open(path, "rb") as opened:  # noqa: PTH123  epath has no reading of a part
        is_database = opened.read(16) == b"SQLite format 3\0"
    if not is_database:
        return exports.read_export(read_object(path, "a store of people, or an export of one", StoreError), str(path))
    uri = f"{pathlib.Path(path).absolute().as_uri()}?mode=rw"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0.2, isolation_level=None)) as file:
            kind, version = (
                file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
            if (kind, version) != (APPLICATION, FORMAT):
                raise StoreError(f"{path}: found another database, expected a store of people of format {FORMAT}")
            return exports.read_export(PeopleStore(file, str(path)).describe(), str(path))
    except sqlite3.Error as error:
        raise StoreError(f"{path}: found a store that cannot be used ({error}), expected a whole one") from None
