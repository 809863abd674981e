"""The server with state: events in, decisions out, outcomes, records, and deletion, for one tenant or several.

Every tenant has a store of its own, so that another's streams, people and records do not exist for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import fastapi
from etils import epath
from starlette.concurrency import run_in_threadpool

from prism_jax.agent.exported import Exported
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.lines import LineError, parse_item
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.settings import AgentSettings
from prism_jax.agent.state.durable import Again, ConflictError, DurableAgent, Events
from prism_jax.agent.state.partition import StaleError, StateError
from prism_jax.agent.state.reading import Cursor, newest, read_log
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.stated_reader import StatedReader, stated_event
from prism_jax.agent.steps import MOST_NAME, Observation
from prism_jax.people.layer import Population
from prism_jax.runtime.files import JsonError, parse_json
from prism_jax.service.form import ErrorBody
from prism_jax.service.http import ApiError, Limits, Metrics, Served, Tokens, make_base
from prism_jax.service.namespaces import Namespace

MOST_EVENTS = 1000
"""Most events of one request."""
MOST_RECORDS = 1000
"""Most records of one answer."""
STEP, KEPT_ALIVE = 1.0, 15.0
"""Seconds after which a stream of offers looks whether the server stops, and after which it says that it is there."""
MOST_LISTENERS = 64
"""Most who listen for offers at once."""
UNREADABLE = "the state cannot be read now"
MOST_KEY = 255
"""Longest Idempotency-Key, in characters."""
LENIENT = "handling=lenient"
"""The header `Prefer` (RFC 7240) of who wants the first answer to a key, even where the body is another one now."""
EVENTS, DECIDE = "events", "decide"
"""The agents of a tenant: one reads events, one takes numbers that callers state."""
_DECIDE = ("stream", "time", "p_need", "p_accept", "person", "costs", "candidates", "domain")


class Forget(NamedTuple):
    """A request to delete a person."""

    person: str


class Asked(NamedTuple):
    """A request on its way to an agent."""

    tenant: str
    agent: str  # `EVENTS` or `DECIDE`; an outcome is for whichever has the stream
    request: Events | OfferOutcome | Forget


class Models(NamedTuple):
    """What decides, and by which settings."""

    reader: Reader | None  # reads events; None where only callers' numbers are decided on
    exported: Exported  # its calibration
    stated: Exported  # that of the numbers that callers state
    settings: AgentSettings | None = None
    population: Population | None = None


class Changes:
    """Wakes who waits for something new, from any thread."""

    def __init__(self) -> None:
        self.listening = 0  # how many wait now
        self._next: dict[str, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Wakes on the event loop that runs."""
        self._loop = asyncio.get_running_loop()

    def next(self, tenant: str) -> asyncio.Event:
        """What is set when there is something new for a tenant."""
        return self._next.setdefault(tenant, asyncio.Event())

    def come(self, tenant: str) -> None:
        """There is something new for a tenant."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, tenant)

    def _wake(self, tenant: str) -> None:
        self._next.pop(tenant, asyncio.Event()).set()


class Agents:
    """The agents of all tenants. One thread at a time may use it.

    `on_offer` is called with the name of a tenant to whose people offers were made; `metrics` counts.
    """

    def __init__(
        self,
        models: Models,
        folder: epath.PathLike,
        *,
        partitions: int | None = None,
        streams: int = 10_000,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Makes it of what decides, and the folder of the tenants' stores, which are made when they are first used.

        `report` is told what is wrong with a store; such a message has the name of a file, and nothing of its content.
        """
        self._models, self._folder, self._report = models, epath.Path(folder), report
        self._partitions, self._streams = partitions, streams
        self.on_offer: Callable[[str], None] = lambda _: None
        self.metrics = Metrics()
        self._open = contextlib.ExitStack()
        self._agents: dict[str, dict[str, DurableAgent]] = {}

    def answer(self, items: Sequence[Asked]) -> list[Any]:
        """The answer to each request, in their order; an exception stands for one that failed."""
        found: dict[int, Any] = {}
        group: list[int] = []
        for i, item in enumerate(items):
            if group and (items[group[0]][:2] != item[:2] or not isinstance(item.request, Events)):
                self._together(group, items, found)
                group = []
            group.append(i)
            if not isinstance(item.request, Events):
                self._together(group, items, found)
                group = []
        self._together(group, items, found)
        return [found[i] for i in range(len(items))]

    def close(self) -> None:
        """Gives the stores back."""
        self._open.close()

    def _together(self, group: Sequence[int], items: Sequence[Asked], found: dict[int, Any]) -> None:
        """Answers requests of one tenant to one agent."""
        if not group:
            return
        first = items[group[0]]
        try:
            agents = self._of(first.tenant)
            if isinstance(first.request, Forget):
                found[group[0]] = self._forget(agents, first.request.person)
                return
            agent = agents[first.agent]
            if isinstance(first.request, OfferOutcome):
                kind = agent.kind_of(first.request.stream)
                agent = agents.get(kind or first.agent, agent)
            requests = [items[i].request for i in group]
            answers: Sequence[Any] = agent.answer(requests)  # type: ignore[arg-type]
            for person in agent.people.take_rung():
                self.metrics.alarms.inc()
                self._report(
                    f"alarm: the answers of person {person.number} of a partition no longer agree with the "
                    f"probabilities stated before them, after {person.answers} answers"
                )
        except Exception as error:  # one that nobody foresaw fails these requests, and no others
            answers = [error] * len(group)
            if not isinstance(error, RefusedError | StaleError | StateError):
                self._report(f"{type(error).__name__} while answering")
        for message in {str(one) for one in answers if isinstance(one, StaleError | StateError)}:
            self._report(message)
        found.update(zip(group, answers, strict=True))
        new = [one for own in answers if isinstance(own, list) and not isinstance(own, Again) for one in own]
        self._count(first, new)

    def _count(self, asked: Asked, answers: Sequence[Mapping[str, Any]]) -> None:
        """Counts decisions and outcomes, and tells of offers."""
        for one in answers:
            if "speak" in one:
                self.metrics.decisions.labels(asked.agent, str(one["speak"]).lower()).inc()
            else:
                self.metrics.outcomes.labels(one["outcome"]).inc()
        if any(one.get("speak") for one in answers):
            self.on_offer(asked.tenant)

    def _forget(self, agents: Mapping[str, DurableAgent], person: str) -> int:
        store = agents[DECIDE].store
        for agent in agents.values():
            agent.drop(store.of(person).streams_of(person))
        return len(store.forget_person(person))

    def open(self, tenants: Iterable[str]) -> None:
        """Opens the stores of tenants; ValueError or OSError names what cannot be used."""
        for tenant in tenants:
            self._of(tenant)

    def _of(self, tenant: str) -> dict[str, DurableAgent]:
        if tenant not in self._agents:
            models, folder = self._models, folder_of(self._folder, tenant)
            try:
                store = StateStore(folder, partitions=self._partitions, population=models.population)
            except OSError as error:
                raise StateError(f"{folder}: {error}") from None
            self._open.callback(store.close)
            readers = {DECIDE: (StatedReader(), models.stated)}
            if models.reader is not None:
                readers[EVENTS] = (Namespace(models.reader, tenant), models.exported)  # type: ignore[assignment]
            self._agents[tenant] = {
                kind: DurableAgent(reader, exported, store, models.settings, kind=kind, streams=self._streams)
                for kind, (reader, exported) in readers.items()
            }
        return self._agents[tenant]


def folder_of(folder: epath.PathLike, tenant: str) -> epath.Path:
    """Where a tenant's store lies."""
    return epath.Path(folder) / "tenants" / tenant


def make_state_app(
    load: Callable[[], Agents],
    folder: epath.PathLike,
    *,
    reads_events: bool = True,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
) -> fastapi.FastAPI:
    """The application; `load` is called on the agents' thread when it starts, and `folder` holds the tenants' stores.

    Without tokens it answers requests to loopback names alone. Without `reads_events` it takes callers' numbers alone.
    """
    limits = limits or Limits()
    changes = Changes()

    def loaded() -> Agents:
        agents = load()
        agents.on_offer, agents.metrics = changes.come, served.metrics
        return agents

    served: Served[Asked, Any] = Served(loaded, limits.waiting)
    served.on_start = changes.begin
    app = make_base(served, tokens or Tokens(()), limits)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody} for status in (401, 404, 408, 409, 413, 422, 429, 503)
    }

    async def ask(request: fastapi.Request, agent: str, item: Events | OfferOutcome | Forget) -> Any:
        try:
            return await served.ask(Asked(request.state.tenant, agent, item), request)
        except ConflictError as error:
            raise ApiError(409, str(error)) from None
        except RefusedError as error:
            raise ApiError(422, str(error)) from None
        except (StaleError, StateError):
            words = "nothing of the request was" if not isinstance(item, Forget) else "ask again to end what has begun"
            raise ApiError(503, f"the state cannot be changed now; {words}") from None

    @app.post("/v1/streams/{stream:path}/events", responses=errors)
    async def events(stream: str, request: fastapi.Request) -> Any:
        """Decides on an event (`time`, `text`; `candidates`, `costs`, `domain`, `person`), or on a list of them."""
        if not reads_events:
            raise ApiError(404, "found no model that reads events, expected callers' numbers (/v1/decide)")
        body = await request.body()
        value = _json(body)
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= MOST_EVENTS:
            raise ApiError(422, f"body: found {len(values)} events, expected 1 to {MOST_EVENTS}")
        items = [_event(one, stream, f"body[{i}]" if value is values else "body") for i, one in enumerate(values)]
        answers = await ask(request, EVENTS, _events(items, request, body))
        return answers if value is values else answers[0]

    @app.post("/v1/decide", responses=errors)
    async def decide(request: fastapi.Request) -> Any:
        """Decides on numbers that the caller states: `stream`, `time`, `p_need`, `p_accept`; `person`, `costs` ..."""
        body = await request.body()
        return (await ask(request, DECIDE, _events([_stated(_json(body))], request, body)))[0]

    @app.post("/v1/outcomes", responses=errors)
    async def outcomes(request: fastapi.Request) -> Any:
        """Takes what became of an offer: `stream`, `offer`, `outcome`, `time`; `needed` where it was judged."""
        value = _object(_json(await request.body()), "body")
        if "offer" not in value:
            raise ApiError(422, "body: offer: found no such key, expected it")
        item = _item(value, "body")
        assert isinstance(item, OfferOutcome), "it has an offer"
        return (await ask(request, DECIDE, item))[0]

    @app.get("/v1/records", responses=errors)
    async def records(
        request: fastapi.Request,
        after: str | None = None,
        limit: int = 100,
        stream: str | None = None,
        person: str | None = None,
        since: float | None = None,
    ) -> dict[str, Any]:
        """Records in the order of each stream, from the cursor `after` on; `next` is the cursor behind them."""
        served.check_ready()
        if not 1 <= limit <= MOST_RECORDS:
            raise ApiError(422, f"limit: found {limit}, expected 1 to {MOST_RECORDS}", param="limit")
        try:
            cursor = Cursor.read(after)
        except ValueError as error:
            raise ApiError(422, str(error), param="after") from None
        place = folder_of(folder, request.state.tenant)
        try:
            found, cursor = await run_in_threadpool(
                read_log, place, cursor, limit, stream=stream, person=person, since=since
            )
        except StateError:
            raise ApiError(503, UNREADABLE) from None
        return {"records": [one.record for one in found], "next": str(cursor)}

    @app.get("/v1/offers", responses=errors)
    async def offers(
        request: fastapi.Request, after: str | None = None, person: str | None = None
    ) -> fastapi.responses.StreamingResponse:
        """Offers as server-sent events as they are made, from now on or behind a cursor (`Last-Event-ID`, `after`)."""
        served.check_ready()
        place, text = folder_of(folder, request.state.tenant), request.headers.get("last-event-id") or after
        try:
            begin = Cursor.read(text) if text else await run_in_threadpool(newest, place)
        except StateError:
            raise ApiError(503, UNREADABLE) from None
        except ValueError as error:
            raise ApiError(422, str(error), param="after") from None
        if changes.listening >= MOST_LISTENERS:
            raise ApiError(429, f"found {changes.listening} who listen for offers, expected fewer")
        return fastapi.responses.StreamingResponse(
            _sent(place, begin, request.state.tenant, person, changes, served.is_stopping),
            media_type="text/event-stream",
        )

    @app.delete("/v1/people/{person:path}", responses=errors)
    async def forget(person: str, request: fastapi.Request) -> dict[str, int]:
        """Deletes everything of a person, and says how many streams that were."""
        _check_name(person, "person")
        return {"streams": await ask(request, DECIDE, Forget(person))}

    return app


async def _sent(
    place: epath.Path,
    cursor: Cursor,
    tenant: str,
    person: str | None,
    changes: Changes,
    is_stopping: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Offers as server-sent events, whose ids are the cursors behind them, until the server stops."""
    changes.listening += 1
    try:
        yield f"id: {cursor}\n\n".encode()
        while not is_stopping():
            change = changes.next(tenant)  # before what is there is read, so that none is missed
            found, behind = await run_in_threadpool(read_log, place, cursor, MOST_RECORDS, person=person, offers=True)
            for one in found:
                cursor = cursor.behind(one)
                yield f"id: {cursor}\nevent: offer\ndata: {json.dumps(one.answer)}\n\n".encode()
            cursor = behind
            waited = 0.0
            while not (len(found) == MOST_RECORDS or change.is_set() or is_stopping() or waited >= KEPT_ALIVE):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(change.wait(), STEP)
                waited += STEP
            yield f"id: {cursor}\n\n".encode()  # and says that it is there
    except StateError:  # who listens asks again, from the last id on
        return
    finally:
        changes.listening -= 1


def _json(body: bytes) -> Any:
    try:
        return parse_json(body, "body", JsonError)
    except ValueError as error:
        raise ApiError(422, str(error)) from None


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(422, f"{place}: found no object, expected one with keys")
    return value


def _item(value: Mapping[str, Any], place: str) -> Observation | OfferOutcome:
    try:
        return parse_item(value, place)
    except LineError as error:
        raise ApiError(422, str(error)) from None


def _event(value: Any, stream: str, place: str) -> Observation:
    value = _object(value, place)
    for key in ("stream", "offer", "outcome"):
        if key in value:
            raise ApiError(
                422, f"{place}: {key}: found it in an event, expected the stream in the path, and no outcome"
            )
    item = _item({**value, "stream": stream}, place)
    assert isinstance(item, Observation), "it has no outcome"
    return item


def _stated(value: Any) -> Observation:
    """The event of a request to `/v1/decide`, whose text states the caller's numbers."""
    value = _object(value, "body")
    for key in value:
        if key not in _DECIDE:
            raise ApiError(422, f"body: {key!r:.40}: found an unknown key, expected one of {', '.join(_DECIDE)}")
    for key in _DECIDE[:4]:
        if key not in value:
            raise ApiError(422, f"body: {key}: found no such key, expected it")
    accept = value["p_accept"] if isinstance(value["p_accept"], list) else [value["p_accept"]]
    rest = {key: value[key] for key in value if key not in ("p_need", "p_accept")}
    item = _item({**rest, "text": "stated"}, "body")
    assert isinstance(item, Observation), "it has no outcome"
    if len(accept) != len(item.candidates):
        raise ApiError(422, f"body: p_accept: found {len(accept)} numbers, expected {len(item.candidates)}")
    try:
        return item._replace(event=stated_event(item.event.time, value["p_need"], accept))
    except ValueError as error:
        raise ApiError(422, f"body: {error}") from None


def _events(items: Sequence[Observation], request: fastapi.Request, body: bytes) -> Events:
    """A request with its key, and a hash of what it says."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= MOST_KEY:
        raise ApiError(422, f"Idempotency-Key: found {len(key)} characters, expected 1 to {MOST_KEY}")
    digest = hashlib.sha256(request.url.path.encode() + b"\0" + body).digest()
    named = None if key is None else f"{items[0].stream}\0{key}"
    return Events(tuple(items), named, digest, request.headers.get("prefer") == LENIENT)


def _check_name(name: str, place: str) -> None:
    if not name.strip() or len(name) > MOST_NAME:
        raise ApiError(422, f"{place}: found {len(name)} characters, expected 1 to {MOST_NAME}, not all blank")
