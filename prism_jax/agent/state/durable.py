"""An agent that answers requests of many callers: what a batch of them changes in a partition is one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.personal import prediction_from
from prism_jax.agent.records import OUTCOMES, Decision, OfferOutcome, Written
from prism_jax.agent.state.kept import ConflictError, KeptAgent, StoredClaims, answer_of
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.preferences import preferences_of
from prism_jax.agent.state.schema import StateError
from prism_jax.agent.steps import Observation, Step
from prism_jax.people.exports import StoreError

MOST_TOGETHER = 1000
"""Most events that are decided on together."""


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
    steps: Sequence[Step]  # its events, which were checked, with what their person wants in their costs


class DurableAgent(KeptAgent):
    """Answers requests: what a batch of them changes in a partition is one transaction."""

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
                self._together(group, requests, found)
                group, streams, events = [], set(), 0
                found[i] = self._take(request)
                continue
            stream = request.items[0].stream
            # A stream's requests are taken one after the other: what is refused of one leaves no trace in the next.
            if stream in streams or events + len(request.items) > MOST_TOGETHER:
                self._together(group, requests, found)
                group, streams, events = [], set(), 0
            group.append(i)
            streams.add(stream)
            events += len(request.items)
        self._together(group, requests, found)
        self._evict()
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
                        self.people.withdrawn(record["offer"], prediction)
                    partition.delete_stream(stream)
        # Where others claim, a claim may be of a stream that is being made.
        claims = partition.claims() if isinstance(self.claims, StoredClaims) else []
        gone = [name for name, person in claims if self.store.of(person or name).stream(name) is None]
        self.store.partition(number).unclaim(gone)  # which may have been closed for the others
        if names:
            self.store.erase_more(len(names))
        return names

    # Events

    def _together(self, group: Iterable[int], requests: Sequence[Any], found: dict[int, Any]) -> None:
        """Answers requests with events, together where nothing is wrong with them."""
        live: dict[int, _Live] = {}
        for i in group:
            try:
                prepared = self._prepared(requests[i])
                if isinstance(prepared, Again):
                    found[i] = prepared
                    continue
                live[i] = prepared
            except (RefusedError, ConflictError, StaleError, StateError) as error:
                found[i] = error
        if live:
            self._commit(live, requests, found)

    def _prepared(self, request: Events) -> _Live | Again:
        """A request, checked, with its stream loaded, or its earlier answer; errors of one that cannot be taken."""
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
        return _Live(person, number, self._steps(self._wanted(preferences, request.items, self._clock())))

    def _commit(self, live: Mapping[int, _Live], requests: Sequence[Any], found: dict[int, Any]) -> None:
        """Decides on requests of which none is refused, and writes what each partition has of it in one transaction."""
        begun: dict[int, list[int]] = {}
        try:
            for number, own in self._claimed(live, requests, found).items():
                with self._failing(number, own, requests, found):
                    self.store.partition(number).begin()
                    begun[number] = own
            steps = [step for own in begun.values() for i in own for step in live[i].steps]
            decisions = iter(self._observed(steps))
            for number, own in list(begun.items()):
                decided = {i: [next(decisions) for _ in requests[i].items] for i in own}
                with self._failing(number, own, requests, found):
                    found.update(self._write(self.store.partition(number), decided, requests))
                del begun[number]
        except BaseException as error:
            self._given_up(begun, requests, error, found)

    def _claimed(
        self, live: Mapping[int, _Live], requests: Sequence[Any], found: dict[int, Any]
    ) -> dict[int, list[int]]:
        """The requests by their partition, once it is noted whose new streams are."""
        by_partition: dict[int, list[int]] = {}
        for i, its in live.items():
            by_partition.setdefault(its.partition, []).append(i)
        for number, own in list(by_partition.items()):
            new = [(requests[i].items[0].stream, live[i].person) for i in own]
            with self._failing(
                number, own, requests, found
            ):  # before any transaction: a claim can lie in any partition
                self.claims.claim([pair for pair in new if pair[0] not in self._persons])
        return {number: own for number, own in by_partition.items() if own[0] not in found}

    def _given_up(
        self, begun: Mapping[int, list[int]], requests: Sequence[Any], error: BaseException, found: dict[int, Any]
    ) -> None:
        """Takes back what was begun; where the reader refuses one of several requests, each is decided on by itself."""
        for number in begun:
            self.store.partition(number).roll_back()
        left = [i for own in begun.values() for i in own]
        self.drop({requests[i].items[0].stream for i in left})
        if isinstance(error, StateError):
            found.update(dict.fromkeys(left, error))
        elif not isinstance(error, RefusedError):
            raise error
        elif len(left) == 1:
            found[left[0]] = error
        else:
            for i in left:
                self._together([i], requests, found)

    def _observed(self, steps: Sequence[Step]) -> list[Decision]:
        """The agent's decisions; StateError where what is known of people cannot be read."""
        try:
            return self._observe_checked(steps)
        except (StoreError, sqlite3.Error) as error:
            raise StateError(str(error)) from None

    def _write(
        self, partition: Partition, decided: Mapping[int, list[Decision]], requests: Sequence[Any]
    ) -> dict[int, list[dict[str, Any]]]:
        """Writes the decisions of one partition, and ends its transaction; returns the answers."""
        answers = {i: list(map(answer_of, decisions)) for i, decisions in decided.items()}
        try:
            for i, decisions in decided.items():
                own = zip(requests[i].items, decisions, strict=True)
                self._keep(partition, [(item, Written.of(decision), None) for item, decision in own])
                if (key := requests[i].key) is not None:
                    stream = partition.open_stream(decisions[0].stream, decisions[0].person, self._kind)
                    partition.note_answer(key, stream, requests[i].digest, answers[i], self._clock())
            partition.commit()
        except StateError:
            partition.roll_back()
            raise
        return answers

    @contextlib.contextmanager
    def _failing(
        self, number: int, own: Sequence[int], requests: Sequence[Any], found: dict[int, Any]
    ) -> Iterator[None]:
        """Notes where a partition cannot take requests; their streams are read again when they are next needed."""
        try:
            yield
        except (StaleError, StateError) as error:
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
            self._take_in(partition, outcome)
            return [outcome.record()]
        except (RefusedError, ConflictError) as error:
            return error
        except (StaleError, StateError, StoreError, sqlite3.Error) as error:
            if isinstance(error, StaleError) and number is not None:
                self.store.let_go(number)
            return error if isinstance(error, StaleError | StateError) else StateError(str(error))
