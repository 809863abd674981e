"""What a step needs at least: against the traced step, and against counts by hand over the student's parameters."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from jax._src.interpreters.partial_eval import dce_jaxpr  # has no public name
from jax.sharding import Mesh
from target_shapes import LOWEST, STUDENT, step_on

from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.sharding import MESH_AXES
from prism_jax.training.compiled.theory import Traffic, needed_dots, zero3
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.step import make_step

# By hand, for the student of target_shapes: the values of all matrices of one block, and of the head.
WIDTH, HEADS, KEYS, INNER, LAYERS = 128, 16 * 16, 8 * 16, 256, 3
BLOCK = WIDTH * (HEADS + 2 * KEYS) + HEADS * WIDTH + 3 * WIDTH * INNER
HEAD = 1024 * WIDTH
# Each of two rows per device has 192 + 64 tokens, of which at most 16 are supervised.
TOKENS, RESPONSES = 2 * 256, 2 * 16
TWO_LOWEST = ("embedding", "layers/[01]/.*")
NO_RESPONSE = LossConfig(response=0.0)


def on_mesh(data=1, fsdp=1, tensor=1, batch=16, **changes):
    """A step on devices that need not exist: one device stands for all of them, and only their number is read."""
    mesh = Mesh(np.full((data, fsdp, tensor), jax.devices()[0]), MESH_AXES)
    return dataclasses.replace(step_on(batch=batch, **changes), mesh=mesh)


def test_the_count_by_hand_is_that_of_the_parameters():
    leaves = jax.tree_util.tree_leaves_with_path(Qwen3(STUDENT).abstract_params())
    sizes = {jax.tree_util.keystr(path): leaf.size for path, leaf in leaves}
    blocks = sum(size for path, size in sizes.items() if "layers" in path and "kernel" in path)
    assert blocks == LAYERS * BLOCK
    assert sum(sizes.values()) - blocks - 2 * HEAD == LAYERS * (2 * WIDTH + 2 * 16) + WIDTH  # the norms


def counted(jaxpr, times=1):
    """Operations of the products of two matrices: without attention, which has batch axes, and without vectors."""
    total = 0
    for equation in jaxpr.eqns:
        often = times * (equation.params["length"] if equation.primitive.name == "scan" else 1)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            total += counted(inner, often) if hasattr(inner, "eqns") else 0
        if equation.primitive.name == "dot_general":
            (contracted, _), (batch, _) = equation.params["dimension_numbers"]
            left, right, out = (variable.aval.shape for variable in (*equation.invars, *equation.outvars))
            if math.prod(left[axis] for axis in batch) == 1 and min(map(len, (left, right, out))) > 1:
                total += times * 2 * math.prod(out) * math.prod(left[axis] for axis in contracted)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("student", "settings"),
    [
        ({}, {}),
        ({}, {"accumulation": 2}),
        ({}, {"frozen": LOWEST}),
        ({}, {"frozen": TWO_LOWEST, "loss": NO_RESPONSE}),
        ({"tied": True}, {"frozen": LOWEST}),
        ({"tied": True}, {"loss": NO_RESPONSE}),
        ({}, {"frozen": ("head/kernel", "layers/.*/mlp/up_proj/kernel")}),
        ({"num_layers": 2}, {"frozen": ("embedding", "layers/.*")}),
    ],
)
def test_the_traced_step_has_the_needed_products_and_no_others(student, settings):
    """Without recomputation, and after the removal of what no result depends on."""
    shape = step_on(student={"attention": "xla", "remat": "none", **student}, **settings)
    traced = jax.make_jaxpr(make_step(shape))(shape.state, shape.batch).jaxpr
    assert counted(dce_jaxpr(traced, [True] * len(traced.outvars))[0]) == needed_dots(shape)


def test_a_step_that_trains_everything_needs_six_operations_per_parameter_and_token():
    assert needed_dots(step_on()) == 6 * (LAYERS * BLOCK * TOKENS + HEAD * RESPONSES)


@pytest.mark.parametrize(
    ("settings", "blocks", "head"),
    [
        ({"frozen": LOWEST}, 2 + 6 + 6, 6),  # nothing below the lowest block trains, so no gradient enters it
        ({"frozen": TWO_LOWEST}, 2 + 2 + 6, 6),
        ({"frozen": ("layers/0/.*",)}, 4 + 6 + 6, 6),  # the embedding trains, so gradients pass through all blocks
        ({"frozen": ("layers/1/.*",)}, 6 + 4 + 6, 6),
        ({"frozen": ("embedding", "layers/.*")}, 2 + 2 + 2, 6),
        ({"frozen": ("head/kernel",)}, 6 + 6 + 6, 4),
        ({"frozen": ("embedding",)}, 6 + 6 + 6, 6),
        ({"loss": NO_RESPONSE}, 6 + 6 + 6, 2),
        ({"student": {"tied": True}}, 6 + 6 + 6, 6),
        ({"student": {"tied": True}, "frozen": ("embedding",)}, 6 + 6 + 6, 4),
        ({"student": {"remat": "full"}}, 6 + 6 + 6, 6),  # recomputation is not needed
    ],
)
def test_frozen_parts_need_less(settings, blocks, head):
    assert needed_dots(step_on(**settings)) == blocks * BLOCK * TOKENS + head * HEAD * RESPONSES


@pytest.mark.parametrize("settings", [{}, {"frozen": TWO_LOWEST}, {"loss": NO_RESPONSE}, {"student": {"tied": True}}])
@pytest.mark.parametrize("mesh", [(2, 1, 1), (1, 4, 1), (1, 1, 8), (2, 2, 2)])
def test_devices_share_the_arithmetic_evenly(mesh, settings):
    assert needed_dots(on_mesh(*mesh, **settings)) * math.prod(mesh) == needed_dots(on_mesh(**settings))


def test_one_device_and_pure_replicas_gather_nothing():
    assert zero3(on_mesh()) == Traffic(0, 0, 0, 0)
    assert zero3(on_mesh(data=4)) == Traffic(0, 0, LAYERS * BLOCK * 2, 0)


@pytest.mark.parametrize("fsdp", [2, 8])
def test_parameters_are_gathered_twice_and_gradients_scattered_once(fsdp):
    """The full arrays count, in bfloat16, however many devices hold them."""
    assert zero3(on_mesh(fsdp=fsdp)) == Traffic(2 * LAYERS * BLOCK * 2, LAYERS * BLOCK * 2, 0, 0)


def test_microbatches_gather_and_scatter_again_but_replicas_sum_once():
    whole, parts = (zero3(on_mesh(data=2, fsdp=4, accumulation=depth)) for depth in (1, 2))
    assert parts == Traffic(2 * whole.gathered, 2 * whole.scattered, whole.replicas, 0)
    assert whole.replicas == LAYERS * BLOCK * 2 // 4  # the part of the gradients that one device keeps


@pytest.mark.parametrize(
    ("frozen", "gathers", "trained"),
    [
        (LOWEST, 1 + 2 + 2, 2),
        (TWO_LOWEST, 1 + 1 + 2, 1),
        (("layers/0/.*",), 2 + 2 + 2, 2),
        (("layers/2/.*", "embedding"), 2 + 2 + 2, 2),
    ],
)
def test_blocks_that_no_gradient_enters_are_gathered_once(frozen, gathers, trained):
    found = zero3(on_mesh(data=2, fsdp=2, frozen=frozen))
    assert found == Traffic(gathers * BLOCK * 2, trained * BLOCK * 2, trained * BLOCK * 2 // 2, 0)


@pytest.mark.parametrize(
    ("param_dtype", "dtype", "item"),
    [("float32", "float32", 4), ("float32", "bfloat16", 2), ("bfloat16", "float32", 2), ("bfloat16", "bfloat16", 2)],
)
def test_mixed_dtypes_exchange_the_narrower_one(param_dtype, dtype, item):
    found = zero3(on_mesh(fsdp=2, student={"param_dtype": param_dtype, "dtype": dtype}, master="none"))
    assert (found.gathered, found.scattered) == (2 * LAYERS * BLOCK * item, LAYERS * BLOCK * item)


@pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("bfloat16", 2)])
def test_tensor_parallel_devices_sum_activations_and_exchange_their_part_of_the_blocks(dtype, item):
    """Two sums per block in each pass (Megatron-LM): of 16 rows over 2 x 2 devices, each holds 4."""
    student = {"dtype": dtype, "param_dtype": dtype}
    found = zero3(on_mesh(data=2, fsdp=2, tensor=2, student=student, master="none"))
    residual = 4 * 256 * WIDTH * item
    part = LAYERS * BLOCK * item // 2
    assert found == Traffic(2 * part, part, part // 2, 2 * 2 * LAYERS * residual)
    assert zero3(on_mesh(tensor=2, student=student, master="none")) == Traffic(0, 0, 0, 2 * 2 * LAYERS * 4 * residual)


def test_neither_head_nor_embedding_counts_as_traffic_of_blocks():
    assert zero3(on_mesh(fsdp=2, student={"vocab_size": 4096})) == zero3(on_mesh(fsdp=2, student={"tied": True}))
