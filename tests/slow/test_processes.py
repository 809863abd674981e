"""Two processes with one device each train the same as one process."""

import json
import os
import socket
import subprocess
import sys

import forked
import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

TINY = (
    "--config=configs/quickstart.py",
    "--config.data.train_streams=16",
    "--config.data.calibration_streams=12",
    "--config.data.test_streams=12",
    "--config.student.hidden_dim=32",
    "--config.student.num_layers=2",
    "--config.student.num_heads=4",
    "--config.student.head_dim=8",
    "--config.student.mlp_dim=48",
    "--config.student.unroll=1",
    "--config.training.batch=4",
    "--config.training.steps=6",
    "--config.training.checkpoint_every=3",
)
TERMS = ("loss", "need", "accept", "burden", "response", "gradient_norm")


def together(root, workdir, *flags):
    """The output of two processes that train one run, after both have ended without error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prism_jax", "train", *TINY, *flags, f"--workdir={workdir}"]
    command += ["--distributed", f"--coordinator=127.0.0.1:{port}", "--processes=2"]
    options = {"cwd": root, "env": os.environ | {"JAX_PLATFORMS": "cpu"}, "text": True}
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen([*command, f"--process={number}"], **options) for number in range(2)]
    try:
        done = [process.communicate(timeout=600) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, done, strict=True):
        assert process.returncode == 0, errors
    return [out for out, _ in done]


def losses(workdir):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [[line[name] for name in TERMS] for line in lines]


def test_two_processes_train_as_one_does_and_one_evaluates_the_run(root, tmp_path):
    done = forked.run("prism_jax", "train", *TINY, f"--workdir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    first, second = together(root, tmp_path / "two", "--config.mesh.data=2")
    assert "2 processes" in first and "python -m prism_jax evaluate" in first
    assert [line for line in second.splitlines() if not line.startswith("[Gloo]")] == []
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) == 6 and one[0] != one[-1]
    np.testing.assert_allclose(two, one, rtol=1e-5)
    done = forked.run("prism_jax", "evaluate", f"--workdir={tmp_path / 'two'}")
    assert done.returncode == 0, done.stderr
