"""One request to the server with state and its answer; `client.py` says what is asked."""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import urllib.parse
from collections.abc import Mapping
from typing import Any

TEMPORARY = (408, 429)
"""Statuses below 500 after which the same request can succeed later."""
MOST_TEXT = 100_000
"""Characters of a text that are sent."""


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
        """Connects to nothing yet; `timeout` is in seconds. Raises ValueError for a URL that is none."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: found {url!r:.80}, expected http://HOST:PORT or https://HOST:PORT")
        connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connect = lambda: connection(parts.hostname or "", parts.port, timeout=timeout)
        self._path = parts.path.rstrip("/")
        self._headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}".encode()

    def post(self, path: str, body: Mapping[str, Any] | list[Any], headers: dict[str, str]) -> Any:
        """The answer; OutageError where there is none, ClientError where the request is refused."""
        connection = self._connect()
        try:
            connection.request("POST", self._path + path, json.dumps(body).encode(), {**self._headers, **headers})
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
