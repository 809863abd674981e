"""An agent whose state is in a store: what a batch of requests changes in a partition is one transaction.

The agent decides; this adds where its state comes from and where it goes. In memory are the streams that were used
last. One that is not there is read again from the store, and so is one whose transaction failed: memory is never ahead
of the store.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import Exported
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.people import People
from prism_jax.agent.personal import KnownPerson, Prediction
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import Decision, OfferOutcome, offer_id
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.state.partition import Partition, StaleError, StateError
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import Observation
from prism_jax.people.layer import Population

CHUNK = 256
"""Events of a stream that are read again at once."""


class ConflictError(ValueError):
    """A request that contradicts an earlier one."""


class Events(NamedTuple):
    """New events of one stream, which are all decided on, or none."""

    items: tuple[Observation, ...]
    key: str | None = None  # a name of the request: sent again, it gets the same answer
    digest: bytes = b""  # hash of what the request says


class DurablePeople:
    """The people of all partitions, as an agent asks for them; the alarms of each have an equal share of the level.

    While the probabilities are calibrated, any of a partition's alarms ever rings with a probability of at most
    alpha / partitions, and any alarm of the store with one of at most alpha.
    """

    def __init__(self, store: StateStore, settings: AgentSettings) -> None:
        """Raises ValueError for settings that recalibrate: the map of everybody would depend on every partition."""
        if settings.people.recalibrate:
            raise ValueError("recalibrate: found it with a store of partitions, expected none: its map is everybody's")
        alarm = settings.people.alarm
        self._settings = dataclasses.replace(settings.people, alarm=alarm and alarm / store.partitions)
        self._store = store
        self._people: dict[Partition, People] = {}

    @property
    def population(self) -> Population:
        """What is assumed of people."""
        return self._store.population

    def known(self, name: str) -> KnownPerson:
        """What is known of a person now."""
        return self._of(name).known(name)

    def offered(self, person: str, offer: str) -> None:
        """Notes an offer; see `People.offered`."""
        self._of(person).offered(person, offer)

    def withdrawn(self, offer: str, prediction: Prediction) -> None:
        """Notes that no answer to an offer will come; see `People.withdrawn`."""
        self._of(prediction.person).withdrawn(offer, prediction)

    def learn(self, offer: str, prediction: Prediction, outcome: str, time: float) -> None:
        """Takes the answer to an offer; see `People.learn`."""
        self._of(prediction.person).learn(offer, prediction, outcome, time)

    def _of(self, person: str) -> People:
        partition = self._store.of(person)
        if partition not in self._people:
            self._people[partition] = People(partition.people, self._settings)
        return self._people[partition]


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
    ):
        """Makes an agent.

        Args:
          reader: The language model, which this agent has for itself.
          exported: Its calibration and operating point.
          store: The state, which the caller closes.
          settings: Those of the agent; None takes the operating point of the export.
          kind: A name for the agent: a stream that one agent decides on is refused by another on the same store.
          streams: Most streams in memory, at least 1.
          clock: Seconds since 1970, which records carry in the store.
        """
        settings = AgentSettings(Terms(exported.point)) if settings is None else settings
        self.agent = Agent(reader, exported, settings, DurablePeople(store, settings))
        self.store = store
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
        keys: set[str | None] = set()
        for i, request in enumerate(requests):
            if group and (isinstance(request, OfferOutcome) or request.key in keys - {None}):
                self._decide(group, requests, found)
                group, keys = [], set()
            if isinstance(request, OfferOutcome):
                found[i] = self._take(request)
            else:
                group.append(i)
                keys.add(request.key)
        self._decide(group, requests, found)
        while len(self._loaded) > self._most:
            self.drop([next(iter(self._loaded))])
        return [found[i] for i in range(len(requests))]

    def kind_of(self, stream: str) -> str | None:
        """The kind of the agent that decides on a stream; None for one that is not there."""
        person = self._person(stream, None)
        known = self.store.of(stream if person is None else person).stream(stream)
        return None if known is None else known.kind

    def drop(self, streams: Iterable[str]) -> None:
        """Drops streams from memory; they are read again when they are next needed."""
        for name in streams:
            if self.agent.has(name):
                self.agent.unload(name)
            self._loaded.pop(name, None)
            self._persons.pop(name, None)

    # Events

    def _decide(self, group: Iterable[int], requests: Sequence[Any], found: dict[int, Any]) -> None:
        """Answers requests with events, together where nothing is wrong with them."""
        live: dict[int, tuple[str | None, int]] = {}  # person and partition
        for i in group:
            try:
                person, number, earlier = self._prepared(requests[i])
            except (RefusedError, ConflictError, StaleError, StateError) as error:
                found[i] = error
                continue
            if earlier is None:
                live[i] = person, number
            else:
                found[i] = earlier
        while live:
            items = [item for i in live for item in requests[i].items]
            owners = [i for i in live for _ in requests[i].items]
            refused = {
                i: message for i, message in zip(owners, self.agent.refusals(items), strict=True) if message is not None
            }
            if not refused:
                self._commit(live, requests, found)
                return
            for i, message in refused.items():
                del live[i]
                found[i] = RefusedError(message)

    def _prepared(self, request: Events) -> tuple[str | None, int, list[dict[str, Any]] | None]:
        """Whose a request's stream is, its partition, and its earlier answer, without which the stream is loaded."""
        item = request.items[0]
        person = self._person(item.stream, item.person)
        number = self.store.number_of(item.stream if person is None else person)
        partition = self._partition(number)
        if request.key is not None and (earlier := partition.answered(request.key)) is not None:
            if earlier[0] != request.digest:
                raise ConflictError("Idempotency-Key: found it with another body before, expected a key of its own")
            return person, number, earlier[1]
        self._load(partition, item.stream)
        return person, number, None

    def _commit(
        self, live: Mapping[int, tuple[str | None, int]], requests: Sequence[Events], found: dict[int, Any]
    ) -> None:
        """Decides on requests of which none is refused, and writes what each partition has of it in one transaction."""
        wanted: dict[int, list[int]] = {}
        for i, (_, number) in live.items():
            wanted.setdefault(number, []).append(i)
        begun: dict[int, list[int]] = {}
        try:
            for number, own in list(wanted.items()):
                try:  # before any transaction, since a claim can lie in any partition
                    self._claim([(requests[i].items[0].stream, live[i][0]) for i in own])
                except (StaleError, StateError) as error:
                    del wanted[number]
                    self._failed(number, own, requests, error, found)
            for number, own in wanted.items():
                try:
                    self._partition(number).begin()
                    begun[number] = own
                except (StaleError, StateError) as error:
                    self._failed(number, own, requests, error, found)
            order = [i for own in begun.values() for i in own]
            decisions = iter(self.agent.observe_many([item for i in order for item in requests[i].items]))
        except BaseException as error:
            for number in begun:
                self.store.partition(number).roll_back()
            self.drop({requests[i].items[0].stream for own in begun.values() for i in own})
            if not isinstance(error, RefusedError):
                raise
            if len(order) == 1:  # the reader cannot take an event
                found[order[0]] = error
                return
            for i in order:
                self._decide([i], requests, found)
            return
        for number, own in begun.items():
            self._write(number, {i: [next(decisions) for _ in requests[i].items] for i in own}, requests, found)

    def _write(
        self, number: int, decided: Mapping[int, list[Decision]], requests: Sequence[Events], found: dict[int, Any]
    ) -> None:
        """Writes the decisions of one partition, and ends its transaction."""
        partition, now, answers = self.store.partition(number), self._clock(), {}
        try:
            for i, decisions in decided.items():
                name = requests[i].items[0].stream
                stream = partition.open_stream(name, decisions[0].person, self._kind)
                for item, decision in zip(requests[i].items, decisions, strict=True):
                    partition.append(stream, item, decision.record(), now)
                answers[i] = list(map(answer_of, decisions))
                key = requests[i].key
                if key is not None:
                    partition.note_answer(key, stream, requests[i].digest, answers[i], now)
            partition.commit()
        except BaseException as error:
            partition.roll_back()
            if not isinstance(error, StateError):
                self.drop({requests[i].items[0].stream for i in decided})
                raise
            self._failed(number, list(decided), requests, error, found)
            return
        for decisions in decided.values():
            self._loaded[decisions[0].stream] = None
            self._loaded.move_to_end(decisions[0].stream)
            self._persons[decisions[0].stream] = decisions[0].person
        found.update(answers)

    def _failed(
        self, number: int, own: Sequence[int], requests: Sequence[Events], error: Exception, found: dict[int, Any]
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
            partition = self._partition(number)
            before = partition.outcome(outcome.stream, outcome.offer)
            if before is not None:
                if before != outcome.record():
                    raise ConflictError(f"offer {outcome.offer!r}: found another outcome before, expected the same")
                return [before]
            self._load(partition, outcome.stream)
            with partition.transaction():
                self.agent.outcome(**outcome._asdict())
                stream = partition.stream(outcome.stream)
                assert stream is not None, "it has the offer"
                partition.answer(stream, outcome, self._clock())
            return [outcome.record()]
        except (RefusedError, ConflictError) as error:
            return error
        except (StaleError, StateError) as error:
            self.drop([outcome.stream])
            if isinstance(error, StaleError) and number is not None:
                self.store.let_go(number)
            return error
        except BaseException:
            self.drop([outcome.stream])
            raise

    # Streams in memory

    def _person(self, stream: str, stated: str | None) -> str | None:
        """Whose a stream is: of a new one, as stated. RefusedError where it is another's."""
        if stream in self._persons:
            known: tuple[str | None] | None = (self._persons[stream],)
        else:
            partition = self._partition(self.store.number_of(stream))
            known = partition.claimed(stream)
            if known is None and (own := partition.stream(stream)) is not None and own.person is None:
                known = (None,)
        if known is None:
            return stated
        if stated is not None and stated != known[0]:
            raise RefusedError(f"stream {stream!r}: person: found another person than before, expected one per stream")
        return known[0]

    def _claim(self, streams: Iterable[tuple[str, str | None]]) -> None:
        """Notes, in the partitions of their names, whose new streams are."""
        new = {name: person for name, person in streams if person is not None and name not in self._persons}
        for number, names in self._by_partition(new).items():
            partition = self._partition(number)
            if missing := [name for name in names if partition.claimed(name) is None]:
                with partition.transaction():
                    for name in missing:
                        partition.claim(name, new[name])

    def _by_partition(self, streams: Iterable[str]) -> dict[int, list[str]]:
        """Streams by the partition of their own names."""
        numbers: dict[int, list[str]] = {}
        for name in streams:
            numbers.setdefault(self.store.number_of(name), []).append(name)
        return numbers

    def _partition(self, number: int) -> Partition:
        return self.store.partition(number)

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
                items, records = zip(*known, strict=True)
                self.agent.resume_many(items, records)
                after += len(known)
            for outcome in partition.outcomes(stream):
                self.agent.recall(outcome)
        except ValueError as error:
            self.drop([name])
            raise ConflictError(f"{error}") from error

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
    }
