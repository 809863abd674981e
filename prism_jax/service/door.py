"""How the routes reach the agents and what they have written, where this process has the whole store."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from etils import epath

from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.state.durable import Again, Events
from prism_jax.agent.state.reading import Cursor, Logged, newest, read_log
from prism_jax.service.agents import DECIDE, SHARE, Agents, Asked, expire, folder_of
from prism_jax.service.http import Served
from prism_jax.service.turns import Threads

T = TypeVar("T")


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
        """Deletes what is older in a partition; see `prism_jax.service.agents.expire`."""
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
