"""The gradient norm of each loss term, which shows how strongly each term drives training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed
from prism_jax.scoring.slots import Slots
from prism_jax.student.qwen3 import Params
from prism_jax.training.config import TrainingConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.accumulation import make_gradient
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.optimization.objective import TERMS, gate_width
from prism_jax.training.optimization.step import TrainState

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
