"""What an agent knows of each person, in one SQLite file: two numbers, a time, and the state of the person's alarm.

Every answer is one transaction, and counts once: an answer that is read again after a restart changes nothing. One
program at a time has the file. Deleting a person leaves no copy of the row in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.decision import alarm
from prism_jax.people import exports
from prism_jax.people.exports import FORMAT, StoreError, population_from
from prism_jax.people.layer import Belief, Population, anchored, believe
from prism_jax.runtime.files import check_regular, parse_json

DEFAULT = anchored(spread=0.6, drift=0.01)
"""What a store assumes of people until a population is fitted: calibrated scores, and people who differ a little."""
_APPLICATION = 0x5052534D
"""Marks the file as one of ours ("PRSM")."""
SCHEMA = """
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
    """An open store.

    `run` names the run whose offers are answered now. Ids of offers repeat where a stream of the same name begins
    again, so an answer is known by run and offer. A run resumes after a restart only where its records do. `watched`
    has by person the offer whose answer the person's alarm waits for; of a file it is not kept, since a restart reads
    the records again.
    """

    watched: MutableMapping[str, str]

    def __init__(self, path: epath.PathLike | None = None, population: Population | None = None):
        """Opens a store, or makes one that its owner only can read; None as the path keeps everything in memory.

        None as the population takes that of the file, or `DEFAULT` for a new one.

        Raises:
          StoreError: for a file that is no store or of another format, that another program uses, or that has another
            population.
          OSError: if the file cannot be made.
        """
        self.path = "people in memory" if path is None else str(path)
        self.run, self.watched = uuid.uuid4().hex, {}
        place = ":memory:" if path is None else os.path.abspath(path)  # noqa: PTH100  ":memory:" is a name like any other
        if path is not None:
            self._check_files(place)
            os.close(os.open(place, os.O_RDWR | os.O_CREAT, 0o600))
        # Threads may have it one after the other, as those that share an agent do.
        self._file = sqlite3.connect(place, timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            self._open(population)
        except sqlite3.OperationalError as error:
            self._file.close()
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise StoreError(f"{self.path}: found it in use by another program, expected one at a time") from None
            raise StoreError(f"{self.path}: found a file that cannot be used ({error}), expected a store") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self._file.close()
            raise StoreError(f"{self.path}: found no store of people ({error}), expected one, or no file") from None
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def within(
        cls, file: sqlite3.Connection, path: str, population: Population | None, watched: MutableMapping[str, str]
    ) -> PeopleStore:
        """The people of an open database that has other tables beside those of `SCHEMA`, and is closed by its owner.

        Its offers have one run, and `watched` is kept where its owner keeps it. Changes are part of a transaction that
        the owner has begun. StoreError as of a file.
        """
        store = cls.__new__(cls)
        store.path, store.run, store.watched, store._file = path, "", watched, file
        if store.fact("population") is None:
            store._write("population", (population or DEFAULT)._asdict())
        store._take(population)
        return store

    def _check_files(self, place: str) -> None:
        """Refuses what SQLite would wait for or read without end, in place of the store or of its journals."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                check_regular(place + suffix, StoreError, "a store of people, or no file")

    def _open(self, population: Population | None) -> None:
        self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
        (kind,), (version,), (tables,) = (
            self._file.execute(question).fetchone()
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if tables and kind != _APPLICATION:
            raise StoreError(f"{self.path}: found a database of another program, expected a store of people")
        if tables and version != FORMAT:
            raise StoreError(f"{self.path}: format: found {version}, expected {FORMAT}")
        # A commit is then in the kernel's hands at once, and on the disk when the file is closed.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "secure_delete = ON"):
            self._file.execute(f"PRAGMA {pragma}")
        if not tables:
            with self._transaction():
                for statement in SCHEMA.split(";")[:-1]:
                    self._file.execute(statement)
                self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._file.execute(f"PRAGMA user_version = {FORMAT}")
                self._write("population", (population or DEFAULT)._asdict())
        self._take(population)

    def _take(self, population: Population | None) -> None:
        """Reads the population, which must be the one that is expected."""
        self.population = population_from(self.fact("population"), f"{self.path}: population")
        if population is not None and population != self.population:
            raise StoreError(
                f"{self.path}: population: found {_in_words(self.population)}, expected {_in_words(population)}; "
                "change it with `python -m prism_jax person --set_population`"
            )

    def __enter__(self) -> PeopleStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Writes everything into the one file and lets other programs have it."""
        self._file.close()

    def person(self, name: str) -> Person:
        """What is known of a person; somebody who is not in the store is like the population."""
        rows = self._people("WHERE name = ?", (name,))
        return rows[0] if rows else Person(name, believe(self.population))

    def __iter__(self) -> Iterator[Person]:
        return iter(self._people("ORDER BY number"))

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM people")[0][0])

    def has_answer(self, run: str, offer: str) -> bool:
        """Whether the answer to an offer of a run was learnt before."""
        return bool(self._rows("SELECT 1 FROM answers WHERE run = ? AND offer = ?", (run, offer)))

    def learn(self, run: str, offer: str, person: Person, **facts: Mapping[str, Any]) -> None:
        """Keeps what an answer, or an offer that was withdrawn, has changed, all of it or nothing.

        The offer must not have an answer yet. `person` is the person after the answer; somebody new is added. Facts are
        about everybody, and replace the earlier ones of the same name.
        """
        values = (*person.belief, person.answers, person.time, json.dumps(person.alarm), person.rang)
        with self._transaction():
            self._rows(
                "UPDATE people SET mean = ?, variance = ?, answers = ?, time = ?, alarm = ?, rang = ? WHERE name = ?",
                (*values, person.name),
            )
            if not self._rows("SELECT changes()")[0][0]:
                self._rows(
                    "INSERT INTO people (mean, variance, answers, time, alarm, rang, name) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*values, person.name),
                )
            self._rows("INSERT INTO answers SELECT ?, ?, number FROM people WHERE name = ?", (run, offer, person.name))
            for name, value in facts.items():
                self._write(name, value)

    def add(self, person: Person) -> None:
        """Adds somebody whom another store knew, with a new number; StoreError where the name is taken."""
        if self.person(person.name).number:
            raise StoreError(f"{self.path}: found somebody of this name, expected nobody")
        values = (*person.belief, person.answers, person.time, json.dumps(person.alarm), person.rang)
        self._rows(
            "INSERT INTO people (mean, variance, answers, time, alarm, rang, name) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*values, person.name),
        )

    def forget(self, name: str) -> bool:
        """Deletes a person, and writes the file anew without them; False if there was no such person.

        Of the person's alarm its log capital stays where it is below 0, without a name: the product of all people's
        would otherwise rise by forgetting. What it has won goes, since answers that are read again would win it twice.
        """
        person = self.person(name)
        with self._transaction():
            if person.number:
                capital = (self.fact("forgotten") or {"log": 0.0})["log"]
                self._write(
                    "forgotten", {"log": capital + min(0.0, float(alarm.log_martingale(np.array(person.alarm))))}
                )
            self._rows("DELETE FROM people WHERE name = ?", (name,))
        if not self._file.in_transaction:
            # Pages that were rearranged can hold copies of what was deleted, and so can the log of earlier writes.
            self._rows("VACUUM")
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return bool(person.number)

    def note_records(self, path: epath.PathLike, *, fresh: bool) -> None:
        """Notes a file of decision records in which people of this store occur, and takes its run.

        A new run begins with a fresh file, one that has no record yet.
        """
        place = os.path.realpath(path)  # a link can be changed, and deletion must reach the file
        with self._transaction():
            if fresh:
                self._rows(
                    "INSERT INTO records (path, run) VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET run = excluded.run",
                    (place, self.run),
                )
            else:
                self._rows("INSERT OR IGNORE INTO records (path, run) VALUES (?, ?)", (place, self.run))
        self.run = self._rows("SELECT run FROM records WHERE path = ?", (place,))[0][0]

    def records(self) -> list[str]:
        """The files of decision records in which people of this store occur, the first noted first."""
        return [path for (path,) in self._rows("SELECT path FROM records ORDER BY number")]

    def drop_records(self, path: str) -> None:
        """Takes a file of records that is gone out of the list."""
        with self._transaction():
            self._rows("DELETE FROM records WHERE path = ?", (path,))

    def set_population(self, population: Population) -> None:
        """Changes the parameters of the person layer; what is known of people stays."""
        with self._transaction():
            self._write("population", population._asdict())
            self._rows("DELETE FROM facts WHERE name = 'recalibration'")
        self.population = population

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

    def restore(self, tree: Mapping[str, Any], place: str) -> None:
        """Fills a new store with what `describe` gave; messages start with `place`, such as the file's name.

        Raises StoreError for a store that has or had people, or other data; the store is then as it was.
        """
        if highest := self._highest_number():  # a deleted person's number, and with it their alarm's level, was used
            raise StoreError(f"{self.path}: found {highest} people, expected a store that never had one")
        content = exports.read_export(tree, place)
        with self._transaction():
            self._write("population", content.population._asdict())
            for name in ("recalibration", "forgotten"):
                if (fact := getattr(content, name)) is not None:
                    self._write(name, fact)
            try:
                for row in content.records:
                    self._rows("INSERT INTO records (path, run) VALUES (?, ?)", row)
                for person in content.people:
                    self._restore(person)
                if content.highest_number:
                    self._rows("DELETE FROM sqlite_sequence WHERE name = 'people'")
                    self._rows("INSERT INTO sqlite_sequence VALUES ('people', ?)", (content.highest_number,))
            except sqlite3.IntegrityError as error:
                raise StoreError(f"{place}: found something twice ({error}), expected what --export writes") from None
        self.population = content.population

    def _highest_number(self) -> int:
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'people'")
        return int(rows[0][0]) if rows else 0

    def _restore(self, row: Mapping[str, Any]) -> None:
        columns = ("number", "name", "mean", "variance", "answers", "time")
        self._rows(
            f"INSERT INTO people ({_PERSON}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*(row[key] for key in columns), json.dumps(row["alarm"]), row["rang"]),
        )
        for pair in row["answered"]:
            self._rows("INSERT INTO answers VALUES (?, ?, ?)", (*pair, row["number"]))

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self.path}: found a store that cannot be used ({error}), expected a whole one"
            ) from None

    def _people(self, statement: str, values: Sequence[Any] = ()) -> list[Person]:
        try:
            return [_person(row) for row in self._rows(f"SELECT {_PERSON} FROM people {statement}", values)]
        except (TypeError, ValueError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.path}: found a person who cannot be read, expected numbers") from None

    def _transaction(self) -> _Transaction:
        return _Transaction(self._rows, self._file.in_transaction)

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        self._rows("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def fact(self, name: str) -> dict[str, Any] | None:
        """A fact about everybody that `learn` kept; None if there is none."""
        rows = self._rows("SELECT value FROM facts WHERE name = ?", (name,))
        try:
            return _json(rows[0][0]) if rows else None
        except (TypeError, ValueError):
            raise StoreError(f"{self.path}: {name}: found no JSON, expected what an agent keeps there") from None


class _Transaction:
    """BEGIN and COMMIT, or ROLLBACK after an error; nothing within a transaction of the file's owner."""

    def __init__(self, run: Callable[[str], Any], within: bool):
        self._run, self._within = run, within

    def __enter__(self) -> None:
        if not self._within:
            self._run("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        if self._within:
            return
        try:
            self._run("COMMIT" if kind is None else "ROLLBACK")
        except StoreError:  # such as a full disk
            if kind is None:
                self._run("ROLLBACK")
                raise


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


def _in_words(population: Population) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in population._asdict().items())
