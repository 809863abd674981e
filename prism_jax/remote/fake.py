"""A fake endpoint: a real HTTP server on loopback that answers as it is told and fails on purpose, repeatably."""

from __future__ import annotations

import asyncio
import collections
import hashlib
import http
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prism_jax.remote.structured import FEEDBACK

NEWEST = 10_000
"""Attempts that the log of a server keeps."""
Brain = Callable[[dict[str, Any]], str]


@dataclass(frozen=True)
class Faults:
    """What goes wrong, as shares of the arrivals; drawn from the seed, the request's hash and its arrival number."""

    seed: int = 0  # seed of the draws
    delay: float = 0.0  # seconds before each answer
    trickle: float = 0.0  # seconds between the bytes of a response; 0 sends it at once
    limited: float = 0.0  # share that is answered 429
    retry_after: float = 0.01  # seconds that a 429 asks to wait
    unavailable: float = 0.0  # share that is answered 503
    status: int = 0  # what every request is answered, instead of a completion; 0 is none
    malformed: float = 0.0  # share of answers whose text is no JSON
    ignores_schema: float = 0.0  # share of answers that are JSON, but of another schema
    truncated: float = 0.0  # share of answers that are cut short
    renamed: float = 0.0  # share of answers that name a model of their own
    garbled: float = 0.0  # share of responses whose body is no JSON at all
    # ranges (first, end) of arrivals, counted from 0, whose connection is closed without a response
    down: tuple[tuple[int, int], ...] = ()


def question(body: dict[str, Any]) -> str:
    """The last message of the user in a request's body that is no feedback on an answer."""
    contents = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return next((text for text in reversed(contents) if not text.startswith(FEEDBACK)), "")


class FakeEndpoint:
    """Serves chat completions on 127.0.0.1 while the block runs; port 0 is a free one.

    The brain gets a request's JSON body and returns the text of the completion. The faults may be replaced while the
    server runs.
    """

    def __init__(self, brain: Brain, faults: Faults | None = None, port: int = 0) -> None:
        self.brain, self.faults = brain, faults or Faults()
        # of the newest attempts: seconds at the arrival, request hash, HTTP status (0 if the connection was closed)
        self.log: collections.deque[tuple[float, str, int]] = collections.deque(maxlen=NEWEST)
        self.headers: collections.deque[dict[str, str]] = collections.deque(maxlen=NEWEST)
        self.most_at_once = self._now = 0  # attempts that were under way at the same time
        # arrivals, failed ones included; completions sent; and those computed, for each `Idempotency-Key` once
        self.received: collections.Counter[str] = collections.Counter()
        self.answered: collections.Counter[str] = collections.Counter()
        self.billed: collections.Counter[str] = collections.Counter()
        self._port = port
        self._answers: dict[str, bytes] = {}
        self._loop = asyncio.new_event_loop()

    @property
    def url(self) -> str:
        """The base URL to configure."""
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> FakeEndpoint:
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self._port))
        self._port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake endpoint", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                response = await self._answer(lines[0], headers, content)
                if response is None:
                    return
                step = 1 if self.faults.trickle else len(response)
                for start in range(0, len(response), step):
                    writer.write(response[start : start + step])
                    await writer.drain()
                    await asyncio.sleep(self.faults.trickle)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the server ends
        finally:
            writer.close()

    async def _answer(self, start: str, headers: dict[str, str], content: bytes) -> bytes | None:
        """The response to one request, which it logs; None to close the connection."""
        if not start.startswith("POST /v1/chat/completions "):
            return _response(404, {"error": {"message": "no such path"}})
        arrived, key = time.monotonic(), hashlib.sha256(content).hexdigest()
        self.headers.append(headers)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            response = await self._respond(key, headers, content)
        finally:
            self._now -= 1
        self.log.append((arrived, key, int(response.split(b" ", 2)[1]) if response else 0))
        return response

    async def _respond(self, key: str, headers: dict[str, str], content: bytes) -> bytes | None:
        """The response that the faults leave."""
        arrival, repetition = self.received.total(), self.received[key]
        self.received[key] += 1
        faults = self.faults
        if any(first <= arrival < end for first, end in faults.down):
            return None
        if faults.delay:
            await asyncio.sleep(faults.delay)
        if self._draw("limited", key, repetition) < faults.limited:
            after = {"Retry-After": str(faults.retry_after)}
            return _response(429, {"error": {"message": "too many requests"}}, after)
        if faults.status or self._draw("unavailable", key, repetition) < faults.unavailable:
            message = f"as configured, for {headers.get('authorization', '')}"  # servers do quote keys
            return _response(faults.status or 503, {"error": {"message": message}})
        once = headers.get("idempotency-key", "")
        answer = self._answers.get(once)
        if answer is None:
            self.billed[key] += 1
            try:
                answer = self._complete(json.loads(content), key, repetition)
            except Exception as error:  # the brain is any function, and its error a reply of the server
                return _response(500, {"error": {"message": f"the brain raised {error!r}"}})
            if once:
                self._answers[once] = answer
        self.answered[key] += 1
        return _response(200, "a proxy's page") if self._draw("garbled", key, repetition) < faults.garbled else answer

    def _complete(self, body: dict[str, Any], key: str, repetition: int) -> bytes:
        """A completion with the brain's text, or with what the faults make of it."""
        text, finish = self.brain(body), "stop"
        if self._draw("ignores_schema", key, repetition) < self.faults.ignores_schema:
            text = json.dumps({"note": "this server ignores schemas"})
        if self._draw("malformed", key, repetition) < self.faults.malformed:
            text = f"Sure! {text[: len(text) // 2]}, and so on"
        if self._draw("truncated", key, repetition) < self.faults.truncated:
            text, finish = text[: len(text) // 2], "length"
        prompt = sum(len(message["content"]) for message in body["messages"]) // 4
        usage = {"prompt_tokens": prompt, "completion_tokens": len(text) // 4 + 1}
        usage["total_tokens"] = sum(usage.values())
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        completion = {"id": f"chatcmpl-{key[:16]}", "object": "chat.completion", "created": 0}
        model = f"{key:.8}" if self._draw("renamed", key, repetition) < self.faults.renamed else body["model"]
        return _response(200, completion | {"model": model, "choices": [choice], "usage": usage})

    def _draw(self, kind: str, key: str, repetition: int) -> float:
        """A number in [0, 1) that only the seed and the arguments decide."""
        drawn = hashlib.sha256(f"{self.faults.seed} {kind} {key} {repetition}".encode()).digest()
        return int.from_bytes(drawn[:7], "big") / 2**56


def _response(status: int, body: Any, headers: dict[str, str] | None = None) -> bytes:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/html" if isinstance(body, str) else "application/json"
    lines = [
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
    ]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content
