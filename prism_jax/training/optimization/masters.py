"""Master values, with which bfloat16 parameters can follow updates that are smaller than their spacing.

bfloat16 has 8 significant bits: the neighbours of a weight of 1 are 0.004 and 0.008 away, so that an update of 1e-5 is
lost to rounding. The forward and the backward pass always use the bfloat16 parameters. The options differ in the
float32 value to which an update is added:

    none        the parameter itself; small updates are lost
    float32     a float32 master, stored beside the moments: 4 more bytes per parameter
    split       exactly the same master, stored as the parameter (upper half) and its lower 16 bits: 2 more bytes
    stochastic  the parameter itself, but rounded up or down at random so that the mean is exact: no more bytes
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Float32, Int16, PRNGKeyArray, UInt16

from prism_jax.student.qwen3 import Params
from prism_jax.training.run_config import Master


def init(params: Params, kind: Master) -> Any:
    """The master state of fresh parameters: a tree of the same structure, or an empty one."""
    if kind == "float32":
        return jax.tree.map(lambda p: p.astype(jnp.float32), params)
    if kind == "split":
        return jax.tree.map(lambda p: jnp.zeros_like(p, jnp.int16), params)
    return {}


def read(params: Params, kept: Any, kind: Master) -> Params:
    """The float32 values to which updates are added."""
    if kind == "float32":
        return kept
    if kind == "split":
        return jax.tree.map(join, params, kept)
    return jax.tree.map(lambda p: p.astype(jnp.float32), params)


def write(values: Params, params: Params, kind: Master, key: PRNGKeyArray) -> tuple[Params, Any]:
    """Converts the values that `read` returned, after the update, into new parameters and their master state.

    The new parameters have the dtypes of `params`, those before the update. The key is for stochastic rounding.
    """
    if kind == "float32":
        return jax.tree.map(rounded, values), values
    if kind == "split":
        return jax.tree.map(rounded, values), jax.tree.map(lambda x: halve(x)[1], values)
    if kind == "stochastic":
        leaves, tree = jax.tree.flatten(values)
        keys = [jax.random.fold_in(key, i) for i in range(len(leaves))]
        return jax.tree.unflatten(tree, [stochastic(x, k) for x, k in zip(leaves, keys, strict=True)]), {}
    return jax.tree.map(lambda x, p: x.astype(p.dtype), values, params), {}


def halve(x: Float32[Array, "*shape"]) -> tuple[BFloat16[Array, "*shape"], Int16[Array, "*shape"]]:
    """Splits x into `rounded(x)` and the signed distance to it in units of the last place; `join` is the inverse."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    # Ties round away from zero. If they rounded to even, as casts do, the distances +2^15 and -2^15 would both occur,
    # and these have the same 16-bit form.
    high = ((bits + 0x8000) >> 16).astype(jnp.uint16)
    low = (bits & 0xFFFF).astype(jnp.uint16)
    return _bfloat16(high), jax.lax.bitcast_convert_type(low, jnp.int16)


def join(high: BFloat16[Array, "*shape"], low: Int16[Array, "*shape"]) -> Float32[Array, "*shape"]:
    """The float32 value that `halve` split, bit for bit."""
    upper = jax.lax.bitcast_convert_type(high, jnp.uint16).astype(jnp.int32) << 16
    return jax.lax.bitcast_convert_type(upper + low.astype(jnp.int32), jnp.float32)


def rounded(x: Float32[Array, "*shape"]) -> BFloat16[Array, "*shape"]:
    """The nearest bfloat16, ties away from zero."""
    return halve(x)[0]


def stochastic(x: Float32[Array, "*shape"], key: PRNGKeyArray) -> BFloat16[Array, "*shape"]:
    """Rounds x at random to one of its two bfloat16 neighbours, with mean x. Exact bfloat16 values do not change."""
    noise = jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return _bfloat16(((bits + noise) >> 16).astype(jnp.uint16))


def _bfloat16(bits: UInt16[Array, "*shape"]) -> BFloat16[Array, "*shape"]:
    return jax.lax.bitcast_convert_type(bits, jnp.bfloat16)
