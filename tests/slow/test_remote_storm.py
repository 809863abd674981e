"""A bad day of an endpoint, and processes that end or share a cache: nothing is lost and nothing is paid twice."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pydantic
import pytest

from prism_jax.remote import jobs
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import ask_for

COUNT = 300


class Squared(pydantic.BaseModel):
    square: int


pytestmark = pytest.mark.slow


def brain(body):
    number = int(next(one["content"] for one in body["messages"] if one["role"] == "user"))
    return f'{{"square": {number * number}}}'


def endpoint_of(fake, **changes):
    options = {"input_price": 1.0, "output_price": 2.0, "max_tokens": 50, "backoff": 0.02, "patience": 60.0}
    return EndpointConfig("m", fake.url, **(options | changes))


def test_an_outage_a_storm_of_429_and_half_the_answers_malformed_end_complete(tmp_path):
    """One second stands for the minute of the limits: 200 requests per window."""
    faults = Faults(limited=0.3, retry_after=0.05, malformed=0.5, down=((40, 90), (200, 260)), seed=1)
    remote = RemoteConfig(str(tmp_path / "c.sqlite"), budget=1.0)
    with FakeEndpoint(brain, faults) as fake:
        endpoint = endpoint_of(fake, concurrency=16, requests_per_minute=12_000, window=1.0, idempotent=True)
        with open_clients(remote, {"only": endpoint}) as clients:

            def work(number):
                return ask_for(clients.by_name["only"], [Message("user", str(number))], Squared, 12)

            replies = list(jobs.work_through(range(COUNT), work, at_once=16, total=COUNT, tally=clients.tally))
            spent = clients.by_name["only"].cache.spent
        assert [reply.value.square for reply in replies] == [number * number for number in range(COUNT)]
        answers = [answer for reply in replies for answer in reply.answers]
        assert set(fake.billed.values()) == {1}
        assert fake.billed.total() == len({answer.key for answer in answers}) == len(answers) > 1.5 * COUNT
        assert spent == pytest.approx(sum(answer.cost for answer in answers))
        lines = clients.tally.lines()
        assert f"{len(answers):,} requests: 0 cached, 0 failed, {clients.tally.retried:,} retries" in lines[0]
        assert clients.tally.retried > 300
        # No window of the limit held more than it may, however often an attempt was repeated.
        times = sorted(when for when, _, _ in fake.log)
        assert len(times) <= 200 * (1 + (times[-1] - times[0]))


JOB = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
sys.path.insert(0, sys.argv[4])
from test_remote_storm import Squared, endpoint_of
from prism_jax.remote import jobs
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.endpoints import RemoteConfig
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import ask_for
class fake: url = sys.argv[1]
start, step = map(int, sys.argv[3].split(","))
with open_clients(RemoteConfig(sys.argv[2], budget=1.0), {"only": endpoint_of(fake, concurrency=8)}) as clients:
    def work(number):
        return ask_for(clients.by_name["only"], [Message("user", str(number))], Squared)
    for reply in jobs.work_through(list(range(60))[::step], work, at_once=8):
        print(reply.value.square, flush=True)
"""


@pytest.fixture
def start(root, tmp_path):
    """Starts a process that asks for 60 squares, in ascending or descending order, with the cache of the test."""

    def start(fake, step=1):
        command = [sys.executable, "-c", JOB, fake.url, str(tmp_path / "c.sqlite"), f"0,{step}"]
        environment = os.environ | {"PYTHONPATH": str(root)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*command, str(root / "tests" / "slow")], env=environment, **pipes)

    return start


def squares(job):
    out, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    return [int(line) for line in out.split()]


def test_kills_at_any_moment_lose_nothing_and_pay_nothing_twice(start):
    with FakeEndpoint(brain, Faults(delay=0.02)) as fake:
        for answers in itertools.count(1, 9):
            job = start(fake)
            for _ in range(answers):
                if not job.stdout.readline():
                    break
            job.send_signal(signal.SIGKILL)
            job.communicate()
            if answers > 40:
                break
        assert squares(start(fake)) == [number * number for number in range(60)]
        assert set(fake.billed.values()) == {1}
        assert fake.billed.total() == 60


def test_two_processes_that_share_a_cache_pay_once(start):
    with FakeEndpoint(brain, Faults(delay=0.02)) as fake:
        jobs_at_once = [start(fake), start(fake, -1)]
        ascending, descending = map(squares, jobs_at_once)
        assert ascending == descending[::-1] == [number * number for number in range(60)]
        assert fake.received.total() == fake.billed.total() == 60


def test_ctrl_c_waits_for_what_was_sent_and_leaves_it_in_the_cache(start):
    def slow_brain(body):
        time.sleep(0.02)
        return brain(body)

    with FakeEndpoint(slow_brain) as fake:
        job = start(fake)
        assert job.stdout.readline() == "0\n"
        job.send_signal(signal.SIGINT)
        _, said = job.communicate(timeout=30)
        assert job.returncode != 0
        assert "waiting for answers to what was sent" in said
        paid, received = fake.billed.total(), fake.received.total()
        assert 1 <= paid < 60
        assert squares(start(fake)) == [number * number for number in range(60)]
        assert set(fake.billed.values()) == {1}
        assert fake.received.total() == 60
        assert received == paid
