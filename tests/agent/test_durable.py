"""An agent with a store decides as one with everything in memory does, whatever dies, is evicted or changes hands."""

import contextlib
import dataclasses
import gc
import itertools
import random
import sqlite3
import weakref

import pytest
from batches import PEOPLE, SETTINGS, ask, durable, holding, in_memory, log_of, observation, requests
from fake_reader import FakeReader, exported

from prism_jax.agent import ledger
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.settings import AgentSettings, PeopleSettings, Terms
from prism_jax.agent.state.durable import ConflictError, DurableAgent, Events
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.reading import Cursor, newest, read_log
from prism_jax.agent.state.schema import StateError
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import AN_OFFER, Observation
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.people.exports import StoreError
from prism_jax.people.store import PeopleStore
from prism_jax.streams import Event


@pytest.fixture
def agent(tmp_path):
    """An agent with a new store of its own."""
    with StateStore(tmp_path) as store:
        yield durable(store)


@pytest.mark.parametrize(("streams", "every"), [(100, None), (2, 9), (1, 1)])
def test_it_decides_as_one_agent_in_memory_whatever_is_evicted_or_restarted(streams, every, tmp_path):
    """Restarted after every so many batches, with so many streams in memory."""
    batches = list(requests(25))
    store = StateStore(tmp_path / "state", partitions=4)
    agent = durable(store, streams=streams)
    for i, batch in enumerate(batches):
        for request, answer in zip(batch, agent.answer(batch), strict=True):
            if isinstance(request, Events):
                assert len(answer) == len(request.items)
        if every and i % every == 0:
            store.close()
            store = StateStore(tmp_path / "state")
            agent = durable(store, streams=streams)
    expected = in_memory(batches)
    assert {stream: log_of(store, stream) for stream in PEOPLE} == expected
    kinds = [record["kind"] for own in expected.values() for record in own]
    assert kinds.count("outcome") > 5 and kinds.count("decision") > 80
    store.close()


class Killed(BaseException):
    """Stands for the death of the process."""


def killed_at(monkeypatch, place):
    """Lets the process die before its statement of this number."""
    rows, numbers = Partition.rows, itertools.count(1)

    def counted(self, statement, values=()):
        if next(numbers) == place:
            raise Killed
        return rows(self, statement, values)

    monkeypatch.setattr(Partition, "rows", counted)


@pytest.mark.slow
def test_whatever_statement_the_process_dies_at_every_request_is_there_once(tmp_path, monkeypatch):
    """Who got no answer sends the request again; the records are those of an undisturbed run."""
    batches = [
        [Events((observation("s0", 0), observation("s0", 1)), "a", b"a"), Events((observation("s3", 0),), "b", b"b")],
        [Events((observation("s1", 0),), "c", b"c"), Events((observation("s0", 2),), "d", b"d")],
    ]
    expected = in_memory(batches)
    offers = [one["offer"] for own in expected.values() for one in own if one["offer"]]
    stream = offers[0].rsplit("/", 1)[0]
    batches.append([OfferOutcome(stream, offers[0], "dismissed", 900.0)])
    expected = in_memory(batches)
    place, ended = 0, False
    while not ended:
        place += 1
        folder = tmp_path / str(place)
        store = StateStore(folder, partitions=2)
        ended = True
        with monkeypatch.context() as patch:
            killed_at(patch, place)
            try:
                agent = durable(store)
                for batch in batches:
                    agent.answer(batch)
            except Killed:
                ended = False
        for one in store._open.values():
            one._file.close()  # without a commit, as where the process is gone
        store._open.clear()
        store.close()
        with StateStore(folder) as again:
            agent = durable(again)
            for batch in batches:
                assert not [answer for answer in agent.answer(batch) if isinstance(answer, Exception)]
            assert {stream: log_of(again, stream) for stream in PEOPLE} == expected
            assert len(list(agent.people.of("ada"))) == (1 if stream in ("s0", "s1") else 0)
    assert place > 60


def test_only_the_newer_owner_can_change_a_partition(tmp_path):
    now = [1000.0]
    path = tmp_path / "one.sqlite"
    first = Partition(path, owner="a", alone=False, clock=lambda: now[0])
    with first.transaction():
        first.open_stream("s", None, "events")
    now[0] += 9.0
    with pytest.raises(StaleError) as refused:
        Partition(path, owner="b", alone=False, clock=lambda: now[0])
    assert 0 < refused.value.seconds <= 10
    now[0] += 9.0  # its lease is over, and it does not know
    second = Partition(path, owner="b", alone=False, clock=lambda: now[0])
    now[0] -= 15.0  # whatever the clock says
    with pytest.raises(StaleError), first.transaction():
        first.open_stream("late", None, "events")
    first.close()
    assert (second.lease.owner, second.epoch) == ("b", 2)
    assert second.stream("late") is None and second.stream("s") is not None
    second.close()
    third = Partition(path, owner="c", alone=False, clock=lambda: now[0])  # the lease was given back
    assert third.epoch == 3
    third.close()


def test_a_stale_owner_decides_nothing_and_reads_again_when_it_owns_the_partition_again(tmp_path):
    now = [0.0]

    shared = {"alone": False, "clock": lambda: now[0]}
    with StateStore(tmp_path, partitions=1, **shared) as one, StateStore(tmp_path, **shared) as two:
        first, second = durable(one), durable(two)
        before = ask(first, observation("s0", 0))
        assert isinstance(ask(second, observation("s0", 1))[0], StaleError)
        one.let_go(0)
        after = ask(second, observation("s0", 1))
        assert isinstance(ask(first, observation("s0", 2))[0], StaleError)
        two.let_go(0)
        last = ask(first, observation("s0", 2))
        assert [answer[0]["id"] for (answer,) in (before, after, last)] == ["s0/0", "s0/1", "s0/2"]
        assert [one["event"] for one in log_of(one, "s0")] == [0, 1, 2]


def test_a_request_that_comes_again_gets_its_answer_and_another_one_of_the_same_key_is_refused(agent):
    request = Events((observation("s0", 0),), "key", b"body")
    first, again = agent.answer([request, request])
    assert first == again and len(log_of(agent.store, "s0")) == 1
    assert agent.answer([request._replace(digest=b"another")])[0].args[0].startswith("Idempotency-Key: ")
    ask(durable(agent.store, clock=lambda: 10e9), observation("s0", 1), key="another")
    assert agent.store.of("ada").answered("key") is None  # after a week


def test_what_is_refused_leaves_no_trace_and_what_stands_beside_it_is_decided(agent):
    bad = Observation("s2", Event(time=-5.0, text="earlier"), AN_OFFER, None, "unknown", "bob")
    asked = [(observation("s2", 1),), (observation("s2", 2), bad), (observation("s3", 0),)]
    late, sooner = observation("s3", 9), observation("s3", 3)
    good, early, other, refused, taken = agent.answer([Events(one) for one in (*asked, (late, sooner), (sooner,))])
    assert isinstance(refused, RefusedError) and taken[0]["id"] == "s3/1", "its clock did not move"
    assert isinstance(early, RefusedError) and "time: found -5.0" in str(early)
    assert good[0]["id"] == "s2/0" and other[0]["id"] == "s3/0"
    assert len(log_of(agent.store, "s2")) == 1
    (theirs,) = ask(agent, observation("s3", 4)._replace(person="eve"))
    assert isinstance(theirs, RefusedError) and "another person" in str(theirs)
    (unknown,) = agent.answer([OfferOutcome("s3", "s3/77", "accepted", 50.0)])
    assert isinstance(unknown, RefusedError)


def test_nothing_of_a_deleted_person_is_in_any_file(tmp_path):
    with StateStore(tmp_path, partitions=3) as store:
        agent = durable(store)
        for i in range(40):
            item = Observation("canary-stream", Event(time=float(i), text=f"canary-text {i}"), person="canary-person")
            agent.answer([Events((item,), f"k{i}", b""), Events((observation("s2", i),))])
        offers = [one["offer"] for one in log_of(store, "canary-stream")]
        agent.answer([OfferOutcome("canary-stream", next(filter(None, offers)), "accepted", 100.0)])
        assert holding(tmp_path)
        agent.drop(["canary-stream"])
        assert store.forget_person("canary-person") == ["canary-stream"]
        assert not holding(tmp_path)
        assert len(log_of(store, "s2")) == 40
        (new,) = ask(agent, item._replace(person="somebody"))  # the name is free
        assert new[0]["id"] == "canary-stream/0"


def test_a_full_disk_refuses_and_loses_nothing(tmp_path):
    with StateStore(tmp_path, partitions=1) as store:
        agent = durable(store)
        ask(agent, observation("s0", 0))
        ((pages,),) = store.of("ada").rows("PRAGMA page_count")
        store.of("ada").rows(f"PRAGMA max_page_count = {pages}")
        long = observation("s0", 1, text="word " * 20_000)
        (full,) = ask(agent, long, key="key")
        assert isinstance(full, StateError) and "full" in str(full)
        store.of("ada").rows("PRAGMA max_page_count = 100000")
        (answer,) = ask(agent, long, key="key")
        assert answer[0]["id"] == "s0/1"
        assert [one["event"] for one in log_of(store, "s0")] == [0, 1]


def test_a_store_has_one_process_a_format_and_a_kind_of_agent(tmp_path):
    with StateStore(tmp_path / "state", partitions=7) as store:
        with pytest.raises(StateError, match="in use by another process"):
            StateStore(tmp_path / "state")
        ask(durable(store), observation("s0", 0))
        assert isinstance(ask(durable(store, kind="decide"), observation("s0", 1))[0], ConflictError)
        path = store.of("ada").path
    with StateStore(tmp_path / "state") as store:
        assert store.partitions == 7
        assert [number for number, _ in store.made()]
    (tmp_path / "state" / "store.json").write_text('{"format": 2}')
    with pytest.raises(StateError, match="format: found 2, expected 1"):
        StateStore(tmp_path / "state")
    (tmp_path / "note").write_text("no database of ours")
    with pytest.raises(StateError, match="note: found state that cannot be used"):
        Partition(tmp_path / "note", owner="a")
    assert path.endswith(".sqlite")


def test_alarms_share_the_level_and_everybodys_map_is_refused(tmp_path):
    with StateStore(tmp_path, partitions=8) as store:
        people = durable(store).people
        assert people.settings.alarm == pytest.approx(0.2 / 8)
        settings = dataclasses.replace(SETTINGS, people=PeopleSettings(recalibrate=True))
        with pytest.raises(ValueError, match="recalibrate: found it with a store of partitions"):
            DurableAgent(FakeReader(), exported(), store, settings)


def test_a_new_streams_person_holds_for_the_requests_beside_it(agent):
    """Both are of one partition, though only one of them says whose the stream is."""
    first, second = ask(agent, observation("s0", 0), observation("s0", 1)._replace(person=None))
    assert [first[0]["id"], second[0]["id"]] == ["s0/0", "s0/1"] and second[0]["person"] == "ada"
    ((again,),) = ask(durable(agent.store), observation("s0", 2)._replace(person=None))
    assert (again["id"], again["person"]) == ("s0/2", "ada")
    agent.store.forget_person("ada")
    assert log_of(agent.store, "s0") == []


def test_a_new_stream_is_claimed_for_the_person_of_its_first_event(tmp_path):
    with store_of_one(tmp_path) as store:
        agent, item = KeptAgent(FakeReader(), exported(), store), observation("s0", 0)
        items = [item._replace(stream="canary", person=person) for person in ("ada", "bob")]
        assert isinstance(agent.observe_each(items, skip=True)[1], RefusedError)
        assert store.partition(0).claims() == [("canary", "ada")]
        agent.forget_person("ada")
        assert not holding(tmp_path, b"canary")


def test_what_is_asked_of_one_partition_is_refused_where_there_are_several(tmp_path):
    with StateStore(tmp_path / "state", partitions=4) as store:
        agent, item = durable(store), observation("s0", 0)
        for ask in (
            lambda: agent.observe("s0", item.event),
            lambda: agent.observe_many([item]),
            lambda: agent.observe_each([item], skip=True),
            lambda: agent.outcome("s0", "s0/0", "ignored", 1.0),
            lambda: agent.forget("s0"),
        ):
            with pytest.raises(StateError, match=r"found 4 partitions, expected one; .*`DurableAgent.answer`"):
                ask()
        assert not list(store.made())


def test_a_refused_batch_leaves_a_stream_without_texts_as_it_was(tmp_path):
    with store_of_one(tmp_path / "state") as store:
        agent = KeptAgent(FakeReader(), exported(), store, texts=False)
        at = lambda time: Observation("x", Event(time=time, text="x"), AN_OFFER)  # noqa: E731
        agent.observe_many([at(1.0)])
        with pytest.raises(RefusedError, match=r"time: found 0\.5"):
            agent.observe_many([at(2.0), at(0.5)])
        assert len(agent.observe_many([at(1.5)])) == 1


def test_a_stream_of_more_offers_than_are_remembered_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "MOST_OFFERS", 3)
    settings = AgentSettings(Terms(exported(point=OperatingPoint(policy="always")).point))
    with StateStore(tmp_path) as store:
        agent = DurableAgent(FakeReader(), exported(), store, settings)
        for number in range(12):
            ask(agent, observation("s3", number)._replace(costs=None))
            if number % 2:
                agent.answer([OfferOutcome("s3", f"s3/{number}", "accepted", 30.0 * number)])
        again = DurableAgent(FakeReader(), exported(), store, settings)
        outcomes = [OfferOutcome("s3", f"s3/{number}", "accepted", 900.0) for number in (10, 8, 2, 9)]
        for answered in zip(agent.answer(outcomes[:1]), again.answer(outcomes[:1]), strict=True):
            assert answered[0] == answered[1] == [outcomes[0].record()]
        kind = lambda one: list if isinstance(one, list) else type(one)  # noqa: E731
        kinds = [[kind(one) for one in either.answer(outcomes[1:])] for either in (agent, again)]
        assert kinds[0] == kinds[1] and RefusedError in kinds[0]


class Choosy(FakeReader):
    """Cannot read one text."""

    def observe(self, items):
        if any(event.text == "too long" for _, event, _ in items):
            raise ValueError("stream: text: found too many tokens")
        return super().observe(items)


def test_a_claim_of_which_nothing_came_binds_nobody_and_is_deleted(tmp_path):
    with StateStore(tmp_path) as store:
        agent = DurableAgent(Choosy(), exported(), store, SETTINGS)
        unreadable = Observation("free", Event(time=0.0, text="too long"), person="canary")
        assert isinstance(ask(agent, unreadable)[0], RefusedError)
        refused, taken = ask(agent, unreadable, observation("s2", 0))
        assert isinstance(refused, RefusedError) and taken[0]["id"] == "s2/0"
        (taken,) = ask(agent, Observation("free", Event(time=0.0, text="short"), person="eve"))
        assert taken[0]["person"] == "eve"
        assert isinstance(ask(agent, unreadable._replace(stream="other"))[0], RefusedError)
        assert store.forget_person("canary") == []
        assert not holding(tmp_path)


def test_a_stream_of_nobody_is_nobodys_whoever_had_claimed_it_before(tmp_path):
    with StateStore(tmp_path, partitions=1) as store:
        agent = DurableAgent(Choosy(), exported(), store, SETTINGS)
        items = [Observation("s", Event(time=float(n), text=text)) for n, text in enumerate(["too long", "short", "x"])]
        refused, *taken = ask(agent, items[0]._replace(person="ada"), *items[1:])
        assert isinstance(refused, RefusedError) and [one[0]["id"] for one in taken] == ["s/0", "s/1"]
        (again,) = ask(DurableAgent(Choosy(), exported(), store, SETTINGS), items[2])
        assert (again[0]["id"], again[0]["person"]) == ("s/2", None)


def test_a_deletion_that_cannot_end_says_so_and_ends_with_the_next(tmp_path):
    with StateStore(tmp_path, partitions=1) as store:
        agent = durable(store)
        ask(agent, Observation("canary-stream", Event(time=0.0, text="canary-text"), person="canary"))
        store.of("canary").rows("PRAGMA busy_timeout = 50")
        with contextlib.closing(sqlite3.connect(store.of("canary").path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM log").fetchall()
            agent.drop(["canary-stream"])
            with pytest.raises(StateError, match="found it in use"):
                store.forget_person("canary")
        assert store.forget_person("canary") == []
        assert not holding(tmp_path)


def test_a_fault_in_one_partition_leaves_no_transaction_open_in_another(tmp_path, monkeypatch):
    with StateStore(tmp_path, partitions=64) as store:
        agent = durable(store)
        assert store.number_of("ada") != store.number_of("bob")
        with fails(monkeypatch, Partition, "append", MemoryError()), pytest.raises(MemoryError):
            ask(agent, observation("s0", 0), observation("s2", 0))
        first, second = ask(agent, observation("s0", 0), observation("s2", 0))
        assert [first[0]["id"], second[0]["id"]] == ["s0/0", "s2/0"]


@contextlib.contextmanager
def fails(monkeypatch, kind, method, error):
    """Lets a method raise an error, while the block runs."""
    with monkeypatch.context() as patch:
        patch.setattr(kind, method, lambda *_: (_ for _ in ()).throw(error))
        yield


def test_a_disk_that_fails_for_a_moment_is_no_contradiction(agent, monkeypatch):
    ask(agent, observation("s0", 0))
    agent = durable(agent.store)
    for number, (kind, method, error) in enumerate(
        [(Partition, "history", StateError("disk I/O error")), (PeopleStore, "person", StoreError("disk is full"))], 1
    ):
        with fails(monkeypatch, kind, method, error):
            assert isinstance(ask(agent, observation("s0", number))[0], StateError)
        assert ask(agent, observation("s0", number))[0][0]["id"] == f"s0/{number}"


def test_an_event_at_which_the_reader_fails_is_read_once_when_it_comes_again(tmp_path, monkeypatch):
    with StateStore(tmp_path) as store:
        agent = durable(store)
        read = agent.reader.observe
        with monkeypatch.context() as patch:
            patch.setattr(agent.reader, "observe", lambda items: (read(items), 1 / 0))
            with pytest.raises(ZeroDivisionError):
                agent.answer([Events((observation("s0", 0),))])
        for number in range(2):
            assert agent.answer([Events((observation("s0", number),))])[0][0]["id"] == f"s0/{number}"
        assert durable(store).answer([Events((observation("s0", 2),))])[0][0]["id"] == "s0/2"


def test_few_files_are_open_at_a_time_and_those_that_were_closed_take_no_memory(tmp_path):
    with StateStore(tmp_path, most_open=3) as store:
        agent, opened = durable(store), weakref.WeakSet()

        def asked(number):
            said = Event(time=float(number), text="x")
            return [Observation(f"stream {i}", said, person=f"person {i}") for i in range(8)]

        for number in range(2):
            for i, item in enumerate(asked(number)):
                assert ask(agent, item)[0][0]["id"] == f"stream {i}/{number}"
                opened.update(store._open.values())
        assert len(store._open) <= 3
        gc.collect()
        assert len(opened) <= 3
        assert [answer[0]["id"] for answer in ask(agent, *asked(2))] == [f"stream {i}/2" for i in range(8)]


def test_a_partition_that_is_being_made_has_no_records(agent, tmp_path):
    ask(agent, observation("s0", 0))
    (tmp_path / "partitions" / "00999.sqlite").touch()
    assert len(read_log(tmp_path, Cursor(), 10)[0]) == 1
    assert newest(tmp_path).numbers == {agent.store.number_of("ada"): 1}


def test_clocks_that_jump_change_no_decision_and_no_owner(tmp_path):
    """Backwards, forwards by years, and between restarts."""
    batches, draw = list(requests(12)), random.Random(4)
    expected, now = in_memory(batches), [1e9]
    store = StateStore(tmp_path, partitions=2, alone=False, clock=lambda: now[0])
    agent = durable(store, clock=lambda: now[0])
    for i, batch in enumerate(batches):
        now[0] += draw.choice([-1e8, -5.0, 0.0, 5.0, 1e8])
        answers = agent.answer(batch)
        assert not any(isinstance(answer, StaleError | StateError) for answer in answers)
        if i % 4 == 3:
            store.close()
            store = StateStore(tmp_path, alone=False, clock=lambda: now[0])
            agent = durable(store, clock=lambda: now[0])
    assert {stream: log_of(store, stream) for stream in PEOPLE} == expected
    store.close()
