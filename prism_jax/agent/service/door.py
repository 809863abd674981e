"""How the routes reach the agents and what they have written, where this process has the whole store; and who listens.

Offers are server-sent events: what was made behind the last one that was seen, and what is made from now on.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from etils import epath

from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.service.agents import DECIDE, SHARE, Agents, Asked, expire, folder_of
from prism_jax.agent.service.http import Served
from prism_jax.agent.service.turns import Threads
from prism_jax.agent.state.durable import Again, Events
from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.reading import MOST_RECORDS, Cursor, CursorError, Logged, newest, read_log

T = TypeVar("T")
STEP, KEPT_ALIVE = 1.0, 15.0
"""Seconds after which a stream of offers looks whether the server stops, and after which it says that it is there, and
among several servers looks everywhere."""


class Door(Served[Asked, Any]):
    """Asks the agents, and reads beside them; StateError where a file cannot be read.

    Attributes:
      is_alone: Whether all that is written goes through this door, so that it tells of every offer.
      heavy: For each tenant, the turn of what reads much.
      on_offer: Told of the tenant, stream and person of an offer when it is kept, also where who asked has gone.
    """

    is_alone = True

    def __init__(self, load: Callable[[], Agents] | None, folder: epath.PathLike, waiting: int = 1) -> None:
        """Of `load`, as of `Served`; `folder` has the stores, and at most `waiting` wait."""

        def loaded() -> Agents:
            assert load is not None
            agents = load()
            agents.metrics = self.metrics
            self._agents = agents
            return agents

        super().__init__(load and loaded, waiting)
        self._folder, self._threads = epath.Path(folder), Threads()
        self.on_offer: Callable[[str, str, str | None], None] = lambda *_: None
        self.heavy: collections.defaultdict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)

    def start(self) -> None:
        """See `Served.start`."""
        self._loop = asyncio.get_running_loop()
        super().start()

    def partition(self, tenant: str, key: str) -> int:
        """The partition of a tenant where a person, or a stream of nobody, is."""
        return self._agents.partition(tenant, key)

    async def expire(self, tenant: str, number: int, seconds: float | None, share: float = SHARE) -> None:
        """Deletes what is older in a partition; see `prism_jax.agent.service.agents.expire`."""
        await self.do(Asked(tenant, DECIDE, expire(number, seconds, share)))

    async def read_log(self, tenant: str, cursor: Cursor, most: int, **conditions: Any) -> tuple[list[Logged], Cursor]:
        """See `prism_jax.agent.state.reading.read_log`."""
        return await self._threads.run(tenant, read_log, folder_of(self._folder, tenant), cursor, most, **conditions)

    async def newest(self, tenant: str) -> Cursor:
        """See `prism_jax.agent.state.reading.newest`."""
        return await self._threads.run(tenant, newest, folder_of(self._folder, tenant))

    async def read(self, tenant: str, place: str | int, function: Callable[[epath.Path], T]) -> T:
        """What a function of the folder of a tenant's store reads of a person, or of a partition by its number."""
        return await self._threads.run(tenant, function, folder_of(self._folder, tenant))

    def _answer(self, items: Sequence[Asked]) -> Sequence[Any]:
        answers = super()._answer(items)
        self._loop.call_soon_threadsafe(self._count, items, answers)
        return answers

    def _count(self, items: Sequence[Asked], answers: Sequence[Any]) -> None:
        """Counts decisions and outcomes that are new, and tells of offers."""
        for item, answer in zip(items, answers, strict=True):
            if not isinstance(item.request, Events | OfferOutcome) or isinstance(answer, Again | Exception):
                continue
            for one in answer:
                if "outcome" in one:
                    self.metrics.outcomes.labels(one["outcome"]).inc()
                    continue
                self.metrics.decisions.labels(item.agent, str(one["speak"]).lower()).inc()
                if one["speak"]:
                    self.on_offer(item.tenant, one["stream"], one["person"])


class _Listener:
    """Who listens, and the partitions where something may be new for them; None is all."""

    def __init__(self, person: str | None) -> None:
        self.person, self.change = person, asyncio.Event()
        self.places: set[int] | None = None

    def add(self, place: int | None) -> None:
        self.places = None if place is None or self.places is None else self.places | {place}
        self.change.set()

    def take(self) -> set[int] | None:
        self.change.clear()
        places, self.places = self.places, set()
        return places


class News:
    """Tells who listens where something new is."""

    def __init__(self, door: Door) -> None:
        self._door, door.on_offer = door, self.come
        self._listeners: collections.defaultdict[str, list[_Listener]] = collections.defaultdict(list)

    def listening(self, tenant: str) -> int:
        """How many listen to the offers of a tenant."""
        return len(self._listeners[tenant])

    def come(self, tenant: str, stream: str | None = None, person: str | None = None) -> None:
        """There is a new offer in a stream of a tenant, and of a person or nobody; without a stream, maybe anywhere."""
        place = None if stream is None else self._door.partition(tenant, stream if person is None else person)
        for one in self._listeners[tenant]:
            if one.person in (None, person) or place is None:
                one.add(place)

    async def sent(self, cursor: Cursor, tenant: str, person: str | None) -> AsyncIterator[bytes]:
        """Offers as server-sent events, whose ids are the cursors behind them, until the server stops."""
        own, clock = _Listener(person), asyncio.get_running_loop().time
        self._listeners[tenant].append(own)
        ends = clock() + KEPT_ALIVE
        try:
            yield f"id: {cursor}\n\n".encode()
            while not self._door.is_stopping():
                places = own.take()
                found: list[Logged] = []
                if places is None or places:
                    conditions = {"person": person, "offers": True, "partitions": places}
                    found, behind = await self._door.read_log(tenant, cursor, MOST_RECORDS, **conditions)
                    for one in found:
                        cursor = cursor.behind(one)
                        yield f"id: {cursor}\nevent: offer\ndata: {json.dumps(one.answer)}\n\n".encode()
                    cursor = behind
                if len(found) == MOST_RECORDS:  # there may be more
                    for place in places or [None]:
                        own.add(place)
                while not (own.change.is_set() or self._door.is_stopping() or clock() >= ends):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(own.change.wait(), STEP)
                if clock() >= ends:
                    ends = clock() + KEPT_ALIVE
                    if not self._door.is_alone:
                        own.add(None)  # others may have made offers
                yield f"id: {cursor}\n\n".encode()  # and says that it is there
        except (StateError, CursorError):  # who listens asks again, from the last id on, and is told why
            return
        finally:
            self._listeners[tenant].remove(own)
