"""Intervals of weighted means whose rows depend on each other within a unit, such as a stream or a person."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Num, Shaped

from prism_jax.decision import arrays
from prism_jax.decision.uncertainty.bootstrap import Cells, Estimate, interval
from prism_jax.decision.uncertainty.hashed import Resampled
from prism_jax.decision.uncertainty.jackknife import UNBOUNDED, Bounds


def mean_interval(
    values: Num[np.ndarray, "*values rows"],
    units: Shaped[np.ndarray, " rows"],
    weight: Num[np.ndarray, " rows"] | None = None,
    *,
    bounds: Bounds = UNBOUNDED,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """The weighted mean of values over rows, with its interval over units.

    Args:
      values: One value per row, or several, whose means vary together.
      units: The independent unit of each row, of any sortable kind.
      weight: Importance of each row, at least 0; None is 1 everywhere.
      bounds: Smallest and largest possible mean, or of each of the values.
      level: Nominal coverage, in (0, 1).
      resamples: Number of resamples, drawn for more than `MOST_UNITS` units.
      seed: Seed of the resamples.

    Returns:
      The mean in the unit of the values; arrays [values] for several values.

    Raises:
      ValueError: as `uncertainty.interval`.

    Examples:
      >>> cost, stream = np.array([0.0, 1.0, 0.0, 2.0, 1.0, 0.0]), np.array([0, 0, 1, 2, 3, 4])
      >>> mean = mean_interval(cost, stream)
      >>> round(float(mean.value), 3), bool(mean.low < mean.value < mean.high)
      (0.667, True)
    """
    unit = arrays.in_order(units)[1]
    weight = np.ones(len(unit)) if weight is None else weight
    columns = [np.bincount(unit, row * weight) for row in np.atleast_2d(values)]
    cells = Cells.of_units(np.stack([*columns, np.bincount(unit, weight)], axis=1))
    means = mean_interval_of(cells, bounds=bounds, level=level, resamples=resamples, seed=seed)
    return means if values.ndim > 1 else Estimate(*(field[0] for field in means))


def mean_interval_of(cells: Cells | Resampled, **resampling: Any) -> Estimate:
    """The weighted means whose weighted sums are the columns of `cells`, the last of which is the weight.

    `resampling` and errors are those of `uncertainty.interval`.
    """
    return interval(cells, lambda totals: totals[..., :-1] / totals[..., -1:], **resampling)
