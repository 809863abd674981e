"""What happens to the gate if its calibration drifts: rescaled signals and a shifted threshold."""

from __future__ import annotations

import itertools

import numpy as np

from prism_jax.decision import calibration, drift
from prism_jax.decision.audbc import audbc
from prism_jax.decision.passes import Pass
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import heatmaps
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, IntervalSettings, Study
from prism_jax.scores.labels import acceptance_weight

MEASURES = {
    **cells.RATES,
    **cells.AREA,
    **cells.COST,
    "flip_rate": Measure("flip rate", "Share of all steps whose decision differs from the baseline's.", "%", 2),
}
TEMPERATURES = (0.5, 0.75, 1.0, 1.25, 1.5)
SHIFTS = (-0.3, -0.15, 0.0, 0.15, 0.3)
"""The grid of the figure, which holds the pairs of the paper's table."""


def make(study: Study) -> ExperimentResult:
    """The paper's scenarios, around the gate on the calibrated signals of the fast pass."""
    data, lines = study.at(), []
    decisions = {pair: _decide(data, *pair) for pair in itertools.product(TEMPERATURES, SHIFTS)}
    flips = {pair: float((offer != decisions[1.0, 0.0]).mean()) for pair, offer in decisions.items()}
    for temperature, epsilon in drift.PAPER_GRID:
        name = f"T = {temperature:g}, ε = {epsilon:g}".replace("-", "−")
        decided = Decided(decisions[temperature, epsilon], np.zeros(len(data.steps), bool))
        values = cells.rates(data, decided, study.settings) | {
            "audbc": _area(data, temperature, epsilon, study.settings),
            "cost": cells.cost(data, decided, study.settings),
            "flip_rate": Number(flips[temperature, epsilon]),
        }
        kind = "baseline" if epsilon == 0 and temperature == 1 else "moderate" if abs(epsilon) < 0.3 else "extreme"
        lines.append(Line(name, cells.beside(values, references.DRIFT[name]), kind))
    note = study.note(
        "Signals become sigmoid(logit(p) / T), and the threshold is lowered by ε.",
        "The paper's baseline is its uncalibrated student, ours the calibrated one.",
    )
    sheet = Sheet("drift", "Drift of the calibration", "drift", MEASURES, tuple(lines), note)
    rows, columns = ([f"{value:g}" for value in axis] for axis in (TEMPERATURES, SHIFTS))
    shares = np.array([[100 * flips[temperature, epsilon] for epsilon in SHIFTS] for temperature in TEMPERATURES])
    grids = {"decisions that flip (%)": shares}
    return ExperimentResult((sheet,), lambda figure: heatmaps(figure, grids, rows, columns, ("T", "ε")))


def _signals(data: EvaluationData) -> Pass:
    return data.signals("fast", "calibrated")


def _decide(data: EvaluationData, temperature: float, epsilon: float) -> np.ndarray:
    return np.asarray(drift.decide(*_signals(data), data.point.c_fa, data.point.c_fn, temperature, epsilon))


def _area(data: EvaluationData, temperature: float, epsilon: float, settings: IntervalSettings) -> Number:
    """AUDBC of the drifted gate: it ranks steps by p_accept,T + ε, within [0, 1], in place of p_accept.

    A step whose p_accept or p_need is 0 stays silent at every cost ratio under any drift, as in `drift.decide`.
    """
    judged = data.judged
    need, accept = (
        np.asarray(calibration.apply_temperature(p, temperature))[judged] for p in data.signals("fast", "calibrated")
    )
    shifted = np.where(accept * need > 0, np.clip(accept + epsilon, 0.0, 1.0), 0.0)
    gold, best = (data.label("need") * data.label("accept"))[judged], data.missed[judged]
    streams = data.judged_units
    if not (cells.hard(gold) and cells.hard(best) and best.any()):
        return Number()
    weight, several = acceptance_weight(data.steps)[judged], best if data.several_candidates else None
    measured = audbc(Pass(need, shifted), gold, y_best=several, streams=streams, weight=weight, **settings.keywords())
    return Number(measured.value, measured.low, measured.high)
