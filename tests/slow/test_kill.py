"""After kill -9 or SIGTERM during training, the same command resumes and the run is the same byte for byte."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import chex
import forked
import jax
import numpy as np
import pytest

from prism_jax.training.run import trained_params
from prism_jax.training.workdir import Workdir

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

ARGUMENTS = (
    "--config=configs/quickstart.py",
    "--config.data.train_streams=64",
    "--config.data.calibration_streams=12",
    "--config.data.test_streams=12",
    "--config.simulator.min_events=4",
    "--config.simulator.max_events=5",
    "--config.student.num_layers=1",
    "--config.student.unroll=1",
    "--config.training.steps=60",
    "--config.training.batch=4",
    "--config.training.checkpoint_every=10",
)


def undisturbed(workdir):
    done = forked.run("prism_jax", "train", *ARGUMENTS, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr


def final(workdir):
    workdir = Workdir(workdir)
    config = workdir.load_config()
    return jax.device_get(trained_params(config, workdir))


def steps_done(workdir):
    path = workdir / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_killed_run_resumes_and_ends_bit_identical(tmp_path, root):
    whole, killed, said = tmp_path / "whole", tmp_path / "killed", tmp_path / "said"
    command = [sys.executable, "-m", "prism_jax", "train", *ARGUMENTS, f"--workdir={killed}"]
    undisturbed(whole)
    rng = np.random.default_rng(0)
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, os.EX_TEMPFAIL)):
        before = steps_done(killed)
        with (
            said.open("w") as errors,
            subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=errors) as process,
        ):
            while steps_done(killed) <= before and process.poll() is None:
                time.sleep(0.05)  # logs are flushed with each checkpoint, so after the loop one has been saved
            time.sleep(rng.uniform(0, 0.3))
            os.kill(process.pid, number)
        assert process.returncode == status
    stopped = re.fullmatch(
        rf"stopped: SIGTERM: saved step (\d+) of 60 in {killed}; the same command resumes from there",
        said.read_text().splitlines()[-1],
    )
    assert int(stopped[1]) == steps_done(killed) < 60
    assert (killed / "checkpoints" / stopped[1]).is_dir()
    undisturbed(killed)
    (step, params), (step_killed, params_killed) = final(whole), final(killed)
    assert step == step_killed == 60
    chex.assert_trees_all_equal(params_killed, params)
    metrics = (whole / "metrics.jsonl").read_bytes()
    assert (killed / "metrics.jsonl").read_bytes() == metrics
    assert [json.loads(line)["step"] for line in metrics.splitlines()] == list(range(1, 61))
    for name in ("scores.parquet", "calibration.json", "evaluation.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
