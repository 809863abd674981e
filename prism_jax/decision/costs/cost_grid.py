"""The index on a sorted grid of cost ratios from which a step intervenes, exactly as the gate decides.

The gate intervenes at the ratio r = C_FN / C_FA exactly if a <= b * r and b > 0, with a = 1 - p_accept and b = p_accept
* p_need. In floating point b * r never decreases as r grows, so one index of a sorted grid describes all decisions of a
step. The comparison itself is evaluated at grid points; the rounded quotient a / b is used only to look up where the
search starts, in a small table indexed by its leading bits.

The comparison is that of `gate.intervene` at C_FA = 1, at one grid point for each row. Tests check that the result
equals `gate.decide` bit for bit at every grid point, ties included, by NumPy and by XLA (`cost_search`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import DTypeLike

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Scalar

PAPER_COST_RATIOS = (4.0, 2.0, 1.0, 1 / 1.2)
"""The cost ratios r = C_FN / C_FA of the paper's grid sweep; users import them from `decision.surface`."""
_TABLE_LIMIT = 1 << 14
"""Largest number of entries in the start table: 64 KiB of int32, of which a search reads few cache lines."""


@dataclasses.dataclass(frozen=True)
class CostGrid:
    """A sorted grid of K cost ratios and the table that speeds up searching it.

    A bucket is a set of positive floating-point numbers with the same leading bits (sign, exponent and part of the
    mantissa). These bits are its key.
    """

    costs: Float[Array, " padded_K"]  # the ratios in ascending order, followed by at least one +inf as a sentinel
    starts: Int[Array, " buckets"]  # for each bucket, the number of costs in lower buckets
    # the key of the first bucket, two below that of the smallest positive cost; it also holds costs of 0
    origin: Int[Array, ""]
    shift: int  # number of trailing bits of a float that a key leaves out
    steps: int  # number of halvings that suffice for the costs of two neighbouring buckets


def check_axis(name: str, values: Sequence[Scalar] | Array, dtype: DTypeLike) -> Float[np.ndarray, " axis"]:
    """Cost ratios or margins as a NumPy vector of `dtype`: not empty, not traced, finite and at least 0."""
    if arrays.is_traced(values):
        raise ValueError(
            f"{name}: found a traced value, expected numbers known before tracing (they fix the shape of the table)"
        )
    axis = np.asarray(values, dtype=np.float64)
    if axis.ndim != 1:
        raise ValueError(f"{name}: found shape {axis.shape}, expected a vector")
    top = float(np.finfo(dtype).max)
    arrays.check_range(name, axis, 0.0, top, f"a number in [0, {top:.1e}], which {np.dtype(dtype).name} can hold")
    return axis.astype(dtype)


def cost_grid(costs: Float[np.ndarray, " K"]) -> CostGrid:
    """Builds the grid of ascending, finite cost ratios of at least 0, in their own dtype (float32 or float64).

    Keys are as short as possible while two neighbouring buckets hold at most one cost, so that a search needs a single
    comparison. Where this would make the table larger than its limit, buckets hold more costs and a search takes more
    halvings.
    """
    bits = costs.view(np.int32 if costs.dtype == np.float32 else np.int64)
    positive: np.ndarray = bits[costs >= np.finfo(costs.dtype).tiny]  # no quotient except 0 is smaller than this
    mantissa = np.finfo(costs.dtype).nmant
    for key_bits in range(1, 13):
        shift = mantissa - key_bits
        keys = positive >> shift
        origin = int(keys[0]) - 2 if len(keys) else 0
        size = int(keys[-1]) - origin + 2 if len(keys) else 2
        if key_bits > 1 and size > _TABLE_LIMIT:
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
    """The first index j with a <= b * costs[j], or a < b * costs[j] if `strict`; K if there is none, or if b <= 0.

    `a` is 1 - p for probabilities p, so 0 or well above the smallest normal number; a negative value acts as 0.
    """
    xp = arrays.namespace(a, b)
    costs, starts = xp.asarray(grid.costs), xp.asarray(grid.starts)
    # Costs that lie below the quotient by more than rounding can explain are skipped; the others are compared.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        quotient = xp.where(b > 0, a / b, xp.inf) * (1 - 4 * np.finfo(grid.costs.dtype).eps)
        key = quotient.view(grid.origin.dtype) >> grid.shift
        index = _take(starts, xp.clip(key - grid.origin, 0, len(grid.starts) - 1))
        for step in reversed(range(grid.steps)):
            stride = 1 << step
            cost = _take(costs, xp.minimum(index + (stride - 1), len(grid.costs) - 1) if stride > 1 else index)
            below = b * cost <= a if strict else b * cost < a
            index = index + stride * below.astype(index.dtype)
    return index


def decision_index(
    p_need: Float[Array, "*rows"], p_accept: Float[Array, "*rows"], grid: CostGrid
) -> Int[Array, "*rows"]:
    """The index of the first cost at which the gate intervenes, as it does at every later one; K if at none."""
    return first_index(1 - p_accept, p_accept * p_need, grid)


def slow_range(
    p_need: Float[Array, " n"],
    p_accept: Float[Array, " n"],
    fast: Int[Array, " n"],
    margins: Float[Array, "M 1"],
    grid: CostGrid,
) -> tuple[Int[Array, "M n"], Int[Array, "M n"]]:
    """The first cost at which the slow pass runs, and one past the last, for every margin and step.

    The slow pass runs from the first cost at which the gate would intervene at p_accept + margin, up to the last at
    which, at p_accept - margin, it would not intervene or the costs would be equal (docs/maths.md, section 3;
    `gate.slow_band`). A step's first intervening cost is that of the slow signals, clipped to this range. At margin 0
    the range is empty and lies at `fast`, the `decision_index` of the same signals.
    """
    xp = arrays.namespace(p_accept, margins)
    high, low = p_accept + margins, p_accept - margins
    from_ = xp.where(high >= 1, 0, first_index(1 - high, high * p_need, grid))
    to = first_index(1 - low, xp.maximum(low, 0) * p_need, grid, strict=True)
    return xp.where(margins > 0, from_, fast), xp.where(margins > 0, to, fast)


def _take(table: Any, index: Any) -> Any:
    """`table[index]` for indices known to be in bounds, which XLA need not check."""
    return table[index] if isinstance(table, np.ndarray) else table.at[index].get(mode="promise_in_bounds")


def round_up(number: int, least: int) -> int:
    """The smallest power of two that is at least `number` and at least `least`, itself a power of two."""
    return max(least, 1 << (number - 1).bit_length())
