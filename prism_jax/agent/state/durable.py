"""An agent whose state is in a store: what a batch of requests changes in a partition is one transaction.

The agent decides; this adds where its state comes from and where it goes. In memory are the streams that were used
last. One that is not there is read again from the store, and so is one whose transaction failed: memory is never ahead
of the store.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import Exported
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.people import People
from prism_jax.agent.personal import prediction_from
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import OUTCOMES, Decision, OfferOutcome, offer_id
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.state.claims import SettledClaims, StoredClaims, UnclaimedError
from prism_jax.agent.state.partition import Partition, StaleError, StateError
from prism_jax.agent.state.preferences import Preferences, as_wanted, preferences_of
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import Observation
from prism_jax.people.exports import StoreError
from prism_jax.people.layer import Population
from prism_jax.people.store import Person

CHUNK = 256
"""Events of a stream that are read again at once."""
MOST_TOGETHER = 1000
"""Most events that are decided on together."""


class ConflictError(ValueError):
    """A request that contradicts an earlier one."""


class Again(list[dict[str, Any]]):
    """An answer that was given before."""


class Events(NamedTuple):
    """New events of one stream, which are all decided on, or none."""

    items: tuple[Observation, ...]
    key: str | None = None  # a name of the request: sent again, it gets the same answer
    digest: bytes = b""  # hash of what the request says
    lenient: bool = False  # whether the key alone says that it is the same request, whatever else it says now


class _Live(NamedTuple):
    """What is known of a request that will be decided on."""

    person: str | None
    partition: int
    preferences: Preferences | None  # of the person; None where nobody is named


class DurablePeople:
    """The people of all partitions, as an agent asks for them; the alarms of each have an equal share of the level.

    While the probabilities are calibrated, any of a partition's alarms ever rings with a probability of at most
    alpha / partitions, and any alarm of the store with one of at most alpha. `rang` is as that of `People`.
    """

    def __init__(self, store: StateStore, settings: AgentSettings) -> None:
        """Raises ValueError for settings that recalibrate: the map of everybody would depend on every partition."""
        if settings.people.recalibrate:
            raise ValueError("recalibrate: found it with a store of partitions, expected none: its map is everybody's")
        alarm = settings.people.alarm
        self._settings = dataclasses.replace(settings.people, alarm=alarm and alarm / store.partitions)
        self._store = store
        self.rang: list[Person] = []

    @property
    def population(self) -> Population:
        """What is assumed of people."""
        return self._store.population

    def of(self, person: str) -> People:
        """Those of a person's partition."""
        people = People(self._store.of(person).people, self._settings)
        people.rang = self.rang
        return people


class DurableAgent:
    """Decides on streams whose state is in a store. One thread at a time may use it, and the store."""

    def __init__(
        self,
        reader: Reader,
        exported: Exported,
        store: StateStore,
        settings: AgentSettings | None = None,
        *,
        kind: str = "events",
        streams: int = 10_000,
        clock: Callable[[], float] = time.time,
        claims: StoredClaims | SettledClaims | None = None,
    ):
        """Makes an agent of a reader that it has for itself, and a store that the caller closes.

        Without settings it takes the operating point of the export. A stream that an agent of one `kind` decides on is
        refused by one of another on the same store. At most so many `streams`, at least 1, are in memory. Records carry
        the time of `clock` in the store, in seconds since 1970. Without `claims` the store says whose a stream is.
        """
        settings = AgentSettings(Terms(exported.point)) if settings is None else settings
        self.people = DurablePeople(store, settings)
        self.agent = Agent(reader, exported, settings, self.people)
        self.store, self.claims = store, claims or StoredClaims(store)
        self._kind, self._most, self._clock = kind, streams, clock
        self._loaded: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._persons: dict[str, str | None] = {}  # whose the streams in memory are
        store.leaving.append(self._leave)

    def answer(self, requests: Sequence[Events | OfferOutcome]) -> list[list[dict[str, Any]] | Exception]:
        """Takes requests in their order: what each event is answered with, or for an outcome its record.

        In place of an answer stands RefusedError for what cannot be taken, ConflictError for what contradicts an
        earlier request, and StateError or StaleError where the store could not take it now: nothing of the request has
        then changed.
        """
        found: dict[int, list[dict[str, Any]] | Exception] = {}
        group: list[int] = []
        streams: set[str] = set()
        events = 0
        for i, request in enumerate(requests):
            if isinstance(request, OfferOutcome):
                self._decide(group, requests, found)
                group, streams, events = [], set(), 0
                found[i] = self._take(request)
                continue
            stream = request.items[0].stream
            # A stream's requests are taken one after the other: what is refused of one leaves no trace in the next.
            if stream in streams or events + len(request.items) > MOST_TOGETHER:
                self._decide(group, requests, found)
                group, streams, events = [], set(), 0
            group.append(i)
            streams.add(stream)
            events += len(request.items)
        self._decide(group, requests, found)
        while len(self._loaded) > self._most:
            self.drop([next(iter(self._loaded))])
        return [found[i] for i in range(len(requests))]

    def now(self) -> float:
        """The time in seconds since 1970, by the agent's clock."""
        return self._clock()

    def kind_of(self, stream: str) -> str | None:
        """The kind of the agent that decides on a stream; None for one that is not there."""
        person = self._person(stream, None)
        known = self.store.of(stream if person is None else person).stream(stream)
        return None if known is None else known.kind

    def expire(self, number: int, before: float) -> list[str]:
        """Deletes a partition's streams of which nothing was written since a time; returns their names.

        A person's alarm that waits for an offer of such a stream waits no longer. The partition's claims on streams
        that are gone are deleted, too. StateError or StaleError where it cannot be done now; what has begun ends with
        another call.
        """
        partition = self.store.partition(number)
        old = partition.old_streams(before)
        names = [name for _, name, _ in old]
        self.drop(names)
        if old:
            with partition.transaction():
                for stream, _, person in old:
                    record = None if person is None else partition.waited_for(stream, person)
                    if record is not None and (prediction := prediction_from(record)) is not None:
                        self.people.of(prediction.person).withdrawn(record["offer"], prediction)
                    partition.delete_stream(stream)
        # Where others claim, a claim may be of a stream that is being made.
        claims = partition.claims() if isinstance(self.claims, StoredClaims) else []
        partition.unclaim([name for name, person in claims if self.store.of(person or name).stream(name) is None])
        if names:
            self.store.erase_more(len(names))
        return names

    def drop(self, streams: Iterable[str]) -> None:
        """Drops streams from memory; they are read again when they are next needed."""
        for name in streams:
            if self.agent.has(name):
                self.agent.unload(name)
            self._loaded.pop(name, None)
            self._persons.pop(name, None)

    def drop_person(self, person: str) -> None:
        """Drops a person's streams from memory."""
        self.drop([name for name, whose in self._persons.items() if whose == person])

    # Events

    def _decide(self, group: Iterable[int], requests: Sequence[Any], found: dict[int, Any]) -> None:
        """Answers requests with events, together where nothing is wrong with them."""
        live: dict[int, _Live] = {}
        for i in group:
            try:
                prepared = self._prepared(requests[i])
                if isinstance(prepared, Again):
                    found[i] = prepared
                    continue
                self.agent.check(requests[i].items)
                live[i] = prepared
            except (RefusedError, ConflictError, StaleError, StateError) as error:
                found[i] = error
        if live:
            self._commit(live, requests, found)

    def _prepared(self, request: Events) -> _Live | Again:
        """What a request needs, with its stream loaded, or its earlier answer."""
        item = request.items[0]
        person = self._person(item.stream, item.person)
        number = self.store.number_of(item.stream if person is None else person)
        partition = self.store.partition(number)
        if request.key is not None and (earlier := partition.answered(request.key)) is not None:
            if earlier[0] != request.digest and not request.lenient:
                raise ConflictError("Idempotency-Key: found it with another body before, expected a key of its own")
            return Again(earlier[1])
        self._load(partition, item.stream)
        preferences = None if person is None else preferences_of(partition, person)
        return _Live(person, number, preferences)

    def _commit(self, live: Mapping[int, _Live], requests: Sequence[Any], found: dict[int, Any]) -> None:
        """Decides on requests of which none is refused, and writes what each partition has of it in one transaction."""
        by_partition: dict[int, list[int]] = {}
        for i, its in live.items():
            by_partition.setdefault(its.partition, []).append(i)
        begun: dict[int, list[int]] = {}
        try:
            for number, own in list(by_partition.items()):
                try:  # before any transaction, since a claim can lie in any partition
                    new = [(requests[i].items[0].stream, live[i].person) for i in own]
                    self.claims.claim([pair for pair in new if pair[0] not in self._persons])
                except (StaleError, StateError) as error:
                    del by_partition[number]
                    self._failed(number, own, requests, error, found)
            for number, own in by_partition.items():
                try:
                    self.store.partition(number).begin()
                    begun[number] = own
                except (StaleError, StateError) as error:
                    self._failed(number, own, requests, error, found)
            items = [
                item
                for number, own in begun.items()
                for i in own
                for item in self._wanted(live[i].preferences, requests[i])
            ]
            decisions = iter(self._observed(items))
            for number, own in list(begun.items()):
                decided = {i: [next(decisions) for _ in requests[i].items] for i in own}
                self._write(number, decided, requests, found)
                del begun[number]
        except BaseException as error:
            for number in begun:
                self.store.partition(number).roll_back()
            left = [i for own in begun.values() for i in own]
            self.drop({requests[i].items[0].stream for i in left})
            if isinstance(error, StateError):
                found.update(dict.fromkeys(left, error))
            elif not isinstance(error, RefusedError):
                raise
            elif len(left) == 1:  # the reader cannot take an event
                found[left[0]] = error
            else:
                for i in left:
                    self._decide([i], requests, found)

    def _wanted(self, preferences: Preferences | None, request: Events) -> Sequence[Observation]:
        """The events of a request, with what their person wants in their costs."""
        if preferences is None:
            return request.items
        now = self._clock()
        return [as_wanted(item, preferences, self.agent.settings.terms.point.c_fa, now) for item in request.items]

    def _observed(self, items: Sequence[Observation]) -> list[Decision]:
        """The agent's decisions; StateError where what is known of people cannot be read."""
        try:
            return self.agent.observe_many(items)
        except (StoreError, sqlite3.Error) as error:
            raise StateError(str(error)) from None

    def _write(
        self, number: int, decided: Mapping[int, list[Decision]], requests: Sequence[Any], found: dict[int, Any]
    ) -> None:
        """Writes the decisions of one partition, and ends its transaction."""
        partition, now, answers = self.store.partition(number), self._clock(), {}
        try:
            for i, decisions in decided.items():
                name, person = requests[i].items[0].stream, decisions[0].person
                assert self.store.number_of(name if person is None else person) == number, "it is the key's partition"
                stream = partition.open_stream(name, person, self._kind)
                answers[i] = list(map(answer_of, decisions))
                for item, decision, answer in zip(requests[i].items, decisions, answers[i], strict=True):
                    partition.append(stream, item, decision.record(), answer, now)
                key = requests[i].key
                if key is not None:
                    partition.note_answer(key, stream, requests[i].digest, answers[i], now)
            partition.commit()
        except StateError as error:
            partition.roll_back()
            self._failed(number, list(decided), requests, error, found)
            return
        for decisions in decided.values():
            self._loaded[decisions[0].stream] = None
            self._loaded.move_to_end(decisions[0].stream)
            self._persons[decisions[0].stream] = decisions[0].person
        found.update(answers)

    def _failed(
        self, number: int, own: Sequence[int], requests: Sequence[Any], error: Exception, found: dict[int, Any]
    ) -> None:
        """Notes that a partition could not take requests; their streams are read again when they are next needed."""
        self.drop({requests[i].items[0].stream for i in own})
        if isinstance(error, StaleError):
            self.store.let_go(number)
        found.update(dict.fromkeys(own, error))

    # Outcomes

    def _take(self, outcome: OfferOutcome) -> list[dict[str, Any]] | Exception:
        """Takes an outcome; one that was taken before is answered as before."""
        number = None
        try:
            person = self._person(outcome.stream, None)
            number = self.store.number_of(outcome.stream if person is None else person)
            partition = self.store.partition(number)
            before = partition.outcome(outcome.stream, outcome.offer)
            if before is not None and outcome.outcome in OUTCOMES:
                if before != outcome.record():
                    raise ConflictError(f"offer {outcome.offer!r}: found another outcome before, expected the same")
                return Again([before])
            self._load(partition, outcome.stream)
            with partition.transaction():
                self.agent.outcome(**outcome._asdict())
                stream = partition.stream(outcome.stream)
                assert stream is not None, "it has the offer"
                partition.answer(stream, outcome, self._clock())
            return [outcome.record()]
        except (RefusedError, ConflictError) as error:
            return error
        except (StaleError, StateError, StoreError, sqlite3.Error) as error:
            self.drop([outcome.stream])
            self.people.rang.clear()  # of an answer that is not kept
            if isinstance(error, StaleError) and number is not None:
                self.store.let_go(number)
            return error if isinstance(error, StaleError | StateError) else StateError(str(error))
        except BaseException:
            self.drop([outcome.stream])
            raise

    # Streams in memory

    def _person(self, stream: str, stated: str | None) -> str | None:
        """Whose a stream is: of a new one, as stated. RefusedError where it is another's."""
        known = self._persons.get(stream)
        if known is not None and stated in (None, known) and isinstance(self.claims, StoredClaims):
            return known
        person = self.claims.person(stream, stated)
        if stream in self._persons and person != known:
            raise UnclaimedError(
                f"stream {stream!r}: found another person in memory, expected the one that was settled"
            )
        return person

    def _load(self, partition: Partition, name: str) -> None:
        """Reads a stream again that is in the store and not in memory."""
        if name in self._loaded:
            return
        stream = partition.stream(name)
        if stream is None:
            return
        if stream.kind != self._kind:
            raise ConflictError(f"stream {name!r}: found it decided on by {stream.kind!r}, expected {self._kind!r}")
        self._loaded[name], self._persons[name] = None, stream.person
        after = 0
        try:
            while known := partition.history(stream, after, CHUNK):
                self._resume([(item, record) for _, item, record in known])
                after = known[-1][0]
        except BaseException as error:
            self.drop([name])
            if isinstance(error, StateError) or not isinstance(error, ValueError):
                raise
            raise ConflictError(str(error)) from error

    def _resume(self, known: Sequence[tuple[Observation | None, dict[str, Any]]]) -> None:
        """Takes decisions and outcomes of a stream again, in their order."""
        for decided, group in itertools.groupby(known, key=lambda pair: pair[0] is not None):
            items, records = zip(*group, strict=True)
            if decided:
                self.agent.resume_many(items, records)
            else:
                for record in records:
                    self.agent.recall(OfferOutcome(*(record[name] for name in OfferOutcome._fields)))

    def _leave(self, number: int) -> None:
        """Drops what is in memory of a partition."""
        self.drop([name for name, person in self._persons.items() if self.store.number_of(person or name) == number])


def answer_of(decision: Decision) -> dict[str, Any]:
    """What who sent an event needs of the decision, as plain data; probabilities are null where nobody knows them."""

    def known(p: float | None) -> float | None:
        return None if p is None or math.isnan(p) else p

    return {
        "id": offer_id(decision.stream, decision.event),
        "stream": decision.stream,
        "person": decision.person,
        "time": decision.time,
        "speak": decision.spoke,
        "p_need": known(decision.p_need),
        "p_accept": known(decision.p_accept),
        "threshold": decision.threshold,
        "reason": decision.reason,
        "candidate": decision.candidate,
        "response": decision.response,
        **({} if decision.would_speak is None else {"would_speak": decision.would_speak}),
    }
