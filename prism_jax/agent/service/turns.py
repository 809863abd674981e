"""Requests of many callers in turns: a bounded queue before the one thread that owns the model, and threads beside."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")


class BusyError(Exception):
    """As many requests wait as may wait."""


class Turns(Generic[Q, A]):
    """Gives what waits to a function, as many items at once as it takes, and each answer to who asked.

    Callers take turns, and where no more may wait, the newest of the caller with most of them makes room for one with
    fewer. It belongs to the event loop on which it is made, and runs between `start` and `stop`.
    """

    def __init__(self, answer: Callable[[Sequence[Q]], Sequence[A | Exception]], *, most: int, waiting: int) -> None:
        """Of `answer`, which one thread calls with at most `most` items; at most `waiting` wait."""
        self._answer, self._most, self._waiting = answer, most, waiting
        self._queues: dict[str, collections.deque[tuple[Q, asyncio.Future[A]]]] = {}  # whose turn is next comes first
        self._come = asyncio.Event()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "model")
        self._task: asyncio.Task[None] | None = None

    def start(self, before: Callable[[], None] = lambda: None) -> None:
        """Calls `before` on the thread, and then begins to take turns."""
        self._task = asyncio.create_task(self._run(before))

    async def stop(self) -> None:
        """Ends after the batch that is being answered; who still waits gets BusyError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for queue in self._queues.values():
            _settle([answer for _, answer in queue], [BusyError()] * len(queue))
        self._queues.clear()
        self._thread.shutdown(wait=False)

    async def ask(self, item: Q, caller: str = "") -> A:
        """The answer to an item; BusyError where too many wait, ValueError where the function returns one for it."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if sum(map(len, self._queues.values())) >= self._waiting:
            self._make_room(caller)
        self._queues.setdefault(caller, collections.deque()).append((item, answer))
        self._come.set()
        return await answer

    def _make_room(self, caller: str) -> None:
        for name, queue in list(self._queues.items()):  # who has gone takes nobody's place
            self._queues[name] = collections.deque(one for one in queue if not one[1].done())
        if sum(map(len, self._queues.values())) < self._waiting:
            return
        longest = max(self._queues.values(), key=len)
        if len(self._queues.get(caller, ())) + 1 >= len(longest):
            raise BusyError
        _settle([longest.pop()[1]], [BusyError()])

    def _next(self) -> list[tuple[Q, asyncio.Future[A]]]:
        """A batch of what waits, in which callers had turns; those of one caller stand together, in their order."""
        batch: dict[str, list[tuple[Q, asyncio.Future[A]]]] = {}
        for _ in range(self._most):
            if not self._queues:
                break
            caller, queue = next(iter(self._queues.items()))
            batch.setdefault(caller, []).extend([queue.popleft()] if queue else [])
            del self._queues[caller]
            if queue:
                self._queues[caller] = queue
        return [one for own in batch.values() for one in own if not one[1].done()]

    async def _run(self, before: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, before)
        while True:
            batch = self._next()
            if not batch:
                self._come.clear()
                if not self._queues:
                    await self._come.wait()
                continue
            work = loop.run_in_executor(self._thread, self._answer, [item for item, _ in batch])
            found: Sequence[A | Exception]
            try:
                found = await asyncio.shield(work)
            except asyncio.CancelledError:
                done = (await asyncio.gather(work, return_exceptions=True))[0]
                found = [RuntimeError("stopped")] * len(batch) if isinstance(done, BaseException) else done
                _settle([answer for _, answer in batch], found)
                raise
            except Exception as error:
                found = [RuntimeError(f"{type(error).__name__} while answering")] * len(batch)
                loop.call_exception_handler({"message": "a batch was not answered", "exception": error})
            _settle([answer for _, answer in batch], found)


class Threads:
    """Runs what blocks, for each caller on threads of their own, so that none waits for another's."""

    def __init__(self, most: int = 4) -> None:
        """At most so many for each."""
        self._limits = collections.defaultdict[str, anyio.CapacityLimiter](lambda: anyio.CapacityLimiter(most))

    async def run(self, caller: str, function: Callable[..., T], *values: Any, **options: Any) -> T:
        """What a function returns."""
        work = functools.partial(function, *values, **options)
        return await anyio.to_thread.run_sync(work, limiter=self._limits[caller])


def _settle(answers: Sequence[asyncio.Future[A]], found: Sequence[A | Exception]) -> None:
    for answer, value in zip(answers, found, strict=True):
        if answer.done():  # its caller has gone
            continue
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)
