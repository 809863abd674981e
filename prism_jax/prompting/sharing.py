"""Several packed streams to one row: which of them share one, and how they lie in it.

Trunks lie one after another in the trunk region and branches in the branch region, in the same order. Every branch
continues to see its own trunk alone (`begin`; `prism_jax.student.attention`), so a shared row reads what its streams
read in rows of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prism_jax.prompting.packing import AXES, Packed


def first_fit_decreasing(rows: Sequence[Packed], tokens: int) -> list[list[int]]:
    """Which rows share one: groups of their numbers, none of more than about `tokens` tokens.

    Long rows come first, each into the first group with room. Trunk and branch regions have static sizes of their own,
    so each has its own limit: its share of `tokens` as all tokens are shared out, or the longest row where that is
    more. Depends on the lengths and their order alone.
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
    """Unpadded rows of one trunk each as one row; its number is the first one's."""
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
