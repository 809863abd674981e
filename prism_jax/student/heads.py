"""Cross-entropy over supervised tokens, a chunk of tokens at a time: [batch, length, vocabulary] never exists.

Dimensions: T supervised tokens, D width, V vocabulary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


def token_cross_entropy(
    head_VxD: Float[Array, "V D"],
    hidden_TxD: Float[Array, "T D"],
    targets_T: Int[Array, " T"],
    weights_T: Float[Array, " T"],
    chunk: int = 512,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum over tokens of weight times -log p(target), and the sum of weights; the backward pass recomputes logits.

    Args:
      head_VxD: Rows of the output head.
      hidden_TxD: Final hidden state at each predicting token.
      targets_T: The token to predict.
      weights_T: At least 0; padding has 0.
      chunk: Tokens whose logits exist at once; need not divide T.
    """
    count = targets_T.shape[0]
    chunk = min(chunk, count)
    chunks = -(-count // chunk)
    room = chunks * chunk - count

    def split(x: Array) -> Array:
        return jnp.pad(x, [(0, room)] + [(0, 0)] * (x.ndim - 1)).reshape(chunks, chunk, *x.shape[1:])

    @jax.checkpoint
    def one(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
        hidden, targets, weights = part
        logits = (hidden @ head_VxD.T.astype(hidden.dtype)).astype(jnp.float32)
        losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, targets)
        return total + jnp.sum(losses * weights), None

    total, _ = jax.lax.scan(one, jnp.zeros((), jnp.float32), (split(hidden_TxD), split(targets_T), split(weights_T)))
    return total, jnp.sum(weights_T)
