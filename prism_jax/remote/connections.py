"""The connections to one endpoint, and single attempts over them: what chat models and other routes have in common."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from prism_jax.remote import failures
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.pacing import Limiter, Retries

if TYPE_CHECKING:
    import httpx2
    import openai


def key_of(endpoint: EndpointConfig) -> str:
    """The API key of an endpoint; empty if it needs none. ValueError if the environment lacks the variable."""
    key = os.environ.get(endpoint.key, "") if endpoint.key else ""
    if endpoint.key and not key:
        raise ValueError(f"key: found no environment variable {endpoint.key}, expected it to hold the API key")
    return key


class Connections:
    """The connections to an endpoint from one event loop, with its turns, limits and retries."""

    def __init__(self, endpoint: EndpointConfig, key: str) -> None:
        import httpx2
        import openai

        from prism_jax.remote.transport import BoundedClient

        self._endpoint, self._key, self._response = endpoint, key, httpx2.Response
        self.client = BoundedClient()
        # Without a key, the SDK would take the one that is meant for OpenAI from the environment.
        self._sdk: openai.AsyncOpenAI = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=endpoint.base_url,
            timeout=endpoint.timeout,
            max_retries=0,
            http_client=self.client,
        )
        self._sdk.organization = self._sdk.project = None
        self.turns = asyncio.Semaphore(endpoint.concurrency)
        self.limiter = Limiter(endpoint)
        self.retries = Retries(endpoint)
        self.closing = self._closing()

    async def exchange(
        self, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """One attempt: posts JSON, or gets what is at the path where there is no content.

        Raises:
          TransientError, RejectedError, EndpointError: what an attempt can end in.
        """
        sent = headers or {}
        try:
            async with asyncio.timeout(self._endpoint.timeout):  # the SDK's own ends silence only, not trickling
                if content is None:
                    return await self._sdk.get(path, cast_to=self._response, options={"headers": sent})
                return await self._sdk.post(path, cast_to=self._response, content=content, options={"headers": sent})
        except TimeoutError:
            raise failures.TransientError(f"timed out after {self._endpoint.timeout:g} s", billed=True) from None
        except Exception as error:  # whatever a server makes the SDK raise fails this request, and not the job
            failure = failures.of_exchange(error, self._key)
            after = getattr(failure, "after", None)
            if after is not None and after <= self._endpoint.patience:
                self.limiter.pause(after)
            raise failure from None

    async def _closing(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                await self._sdk.close()


class JsonEndpoint:
    """An endpoint that answers JSON with JSON, asked until it answers or its patience ends."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        """Opens nothing yet; ValueError if the environment lacks the variable of the API key."""
        self.endpoint = endpoint
        self._connections = ConnectionsOfLoop(endpoint, key_of(endpoint))
        self._newest: Connections | None = None
        self._failed = 0

    @property
    def breaks(self) -> int:
        """How often a connection was opened or an attempt failed, but for 429: another server may answer since."""
        return self._failed + (self._newest.client.opened if self._newest else 0)

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Posts a body, or gets what is at the path where there is none, as `exchange`; returns the answer's JSON."""
        self._newest = connections = await self._connections.open()
        content = None if body is None else json.dumps(body).encode()

        async def attempt() -> Any:
            try:
                response = await connections.exchange(path, content, {"Content-Type": "application/json"})
            except failures.TransientError as failure:
                self._failed += not failure.words.startswith("HTTP 429")
                raise
            except failures.EndpointError as failure:
                raise failures.EndpointError(f"{path}: {failure}") from None
            try:
                return json.loads(response.content)
            except (ValueError, RecursionError):
                raise failures.TransientError("the server's response is no JSON", billed=True, garbled=True) from None

        async def failed(failure: failures.TransientError) -> None:
            """Nothing is kept of an attempt that failed."""

        async with connections.turns:
            return await connections.retries.run(attempt, failed)


class ConnectionsOfLoop:
    """The connections of whichever event loop runs; `asyncio.run` closes them at its end."""

    def __init__(self, endpoint: EndpointConfig, key: str) -> None:
        self._endpoint, self._key = endpoint, key
        self._own: tuple[asyncio.AbstractEventLoop, Connections] | None = None

    async def open(self) -> Connections:
        """The connections of the running event loop, made when it first asks."""
        loop = asyncio.get_running_loop()
        if self._own is None or self._own[0] is not loop:
            connections = Connections(self._endpoint, self._key)
            # An event loop closes the generators that are open when it ends, and with this one the connections.
            await anext(connections.closing)
            self._own = loop, connections
        return self._own[1]
