"""When an attempt is repeated: as the server asks, or after growing waits, for as long as the endpoint's patience."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import tenacity
from absl import logging

from prism_jax.remote.config import EndpointConfig
from prism_jax.remote.failures import TransientError

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

        Raises:
          TransientError: the last failure, when patience ends.
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
        """As long as the server asks, or doubling from the backoff on; random, so that requests do not come at once."""
        after = _failure(state).after
        if after is not None:
            return after * random.uniform(1.0, 1.1)
        doubled = 2.0 ** min(state.attempt_number - 1, 10)  # far above `MOST_BACKOFF`, and below every overflow
        return self._backoff * min(doubled, MOST_BACKOFF) * random.uniform(0.5, 1.0)


def _failure(state: tenacity.RetryCallState) -> TransientError:
    """The failure of the attempt before."""
    failure = state.outcome.exception() if state.outcome else None
    assert isinstance(failure, TransientError)
    return failure
