"""AdamW with weight decay on matrices, a cosine schedule with warm-up, clipping by global norm and compact states."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from prism_jax.student.qwen3 import Params
from prism_jax.student.sharding import path_of
from prism_jax.training.optimization import masters
from prism_jax.training.run_config import TrainingConfig


class OptimizerState(NamedTuple):
    """The state that the optimizer keeps for the trained parameters."""

    moments: Any  # state of the optax chain of transformations
    master: Any  # state of the master values (`prism_jax.training.optimization.masters`)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimizer of a config: optax computes updates in float32; masters apply them to the parameters."""

    config: TrainingConfig

    def init(self, params: Params) -> OptimizerState:
        """The initial state for these parameters."""
        moments = transformation(self.config).init(jax.tree.map(lambda x: x.astype(jnp.float32), params))
        return OptimizerState(moments, masters.init(params, self.config.master))

    def update(
        self, gradient: Params, state: OptimizerState, params: Params, step: Int[Array, ""]
    ) -> tuple[Params, OptimizerState]:
        """Parameters and state after one step. Its randomness depends only on the seed and the number of the step."""
        kind = self.config.master
        values = masters.read(params, state.master, kind)
        updates, moments = transformation(self.config).update(gradient, state.moments, values)
        key = jax.random.fold_in(jax.random.key(self.config.seed), step)
        params, master = masters.write(optax.apply_updates(values, updates), params, kind, key)
        return params, OptimizerState(moments, master)


def schedule(config: TrainingConfig) -> optax.Schedule:
    """Learning rate by step: linear warm-up from 0, of all steps at `warmup` = 1, then cosine decay to `final_rate`."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=config.learning_rate,
        warmup_steps=config.warmup_steps,
        decay_steps=max(config.warmup_steps + 1, config.steps),  # optax expects a decay after the warm-up
        end_value=config.final_rate * config.learning_rate,
    )


def transformation(config: TrainingConfig) -> optax.GradientTransformation:
    """The optax transformation of gradients into updates, both in float32."""
    if config.second_moment == "factored":
        direction = _factored(config)
    else:  # Adam's (arXiv 1412.6980)
        dtypes = {"mu": config.first_moment, "nu": config.second_moment}
        direction = stored_as(dtypes, optax.scale_by_adam(b1=config.b1, b2=config.b2))
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        direction,
        optax.add_decayed_weights(config.weight_decay, is_matrix),
        optax.scale_by_learning_rate(schedule(config)),
    )


def _factored(config: TrainingConfig) -> optax.GradientTransformation:
    """Adafactor's direction (arXiv 1804.04235): row and column means of second moments, RMS at most 1.

    The first moment is that of the scaled gradient, whereas Adam uses that of the gradient itself. Matrices with an
    axis shorter than 128 keep their full second moment.
    """

    def decay(step: Any, b2: Any) -> Array:
        """The decay rate with which the running mean equals Adam's corrected one (arXiv 1804.04235, section 7.1)."""
        done = jnp.asarray(step, jnp.float32)
        return b2 * (1 - b2**done) / (1 - b2 ** (done + 1))

    return optax.chain(
        optax.scale_by_factored_rms(decay_rate=config.b2, decay_rate_fn=decay),
        optax.clip_by_block_rms(1.0),
        stored_as({"ema": config.first_moment}, optax.ema(config.b1)),
    )


def stored_as(dtypes: Mapping[str, str], inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """`inner` with the named fields of its state stored in the given dtypes; it still computes in float32."""

    def keep(state: Any) -> Any:
        return state._replace(**{name: optax.tree.cast(getattr(state, name), dtypes[name]) for name in dtypes})

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        wide = state._replace(**{name: optax.tree.cast(getattr(state, name), jnp.float32) for name in dtypes})
        updates, state = inner.update(updates, wide, params)
        return updates, keep(state)

    return optax.GradientTransformation(lambda params: keep(inner.init(params)), update)


def is_matrix(params: Any) -> Any:
    """True for the embedding and every kernel; False for the weights of norms, which do not decay."""
    return jax.tree_util.tree_map_with_path(lambda path, _: not path_of(path).endswith("norm/weight"), params)
