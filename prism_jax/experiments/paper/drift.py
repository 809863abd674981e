"""What happens to the gate if its calibration drifts: rescaled signals and a shifted threshold."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.decision import calibration, drift
from prism_jax.decision.passes import Pass
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.ratios import Sweep
from prism_jax.experiments.paper import cells, methods, references
from prism_jax.experiments.paper.drawing import heatmaps
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study
from prism_jax.experiments.paper.tallies import Gathered, Tally, Units
from prism_jax.training.pathway_config import Method

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
    data, tally, lines = study.at(), study.tally, []
    flips = _flips(tally, data)
    for temperature, epsilon in drift.PAPER_GRID:
        name = f"T = {temperature:g}, ε = {epsilon:g}".replace("-", "−")
        decide = functools.partial(_decide, data, temperature, epsilon)
        decisions = cells.Decisions(cells.name_of(data, "drift", temperature, epsilon), data, decide)
        values = cells.rates(tally, decisions) | {
            **_areas(tally, decisions, temperature, epsilon, study.method),
            "cost": cells.cost(tally, decisions),
            "flip_rate": Number(flips[temperature, epsilon]),
        }
        kind = "baseline" if epsilon == 0 and temperature == 1 else "moderate" if abs(epsilon) < 0.3 else "extreme"
        lines.append(Line(name, cells.beside(values, references.DRIFT[name]), kind))
    note = study.note(
        "Signals become sigmoid(logit(p) / T), and the threshold is lowered by ε.",
    )
    words = "The paper's baseline is its uncalibrated student, ours the calibrated one."
    sheet = Sheet("drift", "Drift of the calibration", "drift", MEASURES, tuple(lines), note, of_paper=words)
    rows, columns = ([f"{value:g}" for value in axis] for axis in (TEMPERATURES, SHIFTS))
    shares = np.array([[100 * flips[temperature, epsilon] for epsilon in SHIFTS] for temperature in TEMPERATURES])
    grids = {"decisions that flip (%)": shares}
    return ExperimentResult((sheet,), lambda figure: heatmaps(figure, grids, rows, columns, ("T", "ε")))


def _decide(data: EvaluationData, temperature: float, epsilon: float) -> Decided:
    signals = data.signals("fast", "calibrated")
    offer = np.asarray(drift.decide(*signals, data.point.c_fa, data.point.c_fn, temperature, epsilon))
    return Decided(offer, np.zeros(len(data.steps), bool))  # the slow pass never runs


def _flips(tally: Tally, data: EvaluationData) -> dict[tuple[float, float], float]:
    """The share of all steps whose decision differs from the baseline's, by temperature and shift."""
    pairs = list(itertools.product(TEMPERATURES, SHIFTS))

    def gather() -> Gathered:
        own = _decide(data, 1.0, 0.0).offer
        flips = [np.count_nonzero(_decide(data, *pair).offer != own) for pair in pairs]
        return Gathered({}, {"flips": np.array(flips), "steps": len(own)})

    def shares(_: Units, totals: Mapping[str, Any]) -> dict[tuple[float, float], float]:
        return dict(zip(pairs, (totals["flips"] / totals["steps"]).tolist(), strict=True))

    return tally.number(cells.name_of(data, "flips"), data, gather, shares) or dict.fromkeys(pairs, math.nan)


def _areas(tally: Tally, of: cells.Decisions, temperature: float, epsilon: float, method: Method) -> dict[str, Number]:
    """AUDBC of the drifted gate: it ranks steps by p_accept,T + ε, within [0, 1], in place of p_accept.

    A step whose p_accept or p_need is 0 stays silent at every cost ratio under any drift, as in `drift.decide`.
    """
    data = of.data

    def drifted() -> Pass:
        return Pass(*(calibration.apply_temperature(p, temperature) for p in data.signals("fast", "calibrated")))

    def sweep() -> Sweep:
        judged = data.judged
        need, accept = (np.asarray(p)[judged] for p in drifted())
        shifted = np.where(accept * need > 0, np.clip(accept + epsilon, 0.0, 1.0), 0.0)
        best = data.best_accept[judged] if data.whole.several_candidates else None
        y_need, y_accept = data.label("need")[judged], data.label("accept")[judged]
        return Sweep("dynamic", Pass(need, shifted), y_need, y_accept, {}, None, best)

    ours = {"audbc": tally.area(of.name, data, sweep)}
    if method == "corrected":
        return ours
    return ours | methods.printed(tally, data, of.name, lambda at: _decide(at, temperature, epsilon), drifted, epsilon)
