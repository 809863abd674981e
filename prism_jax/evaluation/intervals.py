"""Intervals of the policies' realised costs, and of their differences to the deployed policy.

Streams are the independent units, so whole streams are resampled. Every policy is evaluated on the same resamples, and
a difference is computed within each resample: it is paired (docs/maths.md, section 10).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Shaped

from prism_jax.decision.uncertainty import Cells, interval
from prism_jax.evaluation.results import PolicyRow

LEVEL, RESAMPLES, SEED = 0.95, 1000, 0
"""Nominal coverage of all intervals of an evaluation, their number of resamples, and the seed of these."""


def with_intervals(
    rows: Sequence[PolicyRow],
    costs: Float64[np.ndarray, "policies judged"],
    weight: Float64[np.ndarray, "judged"],
    streams: Shaped[np.ndarray, "judged"],
) -> tuple[PolicyRow, ...]:
    """Adds intervals of realised costs, and paired differences to the deployed policy.

    Args:
      rows: The policies; exactly one is deployed.
      costs: Realised cost of every policy at every judged step.
      weight: Weights of the judged steps.
      streams: Streams of the judged steps.

    Returns:
      The rows; without intervals if all steps are of one stream, which cannot be resampled.
    """
    names, stream = np.unique(streams.astype(str), return_inverse=True)
    if len(names) < 2:
        return tuple(rows)
    sums = [np.bincount(stream, weights=row, minlength=len(names)) for row in (*(costs * weight), weight)]
    deployed = next(i for i, row in enumerate(rows) if row.deployed)

    def means(totals: np.ndarray) -> np.ndarray:
        mean = totals[..., :-1] / totals[..., -1:]
        return np.concatenate([mean, mean - mean[..., deployed, None]], axis=-1)

    cells = Cells(np.stack(sums, axis=1), np.ones(len(names), np.int64))
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
