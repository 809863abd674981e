"""Training on a mesh gives the losses of training on one device: eight simulated CPU devices, in several layouts."""

import json

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


HALF = {
    "training": {"first_moment": "bfloat16", "second_moment": "factored", "frozen": ["layers/0/.*"], "master": "split"},
    "student": {"param_dtype": "bfloat16"},
}
ADAPTERS = {"training": {"start": "one", "learning_rate": 0.05}, "lora": {"rank": 4, "head": "slots"}}
# Microbatches are used on the mesh whose devices hold two rows each; test_resume_meshes.py trains on (8, 1, 1).
CASES = [
    ("one", (1, 1, 1), {}),
    ("fsdp", (1, 4, 2), {}),
    ("all", (2, 2, 2), {"training": {"accumulation": 2}}),
    ("half", (1, 1, 1), HALF),
    ("sharded half", (1, 4, 2), HALF),
    ("adapters", (1, 1, 1), ADAPTERS),
    ("spread adapters", (2, 2, 2), ADAPTERS | {"training": ADAPTERS["training"] | {"accumulation": 2}}),
]
TERMS = ("loss", "need", "accept", "burden", "response", "gradient_norm")


@pytest.fixture(scope="module")
def metrics(root, on_eight_devices, tmp_path_factory):
    """The metrics of each run by its name, all made in one process."""
    folder = tmp_path_factory.mktemp("meshes")
    # Run again, the program resumes each case where it ended.
    printed = on_eight_devices(PROGRAM, json.dumps(CASES), folder, paths=[root / "tests" / "training"])
    assert printed.count("8 x cpu") == len(CASES)
    files = {name: (folder / name / "metrics.jsonl").read_text() for name, _, _ in CASES}
    return {name: [json.loads(line) for line in text.splitlines()] for name, text in files.items()}


@pytest.mark.parametrize(
    ("name", "alone", "terms", "rtol"),
    [
        ("fsdp", "one", TERMS, 2e-5),
        ("all", "one", TERMS, 2e-5),
        ("sharded half", "half", ("loss",), 0.02),  # rounding to bfloat16 depends on the order of sums
        ("spread adapters", "adapters", TERMS, 2e-5),
    ],
)
def test_a_mesh_trains_as_one_device_does(metrics, name, alone, terms, rtol):
    """Compares the losses of five steps; each depends on the gradients of the steps before it."""
    found, one = metrics[name], metrics[alone]
    assert len(one) == 5 and one[-1]["loss"] != one[0]["loss"]
    for term in terms:
        np.testing.assert_allclose([line[term] for line in found], [line[term] for line in one], rtol, err_msg=term)
