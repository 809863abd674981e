"""What becomes of a request: answered, cached, retried, rejected, refused, estimated, or sent again after a kill."""

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import types

import pytest
from asking import ask, echo, endpoint_of

from prism_jax.remote import cache_file
from prism_jax.remote.cache import Cache
from prism_jax.remote.connections import JsonEndpoint
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.failures import EndpointError
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Message, Request


def test_an_answer_states_what_it_cost_and_where_it_is_from(connected):
    with connected() as (_, client):
        (answer,) = ask(client, "hello")
        assert (answer.text, answer.error, answer.model, answer.finish) == ("heard hello", None, "m", "stop")
        assert answer.cost == (answer.prompt_tokens + 2 * answer.completion_tokens) / 1e6 > 0
        assert len(answer.key) == 64
        assert answer.time.endswith("+00:00")
        assert answer.seconds > 0
        assert not answer.cached


def test_a_request_is_sent_once_however_often_it_is_asked(connected, remote):
    with connected(Faults(delay=0.05)) as (fake, client):
        first, second = ask(client, "hello", "hello")
        assert first.text == second.text == "heard hello"
        assert sorted((first.cached, second.cached)) == [False, True]
        (third,) = ask(client, "hello")
        assert (third.cached, third.text) == (True, first.text)
        assert fake.received.total() == 1
        assert client.tally.cost == pytest.approx(first.cost)
        # The cache answers where there is no server.
        url = fake.url
    with open_clients(remote, {"only": endpoint_of(types.SimpleNamespace(url=url))}) as later:
        (fourth,) = ask(later.by_name["only"], "hello")
    assert (fourth.cached, fourth.text, fourth.time) == (True, first.text, third.time)


def test_a_connection_is_kept_however_long_it_is_idle(monkeypatch):
    """Whoever compares a server again with every new connection does so where the server has closed the last one."""
    http11 = pytest.importorskip("httpcore2._async.http11")
    hours = iter(range(1, 100))
    with FakeEndpoint(echo) as fake:
        endpoint = JsonEndpoint(endpoint_of(fake))

        async def asked():
            for _ in range(2):
                await endpoint.ask("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]})
                monkeypatch.setattr(http11.time, "monotonic", lambda: 1e6 + 3600.0 * next(hours))

        monkeypatch.setattr(http11, "time", types.SimpleNamespace(monotonic=lambda: 1e6))
        asyncio.run(asked())
    assert endpoint.breaks == 1


SENT = ({"max_tokens": 51}, {"temperature": 0.5}, {"temperature": None}, {"seed": 1}, {"model": "n"})


@pytest.mark.parametrize("change", [*SENT, {"concurrency": 3, "patience": 1.0, "input_price": 2.0}], ids=str)
def test_whatever_is_sent_is_part_of_the_key_and_nothing_else(remote, change):
    with FakeEndpoint(lambda body: "x") as fake:
        endpoint = endpoint_of(fake)
        other = EndpointConfig(**(vars(endpoint) | change))
        with open_clients(remote, {"one": endpoint, "other": other}) as clients:
            answers = [ask(clients.by_name[name], "hello")[0] for name in ("one", "other")]
        assert (answers[0].key != answers[1].key) == (change in SENT)
        assert fake.received.total() == 1 + (change in SENT)


def test_an_attempt_is_a_new_request_and_the_first_one_keeps_its_key(connected):
    sent = []

    def brain(body):
        sent.append(body)
        return f"answer {len(sent)}"

    request = Request((Message("user", "hello"),))
    tried = [request, request._replace(attempt=1), request._replace(attempt=2, temperature=0.5)]
    with connected(brain=brain) as (fake, client):
        answers, address = [asyncio.run(client.ask(one)) for one in (*tried, *tried)], fake.url.encode()
    assert [answer.text for answer in answers] == ["answer 1", "answer 2", "answer 3"] * 2
    assert [answer.cached for answer in answers] == [False] * 3 + [True] * 3
    assert sent[0] == sent[1] == {**sent[2], "temperature": 0.0}
    assert sent[2]["temperature"] == 0.5
    content = json.dumps(sent[0], separators=(",", ":")).encode()
    assert answers[0].key == hashlib.sha256(address + b"\0" + content).hexdigest()


def test_a_later_attempt_has_a_seed_of_its_own(connected):
    with connected(brain=lambda body: str(body["seed"]), seed=5) as (_, client):
        answers = [asyncio.run(client.ask(Request((Message("user", "x"),), attempt=number))) for number in range(3)]
    assert [answer.text for answer in answers] == ["5", "6", "7"], "the same seed would give the same answer again"


def test_a_model_that_refuses_temperatures_gets_none(connected):
    with connected(brain=lambda body: json.dumps(body), temperature=None) as (_, client):
        answer = asyncio.run(client.ask(Request((Message("user", "hello"),), temperature=0.5)))
    assert "temperature" not in json.loads(answer.text)


def test_the_answer_of_one_server_is_not_taken_for_that_of_another(remote):
    with (
        FakeEndpoint(lambda body: "x") as first,
        FakeEndpoint(lambda body: "y") as second,
        open_clients(remote, {"one": endpoint_of(first), "other": endpoint_of(second)}) as clients,
    ):
        assert [ask(clients.by_name[name], "hello")[0].text for name in ("one", "other")] == ["x", "y"]


FAULTS = {
    "limited": Faults(limited=0.6, retry_after=0.01),
    "down": Faults(down=((0, 3), (5, 9))),
    "garbled": Faults(garbled=0.3, seed=5),
    "unavailable": Faults(unavailable=0.6),
    "slow": Faults(delay=0.02),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_faults_that_pass_are_outlasted_and_paid_once(connected, kind, idempotent):
    with connected(FAULTS[kind], idempotent=idempotent, backoff=0.001) as (fake, client):
        texts = [str(number) for number in range(12)]
        answers = ask(client, *texts)
        assert [answer.text for answer in answers] == [f"heard {text}" for text in texts]
        assert set(fake.billed.values()) == {1}
        assert fake.received.total() == 12 + client.tally.retried
        assert (client.tally.retried > 0) == (kind != "slow")
        assert client.tally.failed == 0


def test_an_attempt_whose_answer_was_lost_counts_at_its_worst_where_it_may_be_billed(connected, tmp_path):
    spent = {}
    for idempotent in (True, False):
        config = RemoteConfig(str(tmp_path / f"{idempotent}.sqlite"), budget=1.0)
        with connected(Faults(down=((0, 2),)), config=config, idempotent=idempotent) as (_, client):
            (answer,) = ask(client, "hello")
            spent[idempotent] = client.cache.spent
    assert spent[True] == answer.cost
    # Each of the two lost attempts at most: a token per byte of the body, and 50 tokens of answer.
    size = len('{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":50,"temperature":0.0}')
    assert spent[False] == pytest.approx(answer.cost + 2 * (size + 2 * 50) / 1e6)


@pytest.mark.parametrize(
    ("faults", "options", "words", "least", "most"),
    [
        (Faults(garbled=1.0), {}, "no chat completion", 4, 4),
        (Faults(delay=0.15), {"timeout": 0.05, "patience": 0.2}, "timed out after 0.05 s", 2, 99),
        # Each byte comes in time for the SDK, which only ends silence.
        (Faults(trickle=0.03), {"timeout": 0.2, "patience": 0.1}, "timed out after 0.2 s", 1, 1),
    ],
)
def test_what_is_given_up_is_asked_again_and_billed_once(connected, faults, options, words, least, most):
    with connected(faults, **options) as (fake, client):
        (answer,) = ask(client, "hello")
        assert answer.text is None and words in answer.error and client.tally.failed == 1
        assert least <= fake.received.total() <= most
        fake.faults = Faults()
        assert ask(client, "hello")[0].text == "heard hello"
        assert fake.billed.total() <= 1


def test_an_endpoint_that_is_gone_costs_its_patience_once(connected):
    with connected(Faults(down=((0, 10**6),)), patience=0.3, concurrency=1) as (fake, client):
        first, *others = ask(client, *map(str, range(30)))
        assert "gave up after 0 s" in first.error
        assert all(answer.error for answer in others)
        attempts = fake.received.copy()
        assert sum(count > 1 for count in attempts.values()) == 1
        fake.faults = Faults()
        assert ask(client, "0")[0].text == "heard 0"


@pytest.fixture
def told(monkeypatch):
    """What is logged as a warning."""
    told = []
    monkeypatch.setattr("absl.logging.warning", lambda words, *values: told.append(words % values))
    return told


def test_trouble_is_told_once_and_again_after_an_answer(connected, told):
    with connected(Faults(down=((0, 6), (12, 14))), concurrency=1) as (fake, client):
        ask(client, *map(str, range(6)))
        assert len(told) == 1
        assert told[0].startswith(f"m at {fake.url}: Connection error. (")
        assert told[0].endswith("); retrying for up to 20 s")
        assert fake.received.total() == 12
        ask(client, "6")
    assert len(told) == 2


def test_a_server_that_asks_for_more_patience_than_there_is_holds_nobody_up(connected):
    with connected(Faults(limited=1.0, retry_after=3600.0), patience=1.0) as (fake, client):
        answers = ask(client, *map(str, range(9)))
        assert all("HTTP 429" in answer.error for answer in answers)
        assert fake.received.total() == 9


def test_answers_that_name_several_models_are_told(connected, told):
    with connected() as (fake, client):
        ask(client, *map(str, range(6)))
        assert len(client.tally.lines()) == 2 and not told
        fake.faults = Faults(renamed=1.0)
        ask(client, *map(str, range(9)))
        assert client.tally.lines()[2].startswith(f"m at {fake.url}: found answers of 4 models (")
        assert len(told) == 1 and told[0].startswith(f"m at {fake.url}: found answers of 2 models (")


def test_no_connection_is_an_error_after_the_patience_and_nothing_is_spent(remote):
    with FakeEndpoint(echo) as gone:
        pass
    with open_clients(remote, {"only": endpoint_of(gone, patience=0.05)}) as clients:
        (answer,) = ask(clients.by_name["only"], "hello")
        assert "ConnectError" in answer.error
        assert clients.by_name["only"].cache.spent == 0


@pytest.mark.parametrize(("status", "raised"), [(400, False), (403, False), (422, False), (401, True), (404, True)])
def test_a_rejected_request_is_an_error_and_a_refusing_endpoint_ends_the_job(connected, status, raised):
    with connected(Faults(status=status)) as (fake, client):
        if raised:
            with pytest.raises(EndpointError, match=rf"^http://127\.0\.0\.1:\d+/v1/chat/completions: HTTP {status}"):
                ask(client, "hello")
        else:
            (answer,) = ask(client, "hello")
            assert f"HTTP {status}: as configured" in answer.error
        assert fake.received.total() == 1
        assert client.cache.spent == 0


def test_an_answer_without_text_is_paid_and_kept(connected):
    with connected(brain=lambda body: "<think>hmm</think>") as (fake, client):
        for cached in (False, True):
            (answer,) = ask(client, "hello")
            assert (answer.text, answer.cached) == (None, cached)
            assert "no text" in answer.error
        assert fake.received.total() == 1


def test_no_reasoning_is_kept(connected):
    with connected(brain=lambda body: "<think>SECRET {1}\n</think>\n\nanswer") as (_, client):
        assert ask(client, "hello")[0].text == "answer"
    assert b"SECRET" not in b"".join(path.read_bytes() for path in client.cache.path.parent.glob("*") if path.is_file())


def test_halves_of_surrogate_pairs_are_neither_sent_nor_stored(connected):
    with connected(brain=lambda body: body["messages"][0]["content"] + "\ud83d") as (_, client):
        assert ask(client, "a\udc00b")[0].text == "a?b?"


def test_a_dry_run_sends_nothing_and_bounds_the_cost(connected):
    texts = ["hello", "a longer question " * 20, "hello again"]
    with connected(dry_run=True, key="PRISM_NO_SUCH_KEY") as (fake, client):
        answers = ask(client, *texts)
        assert fake.received.total() == 0
        assert all(answer.text is None and "dry run" in answer.error for answer in answers)
        estimate = client.tally
    assert estimate.requests == 3
    assert any("1 and 2 USD per million tokens (config)" in line for line in estimate.lines())
    with connected() as (_, client):
        ask(client, *texts)
        assert 0 < client.tally.cost <= estimate.worst
        assert client.tally.prompt_tokens <= estimate.prompt_tokens


def test_a_dry_run_answers_from_the_cache(remote):
    with FakeEndpoint(lambda body: "x") as fake:
        endpoint = endpoint_of(fake)
        with open_clients(remote, {"only": endpoint}) as clients:
            ask(clients.by_name["only"], "hello")
        with open_clients(remote, {"only": endpoint}, dry_run=True) as clients:
            first, second = ask(clients.by_name["only"], "hello", "other")
        assert (first.text, second.text, clients.tally.cached) == ("x", None, 1)


@pytest.mark.parametrize(
    ("endpoint", "budget", "message"),
    [
        ({"input_price": None, "output_price": None}, 1.0, "input_price: found no price of model 'm' at 127.0.0.1"),
        ({}, 0.0, "only.input_price: found a price of 1.0 and 2.0 USD .* and a budget of 0, expected remote.budget, "),
        ({"key": "PRISM_NO_SUCH_KEY"}, 1.0, "only.key: found no environment variable PRISM_NO_SUCH_KEY"),
    ],
)
def test_what_cannot_start_says_why(connected, tmp_path, endpoint, budget, message):
    config = RemoteConfig(str(tmp_path / "c.sqlite"), budget=budget)
    with pytest.raises(ValueError, match=message), connected(config=config, **endpoint):
        pass


def test_a_free_endpoint_needs_no_budget(connected, tmp_path):
    config = RemoteConfig(str(tmp_path / "c.sqlite"))
    with connected(config=config, input_price=0.0, output_price=0.0) as (_, client):
        assert ask(client, "hello")[0].cost == 0


KILLED = """
import os, sys, types
from asking import ask, endpoint_of
from prism_jax.remote.cache import Cache
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.endpoints import RemoteConfig
Cache.settle = lambda *arguments: os.kill(os.getpid(), 9)
endpoint = endpoint_of(types.SimpleNamespace(url=sys.argv[1]), idempotent=True)
with open_clients(RemoteConfig(sys.argv[2], budget=1.0), {"only": endpoint}) as clients:
    ask(clients.by_name["only"], "one", "two")
"""


@pytest.fixture(scope="module")
def killed(root, tmp_path_factory):
    """A server that has answered a process which was killed then, and the folder of that one's cache."""
    folder = tmp_path_factory.mktemp("killed")
    with FakeEndpoint(lambda body: "x") as fake:
        path = os.pathsep.join(map(str, (root, root / "tests" / "remote")))
        command = [sys.executable, "-c", KILLED, fake.url, str(folder / "cache.sqlite")]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
        assert done.returncode == -9 and fake.received.total() >= 1, done.stderr
        yield fake, folder


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_kill_between_answer_and_cache_is_not_paid_twice(killed, tmp_path, idempotent):
    fake, folder = killed
    sent, own = fake.received.total(), shutil.copytree(folder, tmp_path / "own")
    own = RemoteConfig(str(own / "cache.sqlite"), 1.0)
    with open_clients(own, {"only": endpoint_of(fake, idempotent=idempotent)}) as clients:
        answers = ask(clients.by_name["only"], "one", "two")
        spent = clients.by_name["only"].cache.spent
    assert [answer.text for answer in answers] == ["x", "x"]
    assert clients.tally.resent == 2
    assert any("sent again" in line for line in clients.tally.lines())
    assert fake.received.total() == sent + 2
    assert set(fake.billed.values()) == {1}
    paid = sum(answer.cost for answer in answers)
    # Where the server may bill again, the budget counts the lost attempts at their worst.
    assert spent == pytest.approx(paid) if idempotent else spent > 2 * paid


def test_a_cancelled_request_stays_recorded_and_is_sent_again(connected):
    with connected(Faults(delay=0.2)) as (fake, client):

        async def leave():
            task = asyncio.create_task(client.ask(Request((Message("user", "hello"),))))
            while not fake.received:
                await asyncio.sleep(0.002)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(leave())
        fake.faults = Faults()
        assert ask(client, "hello")[0].text == "heard hello"
        assert client.tally.resent == 1


HELLO = Request((Message("user", "hello"),))


def within(seconds, work):
    """What a coroutine returns; TimeoutError where it takes longer."""

    async def wait():
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(wait())


def test_an_answer_that_could_not_be_stored_is_asked_for_again(connected, monkeypatch):
    with connected() as (_, client), monkeypatch.context() as patched:
        transaction, begun = cache_file.transaction, []

        def full(database):
            begun.append(database)
            if len(begun) == 2:  # the first recorded that the request is sent
                raise sqlite3.OperationalError("database or disk is full")
            return transaction(database)

        patched.setattr(cache_file, "transaction", full)
        with pytest.raises(OSError, match="disk is full"):
            within(20, client.ask(HELLO))
        assert within(20, client.ask(HELLO)).text == "heard hello"
        assert client.tally.resent == 1


def test_what_another_process_asks_is_awaited_until_the_deadline(connected, remote):
    with connected() as (fake, client), Cache(remote.cache, 1.0) as other:
        other.claim(HELLO.prepared(client.endpoint, str).key, 0.0, idempotent=True)
        answer = within(20, client.ask(HELLO, deadline=0.05))
        assert answer.text is None and "sent nothing within 0.05 s: another request is the same" in answer.error
        assert not fake.received
