"""Old streams are deleted whatever happens meanwhile, and none where the clock has jumped."""

import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.state.durable import Events
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.steps import Observation
from prism_jax.streams import Event

pytest.importorskip("fastapi", reason="the server is that of the extra `serve`")
from prism_jax.agent.service.agents import Agents, Asked, Models, expire
from prism_jax.agent.service.tokens import TENANT


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
