"""Intervals of the policies' realised costs, and of their differences to the deployed policy.

Streams are the independent units, or people where one of them has several streams, so whole units are resampled. Every
policy is evaluated on the same resamples, and a difference is computed within each resample: it is paired
(docs/maths.md, section 10).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float64, Int64

from prism_jax.decision.uncertainty import Cells, interval
from prism_jax.evaluation.rows import PolicyRow

LEVEL, RESAMPLES, SEED = 0.95, 1000, 0
"""Nominal coverage of all intervals of an evaluation, their number of resamples, and the seed of these."""


def with_intervals(
    rows: Sequence[PolicyRow],
    costs: Iterable[Float64[np.ndarray, "judged"]],
    weight: Float64[np.ndarray, "judged"],
    units: Int64[np.ndarray, "judged"],
) -> tuple[PolicyRow, ...]:
    """Adds intervals of realised costs, and paired differences to the deployed policy.

    Args:
      rows: The policies; exactly one is deployed.
      costs: Realised cost of each policy at every judged step; only their sums by stream are kept.
      weight: Weights of the judged steps.
      units: Numbers of the judged steps' streams, or people, from 0.

    Returns:
      The rows; without intervals if all steps are of one unit, which cannot be resampled.
    """
    number = int(units.max()) + 1
    if number < 2:
        return tuple(rows)
    sums = [np.bincount(units, weights=cost * weight) for cost in costs]
    sums.append(np.bincount(units, weights=weight))
    deployed = next(i for i, row in enumerate(rows) if row.deployed)

    def means(totals: np.ndarray) -> np.ndarray:
        mean = totals[..., :-1] / totals[..., -1:]
        return np.concatenate([mean, mean - mean[..., deployed, None]], axis=-1)

    cells = Cells(np.stack(sums, axis=1), np.ones(number, np.int64))
    found = interval(cells, means, level=LEVEL, resamples=RESAMPLES, seed=SEED)
    count = len(rows)
    return tuple(
        dataclasses.replace(
            row,
            realised_low=float(found.low[i]),
            realised_high=float(found.high[i]),
            difference=float(found.estimate[count + i]),
            difference_low=float(found.low[count + i]),
            difference_high=float(found.high[count + i]),
        )
        for i, row in enumerate(rows)
    )
