"""A folder of partitions, each opened when it is first asked for.

The key of a stream is its person, or its own name where nobody is named. The number of partitions is fixed when the
store is made: to divide it among more machines moves partitions, never keys.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.agent.records_file import remove_person
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.places import (
    MOST_PARTITIONS,
    STORE,
    UNKNOWN,
    Place,
    check_journal,
    count_in,
    made_in,
    note_made,
    number_of,
    partition_files,
    reading,
    strays,
)
from prism_jax.agent.state.schema import StateError, WrongFileError
from prism_jax.decision.person import DEFAULT, Population
from prism_jax.people.exports import StoreError, population_from
from prism_jax.runtime.files import read_object, temporary_beside, write_json

PARTITIONS = 256
MOST_OPEN = 256
"""Most partitions that are open at a time, where no other process has the store; each has three files."""
FORMAT = 1


class IncompleteError(StateError):
    """A deletion that has deleted so many `streams`, and `left` something: why, by the file in which it may be."""

    def __init__(self, streams: int, left: Mapping[str, str]) -> None:
        self.streams, self.left = streams, dict(left)
        super().__init__(f"found files that cannot be searched now ({'; '.join(left.values())}), expected all")

    def __reduce__(self) -> tuple[type[IncompleteError], tuple[int, dict[str, str]]]:
        return IncompleteError, (self.streams, self.left)


class StateStore:
    """An open store. One thread at a time may use it.

    `leaving` is called with the number of a partition that is let go, and each of `erasing`, by the name of its file,
    with a deletion: it raises OSError where it cannot erase. `problems` are what was damaged when it was opened.
    `swept` is when old streams were last deleted, and `refused` when that last seemed wrong, in seconds since 1970.
    """

    def __init__(
        self,
        folder: epath.PathLike,
        *,
        partitions: int | None = None,
        population: Population | None = None,
        alone: bool = True,
        seconds: float = 10.0,
        most_open: int = MOST_OPEN,
        synced: bool = True,
        clock: Callable[[], float] = time.time,
    ):
        """Opens or makes a store, in a folder that only its owner can read.

        An old store must have the number of `partitions`, from 1 to 1,024, and the `population`, if they are not None;
        None is 256 and the default for a new one. Unless this process is `alone`, others may own some partitions.
        A lease lasts so many `seconds` without a change; `clock` gives seconds since 1970. Alone, at most `most_open`
        partitions are open at a time. Changes are on the disk when they are made, or unless `synced`, with the kernel.

        Raises:
          StateError: for a folder that is no store, of another format or other numbers, or that another process has;
            WrongFileError for a partition that is not the one that the store has made.
          OSError: if it cannot be made.
        """
        if partitions is not None and not 1 <= partitions <= MOST_PARTITIONS:
            raise StateError(f"partitions: found {partitions}, expected 1 to {MOST_PARTITIONS}")
        self.folder = epath.Path(folder)
        owner = secrets.token_hex(16)
        self._alone, self._most_open = alone, most_open
        self._own: frozenset[int] | None = None
        self._lease: dict[str, Any] = {
            "owner": owner,
            "alone": alone,
            "seconds": seconds,
            "synced": synced,
            "clock": clock,
        }
        self._open: collections.OrderedDict[int, Partition] = collections.OrderedDict()
        self.leaving: list[Callable[[int], None]] = []
        self.erasing: dict[str, Callable[[], None]] = {}
        self.refused: float | None = None
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # noqa: PTH103  epath has no mode
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(self._lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(f"{self.folder}: found it in use by another process, expected one at a time") from None
            path = self.folder / STORE
            tree = self._read_or_make(path, partitions or PARTITIONS, population or DEFAULT)
            self.id, self.partitions = str(tree["id"]), count_in(tree, path)
            if partitions not in (None, count := self.partitions):
                raise StateError(f"{path}: partitions: found {count}, expected {partitions}: it cannot change")
            try:
                self.population = population_from(tree.get("population"), f"{path}: population")
            except StoreError as error:
                raise StateError(str(error)) from None
            if population not in (None, self.population):
                words = "expected the same; change it with `python -m prism_jax state --set_population`"
                raise StateError(f"{path}: population: found another one than was stated, {words}")
            self.problems = self._check()
            self.swept = min(clock(), os.fstat(self._lock).st_mtime)
        except BaseException:
            os.close(self._lock)
            raise

    @staticmethod
    def _read_or_make(path: epath.Path, partitions: int, population: Population) -> dict[str, Any]:
        """The content of store.json, which is made in a new folder, and gets an id where it is older than ids."""
        if not path.exists():
            partition_files(path.parent)  # has none, or says that store.json is missing
            numbers = {"partitions": partitions, "population": population._asdict()}
            temporary = temporary_beside(path)
            write_json(temporary, {"format": FORMAT, "id": secrets.token_hex(8), **numbers})
            with contextlib.suppress(FileExistsError):  # of two that make it at once, both take the first
                os.link(temporary, path)
            temporary.unlink()
        status = os.stat(path)  # noqa: PTH116  before it is read, so that two at once give it the same id
        tree = read_object(path, "a store of an agent's state", StateError)
        if tree.get("format") != FORMAT:
            raise StateError(f"{path}: format: found {tree.get('format')!r:.80}, expected {FORMAT}")
        if "id" not in tree:
            tree["id"] = hashlib.sha256(f"{status.st_ino} {status.st_mtime_ns} {tree}".encode()).hexdigest()[:16]
            write_json(path, tree)
        return tree

    def _check(self) -> list[str]:
        """What is damaged, or lies there and is no partition; WrongFileError for what is not as the store made it."""
        found = []
        for place in partition_files(self.folder):
            try:
                check_journal(place.path)
                with reading(place) as ask:
                    if ask is not None and place.id is None:
                        note_made(self.folder, place.number, UNKNOWN)
            except WrongFileError:
                raise
            except StateError as error:
                found.append(str(error))
        if names := ", ".join(strays(self.folder)[:10]):
            found.append(
                f"{self.folder}/partitions: found {names}, which no deletion reaches, expected partitions alone"
            )
        return found

    def note_swept(self, now: float) -> None:
        """Notes when old streams were deleted last, also for the next process."""
        self.swept, self.refused = now, None
        os.utime(self._lock, (now, now))

    def number_of(self, key: str) -> int:
        """The number of the partition of a key."""
        return number_of(key, self.partitions)

    def of(self, key: str) -> Partition:
        """The partition of a key; errors as of `Partition`."""
        return self.partition(self.number_of(key))

    def partition(self, number: int) -> Partition:
        """A partition by its number; errors as of `Partition`."""
        if not self.owns(number):
            raise StaleError(f"{self.folder}: partition {number}", 1.0)
        opened = self._open.get(number)
        if opened is not None and not (opened.is_changing or opened.is_there):
            self.let_go(number)
        if number in self._open:
            self._open.move_to_end(number)
        else:
            self.close_idle(room=1)
            files, made = self.folder / "partitions", made_in(self.folder).get(number)
            place = Place(number, files / f"{number:05d}.sqlite", self.id, self.partitions, made)
            try:
                place.check_there()
                files.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise StateError(f"{files}: {error}") from None
            self._open[number] = Partition(place.path, population=self.population, place=place, **self._lease)
        return self._open[number]

    def owns(self, number: int) -> bool:
        """Whether a partition is this process's to take."""
        return self._own is None or number in self._own

    def own(self, numbers: Iterable[int]) -> None:
        """Has these partitions from now on, and lets the others go."""
        self._own = frozenset(numbers)
        for number in [number for number in self._open if number not in self._own]:
            self.let_go(number)

    def close_idle(self, room: int = 0) -> None:
        """Closes the files that were idle longest where too many are open; what is in memory of them stays true."""
        while self._alone and len(self._open) > self._most_open - room:
            idle = [number for number, partition in self._open.items() if not partition.is_changing]
            if not idle:
                return
            self._open.pop(idle[0]).close()

    def let_go(self, number: int) -> None:
        """Closes a partition that another process owns now; it is opened again where it is asked for."""
        partition = self._open.pop(number, None)
        if partition is not None:
            for drop in self.leaving:
                drop(number)
            partition.close()

    def forget_person(self, person: str, searched: Collection[str] = ()) -> list[str]:
        """Deletes everything of a person in partitions of this process, and returns the names of their streams.

        No agent may have these in memory. Files of records that the caller has `searched` are not searched again. What
        can be deleted is, the person's own partition first.

        Raises:
          IncompleteError: where something is left, which another call deletes.
        """
        names: list[str] = []
        left: dict[str, str] = {}

        own = self.number_of(person)
        for number in sorted(self._made(), key=lambda number: number != own):
            try:
                partition = self.partition(number)
                for file in {*partition.people.records()} - {
                    *searched
                }:  # as long as the person is known, another call ends it
                    try:
                        remove_person(file, person)
                    except (OSError, ValueError) as error:
                        left[file] = str(error)
                if number == own:
                    names = partition.forget_person(person)
                partition.unclaim([stream for stream, _ in partition.claims(person)])
            except StateError as error:
                left[f"partitions/{number:05d}.sqlite"] = str(error)
        self.erase_more(len(names), left)
        return names

    def set_population(self, population: Population) -> None:
        """Changes what is assumed of people; partitions follow when they are opened next."""
        path = self.folder / STORE
        tree = read_object(path, "a store of an agent's state", StateError)
        write_json(path, {**tree, "population": population._asdict()})
        self.population = population
        while self._open:
            self._open.popitem()[1].close()

    def erase_more(self, streams: int, left: Mapping[str, str] | None = None) -> None:
        """Deletes what others keep beside the partitions, with so many streams; IncompleteError where some is left."""
        left = dict(left or {})
        for name, erase in self.erasing.items():
            try:
                erase()
            except OSError as error:
                left[name] = str(error)
        if left:
            raise IncompleteError(streams, left)

    def delete_stream(self, stream: str) -> bool:
        """Deletes everything of a stream that names nobody, with the claim on it; False where there is none.

        No agent may have it in memory. Where it fails with StateError, another call ends what this one has begun.
        """
        partition = self.of(stream)
        known = partition.stream(stream)
        own = known if known is not None and known.person is None else None
        if own is not None:
            with partition.transaction():
                partition.delete_stream(own.number)
        partition.unclaim([stream])
        self.erase_more(int(own is not None))
        return own is not None

    def _made(self) -> list[int]:
        return [place.number for place in partition_files(self.folder) if self.owns(place.number)]

    def made(self) -> Iterator[tuple[int, Partition]]:
        """Every partition of this process that was made, with its number, ascending."""
        for number in self._made():
            yield number, self.partition(number)

    def __enter__(self) -> StateStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives all leases back and closes the files."""
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._lock)
            for partition in self._open.values():
                stack.callback(partition.close)
        self._open.clear()


def open_store(folder: epath.PathLike, population: Population | None = None) -> StateStore:
    """A store for one process alone, in whose kernel's hands a change is when it is made.

    A new one has one partition; errors are those of `StateStore`.
    """
    is_new = not (epath.Path(folder) / STORE).exists()
    return StateStore(folder, partitions=1 if is_new else None, population=population, synced=False)
