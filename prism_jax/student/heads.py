"""Cross-entropy over supervised tokens, one chunk of tokens at a time: no array [batch, length, vocabulary] exists.

Dimensions: T supervised tokens, D hidden width, V vocabulary.
"""

from __future__ import annotations

import functools

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
    dynamic: bool = False,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the weighted cross-entropy -log p(target) over tokens.

    With `dynamic` the loss of a token is sg(p) times -log p, whose gradient is -grad p (dynamic fine-tuning, Wu et al.,
    arXiv 2508.05629): tokens that the model finds unlikely contribute smaller gradients.

    The gradient is computed in the forward pass, while a chunk's logits exist, so that they are never recomputed.
    Second derivatives are therefore not available.

    Args:
      head_VxD: Output head, one row per token of the vocabulary.
      hidden_TxD: Final hidden state at each predicting token.
      targets_T: Ids of the tokens to predict; T may be 0.
      weights_T: Weight of each token, at least 0; 0 for padding.
      chunk: Maximum number of tokens whose logits exist at once; need not divide T.
      dynamic: Whether to weight each token by its own probability, through which no gradient flows.

    Returns:
      The weighted sum of losses in nats, and the sum of weights.
    """
    if not targets_T.size:
        return jnp.zeros(()), jnp.zeros(())
    return _total(chunk, dynamic, head_VxD, hidden_TxD, targets_T, weights_T), jnp.sum(weights_T)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _total(chunk: int, dynamic: bool, head: Array, hidden: Array, targets: Array, weights: Array) -> Array:
    """Computes the weighted sum of losses."""

    def one(total: Array, part: tuple[Array, ...]) -> tuple[Array, None]:
        losses = optax.losses.softmax_cross_entropy_with_integer_labels(_logits(head, part[0]), part[1])
        losses *= _factor(losses, dynamic)
        return total + jnp.sum(losses * part[2]), None

    total, _ = jax.lax.scan(one, jnp.zeros((), jnp.float32), _chunks(chunk, hidden, targets, weights))
    return total


def _factor(losses: Array, dynamic: bool) -> Array | float:
    """The probability of the target where losses are weighted by it, else 1."""
    return jnp.exp(-losses) if dynamic else 1.0


def _forward(
    chunk: int, dynamic: bool, head: Array, hidden: Array, targets: Array, weights: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Computes the sum and its gradients by head, hidden states and weights, chunk by chunk."""

    def one(carry: tuple[Array, Array], part: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple]:
        (total, by_head), (hidden, targets, weights) = carry, part
        logits = _logits(head, hidden)
        peak = jnp.max(logits, axis=-1, keepdims=True)
        # The barrier prevents the compiler from computing the exponentials twice, for their sum and for the gradient.
        exponentials, at_target = jax.lax.optimization_barrier(
            (jnp.exp(logits - peak), jnp.take_along_axis(logits, targets[:, None], axis=-1))
        )
        normaliser = jnp.sum(exponentials, axis=-1, keepdims=True)
        losses = (jnp.log(normaliser) + peak - at_target)[:, 0]
        factor = _factor(losses, dynamic)
        losses *= factor
        expected = jnp.arange(logits.shape[1]) == targets[:, None]
        by_logits = exponentials * (1 / normaliser) - expected
        by_logits = (by_logits * (weights * factor)[:, None]).astype(hidden.dtype)
        by_head += jnp.matmul(by_logits.T, hidden, preferred_element_type=jnp.float32)
        by_hidden = by_logits @ head.astype(hidden.dtype)
        return (total + jnp.sum(losses * weights), by_head), (by_hidden, losses)

    start = (jnp.zeros((), jnp.float32), jnp.zeros(head.shape, jnp.float32))
    (total, by_head), (by_hidden, losses) = jax.lax.scan(one, start, _chunks(chunk, hidden, targets, weights))
    count = len(hidden)
    by_hidden = by_hidden.reshape(-1, hidden.shape[1])[:count]
    return total, (by_head.astype(head.dtype), by_hidden, losses.ravel()[:count].astype(weights.dtype))


def _backward(
    chunk: int, dynamic: bool, gradients: tuple[Array, Array, Array], scale: Array
) -> tuple[Array, Array, None, Array]:
    """Multiplies the gradients of the forward pass by the gradient of the sum."""
    by_head, by_hidden, by_weights = (x * scale.astype(x.dtype) for x in gradients)
    return by_head, by_hidden, None, by_weights


_total.defvjp(_forward, _backward)


def _logits(head: Array, hidden: Array) -> Array:
    """Logits in float32."""
    return (hidden @ head.T.astype(hidden.dtype)).astype(jnp.float32)


def _chunks(chunk: int, *columns: Array) -> tuple[Array, ...]:
    """Splits columns into as few equal chunks of at most `chunk` tokens as possible, padded with zeros."""
    count = columns[0].shape[0]
    chunks = -(-count // chunk)
    size = -(-count // chunks)
    room = chunks * size - count
    return tuple(jnp.pad(x, [(0, room)] + [(0, 0)] * (x.ndim - 1)).reshape(chunks, size, *x.shape[1:]) for x in columns)
