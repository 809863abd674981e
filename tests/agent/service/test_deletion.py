"""Streams that name nobody are deleted alone and whole; a person's stream is not.

Old streams are deleted whatever happens meanwhile, and none where the clock has jumped.
"""

import pathlib

import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.state.durable import Events
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.steps import Observation
from prism_jax.streams import Event

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Stateful
from test_divided import all_of, event, run, to
from visitor import COSTS, records

from prism_jax.agent.service.agents import DECIDE, EVENTS, Agents, Asked, Models, claim, delete_stream, expire
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.service.tokens import TENANT
from prism_jax.agent.state.places import number_of


def with_canary(folder):
    return [path for path in pathlib.Path(folder).rglob("*") if path.is_file() and b"canary" in path.read_bytes()]


def test_nothing_of_a_deleted_stream_is_in_any_file_or_answer(served, tmp_path):
    def decide(stream, time):
        asked = {"stream": stream, "time": time, "p_need": 0.9, "p_accept": [0.9], "candidates": [f"canary {time}"]}
        answer = served.ask("/v1/decide", {**asked, "costs": COSTS}, idempotency_key=f"canary-{time}")[1]
        assert answer["speak"]
        return answer["id"]

    stream = "canary/ of mine"
    offers = [decide(stream, float(i)) for i in range(40)]
    for i, offer in enumerate(offers[:20]):
        outcome = {"stream": stream, "offer": offer, "outcome": "accepted", "time": 100.0 + i}
        assert served.ask("/v1/outcomes", outcome)[0] == 200
    read = {"time": 0.0, "text": "canary"}
    assert served.ask("/v1/streams/canary%2Fread/events", read)[0] == 200
    assert decide("kept", 0.0) == "kept/0" and len(with_canary(tmp_path)) > 1

    path = "/v1/streams/canary%2F%20of%20mine"
    assert served.ask(path, method="DELETE")[:2] == (200, {"streams": 1})
    assert served.ask("/v1/streams/canary%2Fread", method="DELETE")[:2] == (200, {"streams": 1})
    assert served.ask(path, method="DELETE")[:2] == (200, {"streams": 0})
    assert [one["stream"] for one in records(served)] == ["kept"]
    late = {"stream": stream, "offer": offers[-1], "outcome": "accepted", "time": 200.0}
    assert served.ask("/v1/outcomes", late)[0] == 422, "the offer is gone"
    assert served.ask("/v1/streams/kept", method="DELETE")[1] == {"streams": 1}
    assert with_canary(tmp_path) == []
    assert decide(stream, 0.0) == f"{stream}/0", "it begins anew, and so does its key"


def test_a_persons_stream_is_refused_and_stays(served):
    asked = {"stream": "ada's", "person": "ada", "time": 1.0, "p_need": 0.5, "p_accept": 0.5}
    assert served.ask("/v1/decide", asked)[0] == 200
    status, answer, _ = served.ask("/v1/streams/ada's", method="DELETE")
    assert status == 409 and "DELETE /v1/people/NAME" in answer["error"]["message"]
    assert len(records(served)) == 1
    assert served.ask("/v1/decide", asked)[1]["id"] == "ada's/1"
    assert served.ask("/v1/streams/" + "n" * 2000, method="DELETE")[0] == 422
    assert served.ask("/v1/streams/s?person=ada", method="DELETE")[0] == 422


def test_a_stream_is_deleted_at_its_owner_and_new_at_every_door(tmp_path):
    async def work(together):
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
        return await all_of(one)

    found = run(tmp_path, work)
    assert sorted(one["stream"] for one in found) == ["ada's", "canary 0", "canary 1"]
    assert not [path for path in tmp_path.rglob("*.sqlite*") if b"canary 5" in path.read_bytes()]


def test_a_claim_of_which_nothing_came_goes_with_its_stream_and_a_newer_one_stays(tmp_path):
    async def work(together):
        door = together.door()
        claimed = claim("canary", None, "canary-person")._replace(alone="canary")
        assert await door.ask(Asked(TENANT, DECIDE, claimed)) and with_canary(tmp_path)
        assert await delete_stream("canary", lambda visit: door.ask(Asked(TENANT, DECIDE, visit))) == 0
        assert with_canary(tmp_path) == []

        async def overtaken(visit):
            answer = await door.ask(Asked(TENANT, DECIDE, visit))
            await door.ask(to(event(0, "s", "ada")))
            return answer

        with pytest.raises(ApiError, match="said anew meanwhile") as refused:
            await delete_stream("s", overtaken)
        assert refused.value.status == 503
        assert (await door.ask(to(event(1, "s"))))[0]["person"] == "ada"

    run(tmp_path, work)


def test_over_http_what_is_left_of_a_deletion_is_no_200_and_cursors_and_damage_are_named(tmp_path, start):
    with Stateful(tmp_path, partitions=4) as served:
        for i in range(8):
            asked = {"stream": f"canary {i}", "person": f"p{i}", "time": 1.0, "p_need": 0.9, "p_accept": 0.9}
            assert served.ask("/v1/decide", {**asked, "costs": COSTS})[0] == 200
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
    assert not with_canary(tmp_path) or all(b"canary 3" not in path.read_bytes() for path in with_canary(tmp_path))
    for text in (after[:-8] + "AAAAAAA=", "e30", "eyIwLmFiYyI6MX0="):
        for route in ("records", "offers"):
            status, answer, _ = served.ask(f"/v1/{route}?after={text}")
            assert status == 422 and answer["error"]["message"].startswith("after: found"), (route, text)
    assert served.ask(f"/v1/records?after={after}")[0] == 200


def make(folder, partitions, **options):
    plain = exported(slow=False, responses=False)
    models = Models(FakeReader(slow=False, responses=False), plain, plain)
    return Agents(models, folder, partitions=partitions, **options)


def test_a_stream_that_was_deleted_by_age_begins_anew_even_if_the_deletion_ends_half_way(tmp_path, monkeypatch):
    now, agents = [1e9], make(tmp_path, 1, clock=lambda: now[0])

    def decided(number):
        item = Observation("s", Event(time=float(number), text="x"), person="ada")
        ((answer,),) = agents.answer([Asked(TENANT, "events", Events((item,)))])
        return answer["id"]

    assert [decided(number) for number in range(3)] == ["s/0", "s/1", "s/2"]
    for _ in range(5):
        assert agents.answer([Asked(TENANT, "decide", expire(0, 1e5))]) == [0]
        now[0] += 2.4e4

    def busy(self):
        raise StateError("in use")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "erase", busy)
        (failed,) = agents.answer([Asked(TENANT, "decide", expire(0, 1e5))])
    assert isinstance(failed, StateError)
    assert decided(0) == "s/0"
    assert agents.answer([Asked(TENANT, "decide", expire(0, 1e5))]) == [0]
    agents.close()


@pytest.mark.parametrize("restarted", [True, False])
def test_a_clock_that_jumps_deletes_no_stream_until_it_is_said_that_time_has_passed(restarted, tmp_path):
    now, said = [1e9], []

    def started():
        return make(tmp_path, 3, clock=lambda: now[0], report=said.append)

    def swept(**more):
        return agents.answer([Asked(TENANT, "decide", expire(number, 30 * 86400.0, **more)) for number in range(3)])

    agents = started()
    for i in range(30):
        now[0] += 86400.0  # a stream a day, the oldest of which goes after 30 days
        item = Observation(f"s{i}", Event(time=0.0, text="x"), person=f"p{i}")
        agents.answer([Asked(TENANT, "events", Events((item,)))])
        assert swept() == [0, 0, 0]
    if restarted:
        agents.close()
        agents = started()
    right, now[0] = now[0], now[0] + 31 * 86400.0
    first = swept()
    assert [type(one) for one in first] == [StateError, int, int], "it is said once"
    assert "keep_days: found 30 of 30 streams" in str(first[0]) and said == [str(first[0])]
    assert swept() == [0, 0, 0]
    now[0] += 3601.0
    assert isinstance(swept()[0], StateError), "and again in an hour"
    now[0] = right + 2 * 86400.0
    assert sum(swept()) == 1, "by a clock that is right again"
    now[0] = right + 31 * 86400.0
    assert sum(swept(share=1.0)) == 29
    agents.close()


def test_old_streams_are_deleted_of_a_store_of_one_stream_in_many_partitions(tmp_path):
    """Where its partition is visited once an hour, and a quarter of the time that is kept is less than that."""
    now, agents = [1e9], make(tmp_path, 1024, clock=lambda: now[0])
    (person,) = [name for name in map(str, range(1000)) if agents.open([TENANT])[0].number_of(name) == 512][:1]
    item = Observation("s", Event(time=0.0, text="x"), person=person)
    agents.answer([Asked(TENANT, "events", Events((item,)))])
    deleted = 0
    for number in range(0, 2048, 4):
        now[0] += 4 * 3600.0 / 1024
        (count,) = agents.answer([Asked(TENANT, "decide", expire(number, 3600.0))])
        deleted += count
    assert deleted == 1
    agents.close()
