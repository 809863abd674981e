"""How bfloat16 parameters follow updates that are smaller than their spacing.

bfloat16 keeps 8 significant bits: a weight of 1 has its neighbours 0.004 and 0.008 away, and an update of 1e-5 rounds
to nothing. The model always computes with the bfloat16 parameters and is differentiated at them. What differs is the
value that an update is added to, in float32:

    none        the parameter itself; small updates are lost
    float32     a float32 master, kept beside the moments: 4 more bytes a parameter
    split       the same master, exactly, as the parameter (its upper half) and its lower 16 bits: 2 more bytes
    stochastic  the parameter itself, but rounded up or down at random so that the mean is right: no more bytes
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Float32, Int16, PRNGKeyArray, UInt16

from prism_jax.student.qwen3 import Params
from prism_jax.training.config import Master


def init(params: Params, kind: Master) -> Any:
    """What is kept beside fresh parameters: a tree like them, or an empty one."""
    if kind == "float32":
        return jax.tree.map(lambda p: p.astype(jnp.float32), params)
    if kind == "split":
        return jax.tree.map(lambda p: jnp.zeros_like(p, jnp.int16), params)
    return {}


def read(params: Params, kept: Any, kind: Master) -> Params:
    """The float32 values that updates are added to."""
    if kind == "float32":
        return kept
    if kind == "split":
        return jax.tree.map(join, params, kept)
    return jax.tree.map(lambda p: p.astype(jnp.float32), params)


def write(values: Params, params: Params, kind: Master, key: PRNGKeyArray) -> tuple[Params, Any]:
    """New parameters and what is kept beside them, from updated float32 values.

    Args:
      values: As `read` gives them, updated.
      params: Their dtypes are kept.
      kind: As in the config.
      key: Of this step, for stochastic rounding.
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
    """Splits float32 into `rounded` and the signed distance to it in units of the last place; `join` undoes it."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    # A tie goes away from zero. To even, as casts round, +2^15 and -2^15 would be two distances with one 16-bit form.
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
    """One of the two bfloat16 neighbours of x, with mean x; what bfloat16 holds exactly stays as it is."""
    noise = jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return _bfloat16(((bits + noise) >> 16).astype(jnp.uint16))


def _bfloat16(bits: UInt16[Array, "*shape"]) -> BFloat16[Array, "*shape"]:
    return jax.lax.bitcast_convert_type(bits, jnp.bfloat16)
