"""An agent whose state is in a store: memory is never ahead of it.

The agent decides; this adds where its state comes from and where it goes. In memory are the streams that were used
last. One that is not there is read again from the store, and so is one whose transaction failed. Whose a stream is, the
partition of its name says, so that it is found without its person being named.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from prism_jax.agent.decider import Decider, alone
from prism_jax.agent.exported import Exported
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.lines import Where
from prism_jax.agent.people import People
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import Decision, OfferOutcome, Written, offer_id
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.partition import Known, Partition, StateError, item_at, item_of
from prism_jax.agent.state.places import folder_of
from prism_jax.agent.state.preferences import Preferences, as_wanted, preferences_of
from prism_jax.agent.state.store import StateStore, open_store
from prism_jax.agent.steps import Observation
from prism_jax.decision.person import Population


class StoredClaims:
    """Claims of a store that one process has as a whole. A claim of which nothing came binds nobody."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def person(self, stream: str, stated: str | None) -> str | None:
        """Whose a stream is: of a new one, as stated. RefusedError where it is another's."""
        known = self.claimed(stream)
        if known is not None and self._store.of(known[0] or stream).stream(stream) is None:
            known = None
        return _agreed(stream, stated, known)

    def claim(self, streams: Iterable[tuple[str, str | None]]) -> None:
        """Notes whose new streams are, before anything comes of them. Errors as of `Partition`."""
        numbers: dict[int, dict[str, str]] = {}
        for name, person in streams:
            if person is not None:
                numbers.setdefault(self._store.number_of(name), {}).setdefault(name, person)  # the first event says it
        for number, new in numbers.items():
            self._write(number, new)

    def claimed(self, stream: str) -> tuple[str | None] | None:
        """Whose a stream is by the partition of its name, whether or not anything came of it; None is nobody's."""
        partition = self._store.of(stream)
        own = partition.stream(stream)  # whoever had claimed it before, with an event that was refused
        return partition.claimed(stream) if own is None else (own.person,)

    def change(self, stream: str, known: tuple[str | None] | None, person: str | None) -> bool:
        """Claims a stream for somebody or nobody, where `claimed` still says what was known; otherwise False."""
        if self.claimed(stream) != known:
            return False
        self._write(self._store.number_of(stream), {stream: person})
        return True

    def _write(self, number: int, new: Mapping[str, str | None]) -> None:
        partition = self._store.partition(number)
        missing = [name for name, person in new.items() if partition.claimed(name) != (person,)]
        if missing:
            try:
                with partition.transaction():
                    for name in missing:
                        partition.claim(name, new[name])
            except StaleError:
                self._store.let_go(number)
                raise


class UnclaimedError(StateError):
    """A new stream that was not claimed before, by which nothing has changed."""


class SettledClaims:
    """Claims that were settled before a request came here, where the partition of its name may be another process's.

    `persons` says by stream whose it is, and `new` which streams were claimed for these requests.
    """

    def __init__(self) -> None:
        self.persons: dict[str, str | None] = {}
        self.new: frozenset[str] = frozenset()

    def person(self, stream: str, stated: str | None) -> str | None:
        """See `StoredClaims.person`."""
        return _agreed(stream, stated, (self.persons[stream],))

    def claim(self, streams: Iterable[tuple[str, str | None]]) -> None:
        """Raises UnclaimedError for a stream that is not new by what was settled."""
        if any(stream not in self.new for stream, _ in streams):
            raise UnclaimedError("a stream: found none that is claimed, expected one")


def other_person(stream: str) -> RefusedError:
    """What is said to who names another person with a stream."""
    return RefusedError(f"stream {stream!r}: person: found another person than before, expected one per stream")


def _agreed(stream: str, stated: str | None, known: tuple[str | None] | None) -> str | None:
    if known is None:
        return stated
    if stated is not None and stated != known[0]:
        raise other_person(stream)
    return known[0]


CHUNK = 256
"""Events of a stream that are read again at once."""


class ConflictError(ValueError):
    """A request that contradicts an earlier one."""


def store_of_one(state: epath.PathLike, population: Population | None = None) -> StateStore:
    """The store of an agent with one partition, which is made where it is missing; errors as of `open_store`."""
    store = open_store(folder_of(state), population)
    if store.partitions > 1:
        store.close()
        count, words = store.partitions, "expected one: this is the state of a server (`python -m prism_jax serve`)"
        raise StateError(f"{store.folder}: found {count} partitions, {words}")
    return store


class KeptAgent(Decider):
    """Decides on streams whose state is in a store. One thread at a time may use the store."""

    people: People

    def __init__(
        self,
        reader: Reader,
        exported: Exported,
        store: StateStore,
        settings: AgentSettings | None = None,
        *,
        kind: str = "events",
        streams: int | None = None,
        texts: bool = True,
        clock: Callable[[], float] = time.time,
        claims: StoredClaims | SettledClaims | None = None,
    ):
        """Makes an agent of a reader that it has for itself, and a store that the caller closes.

        Without settings it takes the operating point of the export. A stream that an agent of one `kind` decides on is
        refused by one of another on the same store. At most so many `streams`, at least 1, are in memory; None is any
        number. Without `texts` the store has none of events and offers, which are then read again from the input where
        it is a file. Records carry the time of `clock` in the store, in seconds since 1970. Without `claims` the store
        says whose a stream is.
        """
        settings = AgentSettings(Terms(exported.point)) if settings is None else settings
        if settings.people.recalibrate and store.partitions > 1:
            raise ValueError("recalibrate: found it with a store of partitions, expected none: its map is everybody's")
        super().__init__(reader, exported, settings, People(store, settings.people))
        self.store, self.claims = store, claims or StoredClaims(store)
        self._kind, self._most, self._clock, self._texts = kind, streams, clock, texts
        self._loaded: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._persons: dict[str, str | None] = {}  # whose the streams in memory are
        store.leaving.append(self._leave)

    # What an agent does, on a store of one partition

    @alone
    def observe_many(self, items: Sequence[Observation]) -> list[Decision]:
        """See `Decider.observe_many`; what it decides is kept when it returns."""
        partition = self._partition
        with self._changing(partition, [(item.stream, item.person) for item in items]):
            steps = self._steps(self._as_wanted(partition, items))
            try:
                decisions = self._observe_checked(steps)
            except RefusedError:  # by the reader, which may have read events of these streams before
                self.drop({item.stream for item in items})
                raise
            self._keep(partition, [(item, Written.of(one), None) for item, one in zip(items, decisions, strict=True)])
        self._evict()
        return decisions

    @alone
    def observe_each(
        self, items: Sequence[Observation], *, skip: bool, places: Sequence[Where | None] = ()
    ) -> list[Written | RefusedError]:
        """See `Decider.observe_each`; what it decides is kept when it returns.

        `places` are where the events stand in the input. The place behind the last of those that were taken, or are
        skipped, is kept with them.
        """
        partition = self._partition
        with self._changing(partition, [(item.stream, item.person) for item in items]):
            found = super().observe_each(self._as_wanted(partition, items), skip=skip)
            self._keep(partition, zip(items, found, places or [None] * len(items), strict=False))
            taken = [i for i, one in enumerate(found) if skip or isinstance(one, Written)]
            if taken and places and (place := places[taken[-1]]) is not None:
                partition.note_input(place)
        self._evict()
        return found

    @alone
    def forget(self, stream: str) -> None:
        """Drops a stream that has ended from memory; nobody waits for the answers to its offers any more."""
        with self._changing(self._partition, [(stream, None)]):
            self._withdraw(stream)
        self.drop([stream])

    @alone
    def forget_person(self, person: str) -> None:
        """Deletes what is kept of a person; see `StateStore.forget_person`."""
        self.drop_person(person)
        self.store.forget_person(person)

    @property
    def _partition(self) -> Partition:
        """The partition of a store that has one; StateError for another store, whose streams lie in several."""
        if self.store.partitions > 1:
            raise StateError(
                f"{self.store.folder}: found {self.store.partitions} partitions, expected one; where there are "
                "several, `DurableAgent.answer` takes requests"
            )
        return self.store.partition(0)

    @contextlib.contextmanager
    def _changing(self, partition: Partition, streams: Sequence[tuple[str, str | None]]) -> Iterator[None]:
        """All changes inside to streams of a partition, which are in memory then, or none; each with its person."""
        names = [name for name, _ in streams]
        for name in dict.fromkeys(names):
            self._load(partition, name)
        self.claims.claim(
            [(name, person) for name, person in streams if person is not None and name not in self._persons]
        )
        try:
            with partition.transaction():
                yield
        except RefusedError:  # nothing has changed
            raise
        except BaseException:
            self.drop(names)
            self.people.rang.clear()  # of an answer that is not kept
            raise

    def _take_answer(self, answer: OfferOutcome, place: Where | None) -> None:
        self._take_in(self._partition, answer, place)

    def _take_in(self, partition: Partition, answer: OfferOutcome, place: Where | None = None) -> None:
        """Takes an outcome, and keeps it."""
        with self._changing(partition, [(answer.stream, None)]):
            self._answered(answer)
            stream = partition.stream(answer.stream)
            assert stream is not None, "it has the offer"
            partition.answer(stream, answer, self._clock())
            if place is not None:
                partition.note_input(place)

    def _as_wanted(self, partition: Partition, items: Sequence[Observation]) -> list[Observation]:
        """Events with what their people want in their costs."""
        known: dict[str, Preferences] = {}
        whose: dict[str, str | None] = {}  # a new stream's first event says it
        wanted, now = list[Observation](), self._clock()
        for item in items:
            person = whose.setdefault(item.stream, self._persons.get(item.stream, item.person))
            if person is not None and person not in known:
                known[person] = preferences_of(partition, person)
            wanted += [item] if person is None else self._wanted(known[person], [item], now)
        return wanted

    def _keep(
        self, partition: Partition, decided: Iterable[tuple[Observation, Written | RefusedError, Where | None]]
    ) -> None:
        """Writes decisions, in a transaction of the caller."""
        now = self._clock()
        streams: dict[str, Known] = {}
        for item, written, place in decided:
            if isinstance(written, RefusedError):
                continue
            name, decision = item.stream, written.decision
            if name not in streams:
                streams[name] = partition.open_stream(name, decision.person, self._kind)
                self._remember(name, decision.person)
            kept = item_of(item) if self._texts else item_at(item, place)
            partition.append(streams[name], kept, written.record, written.line, answer_of(decision), now)

    def _wanted(
        self, preferences: Preferences | None, items: Sequence[Observation], now: float
    ) -> Sequence[Observation]:
        """Events of a person, with what the person wants in their costs."""
        if preferences is None:
            return items
        return [as_wanted(item, preferences, self.settings.terms.point.c_fa, now) for item in items]

    # Streams in memory

    def drop(self, streams: Iterable[str]) -> None:
        """Drops streams from memory; they are read again when they are next needed."""
        for name in streams:
            self.unload(name)  # also a new one of which the reader alone has something, since it failed
            self._loaded.pop(name, None)
            self._persons.pop(name, None)

    def drop_person(self, person: str) -> None:
        """Drops a person's streams from memory."""
        self.drop([name for name, whose in self._persons.items() if whose == person])

    def _remember(self, stream: str, person: str | None) -> None:
        """Notes that a stream is in memory, as it is in the store."""
        self._loaded[stream], self._persons[stream] = None, person
        self._loaded.move_to_end(stream)

    def _evict(self) -> None:
        while self._most is not None and len(self._loaded) > self._most:
            self.drop([next(iter(self._loaded))])

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
        self._remember(name, stream.person)
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
                self.resume_many(items, records)
            else:
                for record in records:
                    self.recall(OfferOutcome(*(record[name] for name in OfferOutcome._fields)))

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
