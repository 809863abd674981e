"""Every pair of a cost ratio and a slow margin of the paper's grid."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.surface import PAPER_MARGINS
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import heatmaps
from prism_jax.experiments.paper.inference import MEASURES, numbers
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

COSTS = {"1:4": (1.0, 4.0), "1:2": (1.0, 2.0), "1:1": (1.0, 1.0), "1.2:1": (1.2, 1.0)}
"""The paper's pairs C_FA:C_FN."""


class Cell(NamedTuple):
    """One pair of the grid with its operating point and numbers."""

    costs: str
    margin: float
    point: OperatingPoint
    numbers: dict[str, Number]


def grid(study: Study) -> Iterator[Cell]:
    """The numbers of every cell; AUDBC covers all cost ratios, so it depends on the margin only."""
    for costs, (c_fa, c_fn) in COSTS.items():
        for margin in PAPER_MARGINS:
            point = dataclasses.replace(study.point, c_fa=c_fa, c_fn=c_fn, margin=margin)
            data = study.with_slow(point)
            yield Cell(costs, margin, point, numbers(study, data, "slow_on_margin"))


def make(study: Study) -> ExperimentResult:
    """Sweeps both."""
    lines, pairs = [], list(grid(study))
    for cell in pairs:
        name = f"{cell.costs}, {cell.margin:g}"
        lines.append(Line(f"{cell.margin:g}", cells.beside(cell.numbers, references.GRID[name]), cell.costs))
    note = study.note(
        "Sections are C_FA:C_FN, rows the margin. AUDBC sweeps the cost ratio itself, so it depends on the margin only."
    )
    sheet = Sheet("cost_margin_grid", "Cost ratio and slow margin", "margin", MEASURES, tuple(lines), note)

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
