"""The one donated training step over one donated state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed
from prism_jax.student import Qwen3, sharding
from prism_jax.student.qwen3 import Params
from prism_jax.training.config import LossConfig, TrainingConfig
from prism_jax.training.objective import Slots, gate_width, objective
from prism_jax.training.optimizer import make_optimizer, schedule


class TrainState(NamedTuple):
    """All that training changes.

    Attributes:
      step: Number of updates done.
      params: Of the student.
      optimizer: State of the optimizer.
    """

    step: Int[Array, ""]
    params: Params
    optimizer: Any


Metrics = dict[str, Float[Array, ""]]
Step = Callable[[TrainState, Packed], tuple[TrainState, Metrics]]


def abstract_state(model: Qwen3, config: TrainingConfig, mesh: Mesh) -> TrainState:
    """Shapes, dtypes and shardings of the state, without allocating it: what a restore needs."""

    def build() -> TrainState:
        params = model.init(jax.random.key(0))
        return TrainState(jnp.zeros((), jnp.int32), params, make_optimizer(config).init(params))

    shapes = jax.eval_shape(build)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        shapes,
        sharding.shardings(shapes, mesh),
    )


def init_state(model: Qwen3, config: TrainingConfig, mesh: Mesh, start: PRNGKeyArray | Params) -> TrainState:
    """A fresh state, created in place on the mesh, of parameters drawn with a key or of given ones, which it takes."""

    def build(start: PRNGKeyArray | Params) -> TrainState:
        params = start if isinstance(start, dict) else model.init(start)
        return TrainState(jnp.zeros((), jnp.int32), params, make_optimizer(config).init(params))

    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(model, config, mesh))
    return jax.jit(build, out_shardings=placed, donate_argnums=0 if isinstance(start, dict) else ())(start)


def make_step(slots: Slots, config: TrainingConfig, loss: LossConfig, point: OperatingPoint, mesh: Mesh) -> Step:
    """The jitted step: gradient of the objective, clipping, AdamW. Donates the state it is given."""
    optimizer, rate = make_optimizer(config), schedule(config)
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(slots.model, config, mesh))

    def step(state: TrainState, batch: Packed) -> tuple[TrainState, Metrics]:
        width = gate_width(state.step, config.steps, loss)
        grads, metrics = jax.grad(objective, has_aux=True)(state.params, batch, slots, loss, point, width)
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.params)
        metrics |= {"gradient_norm": optax.global_norm(grads), "learning_rate": rate(state.step), "gate_width": width}
        return TrainState(state.step + 1, optax.apply_updates(state.params, updates), optimizer_state), metrics

    return jax.jit(
        step, donate_argnums=0, in_shardings=(placed, NamedSharding(mesh, sharding.BATCH)), out_shardings=(placed, None)
    )
