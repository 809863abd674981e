"""Groups rows of many lengths into few static shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from prism_jax.prompting.packing import Packed

# Maximum number of places where a bucket may end. More would save almost nothing, and the time grows quadratically.
_PLACES = 256


def choose_buckets(rows: Sequence[Packed], count: int, batch: int, multiple: int = 8) -> list[list[int]]:
    """Divides the rows into at most `count` groups such that the total number of padded positions is minimal.

    The rows are sorted by length and cut into consecutive groups. The first group, of the shortest rows, may hold any
    number of rows; every other group holds whole batches. Among all such cuts, a dynamic programme finds the one with
    the fewest positions, where every row is padded to the sizes of its group and incomplete batches are filled with
    empty rows. Among equal cuts it takes the one with the fewest groups. In a large split, only about 256 evenly spaced
    cut places are considered. The result depends only on the lengths and their order.

    Lengths are rounded up to `multiple`, as in `packing.sizes`. Returns the indices of the rows in each group.
    """
    everything = list(range(len(rows)))
    if count == 1:
        return [everything]
    lengths = np.array([_lengths(row) for row in rows])
    order = np.argsort(lengths[:, :2].sum(axis=1), kind="stable")
    ends = np.arange(len(rows), 0, -batch)[::-1]
    ends = ends[np.unique(np.linspace(0, len(ends) - 1, min(len(ends), _PLACES)).round().astype(int))]
    starts = np.concatenate([[0], ends[:-1]])
    longest = np.maximum.reduceat(lengths[order], starts, axis=0)
    # best[g][e]: fewest positions of all rows before place e in g + 1 groups; cut[g][e]: where the last group starts.
    costs = [_costs(longest[: e + 1], ends[e] - starts[: e + 1], batch, multiple) for e in range(len(ends))]
    best, cut = [np.array([cost[0] for cost in costs], np.float64)], [np.zeros(len(ends), int)]
    for _ in range(min(count, len(ends)) - 1):
        options = [best[-1][:e] + costs[e][1:] for e in range(1, len(ends))]
        best.append(np.array([np.inf, *(option.min() for option in options)]))
        cut.append(np.array([0, *(1 + int(option.argmin()) for option in options)]))
    # A single group needs no empty rows, because its batches continue into the next epoch.
    whole = _shapes(lengths.max(axis=0, keepdims=True), multiple).sum()
    totals = [len(rows) * whole, *(column[-1] for column in best[1:])]
    groups, end = [], len(ends)
    for level in range(int(np.argmin(totals)), -1, -1):
        start = int(cut[level][end - 1])
        groups.append(order[starts[start] : ends[end - 1]])
        end = start
    return [sorted(group.tolist()) for group in _merge(groups[::-1], lengths, multiple)]


def _lengths(row: Packed) -> tuple[int, int, int]:
    """The lengths of the trunk, of all branches together and of the longest branch."""
    return len(row.trunk), len(row.tokens), int(np.bincount(row.branch).max(initial=0))


def _shapes(longest: Int[np.ndarray, "g 3"], multiple: int) -> Int[np.ndarray, "g 2"]:
    """The sizes of the trunk and of the branch region, rounded up as in `packing.sizes`."""
    trunk, branches, branch = np.maximum(longest, 1).T
    window = -(-branch // multiple) * multiple
    return np.stack([-(-trunk // multiple) * multiple, -(-branches // window) * window], axis=1)


def _costs(longest: np.ndarray, rows: np.ndarray, batch: int, multiple: int) -> np.ndarray:
    """The number of positions of each group that starts at one of the places and ends after the last one."""
    whole = np.maximum.accumulate(longest[::-1], axis=0)[::-1]
    return -(-rows // batch) * batch * _shapes(whole, multiple).sum(axis=1)


def _merge(groups: list[np.ndarray], lengths: np.ndarray, multiple: int) -> list[np.ndarray]:
    """Merges groups of equal sizes, because batches are distinguished by their sizes only."""
    merged: dict[tuple[int, ...], np.ndarray] = {}
    for group in groups:
        key = tuple(_shapes(lengths[group].max(axis=0, keepdims=True), multiple)[0].tolist())
        merged[key] = np.concatenate([merged[key], group]) if key in merged else group
    return list(merged.values())
