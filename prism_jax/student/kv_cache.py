"""The forward pass against cached keys and values, which decoding and live streams use.

Each layer has its own arrays of keys and values and a Python loop runs over the layers, so that a donated cache is
updated in place; JAX traces the block once for all but the last. Training and packed rows scan over stacked layers
instead. Parameters are unstacked once, by `unstack_layers`.

Dimensions: B batch, L new tokens, l of them that the last block computes outputs for, P marked places, C cached
positions, K key/value heads, H head width, D hidden width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from prism_jax.student.attention import no_branches
from prism_jax.student.dispatch import ChosenPath, attention_path, dispatch
from prism_jax.student.flash import flash_cached
from prism_jax.student.layers import Keep, join, keep_all, rotary_tables
from prism_jax.student.partial_attention import PartialAttention, attend_partially, group_queries, merge, ungroup
from prism_jax.student.products import Compute
from prism_jax.student.qwen3 import Params, Qwen3, block, final_norm, take


class LayerCache(NamedTuple):
    """Rotated keys and values of one layer; keys have positions last, as their product with queries needs them."""

    keys: Float[Array, "B K H C"]
    values: Float[Array, "B K C H"]


Cache = tuple[LayerCache, ...]


class Segment(NamedTuple):
    """Cached positions of each row, and which of them are visible."""

    cache: Cache  # the rows themselves; or, with a table, pages that rows share: [N, K, H, page] and [N, K, page, H]
    seen: Bool[Array | np.ndarray, "B C"]  # whether a position is visible
    table: Int[Array | np.ndarray, "B n"] | None = None  # pages of each row, in order, which make C positions

    @classmethod
    def first(cls, cache: Cache, lengths_B: Array | np.ndarray, table: Array | np.ndarray | None = None) -> Segment:
        """The first `lengths_B` positions of each row."""
        capacity = capacity_of(cache) * (1 if table is None else table.shape[1])
        return cls(cache, np.arange(capacity) < lengths_B[:, None], table)

    @property
    def lengths(self) -> Int[Array, " B"]:
        """Number of visible positions of each row."""
        return jnp.sum(self.seen, axis=1, dtype=jnp.int32)

    def at(self, layer: int) -> LayerSegment:
        """The segment of one layer."""
        return LayerSegment(self.cache[layer], self.seen, self.table)


class LayerSegment(NamedTuple):
    """One layer of a segment."""

    cache: LayerCache
    seen: Bool[Array | np.ndarray, "B C"]
    table: Int[Array | np.ndarray, "B n"] | None = None


Attend = Callable[[Any, Array, Array, Array], tuple[Array, LayerCache]]
"""Takes what a layer has, its queries, keys and values; returns the block's attention and keys and values to keep."""


def unstack_layers(params: Params, compute: Compute = "float32") -> Params:
    """Converts stacked layers to a tuple of one dict per layer, with products joined by `layers.join`, for `read`."""
    count = jax.tree.leaves(params["layers"])[0].shape[0]
    return params | {"layers": tuple(_layer(params["layers"], np.int32(i), compute) for i in range(count))}


@functools.partial(jax.jit, static_argnums=2)
def _layer(layers: Params, number: Int[Array | np.ndarray, ""], compute: Compute) -> Params:
    """One of stacked layers, joined; one program takes any, since a program of all compiles longer."""
    return join(jax.tree.map(lambda leaf: leaf[number], layers), compute)


def capacity_of(cache: Cache) -> int:
    """How many positions the cache has."""
    return cache[0].values.shape[2]


def gather(layer: LayerCache, table_Bxn: Int[Array | np.ndarray, "B n"]) -> LayerCache:
    """The rows that the pages of a table make."""
    batch, pages = table_Bxn.shape
    keys, values = layer.keys[table_Bxn], layer.values[table_Bxn]
    _, _, heads, width, page = keys.shape
    return LayerCache(
        keys.transpose(0, 2, 3, 1, 4).reshape(batch, heads, width, pages * page),
        values.transpose(0, 2, 1, 3, 4).reshape(batch, heads, pages * page, width),
    )


def grow(cache: Cache, capacity: int) -> Cache:
    """The cache, padded with zeros to `capacity` positions."""
    room = (0, capacity - capacity_of(cache))
    none = (0, 0)
    return tuple(
        LayerCache(jnp.pad(keys, (none, none, none, room)), jnp.pad(values, (none, none, room, none)))
        for keys, values in cache
    )


def write(cache: Cache, fresh: Cache, start: Int[Array, ""] | int) -> Cache:
    """The cache with all positions of `fresh` written from position `start` on; the cache must have room for them."""
    put = jax.lax.dynamic_update_slice_in_dim
    return tuple(
        LayerCache(put(old.keys, new.keys, start, axis=3), put(old.values, new.values, start, axis=2))
        for old, new in zip(cache, fresh, strict=True)
    )


def read_prompts(
    model: Qwen3, params: Params, tokens_BxL: Int[Array, "B L"], lengths_B: Int[Array, " B"]
) -> tuple[Float[Array, "B D"], Cache]:
    """Reads prompts, one per row, from position 0 on.

    Rows are padded on the right, and their lengths before the padding are at least 1. Returns the final hidden state of
    each row's last token, and the keys and values of all tokens: the last block computes nothing else.
    """
    rows, length = tokens_BxL.shape
    causal = dispatch(model.config, no_branches(rows, length))
    positions = jnp.broadcast_to(jnp.arange(length), (rows, length))

    last = functools.partial(take, place_BxS=lengths_B[:, None] - 1)

    def attend(_: None, q: Array, k: Array, v: Array) -> tuple[Array, LayerCache]:
        return causal(q, k, v), _heads_first(k, v)

    def attend_last(_: None, q: Array, k: Array, v: Array) -> tuple[Array, LayerCache]:
        prompt = _heads_first(k, v)
        return _over(group_queries(q, k.shape[2]), [], [LayerSegment(prompt, positions < lengths_B[:, None])]), prompt

    nothing = [None] * model.config.num_layers
    hidden, fresh = _through_layers(model, params, tokens_BxL, positions, nothing, attend, attend_last, last)
    return hidden[:, 0], fresh


def read(
    model: Qwen3,
    params: Params,
    tokens_BxL: Int[Array, "B L"],
    positions_BxL: Int[Array, "B L"],
    new_BxLxL: Bool[Array, "#B L L"],
    places_BxP: Int[Array, "B P"],
    past: Sequence[Segment] = (),
) -> tuple[Float[Array, "B P D"], Cache]:
    """Reads new tokens after cached ones, without changing a cache.

    Returns the final hidden states at the marked places `places_BxP`, indices of new tokens that may repeat, and the
    keys and values of all new tokens: the last block computes nothing else. P may be 0. `new_BxLxL` says whether a new
    token (second axis) sees another one (last axis); each must see itself. All new tokens see the visible positions of
    `past`.
    """
    marked = functools.partial(take, place_BxS=places_BxP)
    segments = _by_layer(past, model.config.num_layers)
    attend, attend_last = _attend_new(new_BxLxL, attention_path(model.config)), _attend_new(marked(new_BxLxL))
    return _through_layers(model, params, tokens_BxL, positions_BxL, segments, attend, attend_last, marked)


def read_states(
    model: Qwen3,
    params: Params,
    tokens_BxL: Int[Array, "B L"],
    positions_BxL: Int[Array, "B L"],
    new_BxLxL: Bool[Array, "#B L L"],
    at: tuple[int, ...],
    past: Sequence[Segment] = (),
) -> tuple[Float[Array, "B L width"], Cache]:
    """Reads new tokens after cached ones, as `read` does, to the residual stream instead of final hidden states.

    Returns the states of every new token after each of the blocks `at` (numbered from 1), end to end (len(at) · D
    columns), and the keys and values of all new tokens. A model without the blocks above `at[-1]` does not compute
    them.
    """
    attend = _attend_new(new_BxLxL, attention_path(model.config))
    segments = _by_layer(past, model.config.num_layers)
    states, fresh = _residuals(model, params, tokens_BxL, positions_BxL, segments, attend, attend)
    return jnp.concatenate([states[number - 1] for number in at], axis=-1), fresh


def read_next(
    model: Qwen3,
    params: Params,
    token_B: Int[Array, " B"],
    position_B: Int[Array, " B"],
    current: Segment,
    at: Int[Array, ""],
    past: Sequence[Segment] = (),
    fused: bool = False,
) -> tuple[Float[Array, "B D"], Cache]:
    """Reads one new token per row and writes its keys and values to position `at` of the cache of `current`.

    Returns the final hidden state of each new token, and the updated cache. The visible positions of `current` must
    include `at`; `past` is only read. `fused` applies the blocks by the kernels of `decoding`.
    """
    segments = _by_layer((current, *past), model.config.num_layers)
    if fused:
        return _read_next_fused(model, params, token_B, position_B, segments, at)

    def attend(given: Sequence[LayerSegment], q: Array, k: Array, v: Array) -> tuple[Array, LayerCache]:
        own, *past = given
        # Written before it is read, so that the loop's buffer is updated in place.
        (written,) = write((own.cache,), (_heads_first(k, v),), at)
        return _over(group_queries(q, k.shape[2]), [], [own._replace(cache=written), *past]), written

    hidden, written = _through_layers(model, params, token_B[:, None], position_B[:, None], segments, attend, attend)
    return hidden[:, 0], written


def _read_next_fused(
    model: Qwen3,
    params: Params,
    token_B: Int[Array, " B"],
    position_B: Int[Array, " B"],
    segments: list[list[LayerSegment]],
    at: Int[Array, ""],
) -> tuple[Float[Array, "B D"], Cache]:
    from prism_jax.student.decoding import Cached, decode_block  # loads Pallas, which nothing else needs

    config, written = model.config, []
    rotary = rotary_tables(position_B[:, None], config.head_dim, config.rope_theta)
    x = params["embedding"][token_B].astype(config.dtype)
    apply = jax.jit(functools.partial(decode_block, config))
    for layer, given in zip(params["layers"], segments, strict=True):
        own, *past = (Cached(*each.cache, each.seen, each.table) for each in given)
        x, *cache = apply(layer, x, rotary, own, past, at)
        written.append(LayerCache(*cache))
    return nnx.merge(final_norm(config), params["final_norm"])(x), tuple(written)


def _by_layer(past: Sequence[Segment], layers: int) -> list[list[LayerSegment]]:
    """What each layer has of some caches."""
    return [[segment.at(layer) for segment in past] for layer in range(layers)]


def _attend_new(seen: Bool[Array, "#B l L"], path: ChosenPath = "xla") -> Attend:
    """Attention of new tokens over each other, as `seen` allows, and over cached ones; keeps keys and values."""

    def attend(past: Sequence[LayerSegment], q: Array, k: Array, v: Array) -> tuple[Array, LayerCache]:
        fresh, grouped = _heads_first(k, v), group_queries(q, k.shape[2])
        own = attend_partially(grouped, *_for_groups(fresh), seen[:, None, None])
        return _over(grouped, [own], past), fresh

    def attend_fused(past: Sequence[LayerSegment], q: Array, k: Array, v: Array) -> tuple[Array, LayerCache]:
        q, rows = _rows(q, past)
        parts = [*(part.seen[:, None] for part in past), seen]
        whole = jnp.concatenate([jnp.broadcast_to(part, (*q.shape[:2], part.shape[2])) for part in parts], axis=2)
        return flash_cached(q, k, v, rows, whole, "cudnn"), _heads_first(k, v)

    return attend_fused if path == "cudnn" else attend


def _through_layers(
    model: Qwen3,
    params: Params,
    tokens_BxL: Int[Array, "B L"],
    positions_BxL: Int[Array, "B L"],
    given: Sequence[Any],
    attend: Attend,
    attend_last: Attend,
    keep: Keep = keep_all,
) -> tuple[Float[Array, "B l D"], Cache]:
    """The output of the last block of `_residuals` after the final norm, and the keys and values of every layer."""
    states, kept = _residuals(model, params, tokens_BxL, positions_BxL, given, attend, attend_last, keep)
    return nnx.merge(final_norm(model.config), params["final_norm"])(states[-1]), kept


def _residuals(
    model: Qwen3,
    params: Params,
    tokens_BxL: Int[Array, "B L"],
    positions_BxL: Int[Array, "B L"],
    given: Sequence[Any],
    attend: Attend,
    attend_last: Attend,
    keep: Keep = keep_all,
) -> tuple[list[Float[Array, "B _ D"]], Cache]:
    """Applies the embedding, and every block with `attend` on what is given to its layer.

    The last block attends by `attend_last`, and computes outputs only for the positions that `keep` selects. Returns
    the output of every block, and the keys and values that each keeps.
    """
    config, states, kept = model.config, [], []

    def apply(layer: Params, x: Array, given: Any, attend: Attend, keep: Keep) -> tuple[Array, LayerCache]:
        written: list[LayerCache] = []

        def noted(q: Array, k: Array, v: Array) -> Array:
            attended, own = attend(given, q, k, v)
            written.append(own)
            return attended

        x = nnx.merge(block(config, joined=True), layer)(x, rotary, noted, keep)
        return x, written[0]

    # Blocks of equal sizes are traced once: tracing takes most of the time before a program runs from the cache.
    lower = jax.jit(functools.partial(apply, attend=attend, keep=keep_all))
    x = params["embedding"][tokens_BxL].astype(config.dtype)
    rotary = rotary_tables(positions_BxL, config.head_dim, config.rope_theta)
    *layers, top = params["layers"]
    for layer, own in zip(layers, given[:-1], strict=True):
        x, fresh = lower(layer, x, own)
        states.append(x)
        kept.append(fresh)
    x, fresh = apply(top, x, given[-1], attend_last, keep)
    return [*states, x], (*kept, fresh)


def _over(q: Array, parts: list[PartialAttention], past: Sequence[LayerSegment]) -> Array:
    """Attention of grouped queries over parts and over the visible positions of one layer's caches."""
    q, rows = _rows(q, past)
    seen = [part.seen[:, None, None, None] for part in past]
    cached = [attend_partially(q, *_for_groups(row), visible) for row, visible in zip(rows, seen, strict=True)]
    return ungroup(merge([*parts, *cached]).normalised()).astype(q.dtype)


def _rows(q: Array, past: Sequence[LayerSegment]) -> tuple[Array, list[LayerCache]]:
    """Some queries, and the rows of one layer's caches.

    A GPU gathers pages only once the queries are known: otherwise XLA gathers those of all layers at the beginning.
    """
    rows = []
    for cache, _, table in past:
        if table is not None:
            q, table = jax.lax.optimization_barrier((q, table))
            cache = gather(cache, table)
        rows.append(cache)
    return q, rows


def _heads_first(k: Array, v: Array) -> LayerCache:
    """Transposes keys and values to the cache's layout."""
    return LayerCache(k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))


def _for_groups(cache: LayerCache) -> tuple[Array, Array]:
    """Keys and values with an axis of length 1 for the query heads that share them."""
    return cache.keys[:, :, None], cache.values[:, :, None]
