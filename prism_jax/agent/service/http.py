"""What every server here has in common: who may ask, limits, health, and errors in one shape."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import fastapi
import fastapi.exceptions
import prometheus_client
import starlette.exceptions
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prism_jax import __version__
from prism_jax.agent.service.encoded import EncodingError, decoded, decoded_body, route_path
from prism_jax.agent.service.form import ErrorBody, FormError
from prism_jax.agent.service.tokens import Tokens
from prism_jax.agent.service.turns import BusyError, Turns

Q = TypeVar("Q")
A = TypeVar("A")
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BATCH = 16
"""Most requests that are answered together: the largest batch that the live reader compiles for."""
_MEMBERS = ("str", "input_text", "input_json")
"""Where pydantic says which member of a union it tried."""
MOST_LISTENERS = 64
"""Most who listen to the offers of a tenant at once."""
ELSEWHERE = 2**14
"""Most bytes of a request outside of /v1, where nobody has said yet who they are."""
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}


OTHER_ROUTES = (
    "one of /openapi.json: `python -m prism_jax serve --state=DIR` has streams, /v1/decide, outcomes, records, people "
    "and /me; with --model or --decisions there are /v1/decisions, /v1/systemone and /v1/models"
)
"""What is said where there is no such route."""


class Limits(NamedTuple):
    """What the server takes."""

    body: int = 2**20  # bytes of a request
    seconds: float = 30.0  # that a body may take to arrive
    waiting: int = 256  # requests that may wait


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(status, message, param, code)  # with which another process makes it anew
        self.status, self.message, self.param, self.code = status, message, param, code

    def __str__(self) -> str:
        return self.message


class Metrics:
    """What a server counts, for Prometheus; no name of anybody is a label."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        own = self._registry
        self.requests = prometheus_client.Counter("prism_requests", "Requests.", ["route", "status"], registry=own)
        self.seconds = prometheus_client.Histogram(
            "prism_request_seconds", "Until an answer begins.", ["route"], registry=own
        )
        self.decisions = prometheus_client.Counter("prism_decisions", "Decisions.", ["agent", "speak"], registry=own)
        self.outcomes = prometheus_client.Counter("prism_outcomes", "Outcomes of offers.", ["outcome"], registry=own)
        self.alarms = prometheus_client.Counter("prism_alarms", "People whose alarm has rung.", registry=own)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request by its route, which has no name of anybody in it."""
        route = getattr(scope.get("route"), "path", "none")
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All of it, in Prometheus' form."""
        return prometheus_client.generate_latest(self._registry)


@runtime_checkable
class Answers(Protocol[Q_contra, A_co]):
    """What answers, when it is loaded; one thread calls it."""

    def answer(self, items: Sequence[Q_contra]) -> Sequence[A_co | Exception]:
        """The answer to each item, in their order."""

    def close(self) -> None:
        """Ends."""


class Served(Generic[Q, A]):
    """What answers, from when it is loaded until it is stopped, and who waits for it."""

    def __init__(self, load: Callable[[], Answers[Q, A]] | None, waiting: int = 1) -> None:
        """Of `load`, which is called on the thread that then answers, or None where others answer; `waiting` wait."""
        self._load, self._waiting = load, waiting
        self._answers: Answers[Q, A] | None = None
        self.metrics = Metrics()
        self.failure: Exception | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_start: Callable[[], None] = lambda: None
        self.is_stopping: Callable[[], bool] = lambda: False

    def start(self) -> None:
        """Begins to load."""
        self.on_start()
        if self._load is None:
            return self.on_ready()
        self._turns: Turns[Q, A] = Turns(self._answer, most=BATCH, waiting=self._waiting)
        self._turns.start(before=self._loaded)

    async def stop(self) -> None:
        """Answers what is being answered, and ends."""
        if self._load is not None:
            await self._turns.stop()
        if self._answers is not None:
            self._answers.close()

    @property
    def is_ready(self) -> bool:
        """Whether everything is loaded."""
        return self._load is None or self._answers is not None

    def check_ready(self) -> None:
        """Raises ApiError 503 until everything is loaded."""
        if not self.is_ready:
            raise ApiError(503, "the model is not loaded yet")

    async def ask(self, item: Q, request: fastapi.Request) -> A:
        """The answer to an item in its turn, unless who asks has closed the connection; they then wait no longer."""
        self.check_ready()
        answer = asyncio.ensure_future(self.do(item, request.state.tenant))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ApiError(499, "the caller has gone")
            return answer.result()
        except BusyError:
            raise ApiError(429, "found too many requests waiting, expected fewer") from None
        finally:
            for task in (answer, gone):
                task.cancel()

    async def do(self, item: Q, caller: str = "") -> A:
        """The answer to an item in its caller's turn; BusyError where too many wait."""
        self.check_ready()
        return await self._turns.ask(item, caller)

    def _loaded(self) -> None:
        assert self._load is not None
        try:
            self._answers = self._load()
            self.on_ready()
        except Exception as error:
            self.failure = error
            self.on_failure()

    def _answer(self, items: Sequence[Q]) -> Sequence[A | Exception]:
        assert self._answers is not None
        return self._answers.answer(items)


async def _gone(request: fastapi.Request) -> None:
    """Returns when who asks has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_base(served: Served[Any, Any], tokens: Tokens, limits: Limits) -> fastapi.FastAPI:
    """An application with the routes of health alone, which starts and stops what answers.

    Without tokens it answers requests to loopback names alone.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        served.start()
        yield
        await served.stop()

    app = fastapi.FastAPI(
        title="prism_jax",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # pages with scripts of others, which would stand beside the page of a person
        redoc_url=None,
    )
    app.state.prism = served
    app.add_middleware(_Guard, limits=limits, tokens=tokens, metrics=served.metrics)
    if not tokens:
        # A page in a browser could else ask a server on this machine, under a name of its own.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK[:2], "[::1]"])

    @app.get("/healthz")
    async def alive() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "ok"}

    @app.get("/metrics", include_in_schema=False)
    async def measured() -> fastapi.Response:
        """Counts and times, for Prometheus."""
        return fastapi.Response(served.metrics.text(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.get("/readyz", responses={503: {"model": ErrorBody}})
    async def ready() -> dict[str, str]:
        """Whether the model and its state are loaded."""
        served.check_ready()
        return {"status": "ready"}

    @app.exception_handler(ApiError)
    async def api_error(_: fastapi.Request, error: ApiError) -> fastapi.responses.JSONResponse:
        return problem(error.status, error.message, error.param, error.code)

    @app.exception_handler(FormError)
    async def form_error(_: fastapi.Request, error: FormError) -> fastapi.responses.JSONResponse:
        return problem(422, str(error), error.param)

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    async def no_request(request: fastapi.Request, error: fastapi.exceptions.RequestValidationError):
        # Of the errors of a union's members, that of the member that fits best: it is the deepest, or the last.
        deepest = max(error.errors(), key=lambda one: len(one["loc"]) - (one["type"] == "string_type"))
        kind = request.headers.get("content-type", "none")
        if deepest["loc"][0] == "body" and "json" not in kind:  # as of curl, which says that it sends a form
            return problem(422, f"Content-Type: found {kind!r:.80}, expected application/json", "body")
        parts = [str(part) for part in deepest["loc"] if part not in _MEMBERS and "[" not in str(part)]
        place = ".".join(parts[1:]) or "body"
        return problem(422, f"{place}: {deepest['msg']}", place)

    @app.exception_handler(starlette.exceptions.HTTPException)
    async def no_route(_: fastapi.Request, error: starlette.exceptions.HTTPException):
        words = f"found no such route, expected {OTHER_ROUTES}" if error.status_code == 404 else str(error.detail)
        return problem(error.status_code, words, headers=error.headers)

    @app.exception_handler(Exception)
    async def fault(_: fastapi.Request, error: Exception):
        return problem(500, f"{type(error).__name__} in the server")

    return app


class _Guard:
    """Names the caller, and refuses who has no token before a body is read, and bodies too long or too slow."""

    def __init__(self, app: ASGIApp, limits: Limits, tokens: Tokens, metrics: Metrics) -> None:
        self._app, self._limits, self._tokens, self._metrics = app, limits, tokens, metrics
        self._at_once, self._under_way = limits.waiting + MOST_LISTENERS, collections.Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        name, began, has_begun = secrets.token_hex(8), time.monotonic(), False

        async def named(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._metrics.answered(scope, message["status"], time.monotonic() - began)
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            await send(message)

        try:
            most = self._most_of(scope)
            body = _decoded(scope, await self._body(receive, most), most)
        except ApiError as error:
            answer = problem(error.status, error.message, None, error.code, {"connection": "close"})
            return await answer(scope, receive, named)
        if body is None:
            return None
        waiting = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def read() -> Message:
            return next(waiting, None) or await receive()

        tenant = scope.get("state", {}).get("tenant", "")
        if self._under_way[tenant] >= self._at_once:
            words = f"found {self._at_once} requests of yours under way, expected fewer"
            return await problem(429, words)(scope, receive, named)
        self._under_way[tenant] += 1
        try:
            return await self._app(scope, read, named)
        except asyncio.CancelledError:  # the server stops, and waits no longer
            return None if has_begun else await problem(503, "the server stops")(scope, receive, named)
        except Exception:  # of which the answer is made outside
            self._metrics.answered(scope, 500, time.monotonic() - began)
            raise
        finally:
            self._under_way[tenant] -= 1

    def _most_of(self, scope: Scope) -> int:
        """Most bytes of a request's body, after who asks and for what is settled; ApiError where that is refused."""
        headers = dict(scope["headers"])
        if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:  # a gateway may have read the other one
            raise ApiError(400, "Authorization: found it twice, expected it once")
        if {b"content-length", b"transfer-encoding"} <= headers.keys():
            raise ApiError(400, "Transfer-Encoding: found it beside Content-Length, expected one of them")
        try:
            scope["path"] = route_path(scope["raw_path"])
            decoded(scope["query_string"])
        except ValueError as error:
            raise ApiError(400, str(error)) from None
        if not scope["path"].startswith("/v1/"):
            return min(self._limits.body, ELSEWHERE)
        if (caller := self._tokens.caller(headers.get(b"authorization", b""))) is None:
            found = "no valid bearer token" if b"authorization" in headers else "none"
            raise ApiError(401, f"Authorization: found {found}, expected a bearer token", code="invalid_api_key")
        if (lacking := caller.lacks(scope["method"], scope["path"])) is not None:
            words = f"found a token without the scope {lacking}, expected one with it (--token_file)"
            if lacking == "all":
                words = "found a path that no scope has, expected one of /openapi.json"
            raise ApiError(403, f"Authorization: {words}", code="insufficient_scope")
        scope.setdefault("state", {}).update(caller=caller.name, tenant=caller.tenant)
        if not self._tokens and scope["method"] not in ("GET", "HEAD") and _is_foreign(headers):
            words = "Origin: found a page of another site, expected none: a server without tokens takes no writes of it"
            raise ApiError(403, words)
        return self._limits.body

    async def _body(self, receive: Receive, most: int) -> bytes | None:
        """The body of a request, all of it; None where who asks has gone, ApiError for one too long or too slow."""
        parts, size, more, ends = [], 0, True, time.monotonic() + self._limits.seconds
        while more:
            try:
                message = await asyncio.wait_for(receive(), ends - time.monotonic())
            except TimeoutError:
                raise ApiError(408, f"body: found no end within {self._limits.seconds:g} s, expected one") from None
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            _check_size(size, most)
        return b"".join(parts)


def _decoded(scope: Scope, body: bytes | None, most: int) -> bytes | None:
    """The body of a request without its Content-Encoding; ApiError for one that is too long or cannot be decoded."""
    encodings = [value.decode("latin-1") for name, value in scope["headers"] if name == b"content-encoding"]
    if body is None or not encodings:
        return body
    try:
        content = decoded_body(body, ", ".join(encodings), most)
    except EncodingError as error:
        raise ApiError(415, f"Content-Encoding: {error}") from None
    except ValueError as error:
        raise ApiError(400, f"body: found it not in its Content-Encoding ({error}), expected it so") from None
    _check_size(len(content), most)
    return content


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ApiError(413, f"body: found more than {most} bytes, expected at most as many")


def _is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a page of another site asks, as browsers say; other programs say nothing of it."""
    origin = headers.get(b"origin")
    own = (b"http://" + headers.get(b"host", b""), b"https://" + headers.get(b"host", b""))
    return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin") or origin not in (None, *own)


def problem(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> fastapi.responses.JSONResponse:
    """An answer that is an error, in the API's shape."""
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    more = {"retry-after": "1"} if status in (429, 503) else {}
    return fastapi.responses.JSONResponse(body, status, headers={**more, **(headers or {})})
