"""kill -9 while the agent writes: whole records only, and a restart goes on without repeating or losing one."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from exported_folder import write
from test_input_loop import COMMAND, encoded, lines_of, plain, run, told, with_people

from prism_jax.agent.state.kept import store_of_one

pytestmark = pytest.mark.slow


def killed_three_times(command, records, root, seed):
    """Starts the agent and kills it after it has written more records, three times; yields the file after each."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)}
    rng, before = np.random.default_rng(seed), 0
    for _ in range(3):
        with subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE) as process:
            while process.poll() is None and (not records.exists() or records.stat().st_size <= before):
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.15))
            os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        data = records.read_bytes()
        assert len(data) > before
        before = len(data)
        yield data


def test_kill_9_leaves_whole_records_and_a_restart_goes_on(root, tmp_path):
    """The records of killed and restarted agents are those of one that ran in peace, exploration and budgets too."""
    model, source, records = write(tmp_path / "model"), tmp_path / "in.jsonl", tmp_path / "records.jsonl"
    source.write_bytes(encoded(lines_of(60)))
    settings = (
        f"--model={model}",
        f"--input={source}",
        "--explore=0.3",
        "--explore_loss=0.5",
        "--batch=3",
        "--skip_bad",
    )
    settings += ("--most_offers=2", "--offers_window=20", "--most_thoughts=3", "--thoughts_window=30")
    whole = run(root, *settings)
    assert whole.returncode == 0, whole.stderr
    settings += (f"--state={tmp_path / 'state'}", f"--records={records}")
    command = [sys.executable, str(COMMAND), "slow=0.05", *settings]
    for data in killed_three_times(command, records, root, seed=0):
        assert plain(data) == plain(whole.stdout)[: data.count(b"\n")]
    records.write_bytes(data[: data.rindex(b"\n", 0, -1) + 101])  # as if the system had died in the middle of a record
    again = run(root, *settings)
    assert again.returncode == 0, again.stderr
    assert b"removed the last 100 bytes" in again.stderr
    assert plain(records.read_bytes()) == plain(whole.stdout)


def test_a_killed_agent_learns_every_answer_once(root, tmp_path):
    """State and records of killed and restarted agents are those of one that ran in peace."""
    model, source, records = write(tmp_path / "model"), tmp_path / "in.jsonl", tmp_path / "records.jsonl"
    store, other = tmp_path / "state", tmp_path / "other"
    source.write_bytes(encoded(with_people(lines_of(60, streams=2))))
    settings = (f"--model={model}", f"--input={source}", "--policy=always", "--batch=3")
    whole = run(root, *settings, f"--state={other}")
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, str(COMMAND), "slow=0.05", *settings, f"--records={records}", f"--state={store}"]
    for data in killed_three_times(command, records, root, seed=1):
        assert data.endswith(b"\n")
    again = run(root, *settings, f"--records={records}", f"--state={store}")
    assert again.returncode == 0, again.stderr
    assert told(records.read_bytes()) == told(whole.stdout)
    with store_of_one(store) as found, store_of_one(other) as expected:
        people = found.partition(0).people
        assert list(people) == list(expected.partition(0).people)
        assert people.person("person of s0").answers >= 5
