"""Whether a row called average or overall follows from the other rows of its table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from prism_jax.published.counts import Fit, in_words
from prism_jax.published.findings import Finding
from prism_jax.published.quantities import RATIOS
from prism_jax.published.reading import PrintedRow, Sheet

_POOLED = re.compile(r"(?:^|[\W_])(?:average|avg|overall|all|total|pooled|mean)(?:$|[\W_])")


def check_pool(sheet: Sheet, fits: Sequence[Fit]) -> list[Finding]:
    """Notes the one row whose name says that it pools the others, where its N is the sum of theirs but it does not.

    It passes if its counts can be the sums of the others' counts, or its rates the means of theirs, weighted by N or
    not.
    """
    pooled = [row for row in sheet.rows if _POOLED.search(row.name.lower())]
    others = [row for row in sheet.rows if row not in pooled]
    if len(pooled) != 1 or len(others) < 2 or any(row.steps is None for row in sheet.rows):
        return []
    (whole,) = pooled
    if whole.steps != sum(row.steps or 0 for row in others):
        return []
    boxes = {fit.row: fit.box for fit in fits}
    parts = [boxes.get(row.name) for row in others]
    own = boxes.get(whole.name)
    if own is None or len({row.name for row in sheet.rows}) < len(sheet.rows):
        return []
    low = [sum(column) for column in zip(*(part[0] for part in parts if part), strict=True)]
    high = [sum(column) for column in zip(*(part[1] for part in parts if part), strict=True)]
    if None in parts or all(a <= d and c <= b for a, b, c, d in zip(low, high, *own, strict=True)):
        return []
    if _is_mean(whole, others, [1] * len(others)) or _is_mean(whole, others, [row.steps or 0 for row in others]):
        return []
    words = (
        f"the other rows' {whole.steps} decisions have {in_words(low, high)}; this row has {in_words(*own)}, and its "
        "rates are no means of theirs either"
    )
    return [Finding(sheet.name, whole.name, "pooled row", "note", words)]


def _is_mean(whole: PrintedRow, others: Sequence[PrintedRow], weights: Sequence[int]) -> bool:
    """Whether every rate is the weighted mean of the others', up to the digits that were cut."""
    names = [name for name in RATIOS if name in whole.cells and all(name in row.cells for row in others)]
    return all(_mean_meets(name, whole.cells, others, weights) for name in names)


def _mean_meets(name: str, whole: Mapping, others: Sequence[PrintedRow], weights: Sequence[int]) -> bool:
    ends = [row.cells[name].interval("loose") for row in others]
    low, high = (
        sum((weight * end[side] for weight, end in zip(weights, ends, strict=True)), Fraction(0)) / sum(weights)
        for side in (0, 1)
    )
    own = whole[name].interval("loose")
    return low <= own[1] and own[0] <= high
