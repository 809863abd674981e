"""The temperatures of the signals, and how well they are calibrated (docs/maths.md, section 7).

Need belongs to the step and is counted once per step. Acceptance belongs to the offer and is counted once per offer
whose answer was observed, weighted by its clipped inverse propensity if the log records one (docs/maths.md, section 4).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import calibration as measures
from prism_jax.decision.losses import propensity_weight
from prism_jax.evaluation.results import Calibration, Form, Signal, SignalFit, SignalRow, Thinking
from prism_jax.scores import Scores, ScoresError


def acceptance_weight(scores: Scores) -> Float64[np.ndarray, "rows"]:
    """The weight of each row's acceptance label: clipped 1 / e if the logging policy made the offer, else 1."""
    weight = np.ones(len(scores))
    if scores.logged is not None and scores.propensity is not None:
        offered = (scores.logged == 1) & ~np.isnan(scores.propensity)
        weight[offered] = propensity_weight(scores.logged[offered], scores.propensity[offered])
    return weight


def effective_count(weight: Float64[np.ndarray, "rows"]) -> float:
    """Kish's effective sample size (sum w)^2 / sum w^2."""
    return float(weight.sum() ** 2 / (weight**2).sum())


class Readings(NamedTuple):
    """One signal on its own rows: steps for need, offers for acceptance.

    Attributes:
      p: Raw probabilities, NaN where the pass did not run.
      y: Labels, NaN where unknown.
      true: The simulator's true probabilities, NaN where unknown.
      weight: Weights of the labels.
    """

    p: Float64[np.ndarray, "n"]
    y: Float64[np.ndarray, "n"]
    true: Float64[np.ndarray, "n"]
    weight: Float64[np.ndarray, "n"]

    def labelled(self) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "k"], Float64[np.ndarray, "k"]]:
        """Probability, label and weight of the rows whose probability and label are known."""
        known = ~np.isnan(self.p) & ~np.isnan(self.y)
        return self.p[known], self.y[known], self.weight[known]


def read(rows: Scores, signal: Signal, thinking: Thinking) -> Readings:
    """One signal of some rows; a column that is not in the table is NaN everywhere."""
    table = rows.steps() if signal == "need" else rows
    unknown = np.full(len(table), np.nan)
    columns = (getattr(table, name) for name in (f"p_{signal}_{thinking}", f"y_{signal}", f"p_{signal}_true"))
    p, y, true = (unknown if column is None else column for column in columns)
    return Readings(p, y, true, np.ones(len(table)) if signal == "need" else acceptance_weight(table))


def fit(rows: Scores, signal: Signal, thinking: Thinking) -> SignalFit | None:
    """One signal's temperature and base rate; None if the scores do not have this pass.

    Raises:
      ScoresError: for labels on which no temperature can be fitted.

    Warns:
      CalibrationWarning: naming the signal, if its temperature ends at a bound.
    """
    readings = read(rows, signal, thinking)
    if np.isnan(readings.p).all():
        return None
    p, y, weight = readings.labelled()
    if len(y) == 0:
        raise ScoresError("found no label on the calibration split, expected some of both classes", f"y_{signal}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", measures.CalibrationWarning)
        try:
            temperature = measures.fit_temperature(p, y, weight)
        except ValueError as error:
            raise ScoresError(f"cannot calibrate p_{signal}_{thinking}: {error}", f"y_{signal}") from None
    for warning in caught:
        warnings.warn(f"p_{signal}_{thinking}: {warning.message}", warning.category, stacklevel=2)
    return SignalFit(temperature, float(np.average(y, weights=weight)), len(y), effective_count(weight))


def measure(rows: Scores, signal: Signal, thinking: Thinking, fits: Calibration) -> list[SignalRow]:
    """One signal's raw and calibrated measures; an empty list if no row has a label."""
    raw = read(rows, signal, thinking)
    if len(raw.labelled()[1]) == 0:
        return []
    one = fits.fit(signal, thinking)
    ran = ~np.isnan(raw.p)
    calibrated = np.full_like(raw.p, np.nan)
    calibrated[ran] = measures.apply_temperature(raw.p[ran], one.temperature)
    return [
        _row(signal, thinking, "raw", 1.0, raw, one.base_rate),
        _row(signal, thinking, "calibrated", one.temperature, raw._replace(p=calibrated), one.base_rate),
    ]


def _row(
    signal: Signal, thinking: Thinking, form: Form, temperature: float, readings: Readings, base_rate: float
) -> SignalRow:
    """The measures of one form; distances to the truth are computed only if every row has the signal and the truth."""
    labelled = readings.labelled()
    distance, constant_distance = (
        None if np.isnan(gap).any() else float(gap.mean())
        for gap in (np.abs(readings.p - readings.true), np.abs(base_rate - readings.true))
    )
    return SignalRow(
        signal=signal,
        thinking=thinking,
        form=form,
        temperature=temperature,
        count=len(labelled[1]),
        ece=float(measures.expected_calibration_error(*labelled)),
        brier=float(measures.brier_score(*labelled)),
        nll=float(measures.negative_log_likelihood(*labelled)),
        distance=distance,
        constant_distance=constant_distance,
        reliability=measures.reliability_curve(*labelled),
    )
