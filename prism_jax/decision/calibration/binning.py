"""Exact and fast assignment of probabilities to bins (docs/maths.md, section 7).

Equal-width bins are [k/K, (k+1)/K), the last one closed, with k/K rounded to the precision of p. A score that was
computed as k/K lies in bin k, and 0, 1 and every edge are counted exactly once. Equal-mass bins begin at weighted
quantiles. Equal scores are never split, so duplicating all rows changes nothing, and some bins may be empty.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from prism_jax.decision import arrays

Scheme = Literal["equal_width", "equal_mass"]
CHUNK = 1 << 15  # rows per chunk: the temporary arrays of one chunk fit the cache
FEW = 1 << 8  # largest number of rows, and then of partial sums, in one float32 sum


def bin_edges(p: Any, weight: Any, bins: int, scheme: Scheme) -> Any:
    """The bins + 1 edges: k/K for `equal_width`; for `equal_mass` the extremes and weighted quantiles of p."""
    xp = arrays.namespace(p)
    if scheme == "equal_width":
        return xp.arange(bins + 1, dtype=p.dtype) / xp.asarray(bins, p.dtype)
    if weight is None:
        ordered, mass = xp.sort(p), xp.arange(1, p.shape[0] + 1)
    else:
        order = xp.argsort(p)
        ordered, mass = p[order], xp.cumsum(xp.asarray(weight)[order])
    # The row at which the mass first exceeds k/K of the total. Repeating all rows does not change its value.
    targets = xp.arange(1, bins) * (mass[-1] / bins)
    inner = ordered[xp.minimum(xp.searchsorted(mass, targets, side="right"), p.shape[0] - 1)]
    return xp.concatenate([ordered[:1], inner, ordered[-1:]])


def bin_index(p: Any, edges: Any, *, uniform: bool) -> Any:
    """The bin of each score: the number of inner edges that do not exceed it.

    The edges are from `bin_edges`, in the precision of p. Where they are k/K (`uniform`), NumPy need not search.
    """
    if (jnp := arrays.namespace(p, edges)) is not np:
        return jnp.searchsorted(edges[1:-1], p, side="right", method="compare_all")
    if not uniform:
        return np.searchsorted(edges[1:-1], p, side="right")
    bins = len(edges) - 1
    index = (p * p.dtype.type(bins)).astype(np.intp)
    np.minimum(index, bins - 1, out=index)
    if not _product_finds_bin(bins, p.dtype):
        index -= p < edges[index]
        index += (p >= edges[index + 1]) & (index < bins - 1)
    return index


def bin_sums(p: Any, bins: int, edges: Any, *, uniform: bool, columns: Any) -> list[Any]:
    """Sums of one or more columns over each bin.

    Each column gives one vector: float64 for NumPy, integer for a column of ones. `columns` is a function from a slice
    of rows to the columns there; None in place of a column means ones.
    """
    if (jnp := arrays.namespace(p, edges)) is not np:
        # Each sum has few terms: a float32 sum over all rows would accumulate rounding and stop growing at 2^24 rows.
        groups = -(-p.shape[0] // FEW**2)
        index = bin_index(p, edges, uniform=uniform) + bins * (jnp.arange(p.shape[0]) // FEW)
        sums = [jnp.bincount(index, column, length=groups * FEW * bins) for column in columns(slice(None))]
        return [part.reshape(groups, FEW, bins).sum(axis=1).sum(axis=0) for part in sums]
    totals: list[Any] = []
    for start in range(0, p.shape[0], CHUNK):
        rows = slice(start, start + CHUNK)
        index = bin_index(p[rows], edges, uniform=uniform)
        parts = [np.bincount(index, column, minlength=bins) for column in columns(rows)]
        totals = [total + part for total, part in zip(totals, parts, strict=True)] if totals else parts
    return totals


@functools.cache
def _product_finds_bin(bins: int, dtype: np.dtype) -> bool:
    """Whether floor(p * K), with the product rounded in floating point, is the bin of every p.

    The rounded product never decreases as p grows, so it is correct everywhere if it is correct at each inner edge and
    at the number just below each inner edge. It is correct for 15 bins, which `benchmarks/decision.py ece` times.
    """
    k = np.arange(1, bins, dtype=dtype)
    edge = k / dtype.type(bins)
    below = np.nextafter(edge, dtype.type(0))
    scale = dtype.type(bins)
    return bool(np.all(np.floor(edge * scale) == k) and np.all(np.floor(below * scale) == k - 1))
