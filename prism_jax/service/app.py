"""The HTTP side of `serve`: routes, who may ask, limits, and errors in the API's shape."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

import fastapi
import fastapi.exceptions
import starlette.exceptions
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prism_jax import __version__
from prism_jax.runtime.files import read_lines
from prism_jax.service.answering import Answering
from prism_jax.service.form import (
    Answered,
    Asked,
    Decision,
    DecisionsRequest,
    ErrorBody,
    FormError,
    asked_of,
    decision_of,
)
from prism_jax.service.turns import BusyError, Turns

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BATCH = 16
"""Most requests that are answered together: the largest batch that the live reader compiles for."""
_MEMBERS = ("str", "input_text", "input_json")
"""Where pydantic says which member of a union it tried."""
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}


class Limits(NamedTuple):
    """What the server takes."""

    body: int = 2**20  # bytes of a request
    seconds: float = 30.0  # that a body may take to arrive
    waiting: int = 256  # requests that may wait


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


class Tokens:
    """Bearer tokens, as their hashes alone."""

    def __init__(self, tokens: Sequence[str]) -> None:
        """Keeps the hashes; without tokens, everybody may ask."""
        self._hashes = [_hash(token) for token in tokens]

    @classmethod
    def read(cls, path: str) -> Tokens:
        """Reads a file with one token a line; ValueError for one without tokens, or with a blank inside of one."""
        expected = "bearer tokens, one a line"
        lines = [line.decode("utf-8", "surrogateescape").split() for _, line in read_lines(path, ValueError, expected)]
        tokens = [words[0] for words in lines if words]
        if not tokens or any(len(words) > 1 for words in lines):
            what = "a line of several words" if tokens else "no token"
            raise ValueError(f"{path}: found {what}, expected {expected}")
        return cls(tokens)

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def caller(self, header: str | None) -> str:
        """Names the caller by a hash; ApiError 401 where a token is needed and none of the right ones is there."""
        if not self._hashes:
            return ""
        scheme, _, token = (header or "").partition(" ")
        found = _hash(token.strip()) if scheme.lower() == "bearer" else b""
        if not any([hmac.compare_digest(found, own) for own in self._hashes]):  # all of them: no time tells which
            raise ApiError(401, "Authorization: found no valid bearer token, expected one", code="invalid_api_key")
        return found.hex()


def make_app(
    load: Callable[[], Answering], name: str, *, tokens: Tokens | None = None, limits: Limits | None = None
) -> fastapi.FastAPI:
    """The application; `load` is called on the model's thread when it starts, and `name` is the model's.

    Without tokens it answers requests to loopback names alone.
    """
    tokens, limits = tokens or Tokens(()), limits or Limits()
    state = _State(load, limits.waiting)

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        state.start()
        yield
        await state.stop()

    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody} for status in (401, 404, 413, 422, 429, 503)
    }
    app = fastapi.FastAPI(title="prism_jax", version=__version__, lifespan=lifespan)
    app.state.prism = state
    app.add_middleware(_Guard, most=limits.body, seconds=limits.seconds, tokens=tokens)
    if not tokens:
        # A page in a browser could else ask a server on this machine, under a name of its own.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK[:2], "[::1]"])

    @app.post("/v1/decisions", responses=errors)
    async def decide(body: DecisionsRequest, request: fastapi.Request) -> Decision:
        """The probabilities that help is needed, and that an offer would be accepted."""
        if body.model != name:
            raise ApiError(
                404, f"model: found {body.model!r:.80}, expected {name!r}", param="model", code="model_not_found"
            )
        asked = asked_of(body, request.state.caller)
        return decision_of(body, None if asked is None else await _unless_gone(request, state.ask(asked)))

    @app.get("/v1/models", responses={401: {"model": ErrorBody}})
    async def models() -> dict[str, object]:
        """The one model that answers here."""
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "prism_jax"}]}

    @app.get("/healthz")
    async def alive() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "ok"}

    @app.get("/readyz", responses={503: {"model": ErrorBody}})
    async def ready() -> dict[str, str]:
        """Whether the model is loaded."""
        state.check_ready()
        return {"status": "ready"}

    @app.exception_handler(ApiError)
    async def api_error(_: fastapi.Request, error: ApiError) -> fastapi.responses.JSONResponse:
        return _problem(error.status, error.message, error.param, error.code)

    @app.exception_handler(FormError)
    async def form_error(_: fastapi.Request, error: FormError) -> fastapi.responses.JSONResponse:
        return _problem(422, str(error), error.param)

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    async def no_request(_: fastapi.Request, error: fastapi.exceptions.RequestValidationError):
        # Of the errors of a union's members, that of the member that fits best: it is the deepest, or the last.
        deepest = max(error.errors(), key=lambda one: len(one["loc"]) - (one["type"] == "string_type"))
        parts = [str(part) for part in deepest["loc"] if part not in _MEMBERS and "[" not in str(part)]
        place = ".".join(parts[1:]) or "body"
        return _problem(422, f"{place}: {deepest['msg']}", place)

    @app.exception_handler(starlette.exceptions.HTTPException)
    async def no_route(_: fastapi.Request, error: starlette.exceptions.HTTPException):
        return _problem(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(Exception)
    async def fault(_: fastapi.Request, error: Exception):
        return _problem(500, f"{type(error).__name__} in the server")

    return app


class _State:
    """The model, once it is loaded, and who waits for it."""

    def __init__(self, load: Callable[[], Answering], waiting: int) -> None:
        self._load, self._waiting = load, waiting
        self._answering: Answering | None = None
        self.failure: Exception | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Loads the model, on the thread that then answers."""
        self._turns: Turns[Asked, Answered] = Turns(self._answer, most=BATCH, waiting=self._waiting)
        self._turns.start(before=self._loaded)

    async def stop(self) -> None:
        """Answers what is being answered, and ends."""
        await self._turns.stop()

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded."""
        return self._answering is not None

    def check_ready(self) -> None:
        """Raises ApiError 503 until the model is loaded."""
        if self._answering is None:
            raise ApiError(503, "the model is not loaded yet")

    async def ask(self, asked: Asked) -> Answered:
        """The answer to a request, in its turn."""
        self.check_ready()
        try:
            return await self._turns.ask(asked)
        except BusyError:
            raise ApiError(429, f"found {self._waiting} requests waiting, expected fewer") from None
        except ValueError as error:
            words = f"input exceeds the context window: {error}"
            raise ApiError(413, words, param="input", code="context_length_exceeded") from None

    def _loaded(self) -> None:
        try:
            self._answering = self._load()
        except Exception as error:
            self.failure = error
            self.on_failure()
        else:
            self.on_ready()

    def _answer(self, items: Sequence[Asked]) -> Sequence[Answered | Exception]:
        assert self._answering is not None
        return self._answering.answer(items)


async def _unless_gone(request: fastapi.Request, asking: Coroutine[Any, Any, Answered]) -> Answered:
    """The answer, unless who asks has closed the connection, who then waits no longer."""
    answer, gone = asyncio.ensure_future(asking), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ApiError(499, "the caller has gone")
        return answer.result()
    finally:
        for task in (answer, gone):
            task.cancel()


class _Guard:
    """Names the caller, and refuses who has no token before a body is read, and bodies too long or too slow."""

    def __init__(self, app: ASGIApp, most: int, seconds: float, tokens: Tokens) -> None:
        self._app, self._most, self._seconds, self._tokens = app, most, seconds, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        name = secrets.token_hex(8)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            await send(message)

        close = {"connection": "close"}
        if scope["path"].startswith("/v1/"):
            headers = dict(scope["headers"])
            try:
                caller = self._tokens.caller(headers.get(b"authorization", b"").decode("latin-1"))
            except ApiError as error:
                answer = _problem(error.status, error.message, None, error.code, close)
                return await answer(scope, receive, named)
            scope.setdefault("state", {})["caller"] = caller
        parts, size, more, ends = [], 0, True, time.monotonic() + self._seconds
        while more:
            try:
                message = await asyncio.wait_for(receive(), ends - time.monotonic())
            except TimeoutError:
                words = f"body: found no end within {self._seconds:g} s, expected one"
                return await _problem(408, words, headers=close)(scope, receive, named)
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self._most:
                words = f"body: found more than {self._most} bytes, expected at most as many"
                return await _problem(413, words, headers=close)(scope, receive, named)
        body = {"type": "http.request", "body": b"".join(parts), "more_body": False}
        waiting = iter([body])

        async def read() -> Message:
            return next(waiting, None) or await receive()

        return await self._app(scope, read, named)


def _problem(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> fastapi.responses.JSONResponse:
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    more = {"retry-after": "1"} if status in (429, 503) else {}
    return fastapi.responses.JSONResponse(body, status, headers={**more, **(headers or {})})


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
