"""A training step of plain next-token prediction, on which speed and memory are compared with other libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from prism_jax.student import Qwen3
from prism_jax.student.attention import no_branches
from prism_jax.student.heads import token_cross_entropy
from prism_jax.training.optimization.optimizer import Optimizer
from prism_jax.training.optimization.step import TrainState
from prism_jax.training.run_config import TrainingConfig


def make_next_token_step(model: Qwen3, training: TrainingConfig) -> Callable[[TrainState, Any], tuple[TrainState, Any]]:
    """Makes a donated step: it takes rows of length + 1 tokens and returns the new state and the mean cross-entropy."""
    optimizer = Optimizer(training)

    def loss(params: Any, tokens: Any) -> Any:
        count, length = tokens.shape[0], tokens.shape[1] - 1
        positions = jnp.broadcast_to(jnp.arange(length), (count, length))
        hidden = model.hidden(params, tokens[:, :-1], positions, no_branches(count, length))
        flat = hidden.reshape(-1, hidden.shape[-1])
        total, weight = token_cross_entropy(model.head(params), flat, tokens[:, 1:].ravel(), jnp.ones(flat.shape[0]))
        return total / weight

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: TrainState, tokens: Any) -> tuple[TrainState, Any]:
        value, gradients = jax.value_and_grad(loss)(state.params, tokens)
        gradients = jax.tree.map(lambda gradient: gradient.astype(jnp.float32), gradients)
        params, kept = optimizer.update(gradients, state.optimizer, state.params, state.step)
        return TrainState(state.step + 1, params, kept), value

    return step
