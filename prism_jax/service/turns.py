"""Requests of many callers in batches: a bounded queue before the one thread that owns the model."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class BusyError(Exception):
    """As many requests wait as may wait."""


class Turns(Generic[Q, A]):
    """Gives what waits to a function, as many items at once as it takes, and each answer to who asked.

    It belongs to the event loop on which it is made, and runs between `start` and `stop`.
    """

    def __init__(self, answer: Callable[[Sequence[Q]], Sequence[A | Exception]], *, most: int, waiting: int) -> None:
        """Of `answer`, which one thread calls with at most `most` items; at most `waiting` wait."""
        self._answer, self._most = answer, most
        self._queue: asyncio.Queue[tuple[Q, asyncio.Future[A]]] = asyncio.Queue(waiting)
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
        while not self._queue.empty():
            _settle([self._queue.get_nowait()[1]], [BusyError()])
        self._thread.shutdown(wait=False)

    async def ask(self, item: Q) -> A:
        """The answer to an item; BusyError where too many wait, ValueError where the function returns one for it."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if self._queue.full():  # who has gone takes nobody's place
            waiting = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
            for one in waiting:
                if not one[1].cancelled():
                    self._queue.put_nowait(one)
        try:
            self._queue.put_nowait((item, answer))
        except asyncio.QueueFull:
            raise BusyError from None
        return await answer

    async def _run(self, before: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, before)
        while True:
            batch = [await self._queue.get()]
            while len(batch) < self._most and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            batch = [(item, answer) for item, answer in batch if not answer.cancelled()]
            if not batch:
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


def _settle(answers: Sequence[asyncio.Future[A]], found: Sequence[A | Exception]) -> None:
    for answer, value in zip(answers, found, strict=True):
        if answer.done():  # its caller has gone
            continue
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)
