"""Puts several packed streams into one row: which streams share a row, and how their columns are joined.

The trunks stand one after another in the trunk region, and the branches in the branch region, in the same order. Every
branch still sees only its own trunk (`begin`; `prism_jax.student.attention`), so the logits of a shared row equal those
of separate rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prism_jax.prompting.packing import AXES, Packed


def first_fit_decreasing(rows: Sequence[Packed], tokens: int) -> list[list[int]]:
    """Chooses which unpadded rows are joined into one, by first-fit decreasing bin packing.

    Rows are assigned from the longest to the shortest, each to the first group with room. Trunk and branch regions have
    separate static sizes, so each has its own limit: the region's share of `tokens`, in proportion to the lengths over
    all rows, or the longest row if that is more. A group therefore has about `tokens` tokens at most. The groups of row
    numbers, ascending within each, depend only on the lengths and their order.
    """
    lengths = np.array([[len(row.trunk), len(row.tokens)] for row in rows])
    limit = np.maximum(lengths.max(axis=0), tokens * lengths.sum(axis=0) // lengths.sum())
    room = np.empty_like(lengths)
    groups: list[list[int]] = []
    for number in np.argsort(-lengths.sum(axis=1), kind="stable").tolist():
        fits = (room[: len(groups)] >= lengths[number]).all(axis=1)
        group = int(fits.argmax()) if fits.any() else len(groups)
        if group == len(groups):
            groups.append([])
            room[group] = limit
        groups[group].append(number)
        room[group] -= lengths[number]
    return [sorted(group) for group in groups]


def join_rows(rows: Sequence[Packed]) -> Packed:
    """Joins unpadded rows of one trunk each into one row, which gets the number of the first."""
    trunks, tokens, steps = (
        np.cumsum([0, *(len(getattr(row, name)) for row in rows)]) for name in ("trunk", "tokens", "need_slot")
    )
    moved = {
        "stop": trunks,
        "branch": steps,
        "need_slot": tokens,
        "accept_slot": tokens,
        "accept_step": steps,
        "response_source": tokens,
    }
    columns = {}
    for name in AXES:
        parts = [getattr(row, name) for row in rows]
        offsets = moved.get(name, np.zeros(len(rows)))
        whole = np.concatenate([part + offset for part, offset in zip(parts, offsets, strict=False)])
        columns[name] = whole.astype(parts[0].dtype)
    begin = np.repeat(trunks[:-1], np.diff(trunks)).astype(np.int32)
    return Packed(**columns, row=rows[0].row, begin=begin)
