"""Attention over a part of the keys, and the merge of such parts into one softmax over all keys.

The merge is that of online softmax (Milakov and Gimelshein, arXiv 1805.02867).

Dimensions: K key/value heads, G query heads per key head, q queries, k keys, H head width, `rest` leading axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# Score of a masked key. It is finite so that a part without any visible key stays finite until it is merged.
_HIDDEN = -1e30


class PartialAttention(NamedTuple):
    """Attention over a part of the keys, before the division by the softmax's denominator; in float32."""

    values: Float[Array, "*rest q H"]  # sum over keys of e^(s - peak) v, with scores s
    total: Float[Array, "*rest q 1"]  # sum over keys of e^(s - peak)
    peak: Float[Array, "*rest q 1"]  # largest score of each query

    def normalised(self) -> Float[Array, "*rest q H"]:
        """The mean of the values under the softmax; meaningless where no key was visible."""
        return self.values / self.total


def attend_partially(
    q: Float[Array, "B K G *c q H"],
    k: Float[Array, "B K 1 *c H k"],
    v: Float[Array, "B K 1 *c k H"],
    seen: Bool[Array | np.ndarray, "..."],
) -> PartialAttention:
    """Computes attention of queries, already scaled by 1/sqrt(H), over some of the keys.

    Keys have their positions last: transposing them for every product would cost a pass over memory each time. `seen`
    says whether a query sees a key, and broadcasts to [B, K, G, *c, q, k].
    """
    scores = jnp.matmul(q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(seen, scores, _HIDDEN)
    peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - peak)
    values = jnp.matmul(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return PartialAttention(values, jnp.sum(weights, axis=-1, keepdims=True), peak)


def merge(parts: Sequence[PartialAttention]) -> PartialAttention:
    """Merges parts into what one softmax over all their keys gives.

    Each query must see at least one key of some part; otherwise its result is meaningless.
    """
    merged, *rest = parts
    for part in rest:
        peak = jnp.maximum(merged.peak, part.peak)
        a, b = jnp.exp(merged.peak - peak), jnp.exp(part.peak - peak)
        merged = PartialAttention(merged.values * a + part.values * b, merged.total * a + part.total * b, peak)
    return merged


def group_queries(q_BxLxNxH: Float[Array, "B L N H"], kv_heads: int) -> Float[Array, "B K G L H"]:
    """Scales queries by 1/sqrt(H) and groups the heads that share a key head."""
    batch, length, heads, width = q_BxLxNxH.shape
    q = (q_BxLxNxH * width**-0.5).reshape(batch, length, kv_heads, heads // kv_heads, width)
    return q.transpose(0, 2, 3, 1, 4)


def ungroup(out_BxKxGxLxH: Float[Array, "B K G L H"]) -> Float[Array, "B L N H"]:
    """The inverse of `group_queries`, except for the scale."""
    batch, kv_heads, groups, length, width = out_BxKxGxLxH.shape
    return out_BxKxGxLxH.transpose(0, 3, 1, 2, 4).reshape(batch, length, kv_heads * groups, width)
