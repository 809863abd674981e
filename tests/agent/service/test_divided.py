"""Partitions divided among owners in one process: what they record together is what one agent records alone."""

import asyncio
import pickle
import random
from unittest import mock

import pytest
from batches import PEOPLE, SETTINGS, holding, in_memory, plain, requests
from fake_reader import FakeReader, exported

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.state.durable import ConflictError, Events
from prism_jax.agent.state.owned_file import StaleError
from prism_jax.agent.state.reading import Cursor
from prism_jax.agent.steps import Observation
from prism_jax.streams import Candidate, Event

pytest.importorskip("fastapi", reason="the server is that of the extra `serve`")
from prism_jax.agent.service import form
from prism_jax.agent.service.agents import DECIDE, EVENTS, QUESTIONS, Agents, Asked, Models, forget, whose
from prism_jax.agent.service.answering import Answering
from prism_jax.agent.service.divided import DividedDoor, LostError, Owner, Owners
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.service.tokens import TENANT

pytestmark = pytest.mark.anyio
PARTITIONS = 12


class Direct:
    """Calls an owner of this process; after `lost` it does not answer."""

    def __init__(self, owner):
        self.owner, self.lost = owner, False

    async def call(self, method, *arguments):
        if self.lost:
            raise LostError
        return await getattr(self.owner, method)(*arguments)


class Together:
    """Owners in this process, which can be divided anew."""

    def __init__(self, folder):
        self.folder, self.handles, self.generation, self.reported, self.now = folder, [], 0, [], 1e9
        self.error: Exception | None = None  # what `lost` raises

    def _agents(self):
        models = Models(FakeReader(slow=True), exported(), exported(), SETTINGS)
        agents = Agents(models, self.folder, partitions=PARTITIONS, alone=False, clock=lambda: self.now)
        agents.open([TENANT])
        return agents

    async def scale(self, count):
        kept, left = self.handles[:count], self.handles[count:]
        new = [Direct(Owner(self._agents, self.folder, 100)) for _ in range(count - len(kept))]
        for one in new:
            await one.call("start")
        for one in left:
            await one.call("own", range(0))
        self.handles = kept + new
        for _ in range(2):  # first to give partitions back, and then to take those of others
            for i, one in enumerate(self.handles):
                await one.call("own", range(i, PARTITIONS, count))
        self.generation += 1

    async def call(self, method, *arguments):
        return await getattr(self, method)(*arguments)

    async def owners(self):
        return Owners(self.generation, tuple(self.handles))

    async def lost(self, generation, place):
        self.reported.append((generation, place))
        if self.error:
            raise self.error

    def door(self):
        return DividedDoor(self, self.folder, PARTITIONS)

    async def stop(self):
        for one in self.handles:
            await one.owner.stop()
        self.handles = []


def event(number, stream, person=None, **more):
    return Events((Observation(stream, Event(time=float(number), text=f"event {number}"), person=person, **more),))


def to(request):
    return Asked(TENANT, EVENTS, request)


async def all_of(door):
    found, cursor = [], Cursor()
    while True:
        new, cursor = await door.read_log(TENANT, cursor, 50)
        found += [one.record for one in new]
        if len(new) < 50:
            return found


async def test_owners_that_come_and_go_record_together_what_one_agent_records(together):
    batches = list(requests(25))
    doors = [together.door(), together.door()]
    draw = random.Random(2)
    for i, batch in enumerate(batches):
        if i % 6 == 5:
            await together.scale(draw.choice([1, 2, 3, 5]))
        for request in batch:
            try:
                await draw.choice(doors).ask(to(request))
            except (RefusedError, ConflictError):
                assert isinstance(request, OfferOutcome)
    first, second = [await all_of(door) for door in doors]
    assert sorted(map(str, first)) == sorted(map(str, second))
    newest = [(await door.newest(TENANT)).numbers for door in doors]
    assert newest[0] == newest[1] and len(newest[0]) >= 3
    expected = in_memory(batches)
    for stream in PEOPLE:
        assert [plain(one) for one in first if one["stream"] == stream] == expected[stream]


async def test_questions_about_streams_of_their_own_have_the_same_answers_at_every_door(together):
    """A stream that grows is always the same owner's; nothing is kept."""
    events = tuple(Event(time=float(number), text=f"event {number}") for number in range(4))
    questions = [form.Asked(events[: count + 1], (Candidate(), Candidate(text="Tea?"))) for count in range(4)]
    asked = []
    for number, one in enumerate(together.handles):
        own = one.owner.ask
        one.owner.ask = lambda item, own=own, number=number: asked.append(number) or own(item)
    for door in (together.door(), together.door()):
        answers = [await door.ask(Asked(TENANT, QUESTIONS, one)) for one in questions]
        assert answers == Answering(FakeReader(slow=True), exported()).answer(questions)
    assert len(asked) == 8 and len(set(asked)) == 1
    assert await all_of(door) == []


def test_an_error_of_an_owner_comes_to_another_process_as_it_was():
    error = pickle.loads(pickle.dumps(ApiError(503, "the model gave no answer", code="late")))
    assert (error.status, str(error), error.param, error.code) == (503, "the model gave no answer", None, "late")


async def test_what_is_refused_binds_nobody(together):
    one, two = together.door(), together.door()
    with pytest.raises(RefusedError, match="no such offer"):
        await one.ask(to(OfferOutcome("s", "s/0", "accepted", 1.0)))
    with pytest.raises(RefusedError, match="unknown key"):
        await one.ask(to(event(0, "s", "ada", costs={"wrong": 1.0})))
    (answer,) = await two.ask(to(event(0, "s", "bob")))
    assert answer["person"] == "bob"
    with pytest.raises(RefusedError, match="another person than before"):
        await one.ask(to(event(1, "s", "ada")))
    assert [(await door.ask(to(event(2, "s"))))[0]["person"] for door in (one, two)] == ["bob", "bob"]
    await one.ask(to(event(0, "nobodys")))
    with pytest.raises(RefusedError, match="another person than before"):
        await two.ask(to(event(1, "nobodys", "ada")))
    assert len(await all_of(one)) == 4


async def test_a_person_who_is_deleted_at_one_door_is_new_at_another(together):
    one, two = together.door(), together.door()
    await one.ask(to(event(0, "s", "eve")))
    await two.ask(to(event(1, "s", "eve")))
    assert await two.ask(Asked(TENANT, DECIDE, forget("eve"))) == 1
    (again,) = await one.ask(to(event(0, "s", "eve")))  # what this door remembers no longer holds
    assert again["id"] == "s/0"
    await two.ask(Asked(TENANT, DECIDE, forget("eve")))
    (nobodys,) = await two.ask(to(event(0, "s")))
    assert nobodys["person"] is None
    with pytest.raises(RefusedError, match="person: found"):
        await one.ask(to(event(1, "s", "eve")))
    (same,) = await one.ask(to(event(1, "s")))
    assert same["id"] == "s/1"
    assert [(record["stream"], record["event"]) for record in await all_of(one)] == [("s", 0), ("s", 1)]


async def test_retention_leaves_no_name_at_any_owner(together):
    door = together.door()
    for number in range(12):
        await door.ask(to(event(0, f"canary stream {number}", f"canary {number}")))
    await door.ask(to(event(0, "kept", "bob")))
    for _ in range(8):  # a clock that did so at once would be taken for a wrong one
        together.now += 2.4e4
        await door.ask(to(event(1, "kept", "bob")))
        for number in range(PARTITIONS):
            await door.expire(TENANT, number, 1e5)
    (answer,) = await door.ask(to(event(0, "canary stream 3")))
    assert (answer["id"], answer["person"]) == ("canary stream 3/0", None)
    await door.ask(Asked(TENANT, DECIDE, forget("nobody")))
    assert {one["stream"] for one in await all_of(door)} == {"kept", "canary stream 3"}
    await together.stop()
    assert not holding(together.folder, b"canary stream 5")


async def test_records_are_whole_while_partitions_are_divided_anew(together):
    """At doors that have not heard of it yet."""
    door = together.door()
    for number in range(24):
        await door.ask(to(event(0, f"s{number}", f"p{number}")))
    before = sorted(one["stream"] for one in await all_of(door))
    assert len(before) == 24
    for count in (1, 5, 2):
        unaware = together.door()
        await unaware.newest(TENANT)  # remembers who has what
        await together.scale(count)
        assert sorted(one["stream"] for one in await all_of(unaware)) == before
        assert len((await together.door().newest(TENANT)).numbers) == len((await unaware.newest(TENANT)).numbers)


@pytest.mark.parametrize("error", [None, ValueError("the new owner finds no model")])
async def test_a_lost_owner_is_reported_and_nobody_is_told_that_nothing_happened(error, together):
    door, together.error = together.door(), error
    (answer,) = await door.ask(to(event(0, "s", "ada")))
    for one in together.handles:
        one.lost = True
    with pytest.raises(ApiError, match="nobody knows what became of the request") as told:
        await door.ask(to(event(1, "s", "ada")))
    assert told.value.status == 504
    ((generation, _),) = together.reported
    assert generation == together.generation
    for one in together.handles:
        one.lost = False
    (answer,) = await door.ask(to(event(1, "s", "ada")))
    assert answer["id"] == "s/1"


async def test_an_owner_that_cannot_load_says_why(tmp_path):
    def load():
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        await Owner(load, tmp_path, 10).start()


async def test_a_new_owner_without_an_answer_does_not_keep_the_directory_from_others(monkeypatch):
    cluster = pytest.importorskip("prism_jax.agent.service.cluster", reason="Ray is that of the extra `cluster`")
    killed = []
    monkeypatch.setattr(cluster.ray, "kill", killed.append)
    monkeypatch.setattr(cluster, "START_SECONDS", 0.01)

    class Silent:
        actor = "its actor"

        async def call(self, method, *_):
            if method == "alive":
                raise LostError
            await asyncio.sleep(3600 * (method == "own"))

    directory = cluster.Directory(None, "state", 1, PARTITIONS, {}, "")
    directory._owners, directory._made = [Silent()], Silent
    tried = asyncio.ensure_future(directory.lost(0, 0))
    assert (await asyncio.wait([tried], timeout=5))[0]
    assert isinstance(tried.exception(), TimeoutError) and not directory._changing.locked()
    assert len(killed) == 2


async def test_an_owner_that_leaves_says_so_meanwhile(together, monkeypatch):
    cluster = pytest.importorskip("prism_jax.agent.service.cluster", reason="Ray is that of the extra `cluster`")
    monkeypatch.setattr(cluster.ray.actor, "exit_actor", lambda: None)
    owner = cluster.OwnerActor(together._agents, together.folder, 100)
    await owner.start()
    leaving = asyncio.ensure_future(owner.leave())
    await asyncio.sleep(0)
    with pytest.raises(StaleError):
        await asyncio.wait_for(owner.ask(Asked(TENANT, DECIDE, whose("s"))), 5)
    leaving.cancel()
    await owner.stop()


async def test_owners_that_do_not_load_keep_nobody_waiting(monkeypatch):
    cluster = pytest.importorskip("prism_jax.agent.service.cluster", reason="Ray is that of the extra `cluster`")
    killed, calls = [], []
    monkeypatch.setattr(cluster.ray, "kill", killed.append)
    monkeypatch.setattr(cluster, "START_SECONDS", 0.01)

    class Silent:
        actor = "its actor"

        async def call(self, method, *_):
            calls.append(method)
            await asyncio.sleep(3600)

    directory = cluster.Directory(None, "state", 1, PARTITIONS, {}, "")
    directory._made = Silent
    tried = asyncio.ensure_future(directory.scale(2))
    assert (await asyncio.wait([tried], timeout=5))[0]
    assert isinstance(tried.exception(), TimeoutError) and not directory._changing.locked()
    assert (killed, calls) == (["its actor"] * 2, ["start"] * 2)


def test_owners_end_although_their_directory_gives_no_answer(monkeypatch):
    cluster = pytest.importorskip("prism_jax.agent.service.cluster", reason="Ray is that of the extra `cluster`")
    killed, directory = [], mock.Mock()
    found = {directory.owners.remote(): Owners(1, (cluster.Actor("owner"),))}

    def get(asked, timeout):
        assert timeout < 1000
        if asked not in found:
            raise cluster.ray.exceptions.GetTimeoutError
        return found[asked]

    for name, stub in (("get_actor", lambda *_: directory), ("get", get), ("kill", killed.append)):
        monkeypatch.setattr(cluster.ray, name, stub)
    assert cluster.stop_owners("state") and killed == ["owner", directory]
