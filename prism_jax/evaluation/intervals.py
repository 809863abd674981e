"""Intervals of the policies' realised costs, and of their differences to the deployed policy.

Streams are the independent units, or people where one of them has several streams. A difference is paired: it varies
between units as the difference of both policies' costs there does (docs/maths.md, section 10).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.uncertainty import Bounds, Cells, Resampled, interval
from prism_jax.evaluation.rows import PolicyRow

LEVEL, RESAMPLES, SEED = 0.95, 1000, 0
"""Nominal coverage of all intervals of an evaluation; with very many units, number of resamples and seed of these."""


def known(end: Any) -> float | None:
    """An end of an interval; None where there is no interval."""
    return None if np.isnan(end) else float(end)


def minus(
    first: Float64[np.ndarray, "*#costs"] | float, second: Float64[np.ndarray, "*#costs"] | float
) -> Float64[np.ndarray, "..."]:
    """The differences of costs; 0 where rounding alone tells two apart."""
    return np.where(np.isclose(first, second, rtol=1e-12, atol=0), 0.0, first - second)


def with_intervals(rows: Sequence[PolicyRow], cells: Cells | Resampled, most: float) -> tuple[PolicyRow, ...]:
    """Adds intervals of realised costs, and paired differences to the one deployed policy; none for too few units.

    A cost of 0 that decisions on the labels have by construction gets no interval.

    The columns of `cells` are the weighted sum of each policy's realised costs, at most `most` for each judged step,
    and last the sum of weights.
    """
    deployed = next(i for i, row in enumerate(rows) if row.deployed)

    def means(totals: np.ndarray) -> np.ndarray:
        mean = totals[..., :-1] / totals[..., -1:]
        return np.concatenate([mean, minus(mean, mean[..., deployed, None])], axis=-1)

    count, free = len(rows), np.full(len(rows), np.inf)
    bounds = Bounds(np.concatenate([np.zeros(count), -free]), np.concatenate([np.full(count, most), free]))
    intervals = interval(cells, means, bounds=bounds, level=LEVEL, resamples=RESAMPLES, seed=SEED)
    return tuple(
        dataclasses.replace(
            row,
            realised_low=None if certain(row) else known(intervals.low[i]),
            realised_high=None if certain(row) else known(intervals.high[i]),
            difference=float(intervals.value[count + i]),
            difference_low=known(intervals.low[count + i]),
            difference_high=known(intervals.high[count + i]),
        )
        for i, row in enumerate(rows)
    )


def certain(row: PolicyRow) -> bool:
    """Whether a cost is 0 whatever the labels are, which samples do not make uncertain."""
    return row.policy == "clairvoyant" and row.realised_cost == 0


def paired_costs(
    cells: Cells | Resampled,
) -> tuple[
    Float64[np.ndarray, "costs"],
    Float64[np.ndarray, "pairs"],
    Float64[np.ndarray, "pairs"],
    Float64[np.ndarray, "pairs"],
]:
    """Mean costs, which come in pairs, the difference of each pair, and the two ends of its interval.

    The columns of `cells` are the weighted sum of each cost, and last the sum of weights.
    """

    def differences(totals: np.ndarray) -> np.ndarray:
        mean = totals[..., :-1] / totals[..., -1:]
        return minus(mean[..., ::2], mean[..., 1::2])

    total = totals_of(cells)
    cost = total[:-1] / total[-1]
    intervals = interval(cells, differences, level=LEVEL, resamples=RESAMPLES, seed=SEED)
    return cost, differences(total), np.asarray(intervals.low), np.asarray(intervals.high)


def totals_of(cells: Cells | Resampled) -> Float64[np.ndarray, "columns"]:
    """The sums over all units, each unit of a type of its own."""
    return cells.totals() if isinstance(cells, Resampled) or cells.units is None else cells.units.sum(axis=0)
