"""A client of the server with state, on the standard library alone.

    from prism_jax.agent.adapters.client import Client

    client = Client("http://localhost:8000")
    answer = client.ask("chat", "Shall I run the tests?", p_need=0.9, p_accept=0.7, person="ada", key="call-17")
    if answer.speak:
        print("Shall I run the tests?")
        client.outcome("chat", answer.offer, "accepted")

A server that cannot answer never raises into the host: `otherwise` decides, and the reason says so. What the server
refuses is a mistake of the caller and raises `ClientError`; adapters withhold instead, and find it when they are made.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import socket
import threading
import time as clock
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TEMPORARY = (408, 429)
"""Statuses below 500 after which the same request can succeed later."""
MOST_TEXT = 100_000
"""Characters of a text that are sent."""
BACKWARDS = "events are in time order"
"""What the server says where another caller's later event came first."""
MOST_TRIES, PAUSE = 20, 0.002
"""How often an event whose time is the client's own is sent with a new one, and the seconds by which pauses grow."""


class ClientError(ValueError):
    """The server refused a request, or is no such server; the message has status, what was found and expected."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class OutageError(Exception):
    """The server gave no answer, or cannot answer now."""


class Wire:
    """Posts to a server, each time on a connection of its own, so that threads may share it."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        """Connects to nothing yet; an answer may take `timeout` seconds. Raises ValueError for a URL that is none."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: found {url!r:.80}, expected http://HOST:PORT or https://HOST:PORT")
        connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connect = lambda: connection(parts.hostname or "", parts.port, timeout=timeout)
        self._path, self._seconds = parts.path.rstrip("/"), timeout
        self._headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}".encode()

    def post(self, path: str, body: Mapping[str, Any] | list[Any], headers: dict[str, str]) -> Any:
        """The answer; OutageError where there is none, ClientError where the request is refused."""
        connection = self._connect()
        sent = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")  # escapes would be far longer
        try:
            connection.connect()
            with _within(self._seconds, connection.sock):
                connection.request("POST", self._path + path, sent, {**self._headers, **headers})
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise OutageError(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if status >= 500 or status in TEMPORARY:
            raise OutageError(f"status {status}")
        try:
            found = json.loads(content)
            refusal = None if status == 200 else found["error"]["message"]
        except (ValueError, KeyError, TypeError):
            refusal = "found no answer of a server with state"
        if refusal is not None:
            raise ClientError(f"{self._path}{path}: status {status}: {refusal}", status)
        return found


@contextlib.contextmanager
def _within(seconds: float, connected: socket.socket) -> Iterator[None]:
    """TimeoutError after so many seconds; a connection's own limit is for each byte, and an answer may trickle."""
    late = threading.Event()

    def cut_off() -> None:
        late.set()
        with contextlib.suppress(OSError):  # it has ended
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # that of TLS would unwrap it under its reader

    timer = threading.Timer(seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError("timed out")


class Answer(NamedTuple):
    """Whether to speak, and why."""

    speak: bool
    reason: str
    p_need: float | None = None
    p_accept: float | None = None
    threshold: float | None = None  # the least p_accept at which the gate speaks
    response: Any = None  # what the model wrote for the offer
    offer: str | None = None  # what the outcome names; None for silence, and where the server gave no answer


SAME = Answer._fields[:-1]
"""Keys that the server's decision has, too."""


class Client:
    """A server with state, as who asks it sees it. Threads may share it."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 2.0, otherwise: str = "silent") -> None:
        """Connects to nothing yet; `timeout` is in seconds, `otherwise` decides where the server gives no answer."""
        if otherwise not in ("silent", "speak"):
            raise ValueError(f"otherwise: found {otherwise!r:.80}, expected 'silent' or 'speak'")
        self._wire, self._speaks = Wire(url, token, timeout), otherwise == "speak"

    def ask(
        self,
        stream: str,
        candidate: str | None = None,
        *,
        text: str = "",
        p_need: float = 1.0,
        p_accept: float | None = None,
        person: str | None = None,
        key: str | None = None,
        time: float | None = None,
    ) -> Answer:
        """Whether to say `candidate` now. With `p_accept` the numbers decide; without, the server reads `text`.

        `time` is in seconds and does not run backwards within a stream; None is now. The same `key` of a stream gets
        the same answer for seven days, even if text or numbers have changed meanwhile: give the id of the tool call.
        """
        body: dict[str, Any] = {"candidates": None if candidate is None else [as_text(candidate)], "person": person}
        if p_accept is None:
            path, body["text"] = f"/v1/streams/{as_path(stream)}/events", as_text(text)
        else:
            path, body = "/v1/decide", body | {"stream": stream, "p_need": p_need, "p_accept": [p_accept]}
        headers = {} if key is None else {"Idempotency-Key": as_key(key), "Prefer": "handling=lenient"}
        for number in range(MOST_TRIES):
            try:
                found = self._wire.post(path, body | {"time": clock.time() if time is None else time}, headers)
                return Answer._make([found[name] for name in SAME] + [found["id"] if found["speak"] else None])
            except OutageError as error:
                return self._stand_in(f"no answer of the server: {error}")
            except (KeyError, TypeError):
                raise ClientError("found an answer that is no decision, expected that of a server with state") from None
            except ClientError as error:
                if time is not None or BACKWARDS not in str(error):
                    raise
                clock.sleep(PAUSE * number)
        return self._stand_in("the last event of the stream is later than this machine's clock")

    def check(self, *, stated: bool) -> None:
        """Raises ClientError unless the server decides for this client: on numbers that are `stated`, or on texts.

        A server that gives no answer yet is taken for one that will. Nothing is decided, and nothing kept.
        """
        path = "/v1/decide" if stated else "/v1/streams/check/events"
        try:
            self._wire.post(path, [], {})  # which holds no event, so that a route that is there refuses it
        except OutageError:
            pass
        except ClientError as error:
            if error.status != 422:
                needs = "" if stated else " and --model, or numbers of your own (numbers=, p_accept=)"
                expected = f"expected one of `python -m prism_jax serve --state=DIR`{needs}"
                raise ClientError(f"{error}; {expected}" if error.status == 404 else str(error)) from None

    def answer_or_withhold(self, *asked: Any, **more: Any) -> Answer:
        """What `ask` answers, and silence with its reason for what the server refuses: a host goes on either way."""
        try:
            return self.ask(*asked, **more)
        except ClientError as error:
            return Answer(False, f"silent: the gate cannot decide: {error}")

    def outcome(self, stream: str, offer: str, outcome: str, time: float | None = None) -> bool:
        """Says what became of an offer: accepted, dismissed or ignored. Returns whether the server has it now."""
        body = {"stream": stream, "offer": offer, "outcome": outcome, "time": clock.time() if time is None else time}
        with contextlib.suppress(OutageError):
            return bool(self._wire.post("/v1/outcomes", body, {}))
        return False

    def _stand_in(self, why: str) -> Answer:
        return Answer(self._speaks, f"{'offer' if self._speaks else 'silent'}: {why}")


def as_text(text: str) -> str:
    """A text as the server takes it, which refuses half a surrogate pair, and the word null where words are meant."""
    text = text[:MOST_TEXT].encode("utf-8", "replace").decode()
    return json.dumps(text) if text.strip().lower() in ("", "null") else text


def as_path(name: str) -> str:
    """A name as a part of a path."""
    return urllib.parse.quote(name, safe="")


def stream_of(person: str | None, thread: str) -> str:
    """The stream of a person in a thread: a stream is one person's, and a thread may be of several."""
    return thread if person is None else f"{as_path(person)}/{thread}"


def as_key(key: str) -> str:
    """A key as a header can carry it: its hash where it is long or has other characters than ASCII."""
    fits = key.isascii() and key.isprintable() and key == key.strip() and 0 < len(key) <= 255
    return key if fits else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def message_of(arguments: Mapping[str, Any]) -> str:
    """What a tool call says: its only argument where that is a text, and otherwise all of them as JSON."""
    (first, *others) = arguments.values() or [""]
    return first if isinstance(first, str) and not others else json.dumps(arguments, ensure_ascii=False)


def define_server_flags(parser: argparse.ArgumentParser) -> None:
    """Defines the flags that name a server and its token."""
    parser.add_argument("--url", required=True, help="address of the server with state")
    parser.add_argument("--key", help="name of the environment variable that holds the bearer token")
    parser.add_argument("--token", help="the bearer token itself, which the list of processes shows to others")


def token_of(given: argparse.Namespace) -> str | None:
    """The token that these flags state; ValueError for two, or a variable that is not there."""
    if given.key is None:
        return given.token
    if given.token is not None:
        raise ValueError("--token: found it with --key, expected one of them")
    if not os.environ.get(given.key):
        raise ValueError(f"--key: found no environment variable {given.key!r:.80}, expected it to hold the token")
    return os.environ[given.key]
