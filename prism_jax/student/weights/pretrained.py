"""A model with its parameters, as loaded from a checkpoint."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_jax.student.attention import no_branches
from prism_jax.student.qwen3 import Params, Qwen3


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model and its parameters."""

    model: Qwen3  # the static half of the student, with the checkpoint's sizes
    params: Params  # the parameters on their devices

    def logits(self, token_ids: Int[np.ndarray, "B L"] | Int[Array, "B L"]) -> Float[Array, "B L V"]:
        """Computes next-token logits at every position, in float32, with each row causal from position 0.

        Rows of unequal length are padded on the right with any id, which no earlier position sees. All logits exist at
        once, so this is for checks and small inputs only. ValueError for an id outside of the vocabulary.
        """
        ids, size = np.asarray(token_ids), self.model.config.vocab_size
        if ids.size and (ids.min() < 0 or ids.max() >= size):
            raise ValueError(f"token_ids: found ids from {ids.min()} to {ids.max()}, expected 0 to {size - 1}")
        return _causal_logits(self.model, self.params, jnp.asarray(ids, jnp.int32))


@functools.partial(jax.jit, static_argnums=0)
def _causal_logits(model: Qwen3, params: Params, tokens_BxL: Int[Array, "B L"]) -> Float[Array, "B L V"]:
    positions_BxL = jnp.broadcast_to(jnp.arange(tokens_BxL.shape[1]), tokens_BxL.shape)
    return model.logits(params, model.hidden(params, tokens_BxL, positions_BxL, no_branches(*tokens_BxL.shape)))
