"""Training on a mesh gives the losses of training on one device: eight simulated CPU devices, in several layouts."""

import json
import pathlib

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

PROGRAM = """
import dataclasses, json, sys
from prism_jax.runs.pipeline import train_run
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.lora import LoraConfig
from prism_jax.training.run_config import MeshConfig
from prism_jax.training.workdir import Workdir
from tiny import CONFIG

cases, folder = json.loads(sys.argv[1]), sys.argv[2]
student = StudentConfig(hidden_dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48)
wide = dataclasses.replace(CONFIG, data=dataclasses.replace(CONFIG.data, train_streams=32))
for name, mesh, changes in cases:
    changes = {section: dict(values) for section, values in changes.items()}
    training = {"steps": 5, "batch": 8} | changes.get("training", {})
    if "start" in training:
        training["start"] = f"{folder}/{training['start']}"
    if "frozen" in training:
        training["frozen"] = tuple(training["frozen"])
    config = dataclasses.replace(
        wide,
        student=dataclasses.replace(student, **changes.get("student", {})),
        mesh=MeshConfig(*mesh),
        training=dataclasses.replace(CONFIG.training, **training),
        lora=LoraConfig(**changes.get("lora", {})),
    )
    train_run(config, Workdir(f"{folder}/{name}"))
"""


@pytest.fixture(scope="module")
def metrics(root, on_eight_devices, tmp_path_factory):
    """A function that trains on several meshes in one process, and returns each run's metrics by its name."""
    folder = tmp_path_factory.mktemp("meshes")

    def run(cases):
        # Run again, the program resumes each case where it ended.
        printed = on_eight_devices(PROGRAM, json.dumps(cases), folder, paths=[root / "tests" / "training"])
        assert printed.count("8 x cpu") == len(cases)
        files = {name: pathlib.Path(folder, name, "metrics.jsonl").read_text() for name, _, _ in cases}
        return {name: [json.loads(line) for line in text.splitlines()] for name, text in files.items()}

    return run


def assert_equal(found, one, names, rtol):
    """Compares the losses of five steps; each depends on the gradients of the steps before it."""
    assert one[-1]["loss"] != one[0]["loss"]
    for name in names:
        np.testing.assert_allclose(
            [line[name] for line in found], [line[name] for line in one], rtol=rtol, err_msg=name
        )


TERMS = ("loss", "need", "accept", "burden", "response", "gradient_norm")


def test_every_mesh_trains_as_one_device_does(metrics):
    cases = [["one", (1, 1, 1), {}], ["rows", (8, 1, 1), {}], ["fsdp", (1, 4, 2), {}]]
    # Microbatches are used on the mesh whose devices hold two rows each.
    cases.append(["all", (2, 2, 2), {"training": {"accumulation": 2}}])
    found = metrics(cases)
    for name in ("rows", "fsdp", "all"):
        assert_equal(found[name], found["one"], TERMS, 2e-5)


def test_parameters_in_bfloat16_train_sharded_with_masters_and_factors(metrics):
    """Rounding depends on the order of sums, so losses agree to the precision of bfloat16."""
    training = {"first_moment": "bfloat16", "second_moment": "factored", "frozen": ["layers/0/.*"], "master": "split"}
    changes = {"training": training, "student": {"param_dtype": "bfloat16"}}
    found = metrics([["half", (1, 1, 1), changes], ["sharded half", (1, 4, 2), changes]])
    assert_equal(found["sharded half"], found["half"], ("loss",), 0.02)


def test_adapters_train_sharded_on_a_frozen_base(metrics):
    adapters = {"training": {"start": "base", "learning_rate": 0.05}, "lora": {"rank": 4, "head": "slots"}}
    found = metrics(
        [
            ["base", (1, 1, 1), {"training": {"steps": 1}}],
            ["adapters", (1, 1, 1), adapters],
            ["sharded adapters", (1, 4, 2), adapters],
            ["spread adapters", (2, 2, 2), adapters | {"training": adapters["training"] | {"accumulation": 2}}],
        ]
    )
    for name in ("sharded adapters", "spread adapters"):
        assert_equal(found[name], found["adapters"], TERMS, 2e-5)
