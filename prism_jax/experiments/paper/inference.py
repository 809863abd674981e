"""Which pass decides, and at which costs: ablation B, and the deployed policy by slow margin and by cost ratio."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.surface import PAPER_MARGINS
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.experiments.paper import cells, methods, references
from prism_jax.experiments.paper.drawing import bars, curves, heatmaps
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

STRATEGIES = {"fast only": "dynamic", "slow only": "slow_only", "slow on margin": "slow_on_margin"}
MEASURES = {**cells.RATES, **cells.AREA, **cells.COST, **cells.SLOW, **cells.TOKENS}
MARGINS = (*PAPER_MARGINS, 0.2, 0.3, 0.5, 1.0)
COSTS = {"1:4": (1.0, 4.0), "1:2": (1.0, 2.0), "1:1": (1.0, 1.0), "1.2:1": (1.2, 1.0)}
"""The paper's pairs C_FA:C_FN."""


class Cell(NamedTuple):
    """One pair of a cost ratio and a slow margin with its operating point and numbers."""

    costs: str
    margin: float
    point: OperatingPoint
    numbers: dict[str, Number]

    @property
    def name(self) -> str:
        """The pair, as `references.GRID` names it."""
        return f"{self.costs}, {self.margin:g}"


def numbers(study: Study, data: EvaluationData, policy: str) -> dict[str, Number]:
    """The numbers of a policy on calibrated signals: rates, AUDBC, cost, slow rate and tokens."""
    tally, decisions = study.tally, cells.decisions(data, policy, "calibrated")
    return {
        **cells.rates(tally, decisions),
        **methods.areas(tally, data, policy, "calibrated", study.method),
        "cost": cells.cost(tally, decisions),
        "slow_rate": cells.slow_rate(tally, decisions),
        "tokens": cells.tokens(tally, decisions),
    }


def grid(study: Study) -> Iterator[Cell]:
    """The numbers of every cell of the paper's grid; AUDBC covers all cost ratios, so it depends on the margin only."""
    for costs, (c_fa, c_fn) in COSTS.items():
        for margin in PAPER_MARGINS:
            point = dataclasses.replace(study.point, c_fa=c_fa, c_fn=c_fn, margin=margin)
            yield Cell(costs, margin, point, numbers(study, study.with_slow(point), "slow_on_margin"))


def make(study: Study) -> ExperimentResult:
    """Compares the three strategies at the operating point, on calibrated signals."""
    data = study.with_slow()
    lines = tuple(
        Line(name, cells.beside(numbers(study, data, policy), references.INFERENCE[name]))
        for name, policy in STRATEGIES.items()
    )
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}, margin {study.point.margin:g}.",
    )
    words = "The paper's AUDBC is another area, and its tokens are those of an 8B model's prompt."
    sheet = Sheet("inference", "Ablation B: inference strategy", "strategy", MEASURES, lines, note, of_paper=words)
    last = "cost" if study.scores.tokens_slow is None else "tokens"
    shown = {key: MEASURES[key] for key in ("f1", "audbc", last)}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def by_margin(study: Study) -> ExperimentResult:
    """Sweeps the margin at the study's costs, from the fast pass alone to the slow pass at every step."""
    study.with_slow()
    lines = []
    for margin in MARGINS:
        data = study.with_slow(dataclasses.replace(study.point, margin=margin))
        values = numbers(study, data, "slow_on_margin")
        lines.append(Line(f"{margin:g}", cells.beside(values, references.MARGINS.get(f"{margin:g}"))))
    note = study.note(
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}; 0 is the fast pass alone, 1 the slow pass alone."
    )
    sheet = Sheet("margin_sweep", "Sensitivity to the slow margin δ", "margin", MEASURES, tuple(lines), note)
    last = "tokens" if study.scores.tokens_slow is not None else "slow_rate"
    shown = {key: MEASURES[key] for key in ("audbc", "false_alarm", last)}
    drawn = [line for line in lines if float(line.name) <= 0.5]
    x = [float(line.name) for line in drawn]
    return ExperimentResult((sheet,), lambda figure: curves(figure, x, {"ours": drawn}, shown, "margin δ"))


def by_costs(study: Study) -> ExperimentResult:
    """Sweeps the costs at the study's margin, without retraining; without a slow pass, on the fast pass alone."""
    lines = []
    policy = "slow_on_margin" if study.at().slow else "dynamic"
    for costs, (c_fa, c_fn) in COSTS.items():
        data = study.at(dataclasses.replace(study.point, c_fa=c_fa, c_fn=c_fn))
        values = numbers(study, data, policy)
        lines.append(Line(costs, cells.beside(values, references.COSTS[costs])))
    margin = f"Margin {study.point.margin:g}." if policy == "slow_on_margin" else "No slow pass."
    note = study.note(margin, "AUDBC sweeps the cost ratio itself, so it is the same in every row.")
    sheet = Sheet("cost_sensitivity", "Sensitivity to costs", "C_FA:C_FN", MEASURES, tuple(lines), note)
    shown = {key: MEASURES[key] for key in ("recall", "precision", "slow_rate")}
    x = [c_fn / c_fa for c_fa, c_fn in COSTS.values()]
    return ExperimentResult((sheet,), lambda figure: curves(figure, x, {"ours": lines}, shown, "C_FN / C_FA"))


def by_costs_and_margin(study: Study) -> ExperimentResult:
    """Sweeps both over the paper's grid."""
    pairs = list(grid(study))
    lines = tuple(
        Line(f"{cell.margin:g}", cells.beside(cell.numbers, references.GRID[cell.name]), cell.costs) for cell in pairs
    )
    note = study.note(
        "Sections are C_FA:C_FN, rows the margin. AUDBC sweeps the cost ratio itself, so it depends on the margin only."
    )
    sheet = Sheet("cost_margin_grid", "Cost ratio and slow margin", "margin", MEASURES, lines, note)

    def of(key: str) -> np.ndarray:
        values = [cell.numbers[key].value for cell in pairs]
        return 100 * np.array(values).reshape(len(COSTS), len(PAPER_MARGINS))

    grids = {"F1 (%)": of("f1"), "false alarm (%)": of("false_alarm"), "slow rate (%)": of("slow_rate")}
    grids = {title: values for title, values in grids.items() if not math.isnan(float(values.sum()))}
    margins = [f"{margin:g}" for margin in PAPER_MARGINS]
    labels = ("C_FA:C_FN", "margin δ")
    return ExperimentResult(
        (sheet,), (lambda figure: heatmaps(figure, grids, list(COSTS), margins, labels)) if grids else None
    )
