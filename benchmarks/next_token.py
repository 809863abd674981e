"""Plain next-token training and greedy text, on which speed and memory are compared with other libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.student.attention import no_branches
from prism_jax.student.constrained import DeviceAutomaton, Span, make_automaton, room, write_spans
from prism_jax.student.heads import token_cross_entropy
from prism_jax.student.kv_cache import LayerCache, Segment, read_prompts
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.start import Start
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
        targets, weights, compute = tokens[:, 1:].ravel(), jnp.ones(flat.shape[0]), model.config.compute
        total, weight = token_cross_entropy(model.head(params), flat, targets, weights, compute=compute)
        return total / weight

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: TrainState, tokens: Any) -> tuple[TrainState, Any]:
        value, gradients = jax.value_and_grad(loss)(state.params, tokens)
        gradients = jax.tree.map(lambda gradient: gradient.astype(jnp.float32), gradients)
        params, kept = optimizer.update(gradients, state.optimizer, state.params, state.step)
        return TrainState(state.step + 1, params, kept), value

    return step


@functools.partial(jax.jit, static_argnums=0)
def prefill(model: Qwen3, params: Any, tokens: Any) -> Any:
    """Reads rows of one length; returns the logits after each, and their cache."""
    rows, length = tokens.shape
    last, cache = read_prompts(model, params, tokens, jnp.full(rows, length))
    return model.logits(params, last), cache


class Greedy:
    """Greedy text of a number of tokens, by the decoder of free text under an automaton that allows every token."""

    def __init__(self, model: Qwen3, params: Any, new: int):
        size = model.config.vocab_size
        every = make_automaton(np.zeros((1, size), np.int8), np.full(size, -1), [True])
        self.model, self.params, self.spans, self.every = model, params, [Span((), new)], DeviceAutomaton(every)

    def __call__(self, logits: Any, cache: Any) -> list[list[int]]:
        """The tokens after prefilled rows, which are only read: new tokens have a cache of their own."""
        rows, capacity = len(logits), room(self.spans)
        trunk = Segment.first(cache, np.full(rows, cache[0].values.shape[2], np.int32))
        own = empty_cache(self.model, rows, capacity)
        start = Start(own, np.zeros(rows, np.int32), 0, logits, trunk)
        return [spans[0] for spans in write_spans(self.model, self.params, start, self.spans, self.every)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def empty_cache(model: Qwen3, rows: int, capacity: int) -> Any:
    """A cache of zeros."""
    config = model.config
    heads, width = (rows, config.num_kv_heads), config.head_dim
    shapes = (*heads, width, capacity), (*heads, capacity, width)
    return tuple(LayerCache(*(jnp.zeros(shape, config.dtype) for shape in shapes)) for _ in range(config.num_layers))
