"""The programs of live streams and of decoding, compiled for a GPU that is absent: what they need and do."""

import json

import pytest

pytestmark = pytest.mark.study

ROWS, PAGES, NEW, ROOM = 16, 32, 256, 256

PROGRAMS = """
import functools, json, sys
import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from prism_jax.student.qwen3 import Qwen3
from prism_jax.student import constrained
from prism_jax.student import start as starting
from prism_jax.student.branches import NewTokens
from prism_jax.student.kv_cache import Segment, unstack_layers
from prism_jax.student.live_programs import read_rows
from prism_jax.student.pages import PAGE, make_pool
from prism_jax.student.presets import qwen3_8b
from prism_jax.training.compiled.absent import OPTIONS, absent_mesh, as_on_cuda
from prism_jax.training.compiled.cards import card

chip = card("a100-80gb")
place = SingleDeviceSharding(absent_mesh(chip, (1, 1, 1), chip.memory).devices.item())
starting.platform = lambda: "cuda"

def put(tree):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), tree)

def array(*shape, dtype=jnp.int32):
    return put(jax.ShapeDtypeStruct(shape, dtype))

sizes = {}

def compile_(name, program, *args):
    with as_on_cuda():
        made = program.trace(*args).lower(lowering_platforms=("cuda",)).compile(OPTIONS)
    memory = made.memory_analysis()
    sizes[name] = memory.temp_size_in_bytes, memory.output_size_in_bytes
    return put(made.out_info)

ROWS, PAGES, NEW, ROOM = json.loads(sys.argv[1])
model = Qwen3(qwen3_8b(dtype="bfloat16", param_dtype="bfloat16"))
params = put(jax.eval_shape(unstack_layers, model.abstract_params()))
pool = put(jax.eval_shape(lambda: make_pool(model.config, ROWS * PAGES + 1)))
counts, table, tokens = array(ROWS), array(ROWS, PAGES), array(ROWS, NEW)
row = NewTokens(*[tokens] * 4, array(ROWS, 8))
compile_("read", read_rows, model, params, pool, table, counts, row, array(2))
trunk = Segment(pool, array(ROWS, PAGES * PAGE, dtype=bool), table)
start = starting.branch_off(model, params, trunk, tokens, counts, ROOM, functools.partial(compile_, "branch"))
automaton = constrained.DeviceAutomaton.__new__(constrained.DeviceAutomaton)
steps = array(4, model.config.vocab_size, dtype=jnp.int8)
automaton.arrays, automaton.least = (steps, steps, array(model.config.vocab_size)), 1
spans = [constrained.Span((0,), 1)]
compile_(
    "write",
    constrained.write_program,
    *constrained._arguments(model, params, start, spans, automaton),
)
print(json.dumps(sizes))
"""


def test_a_batch_of_long_streams_fits_into_a_gibibyte(on_target):
    """Qwen3-8B in bfloat16; 16 streams of 4,096 cached tokens and 256 new ones, whose caches are 9 GiB."""
    (needed,) = on_target(PROGRAMS, json.dumps([ROWS, PAGES, NEW, ROOM]))
    assert set(needed) == {"read", "branch", "write"}
    assert all(temporary < 1 << 30 for temporary, _ in needed.values()), needed
    # Beside logits, only keys and values of new tokens and of room for them: no trunk.
    new = 2 * 36 * ROWS * 8 * 128 * 2
    assert all(result < new * (NEW + ROOM) + (1 << 24) for _, result in needed.values()), needed


COUNTS = """
import json, sys

sys.path.insert(0, "benchmarks")
import kernels

for rows in (1, 8, 64):
    print(json.dumps(kernels.count(sys.argv[1], "qwen3_8b", "cudnn", rows, 4096, 128)))
"""


@pytest.mark.parametrize("target", ["h200", "a100-80gb"])
def test_a_written_token_takes_few_kernels_and_reads_little_beside_weights_and_cache(on_target, target):
    """Qwen3-8B by the kernels of `decoding`; for many rows the cache that they update in place counts as read whole."""
    kernels, read, least = zip(*on_target(COUNTS, target), strict=True)
    assert [found <= most for found, most in zip(kernels, (310, 275, 490), strict=True)] == [True] * 3, kernels
    ratios = [ours / must for ours, must in zip(read, least, strict=True)]
    assert all(ratio <= most for ratio, most in zip(ratios, (1.01, 1.03, 1.1), strict=True)), ratios
