"""The server with state: events in, decisions out, outcomes, records, and deletion, for one tenant or several.

Every tenant has a store of its own, so that another's streams, people and records do not exist for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import fastapi
from starlette.concurrency import run_in_threadpool

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.service.agents import DECIDE, EVENTS, QUESTIONS, SHARE, Asked, Visit, delete_stream, forget
from prism_jax.agent.service.app import add_questions
from prism_jax.agent.service.door import Door, News
from prism_jax.agent.service.form import ErrorBody
from prism_jax.agent.service.http import MOST_LISTENERS, ApiError, Limits, make_base, problem
from prism_jax.agent.service.person_page import PersonPage
from prism_jax.agent.service.requests import (
    CHECKED,
    check_finite,
    event_of,
    events_of,
    json_of,
    outcome_of,
    stated_of,
)
from prism_jax.agent.service.sessions import Ask
from prism_jax.agent.service.shadow import shadow_report, watched_of
from prism_jax.agent.service.tokens import Tokens
from prism_jax.agent.state.durable import ConflictError, Events
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.places import MOST_PARTITIONS
from prism_jax.agent.state.reading import MOST_RECORDS, Cursor, CursorError
from prism_jax.agent.state.schema import StateError
from prism_jax.agent.state.store import IncompleteError
from prism_jax.agent.steps import Observation

MOST_EVENTS = 1000
"""Most events of one request."""
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (401, 404, 408, 409, 413, 422, 429, 503, 504)
}


def make_state_app(
    door: Door,
    *,
    model: str | None = None,
    shadow: bool = False,
    keep_days: float | None = None,
    sweep_share: float = SHARE,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.time,
) -> fastapi.FastAPI:
    """The application in front of the agents that a door reaches.

    Without tokens it answers requests to loopback names alone. Without the name of a `model` it takes callers' numbers
    alone.
    With `shadow` the host decides, and the gate watches. Streams of which nothing came for `keep_days` are deleted,
    after a jump of the clock at most `sweep_share` of them.
    `clock` gives seconds since 1970, as that of the agents.
    """
    news, tokens = News(door), tokens or Tokens(())
    tasks: set[asyncio.Task[None]] = set()

    def begin() -> None:
        kept = None if keep_days is None else keep_days * 86400.0
        tasks.add(asyncio.create_task(_expire(door, tokens.tenants, kept, sweep_share)))

    door.on_start = begin
    app = make_base(door, tokens, limits or Limits())
    ask = functools.partial(_ask, door, news)
    page = PersonPage(door, tokens.tenants, ask, clock)
    app.include_router(_deciding(ask, reads_events=model is not None, shadow=shadow))
    if model is not None:
        add_questions(
            app, lambda asked, request: door.ask(Asked(request.state.tenant, QUESTIONS, asked), request), model
        )
    app.include_router(_reading(door, news))
    page.add_to(app)
    app.include_router(_people(ask, page))

    @app.exception_handler(StateError)
    async def unreadable(_: fastapi.Request, error: StateError) -> fastapi.responses.JSONResponse:
        print(error, file=sys.stderr, flush=True)
        return problem(503, f"the state cannot be read now ({_file_of(error)})")

    @app.exception_handler(CursorError)
    async def passed_by(_: fastapi.Request, error: CursorError) -> fastapi.responses.JSONResponse:
        return problem(422, str(error), "after")

    return app


async def _ask(
    door: Door, news: News, request: fastapi.Request, agent: str, item: Events | OfferOutcome | Visit
) -> Any:
    """What the agents of the request's tenant answer; ApiError for what they refuse."""
    try:
        return await door.ask(Asked(request.state.tenant, agent, item), request)
    except ApiError as error:
        if error.status == 504:  # an offer may have been made that nobody was told of
            news.come(request.state.tenant)
        raise
    except ConflictError as error:
        raise ApiError(409, str(error)) from None
    except RefusedError as error:
        raise ApiError(422, str(error)) from None
    except IncompleteError as error:
        left = ", ".join(error.left)
        words = f"streams that are deleted: {error.streams}; found files that cannot be searched now ({left})"
        raise ApiError(503, f"{words}, expected all; ask again to end it", code="incomplete") from None
    except (StaleError, StateError) as error:
        words = "nothing of the request was" if not isinstance(item, Visit) else "ask again to end what has begun"
        raise ApiError(503, f"the state cannot be changed now ({_file_of(error)}); {words}") from None


def _deciding(ask: Ask, *, reads_events: bool, shadow: bool) -> fastapi.APIRouter:
    """The routes of what is decided on, and of what became of offers."""
    router = fastapi.APIRouter(responses=ERRORS)

    def watched(item: Observation) -> Observation:
        return item._replace(spoke=True) if shadow and item.spoke is None else item

    @router.post("/v1/streams/{stream:name}/events")
    async def events(stream: str, request: fastapi.Request) -> Any:
        """Decides on an event (`time`, `text`; `candidates`, `costs`, `domain`, `person`), or on a list of them."""
        if not reads_events:
            raise ApiError(404, "found no model that reads events, expected callers' numbers (/v1/decide)")
        body = await request.body()
        value = json_of(body)
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= MOST_EVENTS:
            raise ApiError(422, f"body: found {len(values)} events, expected 1 to {MOST_EVENTS}")
        places = [f"body[{i}]" if value is values else "body" for i in range(len(values))]
        items = [watched(event_of(one, stream, place)) for one, place in zip(values, places, strict=True)]
        answers = await ask(request, EVENTS, events_of(items, request, body))
        return answers if value is values else answers[0]

    @router.delete("/v1/streams/{stream:name}", dependencies=CHECKED)
    async def remove(stream: str, request: fastapi.Request) -> dict[str, int]:
        """Deletes everything of a stream that names nobody, and says how many there were: 1 or 0."""
        return {"streams": await delete_stream(stream, functools.partial(ask, request, DECIDE))}

    @router.post("/v1/decide")
    async def decide(request: fastapi.Request) -> Any:
        """Decides on numbers that the caller states: `stream`, `time`, `p_need`, `p_accept`; `person`, `costs` ..."""
        body = await request.body()
        return (await ask(request, DECIDE, events_of([watched(stated_of(json_of(body)))], request, body)))[0]

    @router.post("/v1/outcomes")
    async def outcomes(request: fastapi.Request) -> Any:
        """Takes what became of an offer: `stream`, `offer`, `outcome`, `time`; `needed` where it was judged."""
        return (await ask(request, DECIDE, outcome_of(json_of(await request.body()))))[0]

    return router


def _reading(door: Door, news: News) -> fastapi.APIRouter:
    """The routes of what was decided."""

    async def ready() -> None:
        door.check_ready()

    router = fastapi.APIRouter(responses=ERRORS, dependencies=[fastapi.Depends(ready), *CHECKED])

    @router.get("/v1/records")
    async def records(
        request: fastapi.Request,
        after: str | None = None,
        limit: int = 100,
        stream: str | None = None,
        person: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> dict[str, Any]:
        """Records in the order of each stream, from the cursor `after` on; `next` is the cursor behind them."""
        check_finite(since=since, until=until)
        if not 1 <= limit <= MOST_RECORDS:
            raise ApiError(422, f"limit: found {limit}, expected 1 to {MOST_RECORDS}", param="limit")
        conditions = {"stream": stream, "person": person, "since": since, "until": until}
        found, cursor = await door.read_log(request.state.tenant, Cursor.read(after), limit, **conditions)
        return {"records": [one.record for one in found], "next": str(cursor)}

    @router.get("/v1/shadow")
    async def compared(request: fastapi.Request, since: float | None = None) -> dict[str, Any]:
        """What the gate would have saved or cost where it only watched, beside what the host did."""
        check_finite(since=since)
        tenant = request.state.tenant
        cursor, more, known = Cursor(), True, []
        async with door.heavy[tenant]:
            while more:
                found, cursor = await door.read_log(tenant, cursor, MOST_RECORDS, since=since)
                known += [watched_of(one.record) for one in found]
                more = len(found) == MOST_RECORDS
            return (await run_in_threadpool(shadow_report, known)).tree()

    @router.get("/v1/offers")
    async def offers(
        request: fastapi.Request, after: str | None = None, person: str | None = None
    ) -> fastapi.responses.StreamingResponse:
        """Offers as server-sent events as they are made, from now on or behind a cursor (`Last-Event-ID`, `after`)."""
        text = request.headers.get("last-event-id") or after
        newest = await door.newest(request.state.tenant)
        begin = Cursor.read(text).within(newest) if text else newest
        if (count := news.listening(request.state.tenant)) >= MOST_LISTENERS:
            raise ApiError(429, f"found {count} who listen for offers, expected fewer")
        lines = news.sent(begin, request.state.tenant, person)
        return fastapi.responses.StreamingResponse(lines, media_type="text/event-stream")

    return router


def _people(ask: Ask, page: PersonPage) -> fastapi.APIRouter:
    """The routes of what is kept of a person, for the host."""
    router = fastapi.APIRouter(prefix="/v1/people/{person:name}", responses=ERRORS, dependencies=CHECKED)

    @router.post("/link")
    async def link(person: str, request: fastapi.Request) -> dict[str, Any]:
        """Makes a link, for the host to give to a person, that opens their own page once within 15 minutes."""
        return await page.link(person, request)

    @router.delete("/link")
    async def unlink(person: str, request: fastapi.Request) -> dict[str, Any]:
        """Ends every link and session of a person."""
        return await page.unlink(person, request)

    @router.get("")
    async def kept(person: str, request: fastapi.Request) -> fastapi.Response:
        """What is kept of a person: preferences, what was learnt, counts, since when, events and records."""
        return fastapi.Response(await page.kept(person, request), media_type="application/json")

    @router.delete("")
    async def delete(person: str, request: fastapi.Request) -> dict[str, int]:
        """Deletes everything of a person, and says how many streams that were."""
        return {"streams": await ask(request, DECIDE, forget(person))}

    return router


def _file_of(error: Exception) -> str:
    """The name of the file with which what is wrong with a store begins."""
    return str(error).partition(": ")[0].rpartition("/")[2]


async def _expire(door: Door, tenants: Sequence[str], seconds: float | None, share: float) -> None:
    """Deletes old streams, one partition after the other: all of them within an hour."""
    for number in itertools.count(random.randrange(MOST_PARTITIONS)):  # whatever the time between two restarts
        await asyncio.sleep(3600.0 / MOST_PARTITIONS)
        for tenant in tenants:
            with contextlib.suppress(Exception):  # it is tried again; what is wrong with a store was reported
                await door.expire(tenant, number, seconds, share)
