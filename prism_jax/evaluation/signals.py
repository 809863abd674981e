"""Fits the map of each signal, and measures how well the signals are calibrated (docs/maths.md, section 7).

Need belongs to the step and is counted once per step. Acceptance belongs to the offer and is counted once per offer
whose answer was observed, weighted by its clipped inverse propensity if the log records one (docs/maths.md, section 4).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import arrays
from prism_jax.decision import calibration as measures
from prism_jax.decision.passes import Pass
from prism_jax.evaluation.fits import Calibration
from prism_jax.scores import Scores, ScoresError


def check_domains(rows: Scores, config: measures.CalibrationConfig) -> None:
    """Raises ScoresError where the calibrator needs domains that the table does not have."""
    if config.calibrator == "grouped" and rows.domain is None:
        raise ScoresError(
            "found no such column, expected it: the calibrator 'grouped' fits a temperature per domain", "domain"
        )


MOST_LOG_ODDS = 10.0
"""Bound of the log-odds whose moves are measured: a certain probability would otherwise decide the moments alone."""


def passes_of(rows: Scores, fits: Calibration) -> tuple[Pass, Pass, Float64[np.ndarray, "spent"]] | None:
    """Calibrated log-odds of both passes at the steps with slow signals on every candidate, and known slow tokens.

    None where there is no such step, or no map of the slow pass.
    """
    if fits.need_slow is None or fits.accept_slow is None or rows.p_accept_slow is None:
        return None
    step = rows.step_numbers()
    incomplete = np.bincount(step, np.isnan(rows.p_accept_slow))[step] > 0
    if incomplete.all():
        return None
    complete = rows.take(~incomplete)
    tables = {"fast": complete.steps(), "slow": complete.steps("slow")}
    least = 1 / (1 + np.exp(MOST_LOG_ODDS))
    fast, slow = (
        Pass(*(arrays.log_odds(fits.calibrated(signal, name, table), least) for signal in ("need", "accept")))
        for name, table in tables.items()
    )
    spent = tables["slow"].tokens_slow
    return fast, slow, np.zeros(0) if spent is None else spent[~np.isnan(spent)]
