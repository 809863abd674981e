"""Reading tokens against cached keys and values: the forward pass of everything that runs token after token.

Keys and values lie apart for every layer and a Python loop runs over the layers, so that a donated cache is updated in
place; training and packed rows scan over stacked layers instead. Parameters are unstacked once, by `unstack`.

Dimensions: B batch, L new tokens, l of them that go on, P marked places, C cached positions, K key/value heads,
H head width, D width.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from prism_jax.student.attention import no_branches
from prism_jax.student.config import StudentConfig
from prism_jax.student.dispatch import dispatch
from prism_jax.student.layers import Kept, everything, rotary_tables
from prism_jax.student.parts import Part, attend_part, group_queries, merge, ungroup
from prism_jax.student.qwen3 import Params, Qwen3, block, final_norm, take


class LayerCache(NamedTuple):
    """Rotated keys, positions last as their product with queries wants them, and values, of one layer."""

    keys: Float[Array, "B K H C"]
    values: Float[Array, "B K C H"]


Cache = tuple[LayerCache, ...]


class Segment(NamedTuple):
    """A cache, and which of its positions may be seen."""

    cache: Cache
    seen: Bool[Array, "B C"]


def unstack(params: Params) -> Params:
    """Parameters with the layers as a tuple of one dict a layer: what `read` takes."""
    count = jax.tree.leaves(params["layers"])[0].shape[0]

    @jax.jit
    def split(layers: Params) -> tuple[Params, ...]:
        return tuple(jax.tree.map(operator.itemgetter(i), layers) for i in range(count))

    return params | {"layers": split(params["layers"])}


def empty(config: StudentConfig, batch: int, capacity: int) -> Cache:
    """Zeros in the dtype of activations."""
    heads, width = (batch, config.num_kv_heads), config.head_dim
    return tuple(
        LayerCache(
            jnp.zeros((*heads, width, capacity), config.dtype), jnp.zeros((*heads, capacity, width), config.dtype)
        )
        for _ in range(config.num_layers)
    )


def capacity_of(cache: Cache) -> int:
    """How many positions the cache has."""
    return cache[0].values.shape[2]


def grow(cache: Cache, capacity: int) -> Cache:
    """The cache with room for `capacity` positions."""
    room = (0, capacity - capacity_of(cache))
    none = (0, 0)
    return tuple(
        LayerCache(jnp.pad(keys, (none, none, none, room)), jnp.pad(values, (none, none, room, none)))
        for keys, values in cache
    )


def write(cache: Cache, fresh: Cache, start: Int[Array, ""] | int) -> Cache:
    """The cache with all of `fresh` from position `start` on; there must be room for it."""
    put = jax.lax.dynamic_update_slice_in_dim
    return tuple(
        LayerCache(put(old.keys, new.keys, start, axis=3), put(old.values, new.values, start, axis=2))
        for old, new in zip(cache, fresh, strict=True)
    )


def read_prompts(
    model: Qwen3, params: Params, tokens_BxL: Int[Array, "B L"], lengths_B: Int[Array, " B"]
) -> tuple[Float[Array, "B D"], Cache]:
    """The final hidden state of each causal row's last token, and keys and values of all from position 0 on.

    The last block computes keys and values of all tokens, and everything else for that token alone.

    Args:
      model: The static half of the student.
      params: Unstacked, as `unstack` returns them.
      tokens_BxL: Token ids.
      lengths_B: How many of each row count, at least 1.
    """
    fresh: list[LayerCache] = []
    rows, length = tokens_BxL.shape
    causal = dispatch(model.config, no_branches(rows, length))
    positions = jnp.broadcast_to(jnp.arange(length), (rows, length))

    last = functools.partial(take, place_BxS=lengths_B[:, None] - 1)

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        fresh.append(_heads_first(k, v))
        if layer < model.config.num_layers - 1:
            return causal(q, k, v)
        prompt = Segment(tuple(fresh), positions < lengths_B[:, None])
        return _over(group_queries(q, k.shape[2]), [], [prompt], layer)

    return _through_layers(model, params, tokens_BxL, positions, attend, last)[:, 0], tuple(fresh)


def read(
    model: Qwen3,
    params: Params,
    tokens_BxL: Int[Array, "B L"],
    positions_BxL: Int[Array, "B L"],
    among_BxLxL: Bool[Array, "#B L L"],
    places_BxP: Int[Array, "B P"],
    past: Sequence[Segment] = (),
) -> tuple[Float[Array, "B P D"], Cache]:
    """Final hidden states of new tokens at marked places, and keys and values of all; no cache is changed.

    The last block computes keys and values of all new tokens, and everything else for the places alone.

    Args:
      model: The static half of the student.
      params: Unstacked, as `unstack` returns them.
      tokens_BxL: Token ids.
      positions_BxL: Their rotary positions.
      among_BxLxL: Which new token (last axis) a new token sees; each sees itself.
      places_BxP: Indices of the new tokens whose hidden states are wanted; P may be 0, and indices may come twice.
      past: Caches that all new tokens see alike.
    """
    fresh: list[LayerCache] = []

    marked = functools.partial(take, place_BxS=places_BxP)

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        fresh.append(_heads_first(k, v))
        among = among_BxLxL if layer < model.config.num_layers - 1 else marked(among_BxLxL)
        q = group_queries(q, k.shape[2])
        own = attend_part(q, *_for_groups(fresh[layer]), among[:, None, None])
        return _over(q, [own], past, layer)

    return _through_layers(model, params, tokens_BxL, positions_BxL, attend, marked), tuple(fresh)


def read_next(
    model: Qwen3,
    params: Params,
    token_B: Int[Array, " B"],
    position_B: Int[Array, " B"],
    current: Segment,
    at: Int[Array, ""],
    past: Sequence[Segment] = (),
) -> tuple[Float[Array, "B D"], Cache]:
    """The final hidden state of one new token a row, and `current` with its keys and values at position `at`.

    Args:
      model: The static half of the student.
      params: Unstacked, as `unstack` returns them.
      token_B: Token ids.
      position_B: Their rotary positions.
      current: The cache to write to; the new token sees `seen` of it, in which `at` must be included.
      at: Where to write, the same for all rows.
      past: Caches that are only read.
    """
    written: list[LayerCache] = []

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        fresh = _heads_first(k, v)
        # Written first and read then, so that the loop's buffer is updated in place.
        written.append(*write((current.cache[layer],), (fresh,), at))
        return _over(group_queries(q, k.shape[2]), [], [Segment(tuple(written), current.seen), *past], layer)

    hidden = _through_layers(model, params, token_B[:, None], position_B[:, None], attend)
    return hidden[:, 0], tuple(written)


def _through_layers(
    model: Qwen3,
    params: Params,
    tokens_BxL: Int[Array, "B L"],
    positions_BxL: Int[Array, "B L"],
    attend: Callable[[int, Array, Array, Array], Array],
    kept: Kept = everything,
) -> Float[Array, "B l D"]:
    """Embedding, every block with `attend(layer, q, k, v)`, and the last norm.

    Of the last block only the positions that `kept` picks go on.
    """
    config = model.config
    x = params["embedding"][tokens_BxL].astype(config.dtype)
    cos, sin = rotary_tables(positions_BxL, config.head_dim, config.rope_theta)
    *lower, top = (nnx.merge(block(config), layer) for layer in params["layers"])
    for number, layer in enumerate(lower):
        x = layer(x, cos, sin, functools.partial(attend, number))
    x = top(x, cos, sin, functools.partial(attend, len(lower)), kept)
    return nnx.merge(final_norm(config), params["final_norm"])(x)


def _over(q: Array, parts: list[Part], past: Sequence[Segment], layer: int) -> Array:
    """Attention of grouped queries over parts and over what may be seen of the caches of one layer."""
    seen = [attend_part(q, *_for_groups(past.cache[layer]), past.seen[:, None, None, None]) for past in past]
    return ungroup(merge([*parts, *seen]).normalised()).astype(q.dtype)


def _heads_first(k: Array, v: Array) -> LayerCache:
    """Keys and values as the cache holds them."""
    return LayerCache(k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))


def _for_groups(cache: LayerCache) -> tuple[Array, Array]:
    """Keys and values with an axis of one for the queries that share them."""
    return cache.keys[:, :, None], cache.values[:, :, None]
