"""A step on a mesh of GPUs passes the partitioner, and exchanges no more than ZeRO-3, on simulated CPU devices."""

import json
import pathlib
import re

import pytest

MESHES = [
    pytest.param([[1, 4, 2]], id="with a tensor axis"),
    pytest.param([[1, 8, 1], [2, 4, 1]], id="without", marks=pytest.mark.slow),
]

ON_CUDA = """
import json, sys
import jax
from target_shapes import step_on
from prism_jax.training.compiled.absent import lower_step

for sizes in json.loads(sys.argv[1]):
    try:
        lower_step(step_on(*sizes)).compile({"xla_backend_optimization_level": 0})
    except jax.errors.JaxRuntimeError as error:
        print(json.dumps(str(error)))
"""

TRAFFIC = """
import json, sys
from target_shapes import step_on
from prism_jax.training.optimization.step import make_step
from prism_jax.training.compiled.accounting import collectives
from prism_jax.training.compiled.hlo import parse
from prism_jax.training.compiled.theory import zero3

for sizes in json.loads(sys.argv[1]):
    shape = step_on(*sizes, student={"dtype": "float32", "param_dtype": "float32"}, master="none")
    compiled = make_step(shape).lower(shape.state, shape.batch).compile({"xla_backend_optimization_level": 0})
    found = collectives(parse(compiled.as_text()), 8)
    print(json.dumps({"found": {kind: one.bytes for kind, one in found.items()}, "zero3": zero3(shape)._asdict()}))
"""


@pytest.fixture(scope="module", params=MESHES)
def meshes(request):
    return request.param


@pytest.fixture(scope="module")
def answers(on_eight_devices, meshes):
    """Runs a program on eight simulated devices and returns each mesh with the object that it prints for it."""

    def run(program):
        printed = on_eight_devices(program, json.dumps(meshes), paths=[pathlib.Path(__file__).parent])
        return list(zip(meshes, map(json.loads, printed.splitlines()), strict=True))

    return run


@pytest.mark.slow
def test_the_partitioner_accepts_fused_attention_on_every_mesh(answers):
    """Lowered for CUDA and compiled on CPU, a step gets as far as the kernels, which are all that is missing there."""
    for mesh, error in answers(ON_CUDA):
        assert re.search(r"No registered implementation .* __cudnn\$fmha\w+ for Host", error), (mesh, error)


@pytest.fixture(scope="module")
def traffic(answers):
    return answers(TRAFFIC)


# A residual stream of one device, and the parameters of head or embedding that a device exchanges; both in bytes.
RESIDUAL, TABLE = 2 * 256 * 128 * 4, 1024 * 128 * 4


@pytest.mark.slow
def test_blocks_are_gathered_no_more_than_zero3_needs(traffic):
    for mesh, step in traffic:
        assert 1 <= step["found"]["all-gather"] / step["zero3"]["gathered"] < 1.1, mesh


@pytest.mark.slow
def test_gradients_are_summed_no_more_than_zero3_needs(traffic):
    """The CPU's compiler uses all-reduce, and sums activations for each matrix: 7 times per block instead of 4."""
    for mesh, step in traffic:
        theory = step["zero3"]
        needed = theory["scattered"] + theory["replicas"] + theory["activations"] * 7 / 4
        assert 1 <= step["found"]["all-reduce"] / needed < 1.15, mesh


@pytest.mark.slow
def test_only_embedding_and_head_are_exchanged_otherwise(traffic):
    """Widths of the residual stream for rows, at both ends of the stack, and widths of the head for words."""
    for (_, fsdp, tensor), step in traffic:
        assert step["found"]["all-to-all"] <= 3 * RESIDUAL + 2 * TABLE / (fsdp * tensor)
        assert step["found"].get("collective-permute", 0) < RESIDUAL / 50
        assert "reduce-scatter" not in step["found"]
