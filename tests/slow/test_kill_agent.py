"""kill -9 while the agent writes: whole records only, and a restart goes on without repeating or losing one."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from exported_folder import write
from test_input_loop import COMMAND, encoded, lines_of, told, with_people

from prism_jax.agent.state.kept import store_of_one

pytestmark = pytest.mark.slow


def test_kill_9_leaves_whole_records_and_a_restart_goes_on(root, tmp_path):
    """Records and people of a killed agent are those of one that ran in peace; budgets and exploration go on, too."""
    model, source, records = write(tmp_path / "model"), tmp_path / "in.jsonl", tmp_path / "records.jsonl"
    source.write_bytes(encoded(with_people(lines_of(60, streams=2))))
    settings = (f"--model={model}", f"--input={source}", "--explore=0.3", "--explore_loss=0.5", "--batch=3")
    settings += ("--skip_bad", "--most_offers=3", "--offers_window=10", "--most_thoughts=3", "--thoughts_window=30")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)}

    def run(*arguments):
        command = [sys.executable, str(COMMAND), *arguments]
        return subprocess.run(command, cwd=root, env=environment, capture_output=True)

    whole = run(*settings, f"--state={tmp_path / 'whole'}")
    assert whole.returncode == 0, whole.stderr
    settings += (f"--state={tmp_path / 'state'}", f"--records={records}")
    rng, data = np.random.default_rng(0), b""
    for _ in range(3):
        command = [sys.executable, str(COMMAND), "slow=0.05", *settings]
        with subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE) as process:
            while process.poll() is None and (not records.exists() or records.stat().st_size <= len(data)):
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.15))
            os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL and len(records.read_bytes()) > len(data)
        data = records.read_bytes()
        assert told(data) == told(whole.stdout)[: data.count(b"\n")]
    records.write_bytes(data[: data.rindex(b"\n", 0, -1) + 101])  # as if the system had died in the middle of a record
    again = run(*settings)
    assert again.returncode == 0, again.stderr
    assert b"removed the last 100 bytes" in again.stderr
    assert told(records.read_bytes()) == told(whole.stdout)
    with store_of_one(tmp_path / "state") as found, store_of_one(tmp_path / "whole") as expected:
        people = found.partition(0).people
        assert list(people) == list(expected.partition(0).people)
        assert people.person("person of s0").answers >= 5
