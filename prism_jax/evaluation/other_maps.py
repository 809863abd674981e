"""Whether one temperature loses to Platt's map, or to no map at all."""

from __future__ import annotations

import warnings

from prism_jax.decision.calibration import CalibrationConfig, CalibrationWarning, Temperature
from prism_jax.evaluation import policies, protocol
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.results import Evaluation
from prism_jax.scores import Scores, ScoresError

NOTABLE = 0.02
"""Share of the cost that another map must save on the test steps before it is named."""


def other_maps(scores: Scores, calibration: Calibration, evaluation: Evaluation) -> str:
    """A sentence where the deployed policy costs notably less without a map, or by Platt's.

    A temperature has no bias, so it cannot mend signals that are too high or too low everywhere.

    Args:
      scores: The scores table.
      calibration: Its maps, fitted on its own calibration rows.
      evaluation: Its results by these maps.

    Returns:
      The sentence; empty where nothing costs less, or the maps are others.
    """
    if not isinstance(calibration.accept_fast.map, Temperature):
        return ""
    deployed = evaluation.deployed
    raw = evaluation.policy(deployed.policy, "raw").realised_cost
    others = {"on the raw signals": raw}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        try:
            platt = protocol.calibrate(scores, CalibrationConfig("platt"))
            data, _ = protocol.prepare(scores, platt, evaluation.point)
            row = next(row for row in policies.compare(data) if row.deployed)
            others["with Platt's map (--calibrator=platt)"] = row.realised_cost
        except ScoresError:  # one class in some part: there is no such map
            pass
    less = {name: cost for name, cost in others.items() if cost < (1 - NOTABLE) * deployed.realised_cost}
    if not less:
        return ""
    found = ", ".join(f"{cost:.4f} {name}" for name, cost in less.items())
    return (
        f"One temperature loses on these steps: {policies.ALL_POLICIES[deployed.policy].label} costs "
        f"{deployed.realised_cost:.4f} with it, and {found}. A temperature cannot mend signals that are too "
        "high or too low everywhere."
    )
