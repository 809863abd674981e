"""The gradient of one step, from the whole batch at once or from microbatches one after another.

Every term is sum(numerators) / sum(denominators) over the whole batch. Denominators carry no parameters, so they are
summed first; each microbatch then adds the gradient of its numerators over them, and the sum is the batch's gradient
however unevenly labels and tokens fall on microbatches.
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
from prism_jax.slots import Slots
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
    """A function of parameters, batch and the gate's width that gives the trained part's gradient and the metrics.

    Args:
      slots: The student and its two answers.
      loss: Weights and estimators.
      point: Costs of the burden.
      depth: Microbatches, a divisor of the batch's rows; each holds as many rows of every device as another.
      partition: Which parameters train.
      mesh: Where the batch lives.

    Returns:
      The function. Its gradients have the parameters' dtypes at depth 1, where nothing is added up, and at least
      float32 beyond: a sum in bfloat16 would lose what it gains.
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

    return one_batch if depth == 1 else microbatches


def split(batch: Packed, depth: int, mesh: Mesh) -> Packed:
    """Microbatches along a new leading axis; number i holds rows i, i + depth, ...: no row changes its device."""

    def one(column: Array) -> Array:
        parts = column.reshape(-1, depth, *column.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(parts, NamedSharding(mesh, PartitionSpec(None, *sharding.BATCH)))

    return jax.tree.map(one, batch)


def _zeros(param: Array) -> Array:
    """An empty sum of gradients, where the parameter lives."""
    return jnp.zeros_like(param, jnp.promote_types(param.dtype, jnp.float32))
