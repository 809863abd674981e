"""Training on a mesh is training on one device, and may resume on another mesh: eight simulated CPU devices."""

import json

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

PROGRAM = """
import dataclasses, json, shutil, sys
import jax, numpy as np
from prism_jax.runs.pipeline import train_run
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.lora import LoraConfig
from prism_jax.training.run_config import MeshConfig
from prism_jax.training.workdir import Workdir
from tiny import CONFIG

folder = sys.argv[1]
student = StudentConfig(hidden_dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48)
wide = dataclasses.replace(CONFIG, data=dataclasses.replace(CONFIG.data, train_streams=32))

def train(name, mesh, changes):
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
    return jax.device_get(train_run(config, Workdir(f"{folder}/{name}"))[1])

for case in json.loads(sys.argv[2]):
    train(*case)
(name, _, changes), apart = json.loads(sys.argv[3]), {}
whole = train(*json.loads(sys.argv[3]))
for again, mesh in json.loads(sys.argv[4]).items():
    shutil.copytree(f"{folder}/{name}", f"{folder}/{again}", dirs_exist_ok=True)
    shutil.rmtree(f"{folder}/{again}/checkpoints/8", ignore_errors=True)
    differ = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), train(again, mesh, changes), whole)
    apart[again] = max(jax.tree.leaves(differ))
print(json.dumps(apart))
"""


HALF = {
    "training": {"first_moment": "bfloat16", "second_moment": "factored", "frozen": ["layers/0/.*"], "master": "split"},
    "student": {"param_dtype": "bfloat16"},
}
ADAPTERS = {"training": {"start": "one", "learning_rate": 0.05}, "lora": {"rank": 4, "head": "slots"}}
# Microbatches are used on the mesh whose devices hold two rows each.
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


WHOLE = ("rows", (8, 1, 1), {"training": {"steps": 8, "checkpoint_every": 4, "learning_rate": 3e-3}})
RESUMED = {"resumed on rows": (8, 1, 1), "resumed on all": (2, 2, 2), "resumed alone": (1, 1, 1)}


@pytest.fixture(scope="module")
def trained(root, on_eight_devices, tmp_path_factory):
    """The metrics of each run by its name, and how far the parameters of resumed runs are from one that was whole."""
    folder = tmp_path_factory.mktemp("meshes")
    # Run again, the program resumes each case where it ended.
    given = map(json.dumps, (CASES, WHOLE, RESUMED))
    printed = on_eight_devices(PROGRAM, folder, *given, paths=[root / "tests" / "training"])
    assert printed.count("8 x cpu") == len(CASES) + 1 + len(RESUMED)
    names = [*(name for name, *_ in (*CASES, WHOLE)), *RESUMED]
    files = {name: (folder / name / "metrics.jsonl").read_text() for name in names}
    metrics = {name: [json.loads(line) for line in text.splitlines()] for name, text in files.items()}
    return metrics, json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "alone", "terms", "rtol"),
    [
        ("fsdp", "one", TERMS, 2e-5),
        ("all", "one", TERMS, 2e-5),
        ("sharded half", "half", ("loss",), 0.02),  # rounding to bfloat16 depends on the order of sums
        ("spread adapters", "adapters", TERMS, 2e-5),
    ],
)
def test_a_mesh_trains_as_one_device_does(trained, name, alone, terms, rtol):
    """Compares the losses of five steps; each depends on the gradients of the steps before it."""
    found, one = trained[0][name], trained[0][alone]
    assert len(one) == 5 and one[-1]["loss"] != one[0]["loss"]
    for term in terms:
        np.testing.assert_allclose([line[term] for line in found], [line[term] for line in one], rtol, err_msg=term)


def test_a_run_resumes_bit_exact_on_its_mesh_and_within_1e_5_on_another(trained):
    metrics, apart = trained
    whole = metrics["rows"]
    assert [line["step"] for line in whole] == list(range(1, 9))
    assert np.abs(np.diff([line["loss"] for line in whole[3:]])).max() > 1e-3, "training continued"
    for name in RESUMED:
        assert len(metrics[name]) == 8 and apart[name] <= 1e-5, (name, apart)
        np.testing.assert_allclose([line["loss"] for line in metrics[name]], [line["loss"] for line in whole], 0, 1e-5)
    assert apart["resumed on rows"] == 0 and metrics["resumed on rows"] == whole
    assert metrics["resumed alone"] != whole, "sums were taken in another order, so another mesh was really used"
