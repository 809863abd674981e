"""One partition of an agent's state: a SQLite file with some streams, their decisions and outcomes, and their people.

What a batch changes is one transaction, and on the disk when it ends. A transaction begins with a look at the lease: of
two processes that believe to own a partition, only the newer one can change it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.lines import LineError, Where, observation_at
from prism_jax.agent.records import OfferOutcome, encode
from prism_jax.agent.state.places import UNKNOWN, Place, check_journal, note_made
from prism_jax.agent.state.schema import StateError, parsed, parsed_record, prepare
from prism_jax.agent.steps import Observation
from prism_jax.decision.person import Population
from prism_jax.people.store import PeopleStore
from prism_jax.runtime.files import MOST_LINE_BYTES, check_regular
from prism_jax.streams import Candidate, Event

KEPT_SECONDS = 7 * 86400.0
"""How long the answer to a request with a key of its own is kept."""
SMALL = ("cache_size = -256", "wal_autocheckpoint = 0")
"""Memory that each open file may take, in KiB, and that nobody but `_empty_log` writes the log into it."""
MOST_LOG = 2**20
"""Bytes of the log of changes after which it is moved into the file."""
_LOG = "INSERT INTO log (stream, event, offer, time, written, record, answer) VALUES (?, ?, ?, ?, ?, ?, ?)"
_TO_ERASE = "INSERT OR REPLACE INTO facts VALUES ('erase', '{}')"
"""Notes, with a deletion, that copies of what was deleted are still in the file."""


class StaleError(Exception):
    """Another process owns the partition, for `seconds` more unless it renews its lease."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(f"{path}: found it owned by another process, expected this one")
        self.seconds = max(0.0, seconds)
        self._path = path

    def __reduce__(self) -> tuple[type[StaleError], tuple[str, float]]:
        return StaleError, (self._path, self.seconds)


class Lease(NamedTuple):
    """Who owns a partition."""

    owner: str
    epoch: int  # how many times it has changed hands
    until: float  # when another process may take it, in seconds since 1970


class Known(NamedTuple):
    """A stream of the partition."""

    number: int
    person: str | None
    kind: str  # which agent decides on it


class Partition:
    """An open partition, which this process owns. One thread at a time may use it.

    Attributes:
      people: Its people; their changes are part of the transaction at hand.
      epoch: That of its lease.
    """

    def __init__(
        self,
        path: epath.PathLike,
        *,
        owner: str,
        population: Population | None = None,
        seconds: float = 10.0,
        alone: bool = True,
        synced: bool = True,
        clock: Callable[[], float] = time.time,
        place: Place | None = None,
    ):
        """Opens or makes the file, and takes its lease, which lasts so many `seconds` without a change.

        No other process has the name `owner`, nor had an earlier one of this machine. Where a process has the store
        `alone`, an earlier owner is dead, and its lease does not count. `clock` gives seconds since 1970. A
        change is on the disk when it is made, or unless `synced`, in the kernel's hands. The file has the `population`
        from now on, and `place` says which partition of a store it must be; None takes that of the file, and any.

        Raises:
          StaleError: where another process has the lease.
          StateError: for a file that is no partition, of another format, or that cannot be used; WrongFileError for
            another partition, and for a log of changes that is not the file's.
        """
        self.path, self.epoch = str(path), 0
        self._mark, self._of_file, self._is_unmarked = secrets.token_hex(8), list[str | None](), False
        self._owner, self._seconds, self._clock, self._synced = owner, seconds, clock, synced
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                check_regular(self.path + suffix, StateError, "a partition of an agent's state, or no file")
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            before = check_journal(self.path)
            self._file = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StateError(f"{self.path}: {error}") from None
        try:
            self._open(population, alone, place, before)
        except BaseException:
            self._file.close()
            raise

    def _open(
        self, population: Population | None, alone: bool, place: Place | None, marks: list[str | None] | None
    ) -> None:
        # A log of changes needs memory that all who use a file share, which machines do not.
        self._has_log, mode = alone, "wal" if alone else "truncate"
        if (found := self.rows(f"PRAGMA journal_mode = {mode}")) != [(mode,)]:
            raise StateError(f"{self.path}: found the journal {found}, expected to make it {mode}: it is in use")
        for pragma in (
            f"synchronous = {'FULL' if self._synced else 'NORMAL'}",
            "foreign_keys = ON",
            "secure_delete = ON",
            *SMALL,
        ):
            self.rows(f"PRAGMA {pragma}")
        self.rows("BEGIN IMMEDIATE")
        name = None
        try:
            is_empty = prepare(self.path, self.rows)
            if place is not None:
                place.check(self.rows, is_empty=is_empty)
                if place.id in (None, UNKNOWN):
                    name = secrets.token_hex(4)
                    own = {"store": place.store, "number": place.number, "partitions": place.partitions, "id": name}
                    self.rows("INSERT OR REPLACE INTO facts VALUES ('partition', ?)", (json.dumps(own),))
            before, now = self.lease, self._clock()
            if before is not None and not alone and before.until > now:
                raise StaleError(self.path, before.until - now)
            self.epoch = 1 if before is None else before.epoch + 1
            self._write_lease(now + self._seconds)
            self.people = PeopleStore(self._file, self.path, population)
            if self._has_log:
                known = self.people.fact("journal")
                self._of_file = marks or [known["now"] if known else None]
                self._write_mark(*self._of_file, self._mark)
        except BaseException:
            self.roll_back()
            raise
        self.rows("COMMIT")
        if place is not None and name is not None:
            note_made(place.path.parent.parent, place.number, name)
        self._empty_log()
        self._inode = os.stat(self.path).st_ino  # noqa: PTH116  as SQLite has opened it

    @property
    def is_there(self) -> bool:
        """Whether its path still leads to the file that is open."""
        try:
            return os.stat(self.path).st_ino == self._inode  # noqa: PTH116
        except FileNotFoundError:
            return False

    @property
    def lease(self) -> Lease | None:
        """Who owns the partition; None in a file that nobody has owned yet."""
        found = self.rows("SELECT owner, epoch, until FROM lease")
        return Lease(*found[0]) if found else None

    def begin(self) -> None:
        """Begins a transaction; StaleError where another process has become the owner, StateError where it cannot."""
        self.roll_back()  # what an error may have left
        self.rows("BEGIN IMMEDIATE")
        try:
            lease, now = self.lease, self._clock()
            if lease is None or (lease.owner, lease.epoch) != (self._owner, self.epoch):
                raise StaleError(self.path, 0.0 if lease is None else lease.until - now)
            if lease.until < now + self._seconds / 2 or lease.until > now + self._seconds:  # a clock may jump back
                self._write_lease(now + self._seconds)
            if self._is_unmarked:  # the log, which begins with this
                self._write_mark(*self._of_file)
        except BaseException:
            self.roll_back()
            raise

    def commit(self) -> None:
        """Ends the transaction, with all of it on the disk; StateError, with nothing changed, where that fails."""
        try:
            self.rows("COMMIT")
        except StateError:  # such as a full disk
            self.roll_back()
            raise
        self._is_unmarked = False
        with contextlib.suppress(StateError, OSError):  # it is tried again
            if self._has_log and os.path.getsize(f"{self.path}-wal") > MOST_LOG:  # noqa: PTH202  as SQLite names it
                self._empty_log()

    def _write_mark(self, *of_file: str | None) -> None:
        """Writes the mark of the file from its next writing on, and those that it can have until then."""
        mark = {"now": self._mark, "file": of_file}
        self.rows("INSERT OR REPLACE INTO facts VALUES ('journal', ?)", (json.dumps(mark),))

    def _empty_log(self, *, waits: bool = False) -> bool:
        """Moves the log of changes into the file; False where somebody reads it, and the log goes on."""
        if not self._has_log:
            return True
        self._write_mark(*{*self._of_file, self._mark})
        ((before,),) = self.rows("PRAGMA busy_timeout")
        self.rows(f"PRAGMA busy_timeout = {before if waits else 0}")
        try:
            (busy, *_), *_ = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.rows(f"PRAGMA busy_timeout = {before}")
        if busy:
            self._of_file = list({*self._of_file, self._mark})
        else:
            self._of_file, self._mark = [self._mark], secrets.token_hex(8)
        self._is_unmarked = True
        return not busy

    def roll_back(self) -> None:
        """Ends the transaction, where one has begun, with nothing changed."""
        with contextlib.suppress(sqlite3.Error):  # the next one begins with another try
            if self.is_changing:
                self._file.execute("ROLLBACK")

    @property
    def is_changing(self) -> bool:
        """Whether a transaction has begun."""
        return self._file.in_transaction

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside, or none; errors as of `begin` and `commit`."""
        self.begin()
        try:
            yield
        except BaseException:
            self.roll_back()
            raise
        self.commit()

    def close(self) -> None:
        """Gives the lease back, so that another process can take the partition at once, and closes the file."""
        if self.is_there:
            with contextlib.suppress(StaleError, StateError), self.transaction():
                self._write_lease(0.0)
                if self._has_log:  # which goes into the file now
                    self._write_mark(*{*self._of_file, self._mark})
        self._file.close()

    # Streams

    def claim(self, stream: str, person: str | None) -> None:
        """Notes, in the partition of a stream's name, whose it is."""
        if self.claimed(stream) is not None:  # one of which nothing came
            self.rows(_TO_ERASE)
        self.rows("INSERT OR REPLACE INTO claims VALUES (?, ?)", (stream, person))

    def claimed(self, stream: str) -> tuple[str | None] | None:
        """Whose a stream is, by its claim; None where nobody has claimed it."""
        found = self.rows("SELECT person FROM claims WHERE stream = ?", (stream,))
        return found[0] if found else None

    def stream(self, name: str) -> Known | None:
        """A stream of this partition; None for a new one."""
        found = self.rows("SELECT number, person, kind FROM streams WHERE name = ?", (name,))
        return Known(*found[0]) if found else None

    def open_stream(self, name: str, person: str | None, kind: str) -> Known:
        """A stream of this partition, made where it is new."""
        known = self.stream(name)
        if known is None:
            self.rows("INSERT INTO streams (name, person, kind) VALUES (?, ?, ?)", (name, person, kind))
            known = self.stream(name)
        assert known is not None, "it was made"
        return known

    def knows(self, person: str) -> bool:
        """Whether anything is kept of a person."""
        places = ("streams WHERE person", "people WHERE name", "preferences WHERE person", "signins WHERE person")
        return any(self.rows(f"SELECT 1 FROM {place} = ? LIMIT 1", (person,)) for place in places)

    def append(
        self,
        stream: Known,
        kept: Mapping[str, Any],
        record: Mapping[str, Any],
        line: bytes,
        answer: Mapping[str, Any],
        written: float,
    ) -> None:
        """Adds an event, as `item_of` or `item_at` keep it, with the record of its decision and that as its `line`.

        Of an offer of ours it has the answer, too, whose texts are whole. StateError for a record that is too long.
        """
        if len(line) > MOST_LINE_BYTES:
            raise StateError(f"{self.path}: found a record of {len(line)} bytes, expected at most {MOST_LINE_BYTES}")
        self.rows("INSERT INTO events VALUES (?, ?, ?)", (stream.number, record["event"], json.dumps(kept)))
        is_ours = record["offer"] is not None and "shadow" not in record
        offered = json.dumps(answer) if is_ours else None
        self.rows(_LOG, (stream.number, record["event"], record["offer"], record["time"], written, line, offered))

    def answer(self, stream: Known, outcome: OfferOutcome, written: float) -> None:
        """Adds the record of an outcome."""
        record = outcome.record()
        self.rows(_LOG, (stream.number, None, outcome.offer, record["time"], written, encode(record), None))

    def note_input(self, place: Where) -> None:
        """Notes how far a file of input was taken."""
        self.rows("INSERT OR REPLACE INTO facts VALUES (?, ?)", (f"input {place.path}", json.dumps(place)))

    def input(self, path: str) -> Where | None:
        """How far a file of input was taken; None for another one."""
        found = self.rows("SELECT value FROM facts WHERE name = ?", (f"input {path}",))
        return Where(*json.loads(found[0][0])) if found else None

    def lines(self) -> Iterator[bytes]:
        """The records of the log, each as its line, in its order."""
        after = 0
        while rows := self.rows("SELECT number, record FROM log WHERE number > ? ORDER BY number LIMIT 1000", (after,)):
            after = rows[-1][0]
            yield from (record for _, record in rows)

    def outcome(self, stream: str, offer: str) -> dict[str, Any] | None:
        """The record of an offer's outcome; None where there is none yet."""
        found = self.rows(
            "SELECT record FROM log JOIN streams ON log.stream = streams.number "
            "WHERE name = ? AND event IS NULL AND offer = ?",
            (stream, offer),
        )
        return parsed_record(found[0][0], self.path) if found else None

    def history(self, stream: Known, after: int, most: int) -> list[tuple[int, Observation | None, dict[str, Any]]]:
        """What a stream's log has behind a number, at most so many, in its order: number, event and record.

        The event is None where the record is that of an outcome.
        """
        found = self.rows(
            "SELECT log.number, name, person, item, record FROM log JOIN streams ON log.stream = streams.number "
            "LEFT JOIN events ON events.stream = log.stream AND events.number = log.event "
            "WHERE log.stream = ? AND log.number > ? ORDER BY log.number LIMIT ?",
            (stream.number, after, most),
        )
        return [
            (
                number,
                None if item is None else _observation(name, person, parsed(item, self.path)),
                parsed_record(record, self.path),
            )
            for number, name, person, item, record in found
        ]

    # Requests with a key of their own

    def answered(self, key: str) -> tuple[bytes, Any] | None:
        """The digest of an earlier request's body and the answer to it; None where there was none."""
        found = self.rows("SELECT digest, answer FROM requests WHERE key = ?", (_hash(key),))
        return (found[0][0], parsed(f'{{"answer": {found[0][1]}}}', self.path)["answer"]) if found else None

    def note_answer(self, key: str, stream: Known, digest: bytes, answer: Any, written: float) -> None:
        """Keeps the answer to a request, and lets those go that are older than `KEPT_SECONDS`."""
        self.rows("DELETE FROM requests WHERE written < ?", (written - KEPT_SECONDS,))
        self.rows(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?)",
            (_hash(key), stream.number, digest, json.dumps(answer), written),
        )

    # Deletion

    def forget_person(self, person: str) -> list[str]:
        """Deletes a person with all their streams, events, records and answers; returns the names of the streams."""
        with self.transaction():
            names = [name for (name,) in self.rows("SELECT name FROM streams WHERE person = ?", (person,))]
            self.rows("DELETE FROM streams WHERE person = ?", (person,))
            for table in ("preferences", "signins"):
                self.rows(f"DELETE FROM {table} WHERE person = ?", (person,))
            self.people.forget(person)
            self.rows(_TO_ERASE)
        return names

    def forget_learnt(self, person: str) -> None:
        """Deletes what was learnt of a person, and leaves their streams and records."""
        with self.transaction():
            self.people.forget(person)

    def end_signins(self) -> None:
        """Deletes links and sessions that have ended."""
        if self.rows("SELECT 1 FROM signins WHERE until <= ? LIMIT 1", (self._clock(),)):
            with self.transaction():
                self.rows("DELETE FROM signins WHERE until <= ?", (self._clock(),))

    def old_streams(self, before: float) -> list[tuple[int, str, str | None]]:
        """Number, name and person of the streams of which nothing was written since a time, in seconds since 1970."""
        return self.rows(  # type: ignore[return-value]
            "SELECT number, name, person FROM streams "
            "WHERE (SELECT max(written) FROM log WHERE stream = streams.number) < ?",
            (before,),
        )

    def waited_for(self, stream: int, person: str) -> dict[str, Any] | None:
        """The record of a stream's offer whose answer a person's alarm waits for; None where it waits for another."""
        found = self.rows(
            "SELECT record FROM log WHERE stream = ? AND event IS NOT NULL "
            "AND offer = (SELECT offer FROM watched WHERE person = ?)",
            (stream, person),
        )
        return parsed_record(found[0][0], self.path) if found else None

    def delete_stream(self, number: int) -> None:
        """Deletes a stream with its events and records, in a transaction of the caller."""
        self.rows("DELETE FROM answers WHERE offer IN (SELECT offer FROM log WHERE stream = ?)", (number,))
        self.rows("DELETE FROM streams WHERE number = ?", (number,))
        self.rows(_TO_ERASE)

    def claims(self, person: str | None = None) -> list[tuple[str, str | None]]:
        """The streams that are claimed here, of one person or of all, and whose each is."""
        where = "" if person is None else " WHERE person = ?"
        return self.rows(  # type: ignore[return-value]
            f"SELECT stream, person FROM claims{where}", () if person is None else (person,)
        )

    def unclaim(self, streams: Collection[str]) -> None:
        """Deletes the claims on streams, and calls `erase`."""
        if streams:
            with self.transaction():
                for stream in streams:
                    self.rows("DELETE FROM claims WHERE stream = ?", (stream,))
                self.rows(_TO_ERASE)
        self.erase()

    def erase(self) -> None:
        """Leaves no copy of what was deleted in the file, or in the log of its changes.

        Raises:
          StateError: where another process reads the file for longer than a few seconds.
        """
        if self.people.fact("erase") is None:
            return
        self.rows("VACUUM")
        if not self._empty_log(waits=True):
            raise StateError(f"{self.path}: found it in use, expected it free to leave no copy of what was deleted")
        with self.transaction():
            self.rows("DELETE FROM facts WHERE name = 'erase'")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement; StateError, naming the file, where SQLite cannot."""
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"{self.path}: found state that cannot be used ({error}), expected a whole one") from None

    def _write_lease(self, until: float) -> None:
        self.rows("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?)", (self._owner, self.epoch, until))


def item_of(item: Observation) -> dict[str, Any]:
    """An event as the store has it, with its texts."""
    texts = {"text": item.event.text, "candidates": [one.text for one in item.candidates]}
    return {"time": item.event.time, **texts, **_costs_of(item)}


def item_at(item: Observation, place: Where | None) -> dict[str, Any]:
    """An event as the store has it without its texts: where it stands in a file of input, if it does."""
    at = None if place is None else {"input": place.path, "begin": place.begin, "end": place.end}
    return {"time": item.event.time, "at": at, **_costs_of(item)}


def _costs_of(item: Observation) -> dict[str, Any]:
    return {**({"costs": dict(item.costs)} if item.costs else {}), "domain": item.domain}


def _observation(stream: str, person: str | None, kept: dict[str, Any]) -> Observation:
    if "text" in kept:
        offers = tuple(Candidate(text=text) for text in kept["candidates"])
    elif kept["at"] is None:
        raise LineError(
            f"stream {stream!r}: found no texts of its events, from which it would be read again, expected them: begin "
            "a stream of another name, and keep texts from its first event on (--keep_texts)"
        )
    else:
        found = observation_at(kept["at"], stream)
        kept, offers = {**kept, "text": found.event.text}, tuple(found.candidates)
    event = Event(time=kept["time"], text=kept["text"])
    return Observation(stream, event, offers, kept.get("costs"), kept["domain"], person)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
