"""Owners of partitions on several machines, as actors of Ray: who has which partition, and how a request finds it.

An owner is a process with the agents of `agents.py` for some partitions of every tenant. The directory says which owner
has which; it is a matter of speed alone: the leases in the files keep a stale owner from changing anything.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import fastapi
import ray
from etils import epath
from starlette.concurrency import run_in_threadpool

from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.state.partition import StaleError
from prism_jax.agent.state.reading import Cursor, Logged, newest, read_log
from prism_jax.agent.state.store import number_of
from prism_jax.service.agents import Agents, Asked, Visit, folder_of, settle, stream_of
from prism_jax.service.door import Door
from prism_jax.service.http import BATCH, ApiError
from prism_jax.service.turns import BusyError, Turns

T = TypeVar("T")

NAMESPACE, DIRECTORY = "prism_jax", "directory"
ANSWER_SECONDS = 10.0
"""How long an owner may take to answer before it is taken for lost."""
PATIENCE = 30.0
"""How long a request waits for a partition that changes hands."""
START_SECONDS = 600.0
"""How long owners may take to load."""
_KNOWN = 100_000
"""Streams whose person the door remembers."""


class Owners(NamedTuple):
    """Who has which partitions."""

    generation: int  # how many times it has changed
    actors: tuple[Any, ...]  # the owner of partition p is number p % len(actors)


class Owner:
    """An actor with the agents of some partitions. Requests wait in a queue, and one thread answers them in batches."""

    def __init__(self, load: Callable[[], Agents], folder: epath.PathLike, waiting: int) -> None:
        self._load, self._folder, self._waiting = load, folder, waiting
        self._agents: Agents | None = None
        self._mine = range(0)

    async def start(self) -> None:
        """Loads everything, and has no partition."""
        self._turns: Turns[Asked | None, Any] = Turns(self._answer, most=BATCH, waiting=self._waiting)
        self._turns.start(before=self._loaded)
        await self.own(0, 0, 0)

    async def own(self, mine: int, count: int, partitions: int) -> None:
        """Has every partition p with p % count = mine from now on; with a count of 0 none."""
        self._mine = range(mine, partitions, count) if count else range(0)
        await self._turns.ask(None)  # in its turn

    async def ask(self, asked: Asked) -> Any:
        """The answer to a request in its turn; raises what `Turns.ask` raises."""
        return await self._turns.ask(asked)

    async def read_log(
        self, tenant: str, cursor: Cursor, most: int, conditions: dict[str, Any]
    ) -> tuple[list[Logged], Cursor]:
        """See `prism_jax.agent.state.reading.read_log`, of the partitions that it has."""
        place = folder_of(self._folder, tenant)
        return await run_in_threadpool(read_log, place, cursor, most, partitions=self._mine, **conditions)

    async def newest(self, tenant: str) -> Cursor:
        """See `prism_jax.agent.state.reading.newest`, of the partitions that it has."""
        return await run_in_threadpool(newest, folder_of(self._folder, tenant), self._mine)

    async def read(self, tenant: str, function: Callable[[epath.Path], T]) -> T:
        """What a function reads in the folder of a tenant's store."""
        return await run_in_threadpool(function, folder_of(self._folder, tenant))

    async def leave(self) -> None:
        """Ends the process."""
        ray.actor.exit_actor()

    def alive(self) -> int:
        """The number of its process."""
        return os.getpid()

    def _loaded(self) -> None:
        self._agents = self._load()

    def _answer(self, items: Sequence[Asked | None]) -> Sequence[Any]:
        assert self._agents is not None, "it was loaded before"
        answers: list[Any] = []
        for changes, group in itertools.groupby(items, key=lambda item: item is None):
            if changes:
                self._agents.own(self._mine)
                answers += [None for _ in group]
            else:
                answers += self._agents.answer([item for item in group if item is not None])
        return answers


class Directory:
    """An actor that makes owners, and replaces those that are lost."""

    def __init__(
        self,
        load: Callable[[], Agents],
        folder: epath.PathLike,
        waiting: int,
        partitions: int,
        options: dict[str, Any],
    ) -> None:
        self._load, self._folder, self._waiting, self._partitions = load, folder, waiting, partitions
        self._options = options  # of the actors, such as their CPUs and GPUs
        self._owners: list[Any] = []
        self._generation = 0
        self._changing = asyncio.Lock()

    async def owners(self) -> Owners:
        """Who has which partitions now."""
        return Owners(self._generation, tuple(self._owners))

    async def scale(self, count: int) -> Owners:
        """Divides the partitions among so many owners. They change hands while requests are answered."""
        async with self._changing:
            kept, left = self._owners[:count], self._owners[count:]
            new = [self._made() for _ in range(count - len(kept))]
            await asyncio.gather(*(owner.start.remote() for owner in new))
            # Those who had partitions let them go first, so that nobody waits for a lease to end.
            old = [owner.own.remote(i, count, self._partitions) for i, owner in enumerate(kept)]
            old += [owner.own.remote(0, 0, 0) for owner in left]
            await asyncio.gather(*map(_tried, old))
            await asyncio.gather(
                *(owner.own.remote(i, count, self._partitions) for i, owner in enumerate(new, len(kept)))
            )
            self._owners = kept + new
            self._generation += 1
            for owner in left:
                owner.leave.remote()
            return Owners(self._generation, tuple(self._owners))

    async def lost(self, generation: int, place: int) -> Owners:
        """Replaces an owner that somebody got no answer from, if it gives none now either.

        It may only be slow: when it wakes, its leases have gone to the new one, and it can change nothing.
        """
        async with self._changing:
            if generation == self._generation and not await _tried(self._owners[place].alive.remote()):
                new = self._made()
                await new.start.remote()
                await new.own.remote(place, len(self._owners), self._partitions)
                asleep, self._owners[place] = self._owners[place], new
                self._generation += 1
                asleep.leave.remote()  # when it wakes
            return Owners(self._generation, tuple(self._owners))

    def _made(self) -> Any:
        actor = ray.remote(Owner).options(max_concurrency=1000, **self._options)
        return actor.remote(self._load, self._folder, self._waiting)


async def _tried(call: Any) -> bool:
    """Whether a call ends well within a few seconds."""
    try:
        await asyncio.wait_for(asyncio.ensure_future(_awaited(call)), ANSWER_SECONDS / 2)
    except (TimeoutError, ray.exceptions.RayError):
        return False
    return True


async def _awaited(call: Any) -> Any:
    return await call


def start_directory(
    load: Callable[[], Agents],
    folder: epath.PathLike,
    *,
    owners: int,
    partitions: int,
    waiting: int,
    options: dict[str, Any],
    stays: bool,
) -> Any:
    """The directory of this Ray cluster, which is made where there is none, with so many owners.

    `load` makes the agents of an owner, `options` are those of its actor, and `stays` lets all of them outlive this
    process.
    """
    lifetime = {"lifetime": "detached"} if stays else {}
    directory = (
        ray.remote(Directory)
        .options(name=DIRECTORY, namespace=NAMESPACE, get_if_exists=True, num_cpus=0, max_concurrency=1000, **lifetime)
        .remote(load, str(folder), waiting, partitions, {**options, **lifetime})
    )
    try:
        ray.get(directory.scale.remote(owners), timeout=START_SECONDS)
    except ray.exceptions.GetTimeoutError:
        free = {name: number for name, number in ray.available_resources().items() if name in ("CPU", "GPU")}
        raise ValueError(
            f"--owners: found no room for {owners} within {START_SECONDS:g} s (free: {free}), expected "
            f"{options['num_cpus']:g} CPUs and {options['num_gpus']:g} GPUs for each"
        ) from None
    return directory


class DividedDoor(Door):
    """Takes requests to the owner of their partition, and waits while it changes hands."""

    def __init__(self, directory: Any, folder: epath.PathLike, partitions: int) -> None:
        super().__init__(lambda: None, folder, 1)  # type: ignore[arg-type, return-value]
        self._directory, self._partitions = directory, partitions
        self._owners: Owners | None = None
        self._persons: collections.OrderedDict[tuple[str, str], str | None] = collections.OrderedDict()

    @property
    def is_ready(self) -> bool:
        """Whether everything is loaded: the owners are."""
        return True

    def check_ready(self) -> None:
        """Does nothing: the owners are there."""

    def start(self) -> None:
        """Begins at once."""
        self.on_start()
        self.on_ready()

    async def stop(self) -> None:
        """Ends; the owners stay."""

    async def ask(self, item: Asked, request: fastapi.Request | None = None) -> Any:
        """The answer of the owner of the request's partition.

        Raises:
          ApiError: 504 where an owner was lost on the way, so that nobody knows whether it has answered.
        """
        if isinstance(item.request, Visit):
            if item.request.alone is not None:
                return await self._at(self._number(item.request.alone), "ask", item)
            if item.request.person is not None:
                for place in [place for place, person in self._persons.items() if person == item.request.person]:
                    del self._persons[place]
            return sum(await asyncio.gather(*(self._at(i, "ask", item) for i in range(await self._count()))))
        stream = stream_of(item.request)
        stated = None if isinstance(item.request, OfferOutcome) else item.request.items[0].person
        place = item.tenant, stream
        if place not in self._persons or (stated is not None and stated != self._persons[place]):
            settled = item._replace(request=settle(stream, stated))
            self._persons[place] = await self._at(self._number(stream), "ask", settled)
            if len(self._persons) > _KNOWN:
                self._persons.popitem(last=False)
        person = self._persons[place]
        number = self._number(stream if person is None else person)
        return await self._at(number, "ask", item._replace(person=person))

    async def do(self, item: Asked) -> Any:
        """See `ask`."""
        return await self.ask(item)

    async def read_log(self, tenant: str, cursor: Cursor, most: int, **conditions: Any) -> tuple[list[Logged], Cursor]:
        """See `Door.read_log`; every owner reads its partitions."""
        found: list[Logged] = []
        for i in range(await self._count()):
            if len(found) == most:
                break
            new, cursor = await self._at(i, "read_log", tenant, cursor, most - len(found), conditions)
            found += new
        return found, cursor

    async def newest(self, tenant: str) -> Cursor:
        """See `Door.newest`."""
        parts = [await self._at(i, "newest", tenant) for i in range(await self._count())]
        return Cursor({number: last for part in parts for number, last in part.numbers.items()})

    async def read(self, tenant: str, person: str, function: Callable[[epath.Path], T]) -> T:
        """See `Door.read`; the owner of the person's partition reads."""
        return await self.read_at(tenant, self._number(person), function)

    async def read_at(self, tenant: str, partition: int, function: Callable[[epath.Path], T]) -> T:
        """See `Door.read_at`; the owner of the partition reads."""
        return await self._at(partition, "read", tenant, function)

    def _number(self, key: str) -> int:
        return number_of(key, self._partitions)

    async def _count(self) -> int:
        return len((await self._known()).actors)

    async def _known(self) -> Owners:
        if self._owners is None:
            self._owners = await self._directory.owners.remote()
        return self._owners

    async def _at(self, number: int, method: str, *arguments: Any) -> Any:
        """What a method of the owner of a partition returns."""
        ends = asyncio.get_running_loop().time() + PATIENCE
        while True:
            owners = await self._known()
            place = number % len(owners.actors)
            try:
                call = getattr(owners.actors[place], method).remote(*arguments)
                return await asyncio.wait_for(_awaited(call), ANSWER_SECONDS)
            except (TimeoutError, ray.exceptions.RayActorError):
                with contextlib.suppress(ray.exceptions.RayError):
                    self._owners = await self._directory.lost.remote(owners.generation, place)
                raise ApiError(504, "an owner was lost; send the request again, with its Idempotency-Key") from None
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, BusyError):
                    raise ApiError(429, "found too many requests waiting, expected fewer") from None
                if not isinstance(error.cause, StaleError) or asyncio.get_running_loop().time() > ends:
                    raise error.cause from None
            self._owners = None  # the partition changes hands, and nothing has changed of it
            await asyncio.sleep(0.05)
