"""When an attempt is sent: within the limits per minute; and when it is repeated: after waits, while patience lasts."""

from __future__ import annotations

import asyncio
import collections
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import tenacity
from absl import logging

from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import TransientError


class Limiter:
    """Delays attempts so that no window of time holds more requests or tokens than allowed.

    The clock gives seconds that never run backwards, and `sleep` waits for so many of them.
    """

    def __init__(
        self,
        endpoint: EndpointConfig,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        share = endpoint.window / 60
        self._requests = endpoint.requests_per_minute * share
        self._tokens = endpoint.tokens_per_minute * share
        self._window, self._clock, self._sleep = endpoint.window, clock, sleep
        self._sent: collections.deque[Place] = collections.deque()
        self._sum = 0
        self._open = clock()
        self._turn = asyncio.Lock()

    async def room(self, tokens: int) -> Place:
        """Waits until an attempt may be sent, in the order of the calls; returns its place, for `correct`.

        An attempt that may take more tokens than a window allows waits for an empty one.
        """
        if not (self._requests or self._tokens) and self._open <= self._clock():
            return Place(0.0, tokens)
        async with self._turn:
            while (wait := self._wait(tokens)) > 0:
                await self._sleep(wait)
            place = Place(self._clock(), tokens)
            if self._requests or self._tokens:
                self._sent.append(place)
                self._sum += tokens
            return place

    def correct(self, place: Place, tokens: int) -> None:
        """Replaces the tokens that were expected by those that the server counted."""
        if place.counted:
            self._sum += tokens - place.tokens
        place.tokens = tokens

    def pause(self, seconds: float) -> None:
        """Sends nothing for so many seconds, because the endpoint asked for it."""
        self._open = max(self._open, self._clock() + seconds)

    def _wait(self, tokens: int) -> float:
        """Seconds until the next attempt may be tried; 0 if it may be sent now."""
        now = self._clock()
        while self._sent and self._sent[0].time + self._window <= now:
            expired = self._sent.popleft()
            expired.counted = False
            self._sum -= expired.tokens
        if now < self._open:
            return self._open - now
        requests_full = self._requests and len(self._sent) + 1 > max(1, self._requests)
        tokens_full = self._tokens and self._sent and self._sum + tokens > self._tokens
        return max(self._sent[0].time + self._window - now, 1e-3) if requests_full or tokens_full else 0.0


class Place:
    """One attempt in the window: when it was sent, and the tokens it takes."""

    __slots__ = ("counted", "time", "tokens")

    def __init__(self, time: float, tokens: int) -> None:
        self.time, self.tokens, self.counted = time, tokens, True


T = TypeVar("T")
GARBLED = 4
"""Most attempts at a request to which the server answers with something that is no completion; each may be billed."""
MOST_BACKOFF = 64.0
"""Longest wait between attempts, as a multiple of the first."""


class Retries:
    """Repeats failed attempts at one endpoint.

    Once a request has exhausted the patience without any success of others meanwhile, others try once only, until one
    succeeds: an endpoint that is gone costs a job its patience once, and not once per request.
    """

    def __init__(self, endpoint: EndpointConfig) -> None:
        self._name = f"{endpoint.model} at {endpoint.base_url}"
        self._trouble = False
        self._patience, self._backoff = endpoint.patience, endpoint.backoff
        self._gone, self._success = False, 0.0

    async def run(self, attempt: Callable[[], Awaitable[T]], failed: Callable[[TransientError], Awaitable[None]]) -> T:
        """Awaits `attempt` until it succeeds, and `failed` before each wait for another attempt.

        Raises TransientError: the last failure, when patience ends.
        """
        garbled = 0

        def stop(state: tenacity.RetryCallState) -> bool:
            nonlocal garbled
            garbled += _failure(state).garbled
            late = (state.seconds_since_start or 0.0) + state.upcoming_sleep > self._patience
            self._gone = self._gone or (late and self._success < state.start_time)
            return self._gone or late or garbled >= GARBLED

        async def before_sleep(state: tenacity.RetryCallState) -> None:
            self._warn(_failure(state))
            await failed(_failure(state))

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            wait=self._wait,
            stop=stop,
            before_sleep=before_sleep,
            reraise=True,
        )
        result: T = await retrying(attempt)
        self._gone, self._trouble, self._success = False, False, time.monotonic()
        return result

    def _warn(self, failure: TransientError) -> None:
        """Says once that the endpoint is in trouble, until it answers again; a user may have mistyped its address."""
        if not self._trouble and failure.after is None:
            logging.warning("%s: %s; retrying for up to %g s", self._name, failure.words, self._patience)
        self._trouble = True

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Doubling from the backoff on, or as long as the server asks if that is longer; random, to spread requests."""
        doubled = 2.0 ** min(state.attempt_number - 1, 10)  # far above `MOST_BACKOFF`, and below every overflow
        ordinary = self._backoff * min(doubled, MOST_BACKOFF) * random.uniform(0.5, 1.0)
        return max(ordinary, (_failure(state).after or 0.0) * random.uniform(1.0, 1.1))


def _failure(state: tenacity.RetryCallState) -> TransientError:
    """The failure of the attempt before."""
    failure = state.outcome.exception() if state.outcome else None
    assert isinstance(failure, TransientError)
    return failure
