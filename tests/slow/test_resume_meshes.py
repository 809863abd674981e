"""A run saved on one mesh of devices resumes on another: eight fake CPU devices in a separate process."""

import json
import pathlib

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

MESHES = {"8-1-1": (8, 1, 1), "2-2-2": (2, 2, 2), "1-1-1": (1, 1, 1)}

# Trains on (8, 1, 1) to the end, then resumes from the middle on every mesh and prints how much the ends differ.
PROGRAM = """
import dataclasses, json, pathlib, shutil, sys, tempfile
import driven, jax, numpy as np
from prism_jax.training.run_config import MeshConfig
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.run import resolve
from prism_jax.training.workdir import Workdir

assert jax.device_count() == 8
base, results = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[1])), {}

def run(name, mesh):
    config = driven.with_training(steps=8, checkpoint_every=4)
    opened = resolve(dataclasses.replace(config, mesh=MeshConfig(*mesh)), Workdir(base / name))
    opened.files.claim(opened.config)
    seen = []
    params = train(plan(opened), progress=False, after_step=seen.append)
    return jax.device_get(params), seen, (base / name / "metrics.jsonl").read_bytes()

whole, _, metrics = run("whole", (8, 1, 1))
for name, mesh in json.loads(sys.argv[2]).items():
    shutil.copytree(base / "whole", base / name)
    shutil.rmtree(base / name / "checkpoints" / "8")
    params, seen, logged = run(name, mesh)
    apart = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), params, whole)
    pairs = [[json.loads(line)["loss"] for line in text.splitlines()] for text in (logged, metrics)]
    results[name] = {
        "seen": seen,
        "same": logged == metrics,
        "params": max(jax.tree.leaves(apart)),
        "loss": float(np.max(np.abs(np.subtract(*pairs)))),
        "moved": float(np.abs(np.diff(pairs[1][3:])).max()),
    }
print(json.dumps(results))
"""


def test_a_run_resumes_bit_exact_on_its_mesh_and_within_1e_5_on_another(on_eight_devices, tmp_path):
    printed = on_eight_devices(PROGRAM, tmp_path, json.dumps(MESHES), paths=[pathlib.Path(__file__).parent])
    found = json.loads(printed.splitlines()[-1])
    assert found.keys() == MESHES.keys()
    for name, result in found.items():
        assert result["seen"] == [5, 6, 7, 8], name
        assert result["moved"] > 1e-3, name  # training continued
        assert result["loss"] <= 1e-5, (name, result)
        assert result["params"] <= 1e-5, (name, result)
    assert found["8-1-1"]["params"] == 0
    assert found["8-1-1"]["same"]
    assert not found["1-1-1"]["same"]  # sums were taken in another order, so another mesh was really used
