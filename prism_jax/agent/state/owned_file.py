"""The file of a partition, as its owner has it open: its lease, its transactions, and the log of its changes.

A transaction begins with a look at the lease: of two processes that believe to own a partition, only the newer one can
change it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.state.places import UNKNOWN, Place, check_journal, note_made
from prism_jax.agent.state.schema import StateError, prepare
from prism_jax.decision.person import Population
from prism_jax.people.store import PeopleStore
from prism_jax.runtime.files import check_regular

SMALL = ("cache_size = -256", "wal_autocheckpoint = 0")
"""Memory that each open file may take, in KiB, and that nobody but `_empty_log` writes the log into it."""
MOST_LOG = 2**20
"""Bytes of the log of changes after which it is moved into the file."""


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


class OwnedFile:
    """A partition's file, open and owned by this process. One thread at a time may use it.

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

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement; StateError, naming the file, where SQLite cannot."""
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"{self.path}: found state that cannot be used ({error}), expected a whole one") from None

    def _write_lease(self, until: float) -> None:
        self.rows("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?)", (self._owner, self.epoch, until))
