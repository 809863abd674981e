"""Connections over HTTP/1.1, and what a client may send or leave unread before the application knows of it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import fastapi
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from prism_jax.agent.service.http import problem
from prism_jax.runtime.files import allow_files

MOST_HEAD = 2**16
"""Most bytes of what stands before a body or behind it; cursors are the longest part of a head."""
MOST_LINES, MOST_CHUNKS, SMALL_CHUNK = 256, 2**11, 2**9
"""Most lines of a head, and most chunks of a body with fewer bytes, each of which costs as much time as many bytes."""
_SLICE = 2**12
HEAD_SECONDS = 10.0
"""Until the head of a request ends."""
STALL_SECONDS, STOP_SECONDS = 15.0, 2.0
"""A client that takes nothing of an answer for so long is cut off, and while the server stops, one that has not taken
all of it by then."""
MOST_CONNECTIONS = 4096


def make_config(app: fastapi.FastAPI, **settings: Any) -> uvicorn.Config:
    """How uvicorn serves an application; its own settings go first."""
    own: dict[str, Any] = {"http": Connection, "ws": "none", "lifespan": "on", "access_log": False}
    own |= {"log_config": None, "log_level": "error"}  # nobody fills a log with requests that are none
    return uvicorn.Config(app, **(own | settings))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; ValueError, naming the flags, where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"--host, --port: {host}:{port}: {error.strerror or error}") from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # of Linux; what is accepted has it, too
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * STALL_SECONDS))
    return listening


class _Counting(h11.Connection):
    """Counts the small chunks of a request's body."""

    chunks = _size = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = 0
        elif isinstance(event, h11.Data):  # a part of a chunk, or of a body that has none
            self._size = len(event.data) + (0 if event.chunk_start else self._size)
            self.chunks += event.chunk_end and self._size < SMALL_CHUNK
        return event


class Connection(H11Protocol):
    """A connection with bounds; where there are too many, the half that waits longest for its client is closed.

    h11 reads a head in time that is linear in its length; httptools joins a long header anew with every packet.
    """

    def connection_made(self, transport: Any) -> None:  # noqa: D102  that of uvloop is none of asyncio's
        if len(self.connections) >= min(MOST_CONNECTIONS, allow_files() // 4):
            without = h11.IDLE, h11.SEND_BODY, h11.ERROR  # a whole request that is being answered
            own = [one for one in self.connections if isinstance(one, Connection)]
            waiting = [one for one in own if one.conn.their_state in without]
            for one in sorted(waiting, key=lambda one: one.since)[: len(waiting) // 2 + 1]:
                one.transport.abort()
        super().connection_made(transport)
        self.conn: _Counting = _Counting(h11.SERVER, MOST_HEAD)
        self.since, self._lines, self._rest, self._is_deaf = self.loop.time(), 0, b"", False
        self._head: asyncio.TimerHandle | None = self.loop.call_later(HEAD_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:  # noqa: D102
        if self.conn.their_state is h11.IDLE and self._head is None:
            self.since = self.loop.time()
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        for begin in range(0, len(data), _SLICE):  # h11 looks at the size of what has not ended alone
            part = data[begin : begin + _SLICE]
            if self.conn.their_state is h11.DONE:  # the next request waits until this one is answered
                self._rest += data[begin:]
                self.flow.pause_reading()
                break
            if self.conn.their_state is h11.IDLE:
                self._lines += part.partition(b"\r\n\r\n")[0].count(b"\n")
            if self._lines > MOST_LINES:
                self.send_400_response(f"found more than {MOST_LINES} lines, expected fewer")
            elif self.conn.chunks > MOST_CHUNKS:
                self.send_400_response(f"found more than {MOST_CHUNKS} small chunks of a body, expected fewer")
            if self._is_deaf:
                return
            super().data_received(part)
            if self.conn.their_state is not h11.IDLE:
                self._lines = 0
        if self.conn.their_state is not h11.IDLE and self._head is not None:
            self._head.cancel()
            self._head = None

    def on_response_complete(self) -> None:  # noqa: D102
        super().on_response_complete()
        if self._rest and not self.transport.is_closing():
            rest, self._rest = self._rest, b""
            self.data_received(rest)

    def send_400_response(self, msg: str) -> None:  # noqa: D102
        if self._is_deaf or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what is being answered has no whole request
            self.cycle.message_event.set()
        self._is_deaf = True
        body = bytes(problem(400, msg).body)
        headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", str(len(body)))]
        try:
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer has begun
            return self.transport.abort()
        self.flow.pause_reading()  # an end with something unread would take the answer away
        self.transport.write_eof()
        self.loop.call_later(STOP_SECONDS, self.transport.abort)

    def shutdown(self) -> None:  # noqa: D102
        super().shutdown()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(STOP_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        super().connection_lost(exc)
        if self._head is not None:
            self._head.cancel()
