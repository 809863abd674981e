"""Fits the map of each signal, and measures how well the signals are calibrated (docs/maths.md, section 7).

Need belongs to the step and is counted once per step. Acceptance belongs to the offer and is counted once per offer
whose answer was observed, weighted by its clipped inverse propensity if the log records one (docs/maths.md, section 4).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import arrays, thinking
from prism_jax.decision import calibration as measures
from prism_jax.decision.passes import Pass
from prism_jax.evaluation.fits import Calibration, SignalFit, ThinkingFit
from prism_jax.evaluation.rows import Form, SignalRow
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Readings, Signal, Thinking, fit_labelled, read


def check_domains(rows: Scores, config: measures.CalibrationConfig) -> None:
    """Raises ScoresError where the calibrator needs domains that the table does not have."""
    if config.calibrator == "grouped" and rows.domain is None:
        raise ScoresError(
            "found no such column, expected it: the calibrator 'grouped' fits a temperature per domain", "domain"
        )


def fit(rows: Scores, signal: Signal, thinking: Thinking, config: measures.CalibrationConfig) -> SignalFit | None:
    """One signal's map and base rate; None if the scores do not have this pass.

    Raises:
      ScoresError: for labels on which no map can be fitted, or a missing column `domain` for the calibrator `grouped`.

    Warns:
      CalibrationWarning: naming the signal, if a temperature or scale ends at a bound, the map reverses the order, or
        some probabilities are stated as certain.
    """
    readings = read(rows, signal, thinking)
    if np.isnan(readings.p).all():
        return None
    p, y, weight = readings.labelled()
    domain = readings.rows.domain
    check_domains(rows, config)
    count = readings.labels
    domain = None if domain is None else domain[readings.known]
    fitted = fit_labelled(signal, thinking, config, p, y, weight, domain, count, calibrated=rows.calibrated is not None)
    return SignalFit(
        fitted,
        _mean(y, weight),
        count.number,
        count.effective,
        _offer_rate(rows) if signal == "accept" else None,
        count.certain,
    )


MOST_LOG_ODDS = 10.0
"""Bound of the log-odds whose moves are measured: a certain probability would otherwise decide the moments alone."""


def fit_thinking(rows: Scores, fits: Calibration) -> ThinkingFit | None:
    """How far the slow pass moves the calibrated log-odds of a step, and its mean tokens (docs/maths.md, section 12).

    A step's log-odds are those of the candidate that each pass picks, by maps that were fitted on the same rows. Steps
    without slow signals on every candidate are left out; labels are not needed. None without steps or maps.
    """
    both = passes_of(rows, fits)
    if both is None:
        return None
    fast, slow, spent = both
    tokens = float(spent.mean()) if spent.any() else None
    return ThinkingFit(thinking.fit_moves(fast, slow), tokens, len(fast.accept))


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


def _mean(y: Float64[np.ndarray, "n"], weight: Float64[np.ndarray, "n"]) -> float:
    return float(np.average(y, weights=weight))


def _offer_rate(rows: Scores) -> float | None:
    """Weighted acceptance rate of each step's top-ranked candidate; None where no label of one is known."""
    _, y, weight = read(rows.steps(), "accept", "fast").labelled()
    return _mean(y, weight) if len(y) else None


def measure(rows: Scores, signal: Signal, thinking: Thinking, fits: Calibration) -> list[SignalRow]:
    """One signal's raw and calibrated measures; an empty list if no row has a label."""
    raw = read(rows, signal, thinking)
    if len(raw.labelled()[1]) == 0:
        return []
    calibrated = raw._replace(p=fits.calibrated(signal, thinking, raw.rows))
    constant = fits.base_rates(signal, thinking, raw.rows)
    temperature = fits.temperature(signal, thinking)
    words = fits.in_words(signal, thinking) if temperature is None else None
    return [
        _row(signal, thinking, "raw", 1.0, None, raw, constant),
        _row(signal, thinking, "calibrated", temperature, words, calibrated, constant),
    ]


def _row(
    signal: Signal,
    thinking: Thinking,
    form: Form,
    temperature: float | None,
    words: str | None,
    readings: Readings,
    constant: Float64[np.ndarray, "n"],
) -> SignalRow:
    """The measures of one form; distances to the truth are computed only if every row has the signal and the truth."""
    labelled = readings.labelled()
    distance, constant_distance = (
        None if np.isnan(gap).any() else float(gap.mean())
        for gap in (np.abs(readings.p - readings.true), np.abs(constant - readings.true))
    )
    brier = measures.brier_decomposition(*labelled)
    return SignalRow(
        signal=signal,
        thinking=thinking,
        form=form,
        temperature=temperature,
        map=words,
        count=len(labelled[1]),
        ece=float(measures.expected_calibration_error(*labelled)),
        ece_debiased=float(measures.expected_calibration_error(*labelled, debiased=True)),
        brier=float(measures.brier_score(*labelled)),
        miscalibration=brier.miscalibration,
        discrimination=brier.discrimination,
        uncertainty=brier.uncertainty,
        nll=float(measures.negative_log_likelihood(*labelled)),
        distance=distance,
        constant_distance=constant_distance,
        reliability=measures.reliability_curve(*labelled),
    )
