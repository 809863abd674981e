"""Offers as server-sent events: what was made behind the last one that was seen, and what is made from now on."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
from collections.abc import AsyncIterator

from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.reading import MOST_RECORDS, Cursor, CursorError, Logged
from prism_jax.service.door import Door

STEP, KEPT_ALIVE = 1.0, 15.0
"""Seconds after which a stream of offers looks whether the server stops, and after which it says that it is there, and
among several servers looks everywhere."""


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
