"""One training at a time in a workdir: the second is refused, and a killed one leaves nothing in the way."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
import tiny
from etils import epath

from prism_jax.runs import pipeline
from prism_jax.runtime.lock import NAME, only_training
from prism_jax.training.workdir import Workdir

HOLD = """
import sys, time
from etils import epath
from prism_jax.runtime.lock import only_training
with only_training(epath.Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_training_is_refused_and_a_killed_one_leaves_no_lock(tmp_path, holder):
    message = (
        f"{tmp_path}: found a training of process {holder.pid} on host {socket.gethostname()} in it, expected none"
    )
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"), only_training(epath.Path(tmp_path)):
            pytest.fail("both processes hold the lock")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / NAME).exists()
    with only_training(epath.Path(tmp_path)):
        assert (tmp_path / NAME).read_text() == f"process {os.getpid()} on host {socket.gethostname()}"
    assert list(tmp_path.iterdir()) == []


def test_train_run_is_refused_before_it_writes(tmp_path, holder):
    with pytest.raises(RuntimeError, match=rf"^{re.escape(str(tmp_path))}: found a training of process {holder.pid}"):
        pipeline.train_run(tiny.CONFIG, Workdir(tmp_path), report=False)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_train_run_holds_the_lock_while_it_trains(tmp_path, monkeypatch):
    def train(job, **_):
        with pytest.raises(RuntimeError, match=f"found a training of process {os.getpid()} on host"):
            pipeline.train_run(tiny.CONFIG, Workdir(tmp_path / "run"), report=False)
        return {"a": 1}

    monkeypatch.setattr(pipeline, "train", train)
    assert pipeline.train_run(tiny.CONFIG, Workdir(tmp_path / "run"), report=False)[1] == {"a": 1}
    assert not (tmp_path / "run" / NAME).exists()


def test_a_new_folder_in_which_nothing_is_written_goes_again(tmp_path):
    with pytest.raises(ValueError, match="before"), only_training(epath.Path(tmp_path / "new")):
        raise ValueError("before the first write")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "profile", "message"),
    [
        ({}, 9, "profile: found step 9, expected one from 1 to 8"),
        ({}, 0, "profile: found step 0, expected one from 1 to 8"),
        ({"seed": -1}, None, f"seed: found -1, expected 0 to {2**32 - 1}"),
        ({"seed": 2**32}, None, f"seed: found {2**32}, expected 0 to {2**32 - 1}"),  # JAX would take it for 0
    ],
)
def test_a_bad_seed_or_step_to_profile_claims_no_folder(tmp_path, changes, profile, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        pipeline.train_run(tiny.with_training(**changes), Workdir(tmp_path / "run"), report=False, profile=profile)
    assert not (tmp_path / "run").exists()
