"""Streams that name nobody are deleted alone and whole; a person's stream is not.

Old streams are deleted whatever happens meanwhile, and none where the clock has jumped.
"""

import pytest
from batches import holding
from fake_reader import FakeReader, exported

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.state.durable import Events
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.steps import Observation
from prism_jax.streams import Event

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Stateful
from test_divided import all_of, event, to
from visitor import answered, offer_of, records, stated

from prism_jax.agent.service.agents import DECIDE, EVENTS, Agents, Asked, Models, claim, delete_stream, expire
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.service.tokens import TENANT
from prism_jax.agent.state.places import number_of


def test_nothing_of_a_deleted_stream_is_in_any_file_or_answer(served, tmp_path):
    def decide(stream, time):
        asked = stated(stream, 0.9, [0.9], time, candidates=[f"canary {time}"])
        answer = served.ask("/v1/decide", asked, idempotency_key=f"canary-{time}")[1]
        assert answer["speak"]
        return answer["id"]

    stream = "canary/ of mine"
    offers = [decide(stream, float(i)) for i in range(40)]
    for i, offer in enumerate(offers[:20]):
        assert answered(served, offer, time=100.0 + i)[0] == 200
    assert served.ask("/v1/streams/canary%2Fread/events", {"time": 0.0, "text": "canary"})[0] == 200
    assert decide("kept", 0.0) == "kept/0" and len(holding(tmp_path)) > 1

    path = "/v1/streams/canary%2F%20of%20mine"
    assert served.ask(path, method="DELETE")[:2] == (200, {"streams": 1})
    assert served.ask("/v1/streams/canary%2Fread", method="DELETE")[:2] == (200, {"streams": 1})
    assert served.ask(path, method="DELETE")[:2] == (200, {"streams": 0})
    assert [one["stream"] for one in records(served)] == ["kept"]
    assert answered(served, offers[-1], time=200.0)[0] == 422, "the offer is gone"
    assert served.ask("/v1/streams/kept", method="DELETE")[1] == {"streams": 1}
    assert holding(tmp_path) == []
    assert decide(stream, 0.0) == f"{stream}/0", "it begins anew, and so does its key"


def test_a_persons_stream_is_refused_and_stays(served):
    assert offer_of(served, "ada's", "ada") == "ada's/0"
    status, answer, _ = served.ask("/v1/streams/ada's", method="DELETE")
    assert status == 409 and "DELETE /v1/people/NAME" in answer["error"]["message"]
    assert len(records(served)) == 1
    assert offer_of(served, "ada's", "ada") == "ada's/1"
    assert served.ask("/v1/streams/" + "n" * 2000, method="DELETE")[0] == 422
    assert served.ask("/v1/streams/s?person=ada", method="DELETE")[0] == 422


@pytest.mark.anyio
async def test_a_stream_is_deleted_at_its_owner_and_new_at_every_door(together):
    one, two = together.door(), together.door()

    async def delete(door, stream):
        return await delete_stream(stream, lambda visit: door.ask(Asked(TENANT, DECIDE, visit)))

    for number in range(12):
        await one.ask(to(event(0, f"canary {number}")))
        await two.ask(to(event(1, f"canary {number}")))
    await one.ask(to(event(0, "ada's", "ada")))
    assert await delete(two, "canary 0") == 1 and await delete(one, "canary 0") == 0
    with pytest.raises(RefusedError, match="no such offer"):
        await one.ask(Asked(TENANT, EVENTS, OfferOutcome("canary 0", "canary 0/0", "accepted", 9.0)))
    (answer,) = await one.ask(to(event(0, "canary 0", "eve")))
    assert (answer["id"], answer["person"]) == ("canary 0/0", "eve"), "whatever this door remembers"
    for door, stream in ((one, "ada's"), (two, "canary 0")):
        with pytest.raises(ApiError, match="DELETE /v1/people/NAME") as refused:
            await delete(door, stream)
        assert refused.value.status == 409
    for number in range(1, 12):
        assert await delete(one, f"canary {number}") == 1
    (answer,) = await two.ask(to(event(0, "canary 1")))
    assert answer["id"] == "canary 1/0"
    assert sorted(record["stream"] for record in await all_of(one)) == ["ada's", "canary 0", "canary 1"]
    await together.stop()
    assert not holding(together.folder, b"canary 5")


@pytest.mark.anyio
async def test_a_claim_of_which_nothing_came_goes_with_its_stream_and_a_newer_one_stays(together):
    door = together.door()
    claimed = claim("canary", None, "canary-person")._replace(alone="canary")
    assert await door.ask(Asked(TENANT, DECIDE, claimed)) and holding(together.folder)
    assert await delete_stream("canary", lambda visit: door.ask(Asked(TENANT, DECIDE, visit))) == 0
    assert holding(together.folder) == []

    async def overtaken(visit):
        answer = await door.ask(Asked(TENANT, DECIDE, visit))
        await door.ask(to(event(0, "s", "ada")))
        return answer

    with pytest.raises(ApiError, match="said anew meanwhile") as refused:
        await delete_stream("s", overtaken)
    assert refused.value.status == 503
    assert (await door.ask(to(event(1, "s"))))[0]["person"] == "ada"


def test_over_http_what_is_left_of_a_deletion_is_no_200_and_cursors_and_damage_are_named(tmp_path, start):
    with Stateful(tmp_path, partitions=4) as served:
        for i in range(8):
            offer_of(served, f"canary {i}", f"p{i}")
        after = served.ask("/v1/records")[1]["next"]
    files = tmp_path / "tenants" / "default" / "partitions"
    number = next(i for i in range(4) if i != number_of("p3", 4))
    name, path = f"partitions/{number:05d}.sqlite", files / f"{number:05d}.sqlite"
    whole = path.read_bytes()
    path.write_bytes(b"damaged " * 1000)
    with Stateful(tmp_path, partitions=4) as served:
        for _ in range(2):  # 1 stream the first time, and none the second
            status, answer, _ = served.ask("/v1/people/p3", method="DELETE")
            assert (status, answer["error"]["code"]) == (503, "incomplete") and name in answer["error"]["message"]
            assert served.ask("/v1/people/p3")[0] == 404
        status, answer, _ = served.ask("/v1/records")
        assert status == 503 and path.name in answer["error"]["message"]
        assert served.ask("/v1/streams/new/events", {"time": 0.0, "text": "x"})[0] in (200, 503)
    path.write_bytes(whole)
    served = start(tmp_path, partitions=4)
    assert served.ask("/v1/people/p3", method="DELETE")[:2] == (200, {"streams": 0})
    assert not holding(tmp_path, b"canary 3")
    for text in (after[:-8] + "AAAAAAA=", "e30", "eyIwLmFiYyI6MX0="):
        for route in ("records", "offers"):
            status, answer, _ = served.ask(f"/v1/{route}?after={text}")
            assert status == 422 and answer["error"]["message"].startswith("after: found"), (route, text)
    assert served.ask(f"/v1/records?after={after}")[0] == 200


class Aging:
    """Agents with a store, and a clock."""

    def __init__(self, folder, partitions, **options):
        plain, self.now = exported(slow=False, responses=False), 1e9
        models = Models(FakeReader(slow=False, responses=False), plain, plain)
        self.agents = Agents(models, folder, partitions=partitions, clock=lambda: self.now, **options)

    def decided(self, stream, person, number=0):
        """The id of the decision on an event."""
        item = Observation(stream, Event(time=float(number), text="x"), person=person)
        ((answer,),) = self.agents.answer([Asked(TENANT, EVENTS, Events((item,)))])
        return answer["id"]

    def expired(self, number, seconds, **more):
        """How many old streams of a partition were deleted, or what went wrong."""
        return self.agents.answer([Asked(TENANT, DECIDE, expire(number, seconds, **more))])[0]


def test_a_stream_that_was_deleted_by_age_begins_anew_even_if_the_deletion_ends_half_way(tmp_path, monkeypatch):
    aging = Aging(tmp_path, 1)
    assert [aging.decided("s", "ada", number) for number in range(3)] == ["s/0", "s/1", "s/2"]
    for _ in range(5):
        assert aging.expired(0, 1e5) == 0
        aging.now += 2.4e4
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "erase", lambda _: (_ for _ in ()).throw(StateError("in use")))
        assert isinstance(aging.expired(0, 1e5), StateError)
    assert aging.decided("s", "ada") == "s/0"
    assert aging.expired(0, 1e5) == 0
    aging.agents.close()


@pytest.mark.parametrize("restarted", [True, False])
def test_a_clock_that_jumps_deletes_no_stream_until_it_is_said_that_time_has_passed(restarted, tmp_path):
    said = []

    def swept(**more):
        return [aging.expired(number, 30 * 86400.0, **more) for number in range(3)]

    aging = Aging(tmp_path, 3, report=said.append)
    for i in range(30):
        aging.now += 86400.0  # a stream a day, the oldest of which goes after 30 days
        aging.decided(f"s{i}", f"p{i}")
        assert swept() == [0, 0, 0]
    right = aging.now
    if restarted:
        aging.agents.close()
        aging = Aging(tmp_path, 3, report=said.append)
    aging.now = right + 31 * 86400.0
    first = swept()
    assert [type(one) for one in first] == [StateError, int, int], "it is said once"
    assert "keep_days: found 30 of 30 streams" in str(first[0]) and said == [str(first[0])]
    assert swept() == [0, 0, 0]
    aging.now += 3601.0
    assert isinstance(swept()[0], StateError), "and again in an hour"
    aging.now = right + 2 * 86400.0
    assert sum(swept()) == 1, "by a clock that is right again"
    aging.now = right + 31 * 86400.0
    assert sum(swept(share=1.0)) == 29
    aging.agents.close()


def test_old_streams_are_deleted_of_a_store_of_one_stream_in_many_partitions(tmp_path):
    """Where its partition is visited once an hour, and a quarter of the time that is kept is less than that."""
    aging, deleted = Aging(tmp_path, 1024), 0
    aging.decided("s", next(name for name in map(str, range(1000)) if number_of(name, 1024) == 512))
    for number in range(0, 2048, 4):
        aging.now += 4 * 3600.0 / 1024
        deleted += aging.expired(number, 3600.0)
    assert deleted == 1
    aging.agents.close()
