"""The gradient of one step, computed from the whole batch at once or accumulated over microbatches.

Every term of the loss is sum(numerators) / sum(denominators) over the whole batch. The denominators do not depend on
the parameters, so they are summed first. Each microbatch then adds the gradient of its numerators divided by these
sums. The result is the gradient of the batch, even if labels and tokens are distributed unevenly over microbatches.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed
from prism_jax.scoring.slots import Slots
from prism_jax.student import sharding
from prism_jax.student.qwen3 import Params
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.optimization.objective import Terms, denominators, objective, term_sums, total

Gradient = Callable[[Params, Packed, Float[Array, ""]], tuple[Params, dict[str, Float[Array, ""]]]]


def make_gradient(
    slots: Slots,
    loss: LossConfig,
    point: OperatingPoint,
    depth: int,
    partition: Partition,
    mesh: Mesh,
) -> Gradient:
    """Makes a function of parameters, batch and gate width that returns the gradient and the metrics.

    `depth` is the number of microbatches, which must divide the number of rows of the batch that each device holds. The
    function differentiates with respect to the trained parameters only. At depth 1 the gradients have the dtypes of the
    parameters. At larger depths they have at least float32, because small terms are lost when a sum is accumulated in
    bfloat16.
    """
    slots = dataclasses.replace(slots, frozen=partition.depth)

    def one_batch(params: Params, batch: Packed, width: Float[Array, ""]) -> tuple[Params, dict[str, Array]]:
        def whole(trained: Params) -> tuple[Array, dict[str, Array]]:
            return objective(partition.merge(params, trained), batch, slots, loss, point, width)

        return jax.grad(whole, has_aux=True)(partition.split(params))

    def microbatches(params: Params, batch: Packed, width: Float[Array, ""]) -> tuple[Params, dict[str, Array]]:
        whole, trained = denominators(batch, loss, point), partition.split(params)

        def share(trained: Params, part: Packed) -> tuple[Array, Terms]:
            sums = term_sums(partition.merge(params, trained), part, slots, loss, point, width)
            return total(sums.over(whole), loss)[0], sums

        def add(so_far: Any, part: Packed) -> tuple[Any, None]:
            return jax.tree.map(operator.add, so_far, jax.grad(share, has_aux=True)(trained, part)), None

        nothing = (jax.tree.map(_zeros, trained), jax.tree.map(jnp.zeros_like, whole))
        (gradient, sums), _ = jax.lax.scan(add, nothing, split(batch, depth, mesh))
        return gradient, total(sums, loss)[1]

    def gradient(params: Params, batch: Packed, width: Float[Array, ""]) -> tuple[Params, dict[str, Array]]:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return (one_batch if depth == 1 else microbatches)(params, batch, width)

    return gradient


def split(batch: Packed, depth: int, mesh: Mesh) -> Packed:
    """Splits a batch into microbatches along a new leading axis.

    Microbatch i holds rows i, i + depth, i + 2 depth, ..., so that no row moves to another device.
    """

    def one(column: Array) -> Array:
        parts = column.reshape(-1, depth, *column.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(parts, NamedSharding(mesh, PartitionSpec(None, *sharding.BATCH)))

    return jax.tree.map(one, batch)


def _zeros(param: Array) -> Array:
    """Zeros to accumulate the gradient of a parameter in, with the same sharding."""
    return jnp.zeros_like(param, jnp.promote_types(param.dtype, jnp.float32))
