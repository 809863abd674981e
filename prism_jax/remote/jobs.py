"""A job: its endpoints share cache, budget and counts; its items are worked on at once, in order, in flat memory."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from prism_jax.remote.cache import Cache
from prism_jax.remote.client import Client
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.tally import Tally
from prism_jax.runtime.shown_text import bar_seconds


class Clients(NamedTuple):
    """The clients of a job by the names of their sections, and its counts."""

    by_name: dict[str, Client]
    tally: Tally


@contextlib.contextmanager
def open_clients(
    config: RemoteConfig, endpoints: Mapping[str, EndpointConfig], *, dry_run: bool = False
) -> Iterator[Clients]:
    """Opens the cache and a client per endpoint.

    With `dry_run` nothing is sent: each request that the cache does not answer only adds to the estimate in the tally,
    and gets an answer with an error. Raises ValueError if an endpoint cannot be used; the message names its section.
    """
    tally = Tally(dry=dry_run)
    with Cache(config.cache, config.budget) as cache:
        by_name = {}
        for name, endpoint in endpoints.items():
            try:
                by_name[name] = Client(endpoint, cache, tally, redact=config.redact, dry=dry_run)
            except ValueError as error:
                raise ValueError(f"{name}.{error}") from None
        yield Clients(by_name, tally)


I = TypeVar("I")  # noqa: E741 -- the type of an item
R = TypeVar("R")

AHEAD = 4
"""Items that may be started before the oldest one is done, as a multiple of `at_once`."""
GRACE = 120.0
"""Seconds that work under way gets to end after an interruption: what was sent is paid, so its answer is awaited."""


def work_through(
    items: Iterable[I],
    work: Callable[[I], Awaitable[R]],
    *,
    at_once: int,
    total: int | None = None,
    label: str = "",
    tally: Tally | None = None,
) -> Iterator[R]:
    """Yields `work(item)` for every item, in order.

    An error of `work` is raised at its item's place. After it, or an interruption, no further item is started, and
    what is under way is awaited. Items are read as needed, and at most `at_once` of them are worked on at the same
    time, in the event loop of another thread. Without a label there is no progress bar.
    """
    with (
        _loop_in_a_thread() as loop,
        tqdm(total=total, desc=label or None, disable=not label, mininterval=bar_seconds()) as bar,
    ):
        turns = asyncio.Semaphore(at_once)
        stopped = threading.Event()

        async def work_on(item: I) -> R:
            async with turns:
                if stopped.is_set():
                    raise asyncio.CancelledError
                return await work(item)

        pending: collections.deque[concurrent.futures.Future[R]] = collections.deque()
        try:
            for item in items:
                pending.append(asyncio.run_coroutine_threadsafe(work_on(item), loop))
                if len(pending) >= AHEAD * at_once:
                    yield _shown(_oldest(pending), bar, tally)
            while pending:
                yield _shown(_oldest(pending), bar, tally)
        finally:
            stopped.set()
            if not (tally and tally.dry) and not all(future.done() for future in pending):
                tqdm.write("waiting for answers to what was sent; Ctrl-C leaves them", file=sys.stderr)
            concurrent.futures.wait(pending, timeout=GRACE)


async def all_of(work: Iterable[Awaitable[R]]) -> list[R]:
    """Results in their order; an error is raised once the others are awaited too, since what was sent is paid."""
    done = await asyncio.gather(*work, return_exceptions=True)
    if failed := next((one for one in done if isinstance(one, BaseException)), None):
        raise failed
    return [one for one in done if not isinstance(one, BaseException)]


def _oldest(pending: collections.deque[concurrent.futures.Future[R]]) -> R:
    """Awaits the oldest and removes it; one whose awaiting is interrupted stays, to be awaited in the end."""
    concurrent.futures.wait([pending[0]])
    return pending.popleft().result()


def _shown(result: R, bar: tqdm, tally: Tally | None) -> R:
    bar.update()
    if tally is not None:
        bar.set_postfix_str(f"{tally.cost:.2f} USD, {tally.failed} failed, {tally.cached} cached", refresh=False)
    return result


@contextlib.contextmanager
def _loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own; ends its tasks and generators as `asyncio.run` does."""
    runner = asyncio.Runner()
    loop = runner.get_loop()
    thread = threading.Thread(target=loop.run_forever, name="remote", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        runner.close()
