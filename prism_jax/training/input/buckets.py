"""Few static shapes for rows of many lengths: which rows share a shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from prism_jax.prompting.packing import Packed

# Buckets may end at so many places: more of them save next to nothing and cost time in their square.
_PLACES = 256


def choose_buckets(rows: Sequence[Packed], count: int, batch: int, multiple: int = 8) -> list[list[int]]:
    """Rows, by number, in at most `count` groups whose padded tokens are fewest in all.

    Rows in order of their length are cut into runs; the first, of the shortest rows, may hold any number, every other
    one holds whole batches. Among all such cuts (at some 256 evenly spread places of a larger split) a dynamic
    programme finds the one whose rows, each padded to its group's sizes, and whose batches, filled up with empty rows,
    have the fewest positions; of equals, the one with the fewest groups. Depends on the lengths and their order alone.

    Args:
      rows: Unpadded.
      count: Most groups.
      batch: Rows a batch.
      multiple: That lengths are rounded up to, as `packing.sizes` does.
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
    # best[g][e]: fewest positions of everything before place e in g + 1 groups, and where the last of them starts.
    costs = [_costs(longest[: e + 1], ends[e] - starts[: e + 1], batch, multiple) for e in range(len(ends))]
    best, cut = [np.array([cost[0] for cost in costs], np.float64)], [np.zeros(len(ends), int)]
    for _ in range(min(count, len(ends)) - 1):
        options = [best[-1][:e] + costs[e][1:] for e in range(1, len(ends))]
        best.append(np.array([np.inf, *(option.min() for option in options)]))
        cut.append(np.array([0, *(1 + int(option.argmin()) for option in options)]))
    # One group needs no filling up: its batches go on into the next epoch.
    whole = _shapes(lengths.max(axis=0, keepdims=True), multiple).sum()
    totals = [len(rows) * whole, *(column[-1] for column in best[1:])]
    groups, end = [], len(ends)
    for level in range(int(np.argmin(totals)), -1, -1):
        start = int(cut[level][end - 1])
        groups.append(order[starts[start] : ends[end - 1]])
        end = start
    return [sorted(group.tolist()) for group in _merge(groups[::-1], lengths, multiple)]


def _lengths(row: Packed) -> tuple[int, int, int]:
    """Of trunk, branches and the longest branch."""
    return len(row.trunk), len(row.tokens), int(np.bincount(row.branch).max(initial=0))


def _shapes(longest: Int[np.ndarray, "g 3"], multiple: int) -> Int[np.ndarray, "g 2"]:
    """Sizes of the trunk and the branch region, as `packing.sizes` rounds them up."""
    trunk, branches, branch = np.maximum(longest, 1).T
    window = -(-branch // multiple) * multiple
    return np.stack([-(-trunk // multiple) * multiple, -(-branches // window) * window], axis=1)


def _costs(longest: np.ndarray, rows: np.ndarray, batch: int, multiple: int) -> np.ndarray:
    """Positions of the groups that start at each place and end behind the last one."""
    whole = np.maximum.accumulate(longest[::-1], axis=0)[::-1]
    return -(-rows // batch) * batch * _shapes(whole, multiple).sum(axis=1)


def _merge(groups: list[np.ndarray], lengths: np.ndarray, multiple: int) -> list[np.ndarray]:
    """Groups of equal sizes as one, since sizes are what tells batches apart."""
    merged: dict[tuple[int, ...], np.ndarray] = {}
    for group in groups:
        key = tuple(_shapes(lengths[group].max(axis=0, keepdims=True), multiple)[0].tolist())
        merged[key] = np.concatenate([merged[key], group]) if key in merged else group
    return list(merged.values())
