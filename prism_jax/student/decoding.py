"""A block for one new token per row on an NVIDIA GPU, in eight kernels: what decoding loses there is between kernels.

Written with Pallas for Triton. A product reads its matrix once, with the norm before it and the gate or the residual
stream after it in the same kernel. Attention of few rows is split over the cached positions, so that they occupy the
whole GPU, and reads the pages of a pool where they lie. Values equal those of `layers.Block` up to the order of sums.

Dimensions: B batch, D hidden width, i and o widths of a product, N query heads, K key/value heads, G = N / K, H head
width, C cached positions, c positions of a page or row of the cache, n pages per row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float, Int

from prism_jax.student.layers import Rotary
from prism_jax.student.model_config import StudentConfig

ROWS = 16
"""Rows of a tile, the fewest that a matrix unit takes; products of more rows are left to XLA."""
_COLUMNS, _STEP = 32, 256  # columns of a program of a product, and rows of its matrix that it takes at a time
# Positions of a tile of attention; tiles of a run at least; and programs that occupy the multiprocessors of a GPU.
_TILE, _TILES, _PROGRAMS = 64, 4, 528
_HIDDEN = -1e30  # score of a masked key


def fits(config: StudentConfig, capacity: Sequence[int]) -> bool:
    """Whether the kernels take blocks of a config, and rows or pages of so many positions; see `decode_block`."""
    power = config.head_dim >= ROWS and config.head_dim & (config.head_dim - 1) == 0
    widths = (
        config.hidden_dim,
        config.mlp_dim,
        config.num_heads * config.head_dim,
        config.num_kv_heads * config.head_dim,
    )
    steps = all(width % _COLUMNS == 0 for width in widths) and config.num_heads // config.num_kv_heads <= ROWS
    return power and steps and all(positions % ROWS == 0 for positions in capacity)


class Cached(NamedTuple):
    """Cached positions of one layer, as `kv_cache.LayerSegment` holds them."""

    keys: Float[Array, "_ K H c"]
    values: Float[Array, "_ K c H"]
    seen: Bool[Array | np.ndarray, "B C"]
    table: Int[Array | np.ndarray, "B n"] | None


def decode_block(
    config: StudentConfig,
    layer: Mapping[str, Any],
    x: Float[Array, "B D"],
    rotary: Rotary,
    own: Cached,
    past: Sequence[Cached],
    at: Int[Array, ""],
) -> tuple[Float[Array, "B D"], Float[Array, "B K H C"], Float[Array, "B K C H"]]:
    """Applies a block, with products joined by `layers.join`, to one new token per row.

    Returns its output, and the keys and values of `own`, a cache of rows, with the new ones at position `at`, which is
    visible. `past` is only read.
    """
    attention, mlp, epsilon = layer["attention"], layer["mlp"], config.norm_epsilon
    heads = product(x, attention["qkv_proj"]["kernel"], layer["input_norm"]["weight"], epsilon=epsilon)
    norm = attention["qk_norm"]["weight"] if config.qk_norm else None
    q, keys, values = place(heads.reshape(len(x), -1, config.head_dim), norm, rotary, own, at, epsilon=epsilon)
    out = attend_in_runs(q, [own._replace(keys=keys, values=values), *past])
    x = product(out.reshape(len(x), -1), attention["o_proj"]["kernel"], residual=x)
    inner = product(x, mlp["gate_up_proj"]["kernel"], layer["post_norm"]["weight"], epsilon=epsilon, gated=True)
    return product(inner, mlp["down_proj"]["kernel"], residual=x), keys, values


def product(
    x: Float[Array, "B i"],
    kernel: Float[Array, "i _"],
    norm: Float[Array, " i"] | None = None,
    residual: Float[Array, "B o"] | None = None,
    *,
    epsilon: float = 0.0,
    gated: bool = False,
) -> Float[Array, "B o"]:
    """Computes `x @ kernel`, after the norm of x where its weights are given, and adds a residual.

    The kernel of a gated product holds gate and up side by side; the product is then silu(gate) · up.
    """
    (rows, inner), outer = x.shape, kernel.shape[1] // (2 if gated else 1)
    if rows > ROWS:
        return _many_rows(x, kernel, norm, residual, epsilon, gated)
    step = math.gcd(inner, _STEP // (2 if gated else 1))
    tile = pl.BlockSpec((ROWS, _COLUMNS), lambda i: (0, i))
    return pl.pallas_call(
        functools.partial(_product, rows=rows, step=step, epsilon=epsilon),
        out_shape=jax.ShapeDtypeStruct((rows, outer), x.dtype),
        grid=(outer // _COLUMNS,),
        in_specs=[
            pl.BlockSpec((ROWS, inner), lambda i: (0, 0)),
            pl.BlockSpec((inner, _COLUMNS), lambda i: (0, i)),
            pl.BlockSpec((inner, _COLUMNS), lambda i: (0, i + outer // _COLUMNS)) if gated else None,
            None if norm is None else pl.BlockSpec((inner,), lambda i: (0,)),
            None if residual is None else tile,
        ],
        out_specs=tile,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=4),
        name="product",
    )(x, kernel, kernel if gated else None, norm, residual)


def _many_rows(
    x: Array, kernel: Array, norm: Array | None, residual: Array | None, epsilon: float, gated: bool
) -> Array:
    if norm is not None:
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=1, keepdims=True) + epsilon)
        x = (wide * scale).astype(x.dtype) * norm.astype(x.dtype)
    made = x @ kernel.astype(x.dtype)
    if gated:
        gate, up = jnp.split(made, 2, axis=1)
        made = jax.nn.silu(gate) * up
    return made if residual is None else residual + made


def _product(
    x: Any, kernel: Any, up: Any, norm: Any, residual: Any, out: Any, *, rows: int, step: int, epsilon: float
) -> None:
    """The program of some columns."""
    inner, dtype = x.shape[1], out.dtype
    inside = (jnp.arange(ROWS) < rows)[:, None]
    kernels = [kernel] if up is None else [kernel, up]

    def part(number: Array) -> Array:
        return triton.load(x.at[:, pl.ds(number * step, step)], mask=inside, other=0.0)

    scale: Any = None
    if norm is not None:

        def square(number: Array, total: Array) -> Array:
            return total + jnp.sum(jnp.square(part(number).astype(jnp.float32)), axis=1)

        total = jax.lax.fori_loop(0, inner // step, square, jnp.zeros(ROWS, jnp.float32))
        scale = jax.lax.rsqrt(total / inner + epsilon)[:, None]

    def add(number: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        at, own = pl.ds(number * step, step), part(number)
        if norm is not None:
            own = (own.astype(jnp.float32) * scale).astype(dtype) * norm[at][None].astype(dtype)
        return tuple(
            total + triton.dot(own, matrix[at, :].astype(dtype)) for total, matrix in zip(sums, kernels, strict=True)
        )

    made, *above = jax.lax.fori_loop(0, inner // step, add, (jnp.zeros(out.shape, jnp.float32),) * len(kernels))
    if above:
        gate = made.astype(dtype).astype(jnp.float32)
        made = gate * jax.nn.sigmoid(gate) * above[0].astype(dtype).astype(jnp.float32)
    made = made.astype(dtype)
    if residual is not None:
        made += triton.load(residual.at[...], mask=inside, other=0.0)
    triton.store(out.at[...], made, mask=inside)


def place(
    heads: Float[Array, "B _ H"],
    norm: Float[Array, "_ H"] | None,
    rotary: Rotary,
    own: Cached,
    at: Int[Array, ""],
    *,
    epsilon: float,
) -> tuple[Float[Array, "B N H"], Float[Array, "B K H C"], Float[Array, "B K C H"]]:
    """Normalises and rotates the queries and keys of `heads`, which holds values after them.

    Returns the queries, scaled by 1/sqrt(H), and the cache with the new keys and values at position `at`: it is updated
    in place.
    """
    (rows, count, width), cache = heads.shape, own[:2]
    queries = count - 2 * own.keys.shape[1]
    table = pl.BlockSpec((None, width // 2), lambda row, number: (row, 0))
    whole = [pl.BlockSpec((None, *part.shape[1:]), lambda row, number: (row, 0, 0, 0)) for part in cache]
    made = jax.ShapeDtypeStruct((rows, queries, width), heads.dtype)
    first = 4 if norm is None else 5  # inputs before the cache
    return pl.pallas_call(
        functools.partial(_place, epsilon=epsilon),
        out_shape=(made, *(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in cache)),
        grid=(rows, count),
        in_specs=[
            pl.BlockSpec((None, None, width), lambda row, number: (row, number, 0)),
            None if norm is None else pl.BlockSpec(norm.shape, lambda row, number: (0, 0)),
            table,
            table,
            pl.BlockSpec((1,), lambda row, number: (0,)),
            *whole,
        ],
        out_specs=(pl.BlockSpec((None, queries, width), lambda row, number: (row, 0, 0)), *whole),
        input_output_aliases={first: 1, first + 1: 2},
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        name="place",
    )(heads, norm, rotary.cos[:, 0], rotary.sin[:, 0], at[None], *cache)


def _place(head: Any, norm: Any, cos: Any, sin: Any, at: Any, *refs: Any, epsilon: float) -> None:
    """The program of one head."""
    *_, queries, keys, values = refs
    number, width, dtype = pl.program_id(1), cos.shape[0], queries.dtype
    low, high = pl.ds(0, width), pl.ds(width, width)
    own = number - queries.shape[0]  # number of the key head

    @pl.when(own >= keys.shape[0])
    def _value() -> None:
        line = own - keys.shape[0]
        values[line, at[0], low], values[line, at[0], high] = head[low], head[high]

    @pl.when(own < keys.shape[0])
    def _turned() -> None:
        parts = [head[low], head[high]]
        if norm is not None:
            wide = [part.astype(jnp.float32) for part in parts]
            mean = sum(jnp.sum(jnp.square(part)) for part in wide) / (2 * width)
            scaled = [(part * jax.lax.rsqrt(mean + epsilon)).astype(dtype) for part in wide]
            parts = [part * norm[number, piece].astype(dtype) for part, piece in zip(scaled, (low, high), strict=True)]
        c, s = cos[...].astype(dtype), sin[...].astype(dtype)
        turned = parts[0] * c - parts[1] * s, parts[1] * c + parts[0] * s

        @pl.when(own < 0)
        def _query() -> None:
            queries[number, low], queries[number, high] = (part * (2 * width) ** -0.5 for part in turned)

        @pl.when(own >= 0)
        def _key() -> None:
            keys[own, low, at[0]], keys[own, high, at[0]] = turned


class _Runs(NamedTuple):
    """How the positions of a cache are split."""

    tile: int  # positions that a program takes at a time
    tiles: int  # tiles of a run, which one program takes
    number: int  # number of runs


def attend_in_runs(q: Float[Array, "B N H"], cached: Sequence[Cached]) -> Float[Array, "B N H"]:
    """Attention of scaled queries over the visible positions of caches, the first of which must have one for each row.

    A run of positions gives a partial softmax, but where rows and key heads alone occupy the GPU, a program takes all.
    """
    (rows, heads, width), own = q.shape, cached[0].keys.shape[1]
    split = max(1, _PROGRAMS // (rows * own))  # runs of a cache at most
    shapes: list[_Runs] = []
    inputs: list[Array | np.ndarray] = []
    for keys, values, seen, table in cached:
        tile = math.gcd(keys.shape[3], _TILE)
        tiles = seen.shape[1] // tile
        count = -(-tiles // max(_TILES, -(-tiles // split)))
        shapes.append(_Runs(tile, -(-tiles // count), count))
        stop = jnp.max(jnp.where(seen, jnp.arange(1, seen.shape[1] + 1), 0), axis=1, keepdims=True)
        pages = np.arange(rows, dtype=np.int32)[:, None] if table is None else jnp.asarray(table)
        inputs += [keys, values, jnp.asarray(seen, jnp.int8), stop, pages]

    def spec(array: Array | np.ndarray) -> pl.BlockSpec:
        if array.ndim == 2:
            return pl.BlockSpec((None, array.shape[1]), lambda row, head, run: (row, 0))
        return pl.BlockSpec((len(array), None, *array.shape[2:]), lambda row, head, run: (0, head, 0, 0))

    def part(last: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, None, ROWS, last), lambda row, head, run: (row, head, run, 0, 0))

    grid, group = (rows, own, 1 if split == 1 else sum(runs.number for runs in shapes)), heads // own
    widths, dtype = ((width,), q.dtype) if split == 1 else ((width, 1, 1), jnp.dtype(jnp.float32))
    values, *weights = pl.pallas_call(
        functools.partial(_attend_whole if split == 1 else _attend, shapes=shapes, group=group),
        out_shape=[jax.ShapeDtypeStruct((*grid, group, last), dtype) for last in widths],
        grid=grid,
        in_specs=[
            pl.BlockSpec((None, None, ROWS, width), lambda row, head, run: (row, head, 0, 0)),
            *map(spec, inputs),
        ],
        out_specs=[*map(part, widths)],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        name="attend",
    )(q.reshape(rows, own, group, width), *inputs)
    if split == 1:
        return values.reshape(q.shape)
    total, peak = weights
    # Sums that are written out, run by run, become one kernel of XLA, and reductions two.
    runs = range(grid[2])
    top = functools.reduce(jnp.maximum, (peak[:, :, run] for run in runs))
    factors = [jnp.exp(peak[:, :, run] - top) for run in runs]
    above, below = (sum(part[:, :, run] * factors[run] for run in runs) for part in (values, total))
    return (above / below).reshape(q.shape).astype(q.dtype)


def _attend_whole(q: Any, *refs: Any, shapes: Sequence[_Runs], group: int) -> None:
    """The program of all positions of a row, for the queries that share a key head."""
    *inputs, out = refs
    inside = (jnp.arange(ROWS) < group)[:, None]
    queries = triton.load(q.at[...], mask=inside, other=0.0)
    made = _none(queries)
    for place, runs in enumerate(shapes):
        made = _run(queries, inputs[5 * place : 5 * place + 5], jnp.int32(0), runs, made)
    triton.store(out.at[...], (made[0] / made[1]).astype(out.dtype), mask=inside)


def _attend(q: Any, *refs: Any, shapes: Sequence[_Runs], group: int) -> None:
    """The program of one run of positions of a row, for the queries that share a key head."""
    *inputs, out, total, peak = refs
    inside = (jnp.arange(ROWS) < group)[:, None]
    number = pl.program_id(2)
    for place, runs in enumerate(shapes):
        cache, first = inputs[5 * place : 5 * place + 5], sum(before.number for before in shapes[:place])

        @pl.when((number >= first) & (number < first + runs.number))
        def _(cache: Any = cache, first: int = first, runs: _Runs = runs) -> None:
            queries = triton.load(q.at[...], mask=inside, other=0.0)
            made = _run(queries, cache, (number - first) * runs.tiles, runs, _none(queries))
            for ref, value in zip((out, total, peak), made, strict=True):
                triton.store(ref.at[...], value, mask=inside)


def _none(queries: Array) -> tuple[Array, Array, Array]:
    """Values, weights and peaks of the softmax over no position."""
    none = jnp.zeros((ROWS, 1), jnp.float32)
    return jnp.zeros(queries.shape, jnp.float32), none, none + _HIDDEN


def _run(
    queries: Array, cache: Sequence[Any], first: Array, runs: _Runs, before: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Values, weights and peaks of the softmax over the positions `before` and one run, up to the last visible one."""
    keys, values, seen, stop, table = cache
    tile, per = runs.tile, keys.shape[2] // runs.tile  # tiles of a page

    def add(step: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        sums, weight, top = carry
        page, at = table[step // per], pl.ds(step % per * tile, tile)
        scores = triton.dot(queries, keys[page, :, at])
        scores = jnp.where((seen[pl.ds(step * tile, tile)] != 0)[None], scores, _HIDDEN)
        above = jnp.maximum(top, jnp.max(scores, axis=1, keepdims=True))
        kept, weights = jnp.exp(top - above), jnp.exp(scores - above)
        sums = sums * kept + triton.dot(weights.astype(values.dtype), values[page, at, :])
        return sums, weight * kept + jnp.sum(weights, axis=1, keepdims=True), above

    last = jnp.minimum(first + runs.tiles, (stop[0] + tile - 1) // tile)
    return jax.lax.fori_loop(first, last, add, before)
