"""The one door through which a table without need enters evaluation: need is taken as certain.

A log of answers to offers knows nothing of need. With p_need = 1 and y_need = 1 at every step, each formula of
evaluation is that of acceptance alone: the gate (1 - p_accept) C_FA <= p_accept C_FN, gold = accepted, and a miss is an
offer that was not made and would have been accepted. So nothing behind this door asks whether there is need, except
to leave out by name what would only measure a constant.
"""

from __future__ import annotations

import dataclasses

from prism_jax.decision.calibration import Temperature
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.scores import Scores, ScoresError


def check_need(scores: Scores) -> None:
    """Checks that a table has both p_need_fast and y_need, or neither.

    Raises:
      ScoresError: if it has p_need_fast alone; the other case is no scores table.
    """
    if scores.has_need and scores.y_need is None:
        raise ScoresError(
            "found no such column beside p_need_fast, expected both, or neither, which evaluates p_accept alone",
            "y_need",
        )


def with_need(scores: Scores, calibration: Calibration) -> tuple[Scores, Calibration]:
    """The table and its calibration as the formulas take them: as they are, or with certain need.

    Maps of need are not used where the table has no need.

    Raises:
      ScoresError: as `check_need`.
    """
    check_need(scores)
    if scores.has_need:
        return scores, calibration
    return scores.with_certain_need(), certain_need(calibration)


def certain_need(calibration: Calibration) -> Calibration:
    """The calibration with maps of need that leave a p_need of 1 as it is."""
    fast, slow = calibration.accept_fast, calibration.accept_slow
    return dataclasses.replace(
        calibration,
        need_fast=_like(fast),
        need_slow=None if slow is None else _like(slow),
        need_target="marginal",
        folds={fold: certain_need(fits) for fold, fits in calibration.folds.items()},
    )


def _like(fit: SignalFit) -> SignalFit:
    return SignalFit(Temperature(1.0), 1.0, fit.count, fit.effective_count)
