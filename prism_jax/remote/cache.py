"""The cache: one SQLite file of answers, requests under way and spending, shared by processes and by runs.

An answer is stored before it is used. A request is recorded before it is sent, with the most that it can cost, so that
a budget holds under concurrency and a killed process leaves a trace of what it may have paid.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from prism_jax.remote import cache_file
from prism_jax.remote.cache_file import COLUMNS
from prism_jax.remote.requests import Answer


class Owner:
    """This process among those that share the file at `path`."""

    def __init__(self, path: pathlib.Path) -> None:
        self.name = uuid.uuid4().hex
        self._folder = path.with_name(f"{path.name}.owners")
        self._folder.mkdir(exist_ok=True)
        self._file: int | None = os.open(self._folder / self.name, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def lives(self, name: str) -> bool:
        """Whether the process of that name still runs; removes what a dead one left."""
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        path.unlink(missing_ok=True)
        return False

    def close(self) -> None:
        """Ends this process's part."""
        if self._file is not None:
            (self._folder / self.name).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


_COLUMNS = tuple(COLUMNS["answers"][1:])


class BudgetSpent(RuntimeError):  # noqa: N818 -- not an error of the program
    """The next request could pass the budget; it was not sent."""


class Claim(NamedTuple):
    """Whether a request may be sent."""

    answer: Answer | None = None  # the answer, if another process has stored it meanwhile
    # whether to ask again later: the same request is under way, or others hold the rest of the budget
    wait: bool = False
    resent: bool = False  # whether an earlier process was killed between sending this request and storing its answer


class Cache:
    """The SQLite file, which is created with its folder if need be, and the most USD that it may ever record as spent.

    A link stands for its file. Where processes of several `machines` share it, it needs no memory that all have. Raises
    ValueError if the file is something else, or damaged, or has several names.
    """

    def __init__(self, path: str | os.PathLike[str], budget: float = 0.0, *, machines: bool = False) -> None:
        self.path = pathlib.Path(path).resolve()  # beside which SQLite and `Owner` have their files
        self.budget = budget
        self._lock = threading.RLock()
        self._mine: set[str] = set()  # keys that this process has under way
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._database = cache_file.open_database(self.path, "TRUNCATE" if machines else "WAL")
        self._status = self.path.stat()
        self._owner = Owner(self.path)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Names the file in the errors of the block."""
        with self._lock:
            try:
                yield self._database
            except sqlite3.DatabaseError as error:  # such as a full disk
                raise OSError(f"{self.path}: found a cache that cannot be read or written ({error})") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Runs the block as one transaction that no other process can come between."""
        with self._reading() as database, cache_file.transaction(database):
            yield database

    def get(self, key: str) -> Answer | None:
        """The stored answer of a request, or None."""
        with self._reading() as database:
            row = database.execute(f"SELECT {', '.join(_COLUMNS)} FROM answers WHERE key = ?", (key,)).fetchone()
        return row and Answer(key=key, cached=True, **dict(zip(_COLUMNS, row, strict=True)))

    def claim(self, key: str, worst: float, idempotent: bool) -> Claim:
        """Records that a request is about to be sent, and reserves the most USD that one attempt can cost.

        An idempotent request costs nothing when it is sent once more after it was answered. Raises BudgetSpent if the
        budget has no room for it, and none that requests under way could still leave; OSError if the file was moved.
        """
        if not (self.path.exists() and os.path.samestat(self._status, self.path.stat())):
            raise OSError(f"{self.path}: found the cache removed or replaced since it was opened, so nothing was sent")
        with self._transaction() as database:
            if answer := self.get(key):
                return Claim(answer)
            flight = database.execute("SELECT lost, owner FROM flights WHERE key = ?", (key,)).fetchone()
            if flight and self._alive(key, flight[1]):
                return Claim(wait=True)
            lost = flight[0] + (not idempotent) if flight else 0
            if not self._room(key, worst * (lost + 1)):
                return Claim(wait=True)
            row = (key, worst, lost, self._owner.name)
            database.execute("REPLACE INTO flights VALUES (?, ?, ?, ?, ?)", (*row, cache_file.digest_of(*row)))
            self._mine.add(key)
            return Claim(resent=flight is not None)

    def lose(self, key: str) -> bool:
        """Counts an attempt whose answer was lost and reserves another; False if that has to wait for room.

        Raises BudgetSpent if the budget has no room for another attempt.
        """
        with self._transaction() as database:
            worst, lost = database.execute("SELECT worst, lost FROM flights WHERE key = ?", (key,)).fetchone()
            if not self._room(key, worst * (lost + 2)):
                return False
            database.execute(
                "UPDATE flights SET lost = lost + 1, digest = DIGEST_OF(key, worst, lost + 1, owner) WHERE key = ?",
                (key,),
            )
            return True

    def settle(self, key: str, answer: Answer | None, billed: bool = True) -> None:
        """Ends a request: stores its answer, if any, and what it cost.

        `billed` says whether the last attempt may have been billed although there is no answer.
        """
        try:
            with self._transaction() as database:
                worst, lost = database.execute("SELECT worst, lost FROM flights WHERE key = ?", (key,)).fetchone()
                cost = worst * (lost + (answer is None and billed)) + (answer.cost if answer else 0.0)
                if answer:
                    row = (key, *(getattr(answer, name) for name in _COLUMNS))
                    places = ", ".join("?" * (len(row) + 1))
                    database.execute(f"REPLACE INTO answers VALUES ({places})", (*row, cache_file.digest_of(*row)))
                database.execute("DELETE FROM flights WHERE key = ?", (key,))
                if cost:
                    database.execute("UPDATE spending SET spent = spent + ?1, digest = DIGEST_OF(spent + ?1)", (cost,))
        finally:  # on a full disk, say, it stays recorded as sent
            self._mine.discard(key)

    def drop(self, key: str) -> None:
        """Forgets that this process has a request under way, which stays recorded as sent."""
        self._mine.discard(key)

    def erase(self) -> None:
        """Deletes every answer, with every copy; what was spent stays."""
        with self._reading() as database:
            database.execute("DELETE FROM answers")
            database.execute("VACUUM")
            if database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise OSError(f"{self.path}: found it in use, expected it free to leave no copy of what was deleted")

    @property
    def spent(self) -> float:
        """USD that this file records as spent, without requests under way."""
        with self._reading() as database:
            return database.execute("SELECT spent FROM spending").fetchone()[0]

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._database.close()
            self._owner.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alive(self, key: str, owner: str) -> bool:
        """Whether a recorded request is still under way."""
        return key in self._mine if owner == self._owner.name else self._owner.lives(owner)

    def _room(self, key: str, wanted: float) -> bool:
        """Whether the budget has room now; raises BudgetSpent if it will have none later either."""
        if not wanted:
            return True
        rows = self._database.execute("SELECT key, worst * (lost + 1), owner FROM flights WHERE key != ?", (key,))
        reserved = lost = 0.0
        for sent, worst, owner in rows.fetchall():
            reserved += worst
            lost += 0 if self._alive(sent, owner) else worst
        if self.spent + reserved + wanted <= self.budget:
            return True
        if self.spent + lost + wanted <= self.budget and reserved > lost:
            return False
        raise BudgetSpent(self._words(wanted))

    def _words(self, wanted: float) -> str:
        return (
            f"budget: found {self.spent:.4f} USD spent and up to {wanted:.4f} for the next request, expected at most "
            f"{self.budget:.4f} in all ({self.path}); answers so far are kept, and a rerun with a larger budget resumes"
        )
