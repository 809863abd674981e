"""Owners of partitions come and go under load: the records are those of one process, none lost and none twice."""

import concurrent.futures
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

pytest.importorskip("ray", reason="owners of partitions are actors of the extra `cluster`")
import ray
from state_callers import PEOPLE, check, check_read, read, watch
from test_mains import TINY, run

from prism_jax.agent.agent import Agent
from prism_jax.agent.service.cluster import NAMESPACE, name_of
from prism_jax.agent.state.reading import all_records

pytestmark = pytest.mark.study

SERVE = [sys.executable, "-m", "prism_jax", "serve"]
KILLED = ("service",) * 8 + ("owner",) * 8 + ("replica",) * 4


@pytest.fixture
def cluster(monkeypatch):
    """The address of a Ray cluster on this machine, which others join by what Ray leaves in the environment."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    context = ray.init(address="local", num_cpus=4, include_dashboard=False, namespace=NAMESPACE)
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def trained_export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run("train", *TINY, f"--workdir={folder / 'run'}").returncode == 0
    assert run("export", f"--model={folder / 'run'}", f"--workdir={folder / 'model'}").returncode == 0
    return folder / "model"


def process_of(directory, place):
    """The number of the process of an owner; None where it does not answer."""
    owners = ray.get(directory.owners.remote())
    with contextlib.suppress(ray.exceptions.RayError):
        return ray.get(owners.handles[place].actor.alive.remote(), timeout=2)


def test_records_are_one_processs_while_owners_come_go_die_and_sleep(cluster, tmp_path):
    port = free_port()
    command = [*SERVE, f"--state={tmp_path}", "--c_fa=1", "--c_fn=2", f"--port={port}", "--partitions=12"]
    command += [f"--ray={cluster}", "--owners=1", "--lease=2"]
    done, stop = threading.Semaphore(0), threading.Event()

    def wait(count):
        for _ in range(count):
            assert done.acquire(timeout=90), "nothing is decided"

    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as door,
        concurrent.futures.ThreadPoolExecutor(PEOPLE) as pool,
    ):
        callers = [pool.submit(watch, port, f"p{i}", done, stop) for i in range(PEOPLE)]
        try:
            wait(60)
            directory = ray.get_actor(name_of(tmp_path), NAMESPACE)
            ray.get(directory.scale.remote(3))
            wait(100)
            assert len({process_of(directory, place) for place in range(3)}) == 3
            os.kill(process_of(directory, 1), signal.SIGKILL)
            wait(100)
            paused = process_of(directory, 2)
            os.kill(paused, signal.SIGSTOP)
            try:
                wait(100)
                ends = time.monotonic() + 60
                while not (answering := process_of(directory, 2)) or answering == paused:  # until it is replaced
                    assert time.monotonic() < ends
            finally:
                with contextlib.suppress(ProcessLookupError):  # it was ended asleep
                    os.kill(paused, signal.SIGCONT)
            wait(100)
            ray.get(directory.scale.remote(2))
            wait(100)
            stop.set()
            found = [caller.result(timeout=60) for caller in callers]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/records?limit=1000") as answer:
                assert answer.status == 200 and len(answer.read()) > 10_000, "the door reads through the owners"
        finally:
            stop.set()
            door.terminate()
    check(tmp_path / "tenants" / "default", found)


def test_twenty_kills_of_service_owners_and_replicas_lose_nothing_and_double_nothing(cluster, tmp_path, trained_export):
    """Six callers state numbers and two send events that the replicas read, while one after another is killed.

    Where no replica answers, the decision is silence with its reason, and recorded.
    """
    serve = [*SERVE, f"--ray={cluster}"]
    first, second, state = free_port(), free_port(), tmp_path / "state"
    model = [*serve, f"--model={trained_export}", "--name=model", "--replicas=2", f"--port={first}"]
    agent = [*serve, f"--state={state}", "--c_fa=1", "--c_fn=2", "--partitions=12", "--owners=3", "--lease=2"]
    agent += [f"--decisions=http://127.0.0.1:{first}/v1", "--decision_model=model", "--questions=slots"]
    agent += [f"--port={second}"]
    draw, done, stop = random.Random(0), threading.Semaphore(0), threading.Event()

    def wait(count):
        """Until so many more are answered."""
        while done.acquire(blocking=False):
            pass
        for _ in range(count):
            assert done.acquire(timeout=120), "nothing is decided"

    def owner():
        """The process of one that answers."""
        ends, found = time.monotonic() + 60, None
        while found is None:
            assert time.monotonic() < ends, "no owner answers"
            found = process_of(directory, draw.randrange(3))
        return found

    with (tmp_path / "log").open("w") as log, concurrent.futures.ThreadPoolExecutor(PEOPLE + 2) as pool:
        running = [subprocess.Popen(command, stderr=log, cwd=tmp_path) for command in (model, agent)]
        try:
            wait_for(first)
            wait_for(second)
            directory = ray.get_actor(name_of(state), NAMESPACE)
            stating = [pool.submit(watch, second, f"p{i}", done, stop, 0.02) for i in range(PEOPLE)]
            reading = [pool.submit(read, second, i, done, stop, 0.02) for i in range(2)]
            for who in draw.sample(KILLED, len(KILLED)):
                wait(draw.randint(5, 150))
                time.sleep(draw.random() / 2)
                if who == "service":
                    running[1].kill()
                    running[1].wait()
                    running[1] = subprocess.Popen(agent, stderr=log, cwd=tmp_path)
                else:
                    os.kill(owner() if who == "owner" else draw.choice(replicas_of(cluster)), signal.SIGKILL)
            wait(100)
            stop.set()
            stated = [caller.result(timeout=60) for caller in stating]
            by_model = {stream: own for caller in reading for stream, own in caller.result(timeout=60).items()}
        finally:
            stop.set()
            for process in running:
                process.terminate()
                process.wait()
    folder = state / "tenants" / "default"
    check(folder, stated)
    silent = check_read(folder, by_model, Agent.load(trained_export))
    assert len(list(all_records(folder))) == sum(map(len, [*stated, *by_model.values()])), "and nothing else"
    count = sum("speak" in one for own in by_model.values() for one in own)
    assert sum(map(len, stated)) > 1000 and count > 100 and silent < count / 3, (count, silent)


def test_a_machine_without_a_server_is_reported_and_tried_again_and_the_replicas_end(cluster):
    """Its port is taken at first; where no server stands at the start, the error says so, and nothing stays behind."""
    from ray import serve

    from prism_jax.agent.service.http import Limits
    from prism_jax.agent.service.replicas import Fronts, run_replicas
    from prism_jax.agent.service.tokens import Tokens

    class Answers:
        def answer(self, items):
            return []

    said, port = [], free_port()
    fronts = Fronts([None, "model", Tokens(), Limits(), "127.0.0.1", port], said.append)
    with socket.create_server(("127.0.0.1", port)):
        ends = time.monotonic() + 60
        while not said:
            assert fronts.look() == [] and time.monotonic() < ends
            time.sleep(0.1)
        assert f"127.0.0.1:{port}: Address already in use" in said[0] and said[0].endswith("it is tried again")
        replicas = {"least": 1, "most": 1, "gpus": 0.0, "on_ready": said.append, "report": said.append}
        with pytest.raises(ValueError, match=f"127.0.0.1:{port}: Address already in use"):
            run_replicas(Answers, "model", tokens=Tokens(), limits=Limits(), host="127.0.0.1", port=port, **replicas)
        assert not serve.status().applications, "the replicas have ended"
    assert fronts.look(60.0) == [port]
    fronts.stop()


def replicas_of(cluster):
    """The processes of the model's replicas on a cluster."""
    (raylet,) = pids(f"raylet.*--gcs-address={cluster}", "--oldest")
    return pids("ray::ServeReplica", f"--parent={raylet}")


def pids(pattern, *options):
    found = subprocess.run(["pgrep", *options, "-f", pattern], capture_output=True, text=True)
    return [int(number) for number in found.stdout.split()]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port):
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise AssertionError("it is not ready")
