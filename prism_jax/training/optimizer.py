"""AdamW with decoupled weight decay on matrices, cosine with warm-up, global-norm clipping."""

from __future__ import annotations

from typing import Any

import jax
import optax

from prism_jax.student.sharding import path_of
from prism_jax.training.config import TrainingConfig


def schedule(config: TrainingConfig) -> optax.Schedule:
    """Learning rate against step: linear warm-up from 0, then a cosine to `final_rate` of the peak."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=config.learning_rate,
        warmup_steps=max(1, round(config.warmup * config.steps)),
        decay_steps=max(2, config.steps),
        end_value=config.final_rate * config.learning_rate,
    )


def make_optimizer(config: TrainingConfig) -> optax.GradientTransformation:
    """The optimizer that the config describes."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(schedule(config), b1=config.b1, b2=config.b2, weight_decay=config.weight_decay, mask=is_matrix),
    )


def is_matrix(params: Any) -> Any:
    """True for the embedding and every kernel, False for the weights of norms, which don't decay."""
    return jax.tree_util.tree_map_with_path(lambda path, _: not path_of(path).endswith("norm/weight"), params)
