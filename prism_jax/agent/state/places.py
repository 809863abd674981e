"""Where the partitions of a store lie, which of them it has made, and whether a file is the one that was made there.

Beside `partitions/` lies `made.txt`, a line with the number and the id of each partition that was ever made. A file
says of itself which one it is, so that one that was emptied, removed, copied or renamed never passes for a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import sqlite3
import time
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.state.schema import FORMAT, StateError, WrongFileError, parsed
from prism_jax.runtime.files import check_regular, named, read_object

STORE, MADE = "store.json", "made.txt"
UNKNOWN = "-"
"""In place of the id of a partition that is older than ids, until it is next opened."""
MOST_PARTITIONS = 1024
_NAME, _LINE = re.compile(r"([0-9]{5})\.sqlite"), re.compile(r"([0-9]{5}) ([0-9a-f]+|-)")
Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


class Place(NamedTuple):
    """A partition of a store, and what its file must say of itself."""

    number: int
    path: epath.Path
    store: str  # id of the store
    partitions: int  # how many the store has
    id: str | None  # that it was made with; None before it is made, `UNKNOWN` where it is older than ids

    def check_there(self) -> None:
        """Raises WrongFileError where the partition was made, and its file is missing or empty."""
        there = self.path.exists()
        if self.id is not None and not (there and self.path.stat().length):
            raise self._wrong("an emptied file" if there else "no file")
        if there:
            check_regular(self.path, WrongFileError, "a partition")  # of anything else, reading may never end

    def check(self, ask: Ask, *, is_empty: bool) -> None:
        """Raises WrongFileError where the tables of an open file are gone, or are another partition's."""
        if is_empty:
            if self.id is not None:
                raise self._wrong("an emptied file")
            return
        rows = ask("SELECT value FROM facts WHERE name = 'partition'", ())
        if not rows:  # older than ids
            for name, person in ask("SELECT name, person FROM streams", ()):
                if number_of(name if person is None else person, self.partitions) != self.number:
                    raise self._wrong("streams of another one")
            return
        said = parsed(rows[0][0], self.path)
        own = {"store": self.store, "number": self.number, "partitions": self.partitions}
        own |= {} if self.id in (None, UNKNOWN) else {"id": self.id}
        for name, value in own.items():
            if said.get(name) != value:
                raise self._wrong(f"{name} {said.get(name)!r:.80}", f"{value!r}")

    def _wrong(self, what: str, expected: str = "the partition that was made there") -> WrongFileError:
        words = f"{self.path}: found {what}, expected {expected}; restore the file from a backup, or to go on without "
        return WrongFileError(f"{words}it, move it to another folder, and its line out of {MADE} (docs/service.md)")


def folder_of(state: epath.PathLike, tenant: str = "default") -> epath.Path:
    """Where the store of a tenant lies."""
    return epath.Path(state) / "tenants" / tenant


def tenants_of(state: epath.PathLike) -> list[str]:
    """The tenants that have a store in a state, in order; StateError as `partition_files`."""
    folder = epath.Path(state) / "tenants"
    stores = folder.iterdir() if folder.is_dir() else ()
    return sorted(one.name for one in stores if one.is_dir() and partition_files(one))


def number_of(key: str, partitions: int) -> int:
    """The number of the partition of a key, of so many."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % partitions


def count_in(tree: dict[str, Any], path: epath.PathLike) -> int:
    """How many partitions a store has, by its store.json; StateError for a number that no store has."""
    count = tree.get("partitions")
    if type(count) is not int or not 1 <= count <= MOST_PARTITIONS:
        raise StateError(f"{path}: partitions: found {count!r:.80}, expected 1 to {MOST_PARTITIONS}")
    return count


def partition_files(folder: epath.PathLike, key: str | None = None) -> list[Place]:
    """The partitions of a store that were made, or are being made, ascending; with a key, that of the key.

    StateError for partitions whose store.json is missing or damaged.
    """
    folder = epath.Path(folder)
    numbers = {int(found[1]) for found in map(_NAME.fullmatch, _listed(folder)) if found}
    path = folder / STORE
    if not path.exists():
        if not numbers:
            return []
        raise StateError(f"{path}: no such file, expected that of the partitions beside it; restore it, too")
    tree = read_object(path, "a store of an agent's state", StateError)
    count, made = count_in(tree, path), made_in(folder)
    numbers |= made.keys()
    chosen = sorted(numbers if key is None else numbers & {number_of(key, count)})
    store, place = str(tree.get("id")), folder / "partitions"
    all_of_them = (Place(number, place / f"{number:05d}.sqlite", store, count, made.get(number)) for number in chosen)
    return [one for one in all_of_them if one.number < count]


def strays(folder: epath.PathLike) -> list[str]:
    """The names of what lies beside the partitions of a store and is none of them."""
    own = {place.path.name for place in partition_files(folder)}
    names = {name for name in _listed(epath.Path(folder)) if re.sub(r"-(wal|shm|journal)$", "", name) not in own}
    return sorted(names)


def made_in(folder: epath.PathLike) -> dict[int, str]:
    """The ids of the partitions that a store has made, by their numbers."""
    path = epath.Path(folder) / MADE
    # What has no end was cut by a crash.
    lines = path.read_bytes().decode("latin-1").split("\n")[:-1] if path.exists() else []
    found = [(int(match[1]), match[2]) for match in map(_LINE.fullmatch, lines) if match]
    return dict(sorted(found, key=lambda one: one[1] != UNKNOWN))  # the last one counts, and any before none


def note_made(folder: epath.PathLike, number: int, name: str) -> None:
    """Notes the id of a partition."""
    path = epath.Path(folder) / MADE
    with named(path), open(path, "ab+", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        cut = "\n" if size and os.pread(file.fileno(), 1, size - 1) != b"\n" else ""
        file.write(f"{cut}{number:05d} {name}\n".encode())
        file.flush()  # which writes all of it, or raises
        os.fsync(file.fileno())


@contextlib.contextmanager
def reading(place: Place) -> Iterator[Ask | None]:
    """Asks a partition, as it is at one moment; None for one that is being made.

    Raises:
      WrongFileError: for another file than was made there, or one of a format that is not known here.
      StateError: for one that cannot be read.
    """
    place.check_there()
    if not place.path.exists():
        yield None
        return
    try:
        # A file without its journals cannot be opened to be read alone.
        with contextlib.closing(_opened(place.path, "mode=rw", 5.0)) as file:
            file.execute("PRAGMA query_only = ON")
            file.execute("BEGIN")

            def ask(question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
                try:
                    return file.execute(question, values).fetchall()
                except sqlite3.Error as error:
                    raise _unread(place, error) from None

            ((version,),) = ask("PRAGMA user_version")
            if version > FORMAT:
                raise WrongFileError(f"{place.path}: format: found {version}, expected {FORMAT} at most")
            place.check(ask, is_empty=not version)
            yield ask if version else None
    except sqlite3.Error as error:
        raise _unread(place, error) from None


def readable(
    folder: epath.PathLike, key: str | None = None, numbers: Container[int] | None = None
) -> Iterator[tuple[Place, Ask]]:
    """The partitions of `partition_files` that are not being made, or some of them; errors as of `reading`."""
    for place in partition_files(folder, key):
        if numbers is None or place.number in numbers:
            with reading(place) as ask:
                if ask is not None:
                    yield place, ask


def _unread(place: Place, error: sqlite3.Error) -> StateError:
    return StateError(f"{place.path}: found state that cannot be read ({error}), expected a whole one")


def check_journal(path: epath.PathLike) -> list[str | None] | None:
    """The marks that a file can have without its log of changes, which nobody writes to now; None without a log.

    A log names the marks that its file can have, and each file has another one whenever it is written. After a backup
    was restored over the files of a process that died, the log that lies there is not the backup's.

    A file that a process was writing its log into when it died has old and new pages, of which nothing can be read
    alone: with the log it is whole.

    Raises:
      WrongFileError: for a file with the log of another one.
      StateError: for a file that cannot be read alone, nor with its log.
    """
    log = pathlib.Path(f"{path}-wal")
    if not log.exists() or not log.stat().st_size:
        return None
    pathlib.Path(f"{path}-shm").touch(mode=0o600)  # without one, nobody can read without writing
    is_whole = together_is_whole = False
    for _ in range(3):  # another owner may be moving it into the file now
        # Without the log, and with it; neither moves it into the file.
        alone, together = _marks(path, "mode=ro&immutable=1"), _marks(path, "mode=ro")
        if alone.get("now", "") in together.get("file", ()):
            return [alone["now"]]
        is_whole, together_is_whole = _is_whole(path, "mode=ro&immutable=1"), _is_whole(path, "mode=ro")
        if together and together_is_whole and not is_whole:
            return [*together["file"], together["now"]]
        time.sleep(0.05)
    keep = "copy the file, its -wal and its -shm to another folder first, then restore the file from a backup"
    if not is_whole:
        raise StateError(
            f"{path}: found a file that cannot be read, neither alone nor with its log of changes, expected a whole "
            f"one; {keep} (docs/service.md)"
        )
    raise WrongFileError(
        f"{log}: found the log of changes of another file, such as one that a backup was restored over, expected that "
        "of the file beside it; put the file back that it belongs to, or to go on with the backup, move the log and "
        f"its -shm to another folder, and take the file's line out of {MADE} (docs/service.md)"
    )


def check_idle(folder: epath.PathLike) -> None:
    """Calls `check_journal` for each partition of a store that no process has: who reads one alone moves its log."""
    lock = os.open(epath.Path(folder) / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        for place in partition_files(folder):
            check_journal(place.path)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _marks(path: epath.PathLike, how: str) -> dict[str, Any]:
    """What a file says of its mark and of those that it can have; nothing where it cannot be read."""
    try:
        with contextlib.closing(_opened(path, how, 1.0)) as file:
            has_facts = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone()
            row = has_facts and file.execute("SELECT value FROM facts WHERE name = 'journal'").fetchone()
            return parsed(row[0], path) if row else {"now": None, "file": [None]}
    except (sqlite3.Error, StateError):
        return {}


def _is_whole(path: epath.PathLike, how: str) -> bool:
    """Whether every page of a file can be read."""
    try:
        with contextlib.closing(_opened(path, how, 1.0)) as file:
            return bool(file.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)])
    except sqlite3.Error:
        return False


def _opened(path: epath.PathLike, how: str, seconds: float) -> sqlite3.Connection:
    uri = f"{pathlib.Path(path).absolute().as_uri()}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=seconds, isolation_level=None)


def _listed(folder: epath.Path) -> list[str]:
    files = pathlib.Path(folder / "partitions")
    return [path.name for path in files.iterdir()] if files.exists() else []
