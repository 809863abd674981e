"""kill -9 of the server with state under load: what was answered is recorded once, and nothing else is."""

import concurrent.futures
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from state_callers import PEOPLE, check, watch


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.study)])
def test_what_is_answered_is_there_once_whenever_the_server_dies(kills, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prism_jax", "serve", f"--state={tmp_path}", "--c_fa=1", "--c_fn=2"]
    command += [f"--port={port}", "--partitions=3"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    draw, done, stop = random.Random(0), threading.Semaphore(0), threading.Event()
    with concurrent.futures.ThreadPoolExecutor(PEOPLE) as pool:
        callers = [pool.submit(watch, port, f"p{i}", done, stop) for i in range(PEOPLE)]
        try:
            for _ in range(kills):
                with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as server:
                    for _ in range(draw.randint(3, 150)):
                        assert done.acquire(timeout=60), "nothing is decided"
                    time.sleep(draw.random() / 50)
                    server.send_signal(signal.SIGKILL)
            with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as server:
                assert done.acquire(timeout=60)
                stop.set()
                found = [caller.result(timeout=60) for caller in callers]
                server.terminate()
        finally:
            stop.set()
    check(tmp_path / "tenants" / "default", found)
    assert sum(map(len, found)) > 20 * kills and any("kind" in one for one in found[0])
