"""Owners of partitions come and go under load: the records are those of one process, none lost and none twice."""

import concurrent.futures
import contextlib
import os
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
from state_callers import PEOPLE, check, watch

from prism_jax.service.cluster import NAMESPACE, name_of

pytestmark = pytest.mark.study


@pytest.fixture
def cluster():
    """The address of a Ray cluster on this machine."""
    context = ray.init(address="local", num_cpus=2, include_dashboard=False, namespace=NAMESPACE)
    yield context.address_info["address"]
    ray.shutdown()


def process_of(directory, place):
    """The number of the process of an owner; None where it does not answer."""
    owners = ray.get(directory.owners.remote())
    with contextlib.suppress(ray.exceptions.RayError):
        return ray.get(owners.handles[place].actor.alive.remote(), timeout=2)


def test_records_are_one_processs_while_owners_come_go_die_and_sleep(cluster, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prism_jax", "serve", f"--state={tmp_path}", "--c_fa=1", "--c_fn=2"]
    command += [f"--port={port}", "--partitions=12", f"--ray={cluster}", "--owners=1", "--lease=2"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "RAY_USAGE_STATS_ENABLED": "0"}
    done, stop = threading.Semaphore(0), threading.Event()

    def wait(count):
        for _ in range(count):
            assert done.acquire(timeout=90), "nothing is decided"

    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as door,
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
