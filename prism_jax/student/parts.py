"""Attention over some of the keys at a time, and the merge by which parts become one softmax over all of them.

Dimensions: K key/value heads, G queries a key head, q queries, k keys, H head width, `rest` leading axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Score of a key that may not be seen: finite, so that a part without any visible key stays a number until it is merged.
_HIDDEN = -1e30


class Part(NamedTuple):
    """Attention before the division: sum e^(s - peak) v, sum e^(s - peak), and the peak of the scores s, in float32."""

    values: Float[Array, "*rest q H"]
    total: Float[Array, "*rest q 1"]
    peak: Float[Array, "*rest q 1"]

    def normalised(self) -> Float[Array, "*rest q H"]:
        """The softmax's mean of the values; of no meaning where no key was visible."""
        return self.values / self.total


def attend_part(
    q: Float[Array, "B K G *c q H"],
    k: Float[Array, "B K 1 *c H k"],
    v: Float[Array, "B K 1 *c k H"],
    seen: Bool[Array, "..."],
) -> Part:
    """Attention of scaled queries over keys; the queries of a key head share it.

    Args:
      q: Queries, scaled by 1/sqrt(H) already.
      k: Keys, positions last: transposed anew for every product they would cost a pass over memory each time.
      v: Values.
      seen: Which key a query sees; broadcasts to [B, K, G, *c, q, k].
    """
    scores = jnp.matmul(q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(seen, scores, _HIDDEN)
    peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - peak)
    values = jnp.matmul(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return Part(values, jnp.sum(weights, axis=-1, keepdims=True), peak)


def merge(parts: Sequence[Part]) -> Part:
    """Parts as one: what one softmax over the keys of all would give, if some key of some part was visible."""
    first, *others = parts
    for other in others:
        peak = jnp.maximum(first.peak, other.peak)
        a, b = jnp.exp(first.peak - peak), jnp.exp(other.peak - peak)
        first = Part(first.values * a + other.values * b, first.total * a + other.total * b, peak)
    return first


def group_queries(q_BxLxNxH: Float[Array, "B L N H"], kv_heads: int) -> Float[Array, "B K G L H"]:
    """Queries scaled by 1/sqrt(H), head by head, those that share a key head side by side."""
    batch, length, heads, width = q_BxLxNxH.shape
    q = (q_BxLxNxH * width**-0.5).reshape(batch, length, kv_heads, heads // kv_heads, width)
    return q.transpose(0, 2, 3, 1, 4)


def ungroup(out_BxKxGxLxH: Float[Array, "B K G L H"]) -> Float[Array, "B L N H"]:
    """The inverse of `group_queries`, the scale aside."""
    batch, kv_heads, groups, length, width = out_BxKxGxLxH.shape
    return out_BxKxGxLxH.transpose(0, 3, 1, 2, 4).reshape(batch, length, kv_heads * groups, width)
