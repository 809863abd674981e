"""Where a step's decision falls on a sorted grid of cost ratios, exactly as the gate's own comparison says.

The gate intervenes at the ratio r = C_FN / C_FA exactly if a <= b * r with a = 1 - p_accept and b = p_accept * p_need.
In floating point b * r never decreases as r grows, so on a sorted grid the answers read silent, ..., silent, intervene,
..., intervene, and one index says it all. `first_index` finds it by evaluating the comparison itself on grid points,
never by comparing r with a rounded quotient a / b, so it equals `gate.decide` bit for bit at every grid point, ties
included. The quotient serves only to look up, in a small table keyed by its leading bits, where to start.

The grid is built on the host; the searches are traced by `jax.jit`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int
from numpy.typing import DTypeLike

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Scalar

PAPER_COST_RATIOS = (4.0, 2.0, 1.0, 1 / 1.2)
"""The cost ratios r = C_FN / C_FA of the paper's grid sweep; users import them from `decision.surface`."""
_TABLE_LIMIT = 1 << 14
"""Most entries of the start table: 64 KiB of int32, of which a search touches few lines."""


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["costs", "starts", "origin"], meta_fields=["shift", "steps"]
)
@dataclasses.dataclass(frozen=True)
class CostGrid:
    """A sorted grid of K cost ratios and the table that speeds up searching it.

    A bucket is the set of positive numbers that agree in their leading bits, sign and exponent included.

    Attributes:
      costs: The ratios in ascending order, then +inf as a sentinel, at least once.
      starts: For each bucket the number of costs in the buckets below it.
      origin: The key of the first bucket, two below the bucket of the smallest positive cost; it takes costs of 0.
      shift: How many trailing bits of a float a key drops.
      steps: Halvings that surely cover the costs of two neighbouring buckets.
    """

    costs: Float[Array, " padded_K"]
    starts: Int[Array, " buckets"]
    origin: Int[Array, ""]
    shift: int
    steps: int


def check_axis(name: str, values: Sequence[Scalar] | Array, dtype: DTypeLike) -> Float[np.ndarray, " axis"]:
    """Cost ratios or margins as a NumPy vector of `dtype`.

    Raises:
      ValueError: if they are traced, not a vector, empty, negative, or not finite in `dtype`.
    """
    if arrays.is_traced(values):
        raise ValueError(
            f"{name}: found a traced value, expected numbers known before tracing (they lay out the table)"
        )
    axis = np.asarray(values, dtype=np.float64)
    if axis.ndim != 1:
        raise ValueError(f"{name}: found shape {axis.shape}, expected a vector")
    top = float(np.finfo(dtype).max)
    arrays.check_range(name, axis, 0.0, top, f"a number in [0, {top:.1e}], which {np.dtype(dtype).name} can hold")
    return axis.astype(dtype)


def cost_grid(costs: Float[np.ndarray, " K"]) -> CostGrid:
    """Builds the grid of ascending, finite cost ratios of at least 0, in their own dtype (float32 or float64).

    Keys drop as many bits as they can while two neighbouring buckets hold at most one cost, so that one comparison
    settles a search; where the table would grow past its limit, buckets hold more and a search halves more often.
    """
    bits = costs.view(np.int32 if costs.dtype == np.float32 else np.int64)
    positive: np.ndarray = bits[costs >= np.finfo(costs.dtype).tiny]  # below it, no quotient but 0 ever falls
    mantissa = np.finfo(costs.dtype).nmant
    for kept in range(1, 13):
        shift = mantissa - kept
        keys = positive >> shift
        origin = int(keys[0]) - 2 if len(keys) else 0
        size = int(keys[-1]) - origin + 2 if len(keys) else 2
        if kept > 1 and size > _TABLE_LIMIT:
            break
        bucket = np.concatenate([np.zeros(len(costs) - len(keys), np.int64), keys - origin])
        counts = np.bincount(bucket, minlength=size)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        crowd = int((counts[:-1] + counts[1:]).max())
        best = (starts, origin, shift, crowd.bit_length())
        if crowd == 1:
            break
    starts, origin, shift, steps = best
    # Sizes are rounded up so that jit compiles few programs.
    table = np.full(round_up(len(starts), 1024), len(costs), np.int32)
    table[: len(starts)] = starts
    padded = np.full(round_up(len(costs) + 1, 64), np.inf, costs.dtype)
    padded[: len(costs)] = costs
    return CostGrid(padded, table, np.asarray(origin, bits.dtype), shift, steps)


def first_index(
    a: Float[Array, "*rows"], b: Float[Array, "*rows"], grid: CostGrid, *, strict: bool = False
) -> Int[Array, "*rows"]:
    """The first index j with a <= b * costs[j], or a < b * costs[j] if `strict`; K where no cost reaches, or b <= 0.

    Args:
      a: 1 - p for probabilities p, so 0 or well above the smallest normal number; a negative one acts as 0.
      b: Numbers of at least 0 in the grid's dtype.
      grid: See `cost_grid`.
      strict: Whether equality stays below.
    """
    eps = jnp.finfo(grid.costs.dtype).eps
    # Costs below the quotient by more than rounding can explain are passed over unseen; the rest are compared.
    quotient = jnp.where(b > 0, a / b, jnp.inf) * (1 - 4 * eps)
    key = lax.bitcast_convert_type(quotient, grid.origin.dtype) >> grid.shift
    last = jnp.asarray(grid.starts.shape[0] - 1, key.dtype)
    index = _take(jnp.asarray(grid.starts), jnp.clip(key - grid.origin, 0, last))
    costs = jnp.asarray(grid.costs)
    for step in reversed(range(grid.steps)):
        stride = 1 << step
        cost = _take(costs, jnp.minimum(index + (stride - 1), len(grid.costs) - 1) if stride > 1 else index)
        below = b * cost <= a if strict else b * cost < a
        index = index + stride * below.astype(index.dtype)
    return index


def decision_index(
    p_need: Float[Array, "*rows"], p_accept: Float[Array, "*rows"], grid: CostGrid
) -> Int[Array, "*rows"]:
    """The first cost at which the gate intervenes on these signals; it does at every later one (K: at none)."""
    return first_index(1 - p_accept, p_accept * p_need, grid)


def slow_range(
    p_need: Float[Array, " n"],
    p_accept: Float[Array, " n"],
    fast: Int[Array, " n"],
    margins: Float[Array, " M"],
    grid: CostGrid,
) -> tuple[Int[Array, "M n"], Int[Array, "M n"]]:
    """The first cost at which the slow pass runs, and one past the last, for every margin and step.

    The slow pass runs from the first cost at which p_accept + margin intervenes up to the last at which
    p_accept - margin does not, or only just (maths section 3, `gate.slow_band`). Below that range the fast signals are
    silent, above it they intervene, inside it the slow signals decide: so a step's first intervening cost is the slow
    signals' own, clipped to the range. At margin 0 the range is empty and sits at `fast`, the `decision_index` of the
    same signals.
    """
    delta = margins[:, None]
    high, low = p_accept + delta, p_accept - delta
    from_ = jnp.where(high >= 1, 0, first_index(1 - high, high * p_need, grid))
    to = first_index(1 - low, jnp.maximum(low, 0) * p_need, grid, strict=True)
    return jnp.where(delta > 0, from_, fast), jnp.where(delta > 0, to, fast)


def round_up(number: int, least: int) -> int:
    """The smallest power of two that is at least `number` and `least`, which is itself one."""
    return max(least, 1 << (number - 1).bit_length())


def _take(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[index]` for indices known to be in bounds."""
    return table.at[index].get(mode="promise_in_bounds")
