"""What the second signal is worth: the two-signal gate beside p_accept alone, at the same speak rate.

A gate that speaks more or less often also costs more or less, whatever it ranks by. So p_accept alone offers at the
judged steps where it is highest, as many as weigh as much as the gate's offers do: costs have the weights of acceptance
labels, and so have speak rates. Both decide about the same offers. The difference is paired, with the decisions as they
are (docs/maths.md, sections 2 and 10).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Cells, Resampled, interval
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED, known, paired_costs, totals_of
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Dependence, SecondSignalRow

SIGNALS = ("need", "accept")
RATIOS = (0.5, 1.0, 2.0, 4.0)
"""Cost ratios C_FN / C_FA that are compared beside the operating point's own."""


def ratios_of(point: OperatingPoint) -> list[float]:
    """The cost ratios that are compared."""
    return sorted({*RATIOS, point.c_fn / point.c_fa})


def rows_of(ratios: Sequence[float], offers: Sequence[float], cells: Cells | Resampled) -> tuple[SecondSignalRow, ...]:
    """A row for each ratio, from the shares of offers and the weighted costs by unit, which come in pairs."""
    cost, difference, low, high = paired_costs(cells)
    return tuple(
        SecondSignalRow(
            ratio=ratio,
            speak_rate=offers[i],
            gate=float(cost[2 * i]),
            accept_alone=float(cost[2 * i + 1]),
            difference=float(difference[i]),
            low=known(low[i]),
            high=known(high[i]),
        )
        for i, ratio in enumerate(ratios)
    )


_TERMS = np.triu_indices(9)
"""Pairs of the nine columns of `dependence_sums`."""


def dependence_sums(data: EvaluationData) -> dict[str, Float64[np.ndarray, "units"]]:
    """Weighted sums by unit that `dependence_of` takes, the number of steps last.

    They are those of all products of two of nine columns: 1, the first three powers of p_need and of p_accept, and
    what these leave of the labels of need and of acceptance.
    """
    judged, weight = data.judged, data.weight
    signals = [data.signal(f"{name}_fast", "calibrated")[judged] for name in SIGNALS]
    left = [data.label(name)[judged] - p for name, p in zip(SIGNALS, signals, strict=True)]
    columns = [np.ones(len(weight)), *(p**power for p in signals for power in (1, 2, 3)), *left]
    products = {f"{i} {j}": columns[i] * columns[j] * weight for i, j in zip(*_TERMS, strict=True)}
    sums = {**products, "steps": np.ones(len(weight))}
    return {name: data.by_unit(column) for name, column in sums.items()}


def dependence_of(cells: Cells | Resampled) -> Dependence:
    """The covariance of what both signals leave, without what the signals themselves tell of it.

    Miscalibrated signals leave something in common that is no dependence: E[y - p | p_need, p_accept], here taken for
    linear in the powers of `dependence_sums`, is subtracted by least squares.
    """

    def covariance(totals: Float64[np.ndarray, "*resamples sums"]) -> Float64[np.ndarray, "*resamples"]:
        products = np.empty((*totals.shape[:-1], 9, 9))
        products[..., _TERMS[0], _TERMS[1]] = products[..., _TERMS[1], _TERMS[0]] = totals[..., :-1]
        told, common = products[..., :7, :7], products[..., :7, 7:]
        explained = np.swapaxes(common, -1, -2) @ np.linalg.pinv(told, 1e-10, hermitian=True) @ common
        return np.asarray((products[..., 7, 8] - explained[..., 0, 1]) / products[..., 0, 0])

    found = interval(cells, covariance, level=LEVEL, resamples=RESAMPLES, seed=SEED)
    return Dependence(float(found.value), known(found.low), known(found.high), int(totals_of(cells)[-1]))
