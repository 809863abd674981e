"""What a training step needs at least: matrix products without recomputation, and the traffic of ZeRO-3.

ZeRO-3 (Rajbhandari et al., arXiv 1910.02054) gathers the parameters of a block for the forward and again for the
backward pass, and scatters their gradients once. The embedding is split by width, so activations are exchanged in place
of its table; the head is exchanged or split by vocabulary (`prism_jax.student.heads`), whichever is less.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import traverse_util

from prism_jax.training.optimization.step import StepShape


class Traffic(NamedTuple):
    """Bytes of full arrays that a device takes part in exchanging per step, for the blocks alone."""

    gathered: int  # bytes of all-gathers: parameters of the blocks
    scattered: int  # bytes of reduce-scatters: gradients of the blocks
    replicas: int  # bytes of all-reduces over the axis `data`: a device's part of the gradients
    activations: int  # bytes of all-reduces over the axis `tensor`: two per block and pass


def needed_dots(shape: StepShape) -> float:
    """Floating-point operations that one device needs for matrix products, without attention and recomputation.

    Each matrix takes 2 per parameter and token in the forward pass, 2 for the gradient of its input unless nothing
    below it trains, and 2 for its own gradient unless it is frozen. Tokens are all that reach the matrix, padding
    included: those of a row for blocks, those of the response for the head, whose gradients are not needed if its loss
    has no weight. The embedding is no product.
    """
    params = shape.slots.model.abstract_params()
    axes = shape.mesh.shape
    partition = shape.partition
    rows = shape.training.batch // (axes["data"] * axes["fsdp"])
    tokens = rows * (shape.size.trunk + shape.size.branches)
    trained = traverse_util.flatten_dict(jax.eval_shape(partition.split, params), sep="/")
    total = 0.0
    for path, leaf in _matrices(params):
        layers, with_gradient = leaf.shape[0], trained[path].shape[0] if path in trained else 0
        each = math.prod(leaf.shape[1:]) / axes["tensor"]
        forward = layers - partition.depth if shape.training.reuse_frozen else layers
        total += 2.0 * each * tokens * (forward + (layers - partition.depth) + with_gradient)
    student = shape.student
    head = "embedding" if student.tied else "head/kernel"
    passes = 2 + (head in trained) if shape.objective.loss.response else 1
    responses = rows * shape.size.responses
    return total + 2.0 * passes * responses * student.vocab_size * student.hidden_dim / axes["tensor"]


def zero3(shape: StepShape) -> Traffic:
    """The traffic of the blocks of a step."""
    student, axes, training = shape.student, shape.mesh.shape, shape.training
    params = shape.slots.model.abstract_params()
    partition = shape.partition
    blocks = sum(leaf.size for _, leaf in _matrices(params)) // axes["tensor"]
    trained = sum(leaf.size for _, leaf in _matrices(jax.eval_shape(partition.split, params))) // axes["tensor"]
    # Parameters are cast before they are gathered, and gradients after they are scattered.
    item = min(jnp.dtype(dtype).itemsize for dtype in (student.param_dtype, student.dtype))
    moving = blocks * (2 * student.num_layers - partition.depth) // student.num_layers
    rows = training.batch // (axes["data"] * axes["fsdp"])
    residual = rows * (shape.size.trunk + shape.size.branches) * student.hidden_dim
    split = axes["fsdp"] > 1
    return Traffic(
        gathered=training.accumulation * moving * item if split else 0,
        scattered=training.accumulation * trained * item if split else 0,
        replicas=trained * item // axes["fsdp"] if axes["data"] > 1 else 0,
        activations=4 * student.num_layers * residual * jnp.dtype(student.dtype).itemsize if axes["tensor"] > 1 else 0,
    )


def _matrices(params: dict) -> list[tuple[str, jax.ShapeDtypeStruct]]:
    """The stacked matrices of the blocks and of their adapters, by path; the first axis counts the blocks."""
    flat = traverse_util.flatten_dict(params, sep="/")
    return [(path, leaf) for path, leaf in flat.items() if re.fullmatch(r"layers/.*/(kernel|lora/[ab])", path)]
