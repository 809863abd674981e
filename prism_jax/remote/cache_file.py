"""The file of a cache: its tables, and how it is checked when it is opened, so that damage is never paid for.

Every row carries a digest of its values, because SQLite notices damage to its structure and none within a value.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sqlite3
import stat
from collections.abc import Iterator

APPLICATION = 0x70726D72  # how SQLite's header names the program that a file belongs to
VERSION = 2
COLUMNS = {
    "answers": [
        "key",
        "text",
        "error",
        "model",
        "time",
        "prompt_tokens",
        "completion_tokens",
        "cost",
        "seconds",
        "finish",
    ],
    "flights": ["key", "worst", "lost", "owner"],
    "spending": ["spent"],
}


def _count(name: str) -> str:
    return f"{name} INTEGER NOT NULL CHECK (typeof({name}) = 'integer' AND {name} >= 0)"


def _amount(name: str) -> str:
    return f"{name} REAL NOT NULL CHECK (typeof({name}) = 'real' AND {name} BETWEEN 0 AND 1e300)"


def _text(name: str, more: str = "") -> str:
    return f"{name} TEXT NOT NULL{more} CHECK (typeof({name}) = 'text')"


def _optional(name: str) -> str:
    return f"{name} TEXT CHECK (typeof({name}) IN ('text', 'null'))"


_ANSWERS = ", ".join((
    _text("key", " PRIMARY KEY"), _optional("text"), _optional("error"), _text("model"), _text("time"),
    _count("prompt_tokens"), _count("completion_tokens"), _amount("cost"), _amount("seconds"), _text("finish"),
    _text("digest"),
))  # fmt: skip
_OWNER = "owner TEXT NOT NULL CHECK (length(owner) = 32 AND owner NOT GLOB '*[^0-9a-f]*')"  # it names a file
TABLES = {
    "answers": f"CREATE TABLE answers ({_ANSWERS}) WITHOUT ROWID",
    "flights": f"CREATE TABLE flights ({_text('key', ' PRIMARY KEY')}, {_amount('worst')}, {_count('lost')}, {_OWNER}, "
    f"{_text('digest')})",
    "spending": f"CREATE TABLE spending ({_amount('spent')}, {_text('digest')})",
}


def digest_of(*values: object) -> str:
    """The first half of the SHA-256 of a row's values, `DIGEST_OF` in SQL; integers count as the floats they equal."""
    plain = [float(value) if isinstance(value, int) else value for value in values]
    return hashlib.sha256(repr(plain).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def open_database(path: pathlib.Path, journal: str = "WAL") -> sqlite3.Connection:
    """A connection to the cache at `path`, which is created if there is none, for its owner only to read.

    Raises ValueError if the file is something else, or damaged, or has several names; nothing in it is changed then.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError(f"{path}: found no regular file, expected a cache of answers or no file")
        if (names := os.fstat(file).st_nlink) > 1:  # by each of which SQLite would keep another journal
            raise ValueError(f"{path}: found a file of {names} names (hard links), expected one; a copy of it has one")
    finally:
        os.close(file)
    database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    problem = "found no cache of answers ({}), expected one or no file"
    try:
        database.create_function("DIGEST_OF", -1, digest_of, deterministic=True)
        _version(database)
        problem = (
            "found a damaged cache of answers ({}), so nothing was sent; restore a copy of it, or name another file "
            "to ask and pay anew"
        )
        _prepare(database, journal)
        _check(database)
    except (sqlite3.Error, UnicodeError) as error:
        database.close()
        raise ValueError(f"{path}: {problem.format(error)}") from None
    return database


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Runs the block as one transaction that no other process can come between."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _version(database: sqlite3.Connection) -> int:
    """The version of the tables; 0 of a new file."""
    application, version = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if not application and not database.execute("SELECT 1 FROM sqlite_master").fetchone():
        return 0
    if application != APPLICATION or version not in (1, VERSION):
        raise sqlite3.DatabaseError(f"a database of application {application}, version {version}")
    return version


def _prepare(database: sqlite3.Connection, journal: str) -> None:
    """Creates the tables of a new file, and adds the digests to those of version 1."""
    database.execute(f"PRAGMA journal_mode={journal}")
    database.execute("PRAGMA secure_delete=ON")
    database.execute("PRAGMA synchronous=NORMAL")  # a kill loses nothing; a power cut may lose the newest
    with transaction(database):
        version = _version(database)
        if version == VERSION:
            return
        if version:
            _check_structure(database)
        for name, statement in TABLES.items():
            if version:
                database.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
            database.execute(statement)
            if version:
                columns = ", ".join(COLUMNS[name])
                database.execute(f"INSERT INTO {name} SELECT {columns}, DIGEST_OF({columns}) FROM old_{name}")
                database.execute(f"DROP TABLE old_{name}")
            elif name == "spending":
                database.execute("INSERT INTO spending VALUES (0, DIGEST_OF(0))")
        database.execute(f"PRAGMA application_id={APPLICATION}")
        database.execute(f"PRAGMA user_version={VERSION}")


def _check(database: sqlite3.Connection) -> None:
    """Raises DatabaseError unless structure, tables and every row are as they were written."""
    _check_structure(database)
    statements = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if statements != TABLES:
        raise sqlite3.DatabaseError(f"its tables are not those of version {VERSION}")
    rows = database.execute("SELECT count(*) FROM spending").fetchone()[0]
    if rows != 1:
        raise sqlite3.DatabaseError(f"{rows} rows in its table of spending, where there is one")
    for name, columns in COLUMNS.items():
        query = f"SELECT count(*) FROM {name} WHERE digest IS NOT DIGEST_OF({', '.join(columns)})"
        if changed := database.execute(query).fetchone()[0]:
            raise sqlite3.DatabaseError(f"{changed} rows of its table of {name} are not as they were written")


def _check_structure(database: sqlite3.Connection) -> None:
    """Raises DatabaseError if SQLite finds its pages, or the types of values, broken."""
    problem = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(" ".join(problem.split()))
