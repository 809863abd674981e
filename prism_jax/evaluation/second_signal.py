"""What the second signal is worth: the two-signal gate beside p_accept alone, at the same speak rate.

A gate that speaks more or less often also costs more or less, whatever it ranks by. So p_accept alone offers at as
many judged steps as the gate does, those where it is highest. Both decide about the same offers. The difference is
paired, with the decisions as they are (docs/maths.md, sections 2 and 10).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import arrays, gate
from prism_jax.decision.uncertainty import Cells, interval
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED, known
from prism_jax.evaluation.policies import EvaluationData
from prism_jax.evaluation.rows import SecondSignalRow
from prism_jax.evaluation.signals import acceptance_weight

RATIOS = (0.5, 1.0, 2.0, 4.0)
"""Cost ratios C_FN / C_FA that are compared beside the operating point's own."""


def most_accepted(p_accept: Float64[np.ndarray, "steps"], number: float) -> Float64[np.ndarray, "steps"]:
    """Offers at the `number` steps of highest p_accept; steps that tie at the boundary share what is left."""
    arrays.check_range("number", number, 0.0, float(len(p_accept)), f"at most {len(p_accept)} steps")
    if not number:
        return np.zeros(len(p_accept))
    last = len(p_accept) - int(np.ceil(number))
    boundary = np.partition(p_accept, last)[last]
    above, tied = p_accept > boundary, p_accept == boundary
    return above + tied * ((number - above.sum()) / tied.sum())


def second_signal(data: EvaluationData) -> tuple[SecondSignalRow, ...]:
    """Compares the gate with p_accept alone at the cost ratios of `RATIOS` and of the operating point."""
    judged, point = data.judged, data.point
    need, accept = (data.signal(f"{signal}_fast", "calibrated")[judged] for signal in ("need", "accept"))
    y_accept = data.label("accept")[judged]
    gold = data.label("need")[judged] * y_accept
    weight = acceptance_weight(data.steps)[judged]
    ratios = sorted({*RATIOS, point.c_fn / point.c_fa})
    offers, sums = [], []
    for ratio in ratios:
        c_fn = ratio * point.c_fa
        ours = np.asarray(gate.decide(need, accept, point.c_fa, c_fn), np.float64)
        offers.append(float(ours.mean()))
        for offer in (ours, most_accepted(accept, float(ours.sum()))):
            cost = offer * (point.c_fa * (1 - y_accept)) + (1 - offer) * (c_fn * gold)
            sums.append(np.bincount(data.judged_units, cost * weight))  # only sums by stream are kept
    sums.append(np.bincount(data.judged_units, weight))
    cost, difference, low, high = _means(np.stack(sums, axis=1))
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


def _means(
    sums: Float64[np.ndarray, "streams sums"],
) -> tuple[
    Float64[np.ndarray, "costs"],
    Float64[np.ndarray, "pairs"],
    Float64[np.ndarray, "pairs"],
    Float64[np.ndarray, "pairs"],
]:
    """Mean costs, which come in pairs, the difference of each pair, and its interval.

    Args:
      sums: Weighted sums of each cost by stream, and last the sum of weights.
    """

    def differences(totals: np.ndarray) -> np.ndarray:
        mean = totals[..., :-1] / totals[..., -1:]
        return mean[..., ::2] - mean[..., 1::2]

    total = sums.sum(axis=0)
    cost = total[:-1] / total[-1]
    cells = Cells(sums, np.ones(len(sums), np.int64))
    found = interval(cells, differences, level=LEVEL, resamples=RESAMPLES, seed=SEED)
    return cost, differences(total), np.asarray(found.low), np.asarray(found.high)
