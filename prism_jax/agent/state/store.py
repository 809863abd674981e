"""A folder of partitions: which one a key has, opened when it is first asked for.

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
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from etils import epath

from prism_jax.agent.state.partition import Partition, StaleError, StateError
from prism_jax.people.exports import StoreError, population_from
from prism_jax.people.layer import Population
from prism_jax.people.store import DEFAULT
from prism_jax.runtime.files import read_object, write_json

PARTITIONS, MOST_PARTITIONS = 256, 1024
MOST_OPEN = 256
"""Most partitions that are open at a time, where no other process has the store; each has three files."""
FORMAT = 1
_FILE = "store.json"


def partition_files(folder: epath.PathLike, key: str | None = None) -> list[tuple[int, epath.Path]]:
    """The files of the partitions of a store that have one, with their numbers, ascending; with a key, that one's."""
    folder = epath.Path(folder)
    found = [(int(path.stem), path) for path in sorted((folder / "partitions").glob("*.sqlite"))]
    if key is None or not found:
        return found
    wanted = number_of(key, read_object(folder / _FILE, "a store of an agent's state", StateError)["partitions"])
    return [(number, path) for number, path in found if number == wanted]


def partition_file(folder: epath.PathLike, number: int) -> epath.Path:
    """Where a partition of a store lies."""
    return epath.Path(folder) / "partitions" / f"{number:05d}.sqlite"


def number_of(key: str, partitions: int) -> int:
    """The number of the partition of a key, of so many."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % partitions


class StateStore:
    """An open store. One thread at a time may use it.

    `leaving` is called with the number of a partition that is let go.
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
        clock: Callable[[], float] = time.time,
    ):
        """Opens or makes a store.

        Args:
          folder: Where it lies; only its owner can read it.
          partitions: Number of partitions, from 1 to 1,024, that an old store must have; None is that of the store, and
            256 for a new one.
          population: What is assumed of people, as in an old store; None is that of the store, and the default of a new
            one.
          alone: Whether this process has the whole store for itself; otherwise others may own some of its partitions.
          seconds: How long the lease of a partition lasts without a change.
          most_open: Most partitions that are open at a time, where no other process has the store.
          clock: Seconds since 1970.

        Raises:
          StateError: for a folder that is no store, of another format or other numbers, or that another process has.
          OSError: if it cannot be made.
        """
        if partitions is not None and not 1 <= partitions <= MOST_PARTITIONS:
            raise StateError(f"partitions: found {partitions}, expected 1 to {MOST_PARTITIONS}")
        self.folder = epath.Path(folder)
        owner = secrets.token_hex(16)
        self._alone, self._most_open = alone, most_open
        self._own: frozenset[int] | None = None
        self._lease: dict[str, Any] = {"owner": owner, "alone": alone, "seconds": seconds, "clock": clock}
        self._open: collections.OrderedDict[int, Partition] = collections.OrderedDict()
        self.leaving: list[Callable[[int], None]] = []
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # noqa: PTH103  epath has no mode
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take_lock()
            path = self.folder / _FILE
            if not path.exists():
                numbers = {"partitions": partitions or PARTITIONS, "population": (population or DEFAULT)._asdict()}
                write_json(path, {"format": FORMAT, **numbers})
            tree = read_object(path, "a store of an agent's state", StateError)
            if tree.get("format") != FORMAT:
                raise StateError(f"{path}: format: found {tree.get('format')!r:.80}, expected {FORMAT}")
            count = tree.get("partitions")
            if type(count) is not int or not 1 <= count <= MOST_PARTITIONS:
                raise StateError(f"{path}: partitions: found {count!r:.80}, expected 1 to {MOST_PARTITIONS}")
            if partitions not in (None, count):
                raise StateError(f"{path}: partitions: found {count}, expected {partitions}: it cannot change")
            self.partitions = count
            try:
                self.population = population_from(tree.get("population"), f"{path}: population")
            except StoreError as error:
                raise StateError(str(error)) from None
            if population not in (None, self.population):
                raise StateError(f"{path}: population: found another one than was stated, expected the same")
        except BaseException:
            os.close(self._lock)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_EX if self._alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(f"{self.folder}: found it in use by another process, expected one at a time") from None

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
        if number in self._open:
            self._open.move_to_end(number)
        else:
            self._close_idle()
            path = partition_file(self.folder, number)
            try:
                path.parent.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise StateError(f"{path.parent}: {error}") from None
            self._open[number] = Partition(path, population=self.population, **self._lease)
        return self._open[number]

    def owns(self, number: int) -> bool:
        """Whether a partition is this process's to take."""
        return self._own is None or number in self._own

    def own(self, numbers: Iterable[int]) -> None:
        """Has these partitions from now on, and lets the others go."""
        self._own = frozenset(numbers)
        for number in [number for number in self._open if number not in self._own]:
            self.let_go(number)

    def _close_idle(self) -> None:
        """Closes the file that was idle longest where too many are open; what is in memory of it stays true."""
        while self._alone and len(self._open) >= self._most_open:
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

    def forget_person(self, person: str) -> list[str]:
        """Deletes everything of a person that is in partitions of this process, and returns the names of their streams.

        No agent may have these in memory.

        Where it fails with StateError, another call ends what this one has begun.
        """
        for _, partition in self.made():
            partition.unclaim([stream for stream, _ in partition.claims(person)])
        names = self.of(person).forget_person(person) if self.owns(self.number_of(person)) else []
        for _, partition in self.made():
            partition.erase()
        return names

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
        partition.erase()
        return own is not None

    def made(self) -> Iterator[tuple[int, Partition]]:
        """Every partition of this process that has a file, with its number, ascending."""
        for number, _ in partition_files(self.folder):
            if self.owns(number):
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
