"""A step on a mesh of GPUs passes the partitioner, and exchanges no more than ZeRO-3, on simulated CPU devices."""

import json
import pathlib
import re

import pytest

pytestmark = pytest.mark.slow

MESHES = [[1, 4, 2], [1, 8, 1], [2, 4, 1]]
PROGRAM = """
import json, sys
import jax
from target_shapes import step_on
from prism_jax.training.compiled.absent import lower_step
from prism_jax.training.compiled.accounting import collectives
from prism_jax.training.compiled.hlo import parse
from prism_jax.training.compiled.theory import zero3
from prism_jax.training.optimization.step import make_step

QUICK = {"xla_backend_optimization_level": 0}
for sizes in json.loads(sys.argv[1]):
    try:
        lower_step(step_on(*sizes)).compile(QUICK)
    except jax.errors.JaxRuntimeError as error:
        on_cuda = str(error)
    shape = step_on(*sizes, student={"dtype": "float32", "param_dtype": "float32"}, master="none")
    compiled = make_step(shape).lower(shape.state, shape.batch).compile(QUICK)
    found = {kind: one.bytes for kind, one in collectives(parse(compiled.as_text()), 8).items()}
    print(json.dumps({"on_cuda": on_cuda, "found": found, "zero3": zero3(shape)._asdict()}))
"""
# A residual stream of one device, and the parameters of head or embedding that a device exchanges; both in bytes.
RESIDUAL, TABLE = 2 * 256 * 128 * 4, 1024 * 128 * 4


@pytest.fixture(scope="module")
def steps(on_eight_devices):
    """What the program prints for each mesh."""
    printed = on_eight_devices(PROGRAM, json.dumps(MESHES), paths=[pathlib.Path(__file__).parent])
    return list(map(json.loads, printed.splitlines()))


@pytest.mark.parametrize("place", range(len(MESHES)), ids=map(str, MESHES))
def test_a_mesh_is_accepted_and_exchanges_no_more_than_zero3_needs(steps, place):
    """Lowered for CUDA and compiled on CPU, a step gets as far as the kernels, which are all that is missing there.

    The CPU's compiler uses all-reduce, and sums activations for each matrix: 7 times per block instead of 4. Otherwise,
    only widths of the residual stream for rows, at both ends of the stack, and of the head for words are exchanged.
    """
    (_, fsdp, tensor), (on_cuda, found, theory) = MESHES[place], steps[place].values()
    assert re.search(r"No registered implementation .* __cudnn\$fmha\w+ for Host", on_cuda)
    assert 1 <= found["all-gather"] / theory["gathered"] < 1.1
    needed = theory["scattered"] + theory["replicas"] + theory["activations"] * 7 / 4
    assert 1 <= found["all-reduce"] / needed < 1.15
    assert found["all-to-all"] <= 3 * RESIDUAL + 2 * TABLE / (fsdp * tensor)
    assert found.get("collective-permute", 0) < RESIDUAL / 50
    assert "reduce-scatter" not in found
