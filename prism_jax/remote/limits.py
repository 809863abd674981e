"""Requests and tokens per minute of one endpoint, and the pauses that it asks for."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Awaitable, Callable

from prism_jax.remote.config import EndpointConfig


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
            gone = self._sent.popleft()
            gone.counted = False
            self._sum -= gone.tokens
        if now < self._open:
            return self._open - now
        many = self._requests and len(self._sent) + 1 > max(1, self._requests)
        much = self._tokens and self._sent and self._sum + tokens > self._tokens
        return max(self._sent[0].time + self._window - now, 1e-3) if many or much else 0.0


class Place:
    """One attempt in the window: when it was sent, and the tokens it takes."""

    __slots__ = ("counted", "time", "tokens")

    def __init__(self, time: float, tokens: int) -> None:
        self.time, self.tokens, self.counted = time, tokens, True
