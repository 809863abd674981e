"""Partitions divided among owners: what an owner does, and how a request finds the one that it is for.

An owner is a process with the agents of `agents.py` for some partitions of every tenant. Who has which is a matter of
speed alone: the leases in the files keep a stale owner from changing anything. How owners are made and called is
another module's (`cluster.py`).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import fastapi
from etils import epath
from starlette.concurrency import run_in_threadpool

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.service import agents as visits
from prism_jax.agent.service import form
from prism_jax.agent.service.agents import DECIDE, Agents, Asked, Visit, folder_of, stream_of
from prism_jax.agent.service.door import Door
from prism_jax.agent.service.http import BATCH, ApiError
from prism_jax.agent.service.turns import BusyError, Threads, Turns
from prism_jax.agent.state.durable import Events
from prism_jax.agent.state.kept import UnclaimedError, other_person
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.places import number_of
from prism_jax.agent.state.reading import Cursor, Logged, newest, read_log
from prism_jax.agent.state.store import IncompleteError

T = TypeVar("T")

ANSWER_SECONDS = 20.0
"""How long an owner may take to answer a request before it is taken for lost."""
VISIT_SECONDS = 600.0
"""The same of what is done between requests, such as deletions."""
PATIENCE = 30.0
"""How long a request waits for a partition that changes hands."""
_REMEMBERED = 100_000
"""Streams whose person a door remembers."""
_TRIES = 5
"""How often a request looks for whose its stream is, while others say it anew."""


class LostError(Exception):
    """An owner that has gone, or does not answer."""


@runtime_checkable
class Handle(Protocol):
    """An owner, or the directory of all, as others call it."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """What a method of it returns or raises; LostError where it has gone."""


class Owners(NamedTuple):
    """Who has which partitions."""

    generation: int  # how many times it has changed
    handles: tuple[Handle, ...]  # the owner of partition p is number p % len(handles)


class Owner:
    """The agents of some partitions. Requests wait in a queue, and one thread answers them in batches."""

    def __init__(self, load: Callable[[], Agents], folder: epath.PathLike, waiting: int) -> None:
        self._load, self._folder, self._waiting = load, folder, waiting
        self._mine, self._threads = range(0), Threads()

    async def start(self) -> None:
        """Loads everything, and has no partition; raises what loading raises."""
        self._agents = await run_in_threadpool(self._load)
        self._turns: Turns[Asked | None, Any] = Turns(self._answer, most=BATCH, waiting=self._waiting)
        self._turns.start()

    async def own(self, mine: range) -> None:
        """Has these partitions from now on."""
        self._mine = mine
        await self._turns.ask(None)

    async def ask(self, asked: Asked) -> Any:
        """The answer to a request in its turn; raises what `Turns.ask` raises."""
        return await self._turns.ask(asked, asked.tenant)

    async def read(self, mine: range, tenant: str, function: Callable[[epath.Path], T]) -> T:
        """What a function reads in a tenant's folder; StaleError where this owner does not have these partitions."""
        if mine != self._mine:
            raise StaleError("the partitions of an owner", 1.0)
        return await self._threads.run(tenant, function, folder_of(self._folder, tenant))

    async def alive(self) -> int:
        """The number of its process, in its turn: an owner whose thread hangs does not answer."""
        with contextlib.suppress(BusyError):
            await self._turns.ask(None)
        return os.getpid()

    async def stop(self) -> None:
        """Gives all partitions back."""
        await self._turns.stop()
        self._agents.close()

    def _answer(self, items: Sequence[Asked | None]) -> Sequence[Any]:
        answers: list[Any] = []
        for changes, group in itertools.groupby(items, key=lambda item: item is None):
            if changes:
                self._agents.own(self._mine)
                answers += [None for _ in group]
            else:
                answers += self._agents.answer([item for item in group if item is not None])
        return answers


class DividedDoor(Door):
    """Takes requests to the owner of their partition, and waits while it changes hands."""

    is_alone = False

    def __init__(self, directory: Handle, folder: epath.PathLike, partitions: int) -> None:
        """Of a directory whose `owners` says who has which partitions, and whose `lost` replaces one that is gone."""
        super().__init__(None, folder)
        self._directory, self._partitions = directory, partitions
        self._owners: Owners | None = None
        self._persons: collections.OrderedDict[tuple[str, str], str | None] = collections.OrderedDict()
        self._suspects: dict[tuple[str, int], set[str]] = {}
        self._has_owners = True

    @property
    def is_ready(self) -> bool:
        """Whether there are owners, when they were last looked for."""
        return self._has_owners

    def check_ready(self) -> None:
        """Raises ApiError 503 where there were no owners when they were last looked for."""
        if not self._has_owners:
            raise ApiError(503, "the owners of the partitions have ended")

    async def ask(self, item: Asked, request: fastapi.Request | None = None) -> Any:
        """The answer of the owner of the request's partition.

        Raises:
          ApiError: 504 where an owner was lost on the way, so that nobody knows whether it has answered.
        """
        if isinstance(item.request, Visit):
            if item.request.alone is not None:
                return await self._visit(item.tenant, self._number(item.request.alone), item.request)
            return await self._visit_all(item.tenant, item.request)
        if isinstance(item.request, form.Asked):  # any owner will do; one that grows finds what was read of it before
            first = item.request.events[0]
            return await self._at(self._number(f"{item.request.caller} {first.time} {first.text}"), "ask", item)
        stream, place = stream_of(item.request), (item.tenant, stream_of(item.request))
        for _ in range(_TRIES):
            remembered = place in self._persons
            person, is_new = await self._whose(item, stream, place)
            try:
                asked = item._replace(person=person, is_new=is_new)
                answer = await self._at(self._number(stream if person is None else person), "ask", asked)
            except UnclaimedError:  # what was known of it no longer holds
                self._persons.pop(place, None)
                continue
            except RefusedError:
                if not remembered or not isinstance(item.request, OfferOutcome):
                    raise
                del self._persons[place]
                continue
            self._persons[place] = person
            if len(self._persons) > _REMEMBERED:
                self._persons.popitem(last=False)
            self._count([item], [answer])
            return answer
        raise ApiError(503, "found whose the stream is said anew all the time; try again")

    async def do(self, item: Asked, caller: str = "") -> Any:
        """See `ask`."""
        return await self.ask(item)

    async def expire(self, tenant: str, number: int, seconds: float | None, share: float = visits.SHARE) -> None:
        """See `Door.expire`. A claim on a stream that is gone is deleted when it was found twice."""
        number %= self._partitions
        await self._visit(tenant, number, visits.expire(number, seconds, share))
        if seconds is None:
            return
        owners: dict[int, dict[str, str]] = {}
        claims = Visit(lambda agents: agents[DECIDE].store.partition(number).claims())
        for stream, person in await self._visit(tenant, number, claims):
            key = stream if person is None else person
            owners.setdefault(self._number(key), {})[stream] = key
        gone: set[str] = set()
        for other, streams in owners.items():
            gone.update(await self._visit(tenant, other, visits.gone_of(streams[min(streams)], list(streams))))
        twice = gone & self._suspects.get((tenant, number), set())
        self._suspects[tenant, number] = gone - twice
        if twice:
            await self._visit(
                tenant, number, Visit(lambda agents: agents[DECIDE].store.partition(number).unclaim(twice))
            )

    async def read_log(self, tenant: str, cursor: Cursor, most: int, **conditions: Any) -> tuple[list[Logged], Cursor]:
        """See `Door.read_log`; every owner reads its partitions."""
        found: list[Logged] = []
        wanted = conditions.pop("partitions", None)

        async def read(count: int, i: int) -> None:
            nonlocal cursor
            own = [n for n in range(i, self._partitions, count) if wanted is None or n in wanted]
            if len(found) < most and own:
                bounds = {"cursor": cursor, "most": most - len(found), "partitions": own, **conditions}
                new, cursor = await self._read_by(i, count, tenant, functools.partial(read_log, **bounds))
                found.extend(new)

        await self._by_all(read)
        return found, cursor

    async def newest(self, tenant: str) -> Cursor:
        """See `Door.newest`."""
        found = Cursor()

        async def read(count: int, i: int) -> None:
            mine = range(i, self._partitions, count)
            own = await self._read_by(i, count, tenant, functools.partial(newest, partitions=mine))
            found.numbers.update(own.numbers)
            found.ids.update(own.ids)

        await self._by_all(read)
        return found

    async def read(self, tenant: str, place: str | int, function: Callable[[epath.Path], T]) -> T:
        """See `Door.read`; the owner of the partition reads."""
        number = self._number(place) if isinstance(place, str) else place

        async def read() -> T:
            count = len((await self._known()).handles)
            return await self._read_by(number % count, count, tenant, function)

        return await self._patiently(read)

    async def _whose(self, item: Asked, stream: str, place: tuple[str, str]) -> tuple[str | None, bool]:
        """Whose a request's stream is, and whether it is a new one, which is then claimed.

        What would be refused claims nothing, and a claim of which nothing came gives way.
        """
        agent, events = item.agent, item.request.items if isinstance(item.request, Events) else ()
        stated = events[0].person if events else None
        check = Visit(lambda agents: agents[agent].check(events))
        if place in self._persons and stated in (None, self._persons[place]):
            return self._persons[place], False
        for _ in range(_TRIES):
            known = await self._visit(item.tenant, self._number(stream), visits.whose(stream))
            if known is not None:
                key = stream if known[0] is None else known[0]
                if not await self._visit(item.tenant, self._number(key), visits.gone_of(key, [stream])):
                    if stated not in (None, known[0]):
                        raise other_person(stream)
                    return known[0], False
            if not events:
                return None, False
            await self._visit(item.tenant, self._number(stream if stated is None else stated), check)
            if await self._visit(item.tenant, self._number(stream), visits.claim(stream, known, stated)):
                return stated, True
        raise ApiError(503, "found whose the stream is said anew all the time; try again")

    def partition(self, tenant: str, key: str) -> int:
        """See `Door`."""
        return self._number(key)

    def _number(self, key: str) -> int:
        return number_of(key, self._partitions)

    async def _known(self) -> Owners:
        if self._owners is None:
            try:
                owners = await self._directory.call("owners")
            except LostError:
                owners = None
            self._has_owners = owners is not None and bool(owners.handles)
            if owners is None or not owners.handles:
                raise ApiError(503, "the owners of the partitions have ended")
            self._owners = owners
        return self._owners

    async def _visit_all(self, tenant: str, visit: Visit) -> int:
        """The sum of what a visit to every owner gives, all of which are asked; raises what one of them has raised."""
        places = range(len((await self._known()).handles))
        visits_made = (self._visit(tenant, i, visit) for i in places)
        answers = await asyncio.gather(*visits_made, return_exceptions=True)
        streams, left = 0, dict[str, str]()
        for answer in answers:
            if isinstance(answer, IncompleteError):
                streams, left = streams + answer.streams, left | answer.left
            elif isinstance(answer, BaseException):
                raise answer
            else:
                streams += answer
        if left:
            raise IncompleteError(streams, left)
        return streams

    async def _visit(self, tenant: str, number: int, visit: Visit) -> Any:
        return await self._at(number, "ask", Asked(tenant, "", visit), seconds=VISIT_SECONDS)

    async def _at(self, number: int, method: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """What a method of the owner of a partition returns."""

        async def ask() -> Any:
            count = len((await self._known()).handles)
            return await self._once(number % count, count, method, *arguments, seconds=seconds)

        return await self._patiently(ask)

    async def _by_all(self, read: Callable[[int, int], Awaitable[None]]) -> None:
        """Reads at every owner in turn, and at all again where the partitions are divided anew meanwhile."""

        async def all_of_them() -> None:
            count = len((await self._known()).handles)
            for i in range(count):
                await read(count, i)

        await self._patiently(all_of_them)

    async def _read_by(self, i: int, count: int, tenant: str, function: Callable[[epath.Path], T]) -> T:
        found: T = await self._once(i, count, "read", range(i, self._partitions, count), tenant, function)
        return found

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does something again while a partition changes hands, which has changed nothing."""
        ends = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await work()
            except StaleError:
                if asyncio.get_running_loop().time() > ends:
                    raise
            self._owners = None
            await asyncio.sleep(0.05)

    async def _once(self, place: int, count: int, method: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """What a method of an owner returns, of so many owners; StaleError where there are others now."""
        owners = await self._known()
        if len(owners.handles) != count:
            raise StaleError("the partitions of an owner", 1.0)
        try:
            return await asyncio.wait_for(owners.handles[place].call(method, *arguments), seconds)
        except BusyError:
            raise ApiError(429, "found too many requests waiting, expected fewer") from None
        except (TimeoutError, LostError):
            self._owners = None
            with contextlib.suppress(Exception):  # such as that of a new owner that cannot load
                await asyncio.wait_for(self._directory.call("lost", owners.generation, place), ANSWER_SECONDS)
            words = "an owner was lost, and nobody knows what became of the request: send it again, with its "
            raise ApiError(504, words + "Idempotency-Key") from None
