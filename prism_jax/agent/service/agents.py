"""The agents of all tenants, on the thread that owns them: what is asked of them, one batch after the other."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etils import epath

from prism_jax.agent.exported import Exported
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.service import form
from prism_jax.agent.service.answering import Answering
from prism_jax.agent.service.http import ApiError, Metrics
from prism_jax.agent.service.namespaces import Namespace
from prism_jax.agent.settings import AgentSettings
from prism_jax.agent.state.durable import DurableAgent, Events
from prism_jax.agent.state.kept import SettledClaims, StoredClaims
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.places import folder_of, partition_files, reading
from prism_jax.agent.state.schema import StateError
from prism_jax.agent.state.store import MOST_OPEN, StateStore
from prism_jax.agent.stated_reader import StatedReader
from prism_jax.decision.person import Population
from prism_jax.runtime.files import allow_files

if TYPE_CHECKING:
    from prism_jax.agent.decision_reader import DecisionReader

EVENTS, DECIDE = "events", "decide"
"""The agents of a tenant: one reads events, one takes numbers that callers state."""
QUESTIONS = "questions"
"""In place of an agent: what is asked of the model about a stream that the request brings."""
SHARE = 0.5
"""Largest share of the streams that goes at once after a clock has moved far."""
ANSWERS = "answers.sqlite"
"""Answers of a decision model, in the folder of a tenant's store."""


class Visit(NamedTuple):
    """Something to do with a tenant's agents by name, between what others ask; it may write to their store."""

    call: Callable[[Mapping[str, DurableAgent]], Any]
    alone: str | None = None  # a person, or a stream, whose partition alone it is about; None is about all partitions


class Asked(NamedTuple):
    """A request on its way to an agent."""

    tenant: str
    agent: str  # `EVENTS`, `DECIDE` or `QUESTIONS`; an outcome is for whichever has the stream
    request: Events | OfferOutcome | Visit | form.Asked
    person: str | None = None  # whose its stream is, where that was settled before
    is_new: bool = False  # whether its stream was claimed for it


class Models(NamedTuple):
    """What decides, and by which settings."""

    reader: Reader | None  # reads events; None where only callers' numbers are decided on
    exported: Exported  # its calibration
    stated: Exported  # that of the numbers that callers state
    settings: AgentSettings | None = None


class Agents:
    """The agents of all tenants. One thread at a time may use it; `metrics` counts alarms."""

    def __init__(
        self,
        models: Models | None,
        folder: epath.PathLike,
        *,
        partitions: int | None = None,
        population: Population | None = None,
        streams: int = 10_000,
        report: Callable[[str], None] = lambda _: None,
        alone: bool = True,
        lease: float = 10.0,
        clock: Callable[[], float] = time.time,
        asking: Callable[[epath.Path], DecisionReader] | None = None,
    ) -> None:
        """Makes it of what decides, and the folder of the tenants' stores, which are made when they are first used.

        Where stores are opened before the models are loaded, `models` is None, and set before anything is asked.
        `asking` makes, of the file of its answers, a reader for one tenant in place of the models' reader.

        `report` is told what is wrong with a store; such a message has the name of a file, and nothing of its content.
        `clock` gives seconds since 1970. Where this process is not `alone`, it has the partitions that `own` says, each
        by a lease of so many seconds, and whose a stream is was settled before a request comes.
        """
        self._clock, self._alone, self._lease, self._own = clock, alone, lease, frozenset[int]()
        self._most_open = MOST_OPEN
        self.models, self._folder, self._report, self._asking = models, epath.Path(folder), report, asking
        self._partitions, self._population, self._streams = partitions, population, streams
        self.metrics = Metrics()
        self._open = contextlib.ExitStack()
        self._agents: dict[str, dict[str, DurableAgent]] = {}
        self._stores: dict[str, StateStore] = {}
        self._readers: dict[str, DecisionReader] = {}
        self._answering: dict[str, Answering] = {}  # by tenant, or under "" for all

    def answer(self, items: Sequence[Asked]) -> list[Any]:
        """The answer to each request, in their order; an exception stands for one that failed."""
        answers: list[Any] = []
        for _, group in itertools.groupby(enumerate(items), key=_with_which):
            answers += self._together([item for _, item in group])
        return answers

    def close(self) -> None:
        """Gives the stores back."""
        self._open.close()

    def _together(self, group: Sequence[Asked]) -> Sequence[Any]:
        """Answers events for one agent of a tenant, or one request of another kind."""
        tenant = group[0].tenant
        try:
            asks_model = group[0].agent == QUESTIONS
            answers: Sequence[Any] = self._asked(group) if asks_model else self._answered(self._of(tenant), group)
        except Exception as error:  # one that nobody foresaw fails these requests, and no others
            answers = [error] * len(group)
            if not isinstance(error, RefusedError | StaleError | StateError):
                self._report(f"{type(error).__name__} while answering")
        for message in {str(one) for one in answers if isinstance(one, StaleError | StateError)}:
            self._report(message)
        if tenant in self._agents:  # a batch may open more than may stay open
            self._agents[tenant][DECIDE].store.close_idle()
        return answers

    def _asked(self, group: Sequence[Asked]) -> Sequence[Any]:
        """What the model answers, of streams whose names, without a tenant, no agent's have."""
        assert self.models is not None, "they were loaded"
        tenant = group[0].tenant if group[0].tenant in self._readers else ""
        if tenant not in self._answering:
            reader = self._readers.get(tenant, self.models.reader)
            assert reader is not None, "the routes are those of a model"
            self._answering[tenant] = Answering(reader, self.models.exported)
        return self._answering[tenant].answer([item.request for item in group])  # type: ignore[misc]

    def _answered(self, agents: Mapping[str, DurableAgent], group: Sequence[Asked]) -> Sequence[Any]:
        first = group[0]
        if isinstance(first.request, Visit):
            return [first.request.call(agents)]
        agent = agents[first.agent]
        if isinstance(agent.claims, SettledClaims):
            agent.claims.persons = {stream_of(item.request): item.person for item in group}
            agent.claims.new = frozenset(stream_of(item.request) for item in group if item.is_new)
        if isinstance(first.request, OfferOutcome):
            agent = agents.get(agent.kind_of(first.request.stream) or first.agent, agent)
        answers = agent.answer([item.request for item in group])  # type: ignore[misc]
        while agent.people.rang:
            person = agent.people.rang.pop(0)
            self.metrics.alarms.inc()
            self._report(
                f"alarm: the answers of person {person.number} of a partition no longer agree with the probabilities "
                f"stated before them, after {person.answers} answers"
            )
        return answers

    def partition(self, tenant: str, key: str) -> int:
        """The partition of a person, or of a stream of nobody, whose tenant was asked before; any thread may ask."""
        return self._stores[tenant].number_of(key)

    def own(self, numbers: Iterable[int]) -> None:
        """Has these partitions of every tenant from now on, and lets the others go."""
        self._own = frozenset(numbers)
        for store in self._stores.values():
            store.own(self._own)

    def open(self, tenants: Iterable[str]) -> list[StateStore]:
        """Opens the stores of tenants; ValueError or OSError names what cannot be used."""
        tenants = list(tenants)
        count, files = max(1, len(tenants)), allow_files()
        # Half of the files that may be open are theirs: four for each tenant, and three for each partition.
        most = (files // 2 - 4 * count) // (3 * count)
        if most < 1:
            raise ValueError(
                f"--token_file: found {count} tenants and {files} files that may be open, expected {14 * count} or "
                "more: raise the limit (ulimit -Hn)"
            )
        self._most_open = min(most, max(8, MOST_OPEN // count))
        return [self._store_of(tenant) for tenant in tenants]

    def _store_of(self, tenant: str) -> StateStore:
        if tenant not in self._stores:
            folder = folder_of(self._folder, tenant)
            try:
                store = StateStore(
                    folder,
                    partitions=self._partitions,
                    population=self._population,
                    alone=self._alone,
                    seconds=self._lease,
                    most_open=self._most_open,
                    clock=self._clock,
                )
            except OSError as error:
                raise StateError(f"{folder}: {error}") from None
            self._open.callback(store.close)
            for line in store.problems:
                self._report(line)
            if not self._alone:
                store.own(self._own)
            self._stores[tenant] = store
            if self._asking is not None:
                self._readers[tenant] = self._asking(folder / ANSWERS)
                self._open.callback(self._readers[tenant].close)
                store.erasing[ANSWERS] = self._readers[tenant].erase
        return self._stores[tenant]

    def _of(self, tenant: str) -> dict[str, DurableAgent]:
        if tenant not in self._agents:
            assert self.models is not None, "they were loaded"
            models, store = self.models, self._store_of(tenant)
            claims = None if self._alone else SettledClaims()
            readers: dict[str, tuple[Reader, Exported]] = {DECIDE: (StatedReader(), models.stated)}
            reader = self._readers.get(tenant, models.reader)
            if reader is not None:
                readers[EVENTS] = (Namespace(reader, tenant), models.exported)
            self._agents[tenant] = {
                kind: DurableAgent(
                    reader,
                    exported,
                    store,
                    models.settings,
                    kind=kind,
                    streams=self._streams,
                    claims=claims,
                    clock=self._clock,
                )
                for kind, (reader, exported) in readers.items()
            }
        return self._agents[tenant]


def _with_which(numbered: tuple[int, Asked]) -> Any:
    """What requests have in common that are answered together: events for one agent, and nothing else."""
    number, item = numbered
    return item[:2] if isinstance(item.request, Events | form.Asked) else number


def stream_of(request: Events | OfferOutcome | Visit | form.Asked) -> str:
    """The stream that a request is about."""
    assert isinstance(request, Events | OfferOutcome), "it is about a store, or a stream of its own"
    return request.stream if isinstance(request, OfferOutcome) else request.items[0].stream


def whose(stream: str) -> Visit:
    """Whose a stream is, by the partition of its name: the person or None, in a tuple; None is nobody's."""
    return Visit(lambda agents: StoredClaims(agents[DECIDE].store).claimed(stream), alone=stream)


def claim(stream: str, known: tuple[str | None] | None, person: str | None) -> Visit:
    """Claims a stream, where `whose` still says what was known; the answer is whether it does."""
    return Visit(lambda agents: StoredClaims(agents[DECIDE].store).change(stream, known, person))


def partition_of(agents: Mapping[str, DurableAgent], person: str) -> Partition | None:
    """A person's partition; None, and nothing is made, where nothing is kept of them."""
    store = agents[DECIDE].store
    number = store.number_of(person)
    if store.owns(number) and not partition_files(store.folder, person):
        return None
    partition = store.partition(number)
    return partition if partition.knows(person) else None


def unknown() -> ApiError:
    """What is said of a person of whom nothing is kept."""
    return ApiError(404, "person: found nobody of this name, expected one of whom something is kept")


def gone_of(key: str, streams: Sequence[str]) -> Visit:
    """Of streams in the partition of a key, those that are not there."""

    def call(agents: Mapping[str, DurableAgent]) -> list[str]:
        partition = agents[DECIDE].store.of(key)
        return [stream for stream in streams if partition.stream(stream) is None]

    return Visit(call, alone=key)


def forget(person: str) -> Visit:
    """Deletes everything of a person; the answer is how many streams they had. IncompleteError where some is left."""

    def call(agents: Mapping[str, DurableAgent]) -> int:
        for agent in agents.values():
            agent.drop_person(person)
        return len(agents[DECIDE].store.forget_person(person))

    return Visit(call)


async def delete_stream(stream: str, ask: Callable[[Visit], Awaitable[Any]]) -> int:
    """Deletes everything of a stream that names nobody; the answer is how many there were.

    `ask` takes each visit to the partition that it is about. ApiError 409 for a stream of a person, and 503 where
    somebody has claimed it meanwhile.
    """
    known: tuple[str | None] | None = await ask(whose(stream))
    person = None if known is None else known[0]
    if person is not None and not await ask(gone_of(person, [stream])):
        words = "stream: found one of a person, expected one that names nobody; DELETE /v1/people/NAME deletes the "
        raise ApiError(409, words + "person with all of their streams")
    count: int | None = await ask(_delete(stream, known))
    if count is None:
        raise ApiError(503, "found whose the stream is said anew meanwhile; try again")
    return count


def _delete(stream: str, known: tuple[str | None] | None) -> Visit:
    """Deletes a stream that is nobody's; the answer is None where `whose` no longer says what was known."""

    def call(agents: Mapping[str, DurableAgent]) -> int | None:
        store = agents[DECIDE].store
        if StoredClaims(store).claimed(stream) != known:
            return None
        for agent in agents.values():
            agent.drop([stream])
        return int(store.delete_stream(stream))

    return Visit(call, alone=stream)


def expire(number: int, seconds: float | None, share: float = SHARE) -> Visit:
    """Deletes the streams of a partition of which nothing was written for so long; the answer is how many.

    None keeps all of them. Links and sessions that have ended are deleted, too. Where the clock may have jumped, no
    stream is deleted while more than a `share` of all would go; StateError says so, once an hour.
    """

    def call(agents: Mapping[str, DurableAgent]) -> int:
        store = agents[DECIDE].store
        own = number % store.partitions
        is_made = store.owns(own) and any(place.number == own for place in partition_files(store.folder))
        if is_made:
            store.partition(own).end_signins()
        if seconds is None:
            return 0
        before = agents[DECIDE].now() - seconds
        # Also where nothing was made, so that a store of few streams among many partitions is swept as often.
        if not _may_delete(store, seconds, before, share) or not is_made:
            return 0
        old = [name for _, name, _ in store.partition(own).old_streams(before)]
        for agent in agents.values():
            agent.drop(old)  # before anything is deleted, which may end half-way
        return len(agents[DECIDE].expire(own, before))

    return Visit(call)


def _may_delete(store: StateStore, seconds: float, before: float, share: float) -> bool:
    """Whether what was written before a time is old, also by a clock that may have jumped since the last sweep."""
    now = before + seconds
    if 0 <= now - store.swept <= seconds / 4:
        store.note_swept(now)
        return True
    if store.refused is not None and abs(now - store.refused) < 3600.0:
        return False
    asked = "SELECT count(*), total((SELECT max(written) FROM log WHERE stream = streams.number) < ?) FROM streams"
    streams = old = 0
    for place in partition_files(store.folder):
        if store.owns(place.number):
            with contextlib.suppress(StateError), reading(place) as ask:
                ((own, own_old),) = [(0, 0.0)] if ask is None else ask(asked, (before,))
                streams, old = streams + own, old + int(own_old)
    if old > share * streams:
        store.refused = now
        days, moved = seconds / 86400, (now - store.swept) / 86400
        raise StateError(
            f"{store.folder}: keep_days: found {old} of {streams} streams older than {days:g} days, by a clock that "
            f"moved {moved:.1f} days since the last sweep, expected a share of {share:g} at most; deleted none; set "
            "the clock, or if that time has passed, start with --sweep_share=1"
        )
    store.note_swept(now)
    return True
