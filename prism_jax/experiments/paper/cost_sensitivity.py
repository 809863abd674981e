"""How the deployed policy answers to the cost ratio, without retraining."""

from __future__ import annotations

import dataclasses

from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.cost_margin_grid import COSTS
from prism_jax.experiments.paper.drawing import curves
from prism_jax.experiments.paper.inference import MEASURES, numbers
from prism_jax.experiments.paper.sheet import Line, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study


def make(study: Study) -> ExperimentResult:
    """Sweeps the costs at the study's margin; without a slow pass, on the fast pass alone."""
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
