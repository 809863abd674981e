"""Whether one temperature loses to Platt's map, or to no map at all."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.calibration import CalibrationConfig, CalibrationWarning, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Cells, Resampled
from prism_jax.evaluation import policy_rows, protocol
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.intervals import paired_costs
from prism_jax.evaluation.need import with_need
from prism_jax.evaluation.rows import Form
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import acceptance_weight

RAW, PLATT = "on the raw signals", "with Platt's map (--calibrator=platt)"
NOTABLE = 0.02
"""Share of the cost that another map must save on the test steps before it is named."""


def other_maps(
    scores: Scores, calibration: Calibration, point: OperatingPoint, prepared: protocol.Prepared | None = None
) -> str:
    """A sentence where the deployed policy costs notably less without a map, or by Platt's, else an empty text.

    A temperature has no bias, so it cannot mend signals that are too high or too low everywhere. What costs less only
    by chance is not named: the interval of the paired difference over streams has to lie above 0. `calibration` was
    fitted on the table's own calibration rows. The text is empty also where the maps are no temperatures. `prepared` is
    what `protocol.prepare` gives of the same arguments, where it is known.
    """
    if not isinstance(calibration.accept_fast.map, Temperature):
        return ""
    data, _ = protocol.prepare(scores, calibration, point) if prepared is None else prepared
    alternatives = {RAW: costs_by_unit(data, "raw")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        try:
            platt = protocol.calibrate(scores, CalibrationConfig("platt"))
            mended = dataclasses.replace(data, fits=with_need(scores, platt)[1])
            alternatives[PLATT] = costs_by_unit(mended, "calibrated")
        except ScoresError:  # one class in some part: there is no such map
            pass
    ours = costs_by_unit(data, "calibrated")
    sums = [part for alternative in alternatives.values() for part in (ours, alternative)]
    weight = np.bincount(data.judged_units, acceptance_weight(data.steps)[data.judged])
    cells = Cells.of_units(np.stack([*sums, weight], axis=1))
    return in_words(list(alternatives), cells, data.deployed())


def in_words(alternatives: Sequence[str], cells: Cells | Resampled, deployed: str) -> str:
    """The sentence about alternatives that cost notably less.

    The columns of `cells` are the weighted costs of the calibrated signals and of the first alternative, then those of
    the next pair, and last the weights.
    """
    cost, saved, low, high = paired_costs(cells)
    less = [
        f"{cost[2 * i + 1]:.4f} {name}, less by {saved[i]:.4f} [{low[i]:.4f}, {high[i]:.4f}]"
        for i, name in enumerate(alternatives)
        if low[i] > 0 and saved[i] > NOTABLE * cost[0]
    ]
    if not less:
        return ""
    return (
        f"One temperature loses on these steps: {policy_rows.ALL_POLICIES[deployed].label} costs "
        f"{cost[0]:.4f} with it, and {'; '.join(less)}. A temperature cannot mend signals that are too high or too low "
        "everywhere. A map that is chosen by this comparison should be measured on other steps."
    )


def costs_by_unit(data: policy_rows.EvaluationData, form: Form) -> Float64[np.ndarray, "units"]:
    """The weighted sum of the deployed policy's costs in each unit."""
    cost = data.costs(data.decide(data.deployed(), form))[data.judged]
    return np.bincount(data.judged_units, cost * acceptance_weight(data.steps)[data.judged])
