"""Offers as server-sent events: what was made behind the last one that was seen, and what is made from now on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.reading import MOST_RECORDS, Cursor
from prism_jax.service.door import Door

STEP, KEPT_ALIVE = 1.0, 15.0
"""Seconds after which a stream of offers looks whether the server stops, and after which it says that it is there."""
MOST_LISTENERS = 64
"""Most who listen for offers at once."""


class News:
    """Wakes who waits for something new, from any thread."""

    def __init__(self) -> None:
        self.listening = 0  # how many wait now
        self._next: dict[str, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Wakes on the event loop that runs."""
        self._loop = asyncio.get_running_loop()

    def next(self, tenant: str) -> asyncio.Event:
        """What is set when there is something new for a tenant."""
        return self._next.setdefault(tenant, asyncio.Event())

    def come(self, tenant: str) -> None:
        """There is something new for a tenant."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, tenant)

    def _wake(self, tenant: str) -> None:
        self._next.pop(tenant, asyncio.Event()).set()


async def sent(door: Door, cursor: Cursor, tenant: str, person: str | None, news: News) -> AsyncIterator[bytes]:
    """Offers as server-sent events, whose ids are the cursors behind them, until the server stops."""
    news.listening += 1
    try:
        yield f"id: {cursor}\n\n".encode()
        while not door.is_stopping():
            change = news.next(tenant)  # before what is there is read, so that none is missed
            found, behind = await door.read_log(tenant, cursor, MOST_RECORDS, person=person, offers=True)
            for one in found:
                cursor = cursor.behind(one)
                yield f"id: {cursor}\nevent: offer\ndata: {json.dumps(one.answer)}\n\n".encode()
            cursor = behind
            waited = 0.0
            while not (len(found) == MOST_RECORDS or change.is_set() or door.is_stopping() or waited >= KEPT_ALIVE):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(change.wait(), STEP)
                waited += STEP
            yield f"id: {cursor}\n\n".encode()  # and says that it is there
    except StateError:  # who listens asks again, from the last id on
        return
    finally:
        news.listening -= 1
