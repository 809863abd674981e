"""Asks one endpoint: from the cache, or over HTTP within the budget and the limits, with retries.

The order of events is what makes a job resumable: redact, hash, look up, reserve and record, send, store, return.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from prism_jax.remote import failures
from prism_jax.remote.cache import Cache
from prism_jax.remote.connections import Connections, ConnectionsOfLoop, key_of
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.prices import price_of
from prism_jax.remote.requests import Answer, Asked, Prepared, TokenLimits
from prism_jax.remote.tally import Tally
from prism_jax.runtime.personal_data import in_prompt

T = TypeVar("T")
POLL, LONGEST_POLL = 0.02, 1.0
"""Seconds between the first and the later looks at what another request holds: the same answer, or the budget."""
EXPECTED_BYTES = 4
"""Bytes of a body per prompt token, for estimates; English text has about four. Every token has at least one."""


class Client:
    """One endpoint with its limits. Usable from one event loop at a time; `asyncio.run` closes its connections.

    The clients of a job share its cache and its tally. With `redact`, personal data is cut from messages. With `dry`,
    nothing is sent and costs are only estimated; answers from the cache are given all the same. Raises ValueError if
    the price is unknown, the model costs money and the cache has no budget, or the environment lacks the variable of
    the API key.
    """

    def __init__(
        self, endpoint: EndpointConfig, cache: Cache, tally: Tally, *, redact: bool = True, dry: bool = False
    ) -> None:
        self.endpoint, self.cache, self.tally, self.dry = endpoint, cache, tally, dry
        self.price = tally.prices[endpoint.model] = price_of(endpoint)
        # The system message is the same in every request, so the newest texts are kept as they were cleaned.
        self._clean = functools.lru_cache(maxsize=64)(in_prompt) if redact else str
        if not dry and not cache.budget and (self.price.input or self.price.output):
            raise ValueError(
                f"input_price: found a price of {self.price.input} and {self.price.output} USD per million tokens of "
                f"{endpoint.model} and a budget of 0, expected remote.budget, the most USD that {cache.path} may spend"
            )
        self._connections = ConnectionsOfLoop(endpoint, "" if dry else key_of(endpoint))

    async def ask(self, request: Asked, *, deadline: float | None = None) -> Answer:
        """The answer to a request; one that was answered before costs nothing.

        Where the endpoint is down or limits the rate for longer than its patience, rejects the request, or the model
        gives no text, the answer's `error` says so; and where there is none within so many seconds of its turn.

        Raises:
          BudgetSpent: if the request could pass the budget.
          EndpointError: if the endpoint refuses every request.
        """
        prepared = request.prepared(self.endpoint, self._clean)
        self.tally.requests += 1
        if stored := self.cache.get(prepared.key):
            return self._from_cache(stored)
        if self.dry:
            return self._estimate(prepared)
        connections = await self._connections.open()
        async with connections.turns:
            ends = None if deadline is None else asyncio.get_running_loop().time() + deadline
            try:
                async with asyncio.timeout_at(ends):
                    claim = await self._claim(prepared)
            except TimeoutError:
                words = f"sent nothing within {deadline:g} s: another request is the same, or holds the budget"
                self.tally.count_failure(words)
                return Answer(None, words, self.endpoint.model, prepared.key)
            return self._from_cache(claim) if claim else await self._send(prepared, connections, ends)

    def _from_cache(self, answer: Answer) -> Answer:
        self.tally.cached += 1
        return self._counted(answer)

    def _counted(self, answer: Answer) -> Answer:
        self.tally.count_failure(answer.error)
        self.tally.count_name(f"{self.endpoint.model} at {self.endpoint.base_url}", answer.model)
        return answer

    def _worst(self, prepared: Prepared) -> float:
        """The most that one attempt can cost: a token per byte of the body, and the longest answer."""
        return self.price.of(*self._most(prepared))

    def _most(self, prepared: Prepared) -> TokenLimits:
        return prepared.most or TokenLimits(len(prepared.content), self.endpoint.max_tokens)

    def _estimate(self, prepared: Prepared) -> Answer:
        """Counts what a request would cost, in place of sending it."""
        prompt = len(prepared.content) // EXPECTED_BYTES
        self.tally.prompt_tokens += prompt
        self.tally.completion_tokens += self.endpoint.max_tokens
        self.tally.cost += self.price.of(prompt, self.endpoint.max_tokens)
        self.tally.worst += self._worst(prepared)
        return Answer(None, "dry run: nothing was sent", self.endpoint.model, prepared.key)

    async def _claim(self, prepared: Prepared) -> Answer | None:
        """Records the request as sent; returns its answer if another has stored it by now."""
        worst = self._worst(prepared)
        async for claim in _polls(lambda: self.cache.claim(prepared.key, worst, self.endpoint.idempotent)):
            if not claim.wait:
                self.tally.resent += claim.resent
                return claim.answer
        raise AssertionError("looks do not end")

    async def _send(self, prepared: Prepared, connections: Connections, ends: float | None) -> Answer:
        """Sends a request that was claimed, with retries, and stores its answer."""
        started = time.monotonic()

        async def attempt() -> Answer:
            return await self._attempt(prepared, connections, started)

        async def failed(failure: failures.TransientError) -> None:
            await self._lost(prepared, failure)

        try:
            async with asyncio.timeout_at(ends):
                answer = await connections.retries.run(attempt, failed)
        except TimeoutError:
            self.cache.settle(prepared.key, None, billed=True)
            words = f"gave up after {time.monotonic() - started:.0f} s, at the deadline"
        except failures.TransientError as failure:
            self.cache.settle(prepared.key, None, billed=failure.billed)
            words = f"gave up after {time.monotonic() - started:.0f} s: {failure.words}"
        except failures.RejectedError as failure:
            self.cache.settle(prepared.key, None, billed=False)
            words = f"the endpoint rejects the request: {failure}"
        except failures.EndpointError as failure:
            self.cache.settle(prepared.key, None, billed=False)
            self.tally.count_failure(str(failure))
            missing = str(failure).startswith("HTTP 404")
            hint = f"; the address to state ends before {prepared.path}, mostly with /v1" if missing else ""
            raise failures.EndpointError(f"{self.endpoint.base_url}{prepared.path}: {failure}{hint}") from None
        except BaseException:  # such as Ctrl-C: the request stays recorded as sent
            self.cache.drop(prepared.key)
            raise
        else:
            self.cache.settle(prepared.key, answer)
            self.tally.prompt_tokens += answer.prompt_tokens
            self.tally.completion_tokens += answer.completion_tokens
            self.tally.cost += answer.cost
            return self._counted(answer)
        self.tally.count_failure(words)
        return Answer(None, words, self.endpoint.model, prepared.key, seconds=time.monotonic() - started)

    async def _lost(self, prepared: Prepared, failure: failures.TransientError) -> None:
        """Makes room for another attempt after one that failed."""
        self.tally.retried += 1
        if failure.billed and not self.endpoint.idempotent:
            async for room in _polls(lambda: self.cache.lose(prepared.key)):
                if room:
                    return

    async def _attempt(self, prepared: Prepared, connections: Connections, started: float) -> Answer:
        place = await connections.limiter.room(len(prepared.content) // EXPECTED_BYTES + self.endpoint.max_tokens)
        headers = {"Content-Type": "application/json", "Idempotency-Key": prepared.key}
        if prepared.anew:
            headers["Cache-Control"] = "no-cache"
        response = await connections.exchange(prepared.path, prepared.content, headers)
        seconds = time.monotonic() - started
        answer = prepared.read(response.content, prepared.key, self.price, self._most(prepared), seconds)
        connections.limiter.correct(place, answer.prompt_tokens + answer.completion_tokens)
        return answer


async def _polls(poll: Callable[[], T]) -> AsyncIterator[T]:
    """Yields what `poll` finds, again and again, less and less often."""
    wait = POLL
    while True:
        yield poll()
        await asyncio.sleep(wait)
        wait = min(1.5 * wait, LONGEST_POLL)
