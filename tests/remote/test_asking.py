"""Asking for values through the whole client, against the fake endpoint."""

import pydantic

from prism_jax.remote import jobs
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import ask_for


class Number(pydantic.BaseModel):
    number: int


def brain(body):
    return f'{{"number": {len(body["messages"][-1]["content"])}}}'


def ask_all(remote, endpoint, count):
    with open_clients(remote, {"only": endpoint}) as clients:
        client = clients.by_name["only"]

        def work(item):
            return ask_for(client, [Message("user", "x" * item)], Number)

        return list(jobs.work_through(range(count), work, at_once=4, tally=clients.tally)), clients.tally


def test_answers_come_in_order_and_a_rerun_is_free(tmp_path):
    with FakeEndpoint(brain) as fake:
        endpoint = EndpointConfig("m", fake.url, input_price=1.0, output_price=2.0)
        remote = RemoteConfig(str(tmp_path / "cache.sqlite"), budget=1.0)
        replies, tally = ask_all(remote, endpoint, 20)
        assert [reply.value.number for reply in replies] == list(range(20))
        assert fake.billed.total() == 20
        assert (tally.requests, tally.cached, tally.failed) == (20, 0, 0)
        assert tally.cost > 0
        again, tally = ask_all(remote, endpoint, 20)
        assert [reply.value for reply in again] == [reply.value for reply in replies]
        assert (tally.cached, tally.cost) == (20, 0)
        assert fake.received.total() == 20
