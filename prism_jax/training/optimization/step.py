"""The training state, the jitted training step, which donates it, and the gradient norm of each loss term."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed
from prism_jax.scoring.slots import Slots
from prism_jax.student import Qwen3, sharding
from prism_jax.student.qwen3 import Params
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.accumulation import make_gradient
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.optimization.objective import TERMS, gate_width
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
    """Shapes, dtypes and shardings of the state, as a restore needs them; allocates nothing."""
    shapes = jax.eval_shape(lambda: _fresh(model, config, jax.random.key(0)))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_place(path, leaf, mesh)), shapes
    )


def init_state(model: Qwen3, config: TrainingConfig, mesh: Mesh, start: PRNGKeyArray | Params) -> TrainState:
    """A fresh state, created directly on the mesh from a random key, or from initial parameters, which are donated."""
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(model, config, mesh))
    donated = 0 if isinstance(start, dict) else ()
    return jax.jit(lambda start: _fresh(model, config, start), out_shardings=placed, donate_argnums=donated)(start)


def _fresh(model: Qwen3, config: TrainingConfig, start: PRNGKeyArray | Params) -> TrainState:
    """The state before the first step."""
    params = start if isinstance(start, dict) else model.init(start)
    trained = Partition(params, config.frozen).split(params)
    return TrainState(jnp.zeros((), jnp.int32), params, Optimizer(config).init(trained))


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
    partition = Partition(slots.model.abstract_params(), config.frozen)
    gradient_of = make_gradient(slots, loss, point, config.accumulation, partition, mesh)
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(slots.model, config, mesh))

    def step(state: TrainState, batch: Packed) -> tuple[TrainState, Metrics]:
        width = gate_width(state.step, config.steps, loss)
        gradient, metrics = gradient_of(state.params, batch, width)
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
    partition = Partition(slots.model.abstract_params(), config.frozen)
    gradients = {
        name: make_gradient(slots, _alone(loss, name), point, config.accumulation, partition, mesh)
        for name in TERMS
        if getattr(loss, name) > 0
    }

    def norm(params: Params, batch: Packed, name: str, width: Float[Array, ""]) -> Float[Array, ""]:
        gradient, _ = gradients[name](params, batch, width)
        return optax.global_norm(jax.tree.map(lambda g: g.astype(jnp.float32), gradient))

    def shares(state: TrainState, batch: Packed) -> dict[str, Float[Array, ""]]:
        width = gate_width(state.step, config.steps, loss)
        norms = {name: norm(state.params, batch, name, width) for name in gradients}
        whole = jnp.maximum(sum(norms.values(), jnp.zeros(())), jnp.finfo(jnp.float32).tiny)
        return {f"gradient_norm_{name}": value for name, value in norms.items()} | {
            f"gradient_share_{name}": value / whole for name, value in norms.items()
        }

    return jax.jit(shares)


def _alone(loss: LossConfig, name: str) -> LossConfig:
    """The loss config with the weights of all other terms set to 0."""
    nothing: dict[str, Any] = {term: 0.0 for term in TERMS if term != name}
    return dataclasses.replace(loss, **nothing)
