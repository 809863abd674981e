"""The training state, the jitted training step, which donates it, and the gradient norm of each loss term.

The gradient is computed from the whole batch at once or accumulated over microbatches. Every term of the loss is
sum(numerators) / sum(denominators) over the whole batch. The denominators do not depend on the parameters, so they are
summed first. Each microbatch then adds the gradient of its numerators divided by these sums. The result is the gradient
of the batch, even if labels and tokens are distributed unevenly over microbatches.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.student import sharding
from prism_jax.student.prompting.packing import Packed
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.optimization.objective import (
    TERMS,
    Terms,
    denominators,
    gate_width,
    term_sums,
    total,
)
from prism_jax.training.optimization.optimizer import Optimizer, OptimizerState, schedule
from prism_jax.training.run_config import TrainingConfig


class TrainState(NamedTuple):
    """Everything that training changes."""

    step: Int[Array, ""]  # number of completed updates
    params: Params
    optimizer: OptimizerState  # for the trained parameters only


Metrics = dict[str, Float[Array, ""]]
Step = Callable[[TrainState, Packed], tuple[TrainState, Metrics]]


def abstract_state(model: Qwen3, config: TrainingConfig, mesh: Mesh) -> TrainState:
    """Shapes, dtypes and shardings of the state; allocates nothing."""
    shapes = jax.eval_shape(lambda: _fresh(model, config, jax.random.key(0)))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_place(path, leaf, mesh)), shapes
    )


def init_state(model: Qwen3, config: TrainingConfig, mesh: Mesh, start: PRNGKeyArray | Params) -> TrainState:
    """A fresh state, created directly on the mesh from a random key, or from initial parameters, which are donated.

    The initial parameters of a student with adapters are those of its base, and may hold adapters, too.
    """
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(model, config, mesh))
    donated = 0 if isinstance(start, dict) else ()
    return jax.jit(lambda start: _fresh(model, config, start), out_shardings=placed, donate_argnums=donated)(start)


def _fresh(model: Qwen3, config: TrainingConfig, start: PRNGKeyArray | Params) -> TrainState:
    """The state before the first step."""
    params = start if isinstance(start, dict) else model.init(start)
    if model.lora.rank:
        params = model.adapted(params, jax.random.key(config.seed))
    trained = Partition.of(model, config.frozen).split(params)
    return TrainState(jnp.zeros((), jnp.int32), params, Optimizer(config).init(trained))


def saved_part(state: TrainState, model: Qwen3) -> TrainState:
    """What a checkpoint holds of a state, or of its shapes: all of it but the base of adapters."""
    return state._replace(params=model.own(state.params))


def _place(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct, mesh: Mesh) -> NamedSharding:
    """Sharding of a leaf: moments and masters like their parameter; factored moments are small and replicated."""
    name = sharding.path_of(path)
    if leaf.size == 1 or re.search(r"/v_(row|col)/", name):
        return NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, sharding.partition_spec(name, leaf.ndim))


def make_step(slots: Slots, config: TrainingConfig, loss: LossConfig, point: OperatingPoint, mesh: Mesh) -> Step:
    """The jitted training step, which donates the state passed to it; a remat policy still `auto` is an error."""
    if slots.model.config.remat == "auto":
        raise ValueError("student.remat: found 'auto', expected a policy; memory.estimate.fitted chooses one")
    optimizer, rate = Optimizer(config), schedule(config)
    partition = Partition.of(slots.model, config.frozen)
    gradient_of = make_gradient(slots, loss, point, config.accumulation, partition, mesh)
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(slots.model, config, mesh))

    def step(state: TrainState, batch: Packed) -> tuple[TrainState, Metrics]:
        width = gate_width(state.step, config.steps, loss)
        gradient, metrics = gradient_of(state.params, batch, width, dropout_key(slots, config, state.step))
        # The norm and the moments of a bfloat16 gradient are computed in float32.
        gradient = jax.tree.map(lambda g: g.astype(jnp.float32), gradient)
        metrics |= {
            "gradient_norm": optax.global_norm(gradient),
            "learning_rate": rate(state.step),
            "gate_width": width,
        }
        trained, optimizer_state = optimizer.update(
            gradient, state.optimizer, partition.split(state.params), state.step
        )
        return TrainState(state.step + 1, partition.merge(state.params, trained), optimizer_state), metrics

    return jax.jit(
        step, donate_argnums=0, in_shardings=(placed, NamedSharding(mesh, sharding.BATCH)), out_shardings=(placed, None)
    )


Shares = Callable[[TrainState, Packed], dict[str, Float[Array, ""]]]


def make_shares(slots: Slots, config: TrainingConfig, loss: LossConfig, point: OperatingPoint, mesh: Mesh) -> Shares:
    """Makes a jitted function of state and batch that runs one backward pass per term with a positive weight.

    For each term it returns `gradient_norm_TERM`, the global norm of the gradient of that weighted term with respect to
    the trained parameters, before clipping, and `gradient_share_TERM`, its share of the sum of these norms. The norm of
    the total gradient is at most that sum, because terms may have opposing gradients.
    """
    partition = Partition.of(slots.model, config.frozen)
    gradients = {
        name: make_gradient(slots, _alone(loss, name), point, config.accumulation, partition, mesh)
        for name in TERMS
        if getattr(loss, name) > 0
    }

    def norm(state: TrainState, batch: Packed, name: str, width: Float[Array, ""]) -> Float[Array, ""]:
        gradient, _ = gradients[name](state.params, batch, width, dropout_key(slots, config, state.step))
        return optax.global_norm(jax.tree.map(lambda g: g.astype(jnp.float32), gradient))

    def shares(state: TrainState, batch: Packed) -> dict[str, Float[Array, ""]]:
        width = gate_width(state.step, config.steps, loss)
        norms = {name: norm(state, batch, name, width) for name in gradients}
        whole = jnp.maximum(sum(norms.values(), jnp.zeros(())), jnp.finfo(jnp.float32).tiny)
        return {f"gradient_norm_{name}": value for name, value in norms.items()} | {
            f"gradient_share_{name}": value / whole for name, value in norms.items()
        }

    return jax.jit(shares)


def _alone(loss: LossConfig, name: str) -> LossConfig:
    """The loss config with the weights of all other terms set to 0."""
    nothing: dict[str, Any] = {term: 0.0 for term in TERMS if term != name}
    return dataclasses.replace(loss, **nothing)


Key = PRNGKeyArray | None
Gradient = Callable[[Params, Packed, Float[Array, ""], Key], tuple[Params, dict[str, Float[Array, ""]]]]


def dropout_key(slots: Slots, config: TrainingConfig, step: Int[Array, ""]) -> Key:
    """The key for the dropout of a step, which depends on the seed and the step alone; None without dropout."""
    lora = slots.model.lora
    if not (lora.rank and lora.dropout):
        return None
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), step), 1)


def make_gradient(
    slots: Slots,
    loss: LossConfig,
    point: OperatingPoint,
    depth: int,
    partition: Partition,
    mesh: Mesh,
) -> Gradient:
    """Makes a function of parameters, batch, gate width and dropout key that returns the gradient and the metrics.

    `depth` is the number of microbatches, which must divide the number of rows of the batch that each device holds. The
    function differentiates with respect to the trained parameters only. At depth 1 the gradients have the dtypes of the
    parameters. At larger depths they have at least float32, because small terms are lost when a sum is accumulated in
    bfloat16.
    """
    slots = dataclasses.replace(slots, frozen=partition.depth)

    def one_batch(params: Params, batch: Packed, width: Float[Array, ""], key: Key) -> tuple[Params, dict[str, Array]]:
        def whole(trained: Params) -> tuple[Array, dict[str, Array]]:
            sums = term_sums(partition.merge(params, trained), batch, slots, loss, point, width, key)
            return total(sums, loss)

        return jax.grad(whole, has_aux=True)(partition.split(params))

    def microbatches(
        params: Params, batch: Packed, width: Float[Array, ""], key: Key
    ) -> tuple[Params, dict[str, Array]]:
        whole, trained = denominators(batch, loss, point), partition.split(params)

        def share(trained: Params, part: Packed, key: Key) -> tuple[Array, Terms]:
            sums = term_sums(partition.merge(params, trained), part, slots, loss, point, width, key)
            return total(sums.over(whole), loss)[0], sums

        def add(so_far: Any, part: tuple[Packed, Key]) -> tuple[Any, None]:
            return jax.tree.map(operator.add, so_far, jax.grad(share, has_aux=True)(trained, *part)), None

        zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.promote_types(leaf.dtype, jnp.float32)), trained)
        nothing = (zeros, jax.tree.map(jnp.zeros_like, whole))
        keys = None if key is None else jax.random.split(key, depth)
        (gradient, sums), _ = jax.lax.scan(add, nothing, (split(batch, depth, mesh), keys))
        return gradient, total(sums, loss)[1]

    def gradient(
        params: Params, batch: Packed, width: Float[Array, ""], key: Key = None
    ) -> tuple[Params, dict[str, Array]]:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return (one_batch if depth == 1 else microbatches)(params, batch, width, key)

    return gradient


def split(batch: Packed, depth: int, mesh: Mesh) -> Packed:
    """Splits a batch into microbatches along a new leading axis.

    Microbatch i holds rows i, i + depth, i + 2 depth, ..., so that no row moves to another device.
    """

    def split_column(column: Array) -> Array:
        parts = column.reshape(-1, depth, *column.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(parts, NamedSharding(mesh, PartitionSpec(None, *sharding.BATCH)))

    return jax.tree.map(split_column, batch)
