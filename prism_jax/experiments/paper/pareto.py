"""Quality against tokens over the paper's grid of cost ratios and margins, with the efficient frontier marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prism_jax.experiments.paper import cells
from prism_jax.experiments.paper.cost_margin_grid import Cell, grid
from prism_jax.experiments.paper.drawing import legend_outside
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study

MEASURES = {
    **cells.TOKENS,
    **cells.SLOW,
    **cells.AREA,
    "f1": cells.RATES["f1"],
    **cells.COST,
    "frontier": Measure("frontier", "Whether no other row is at least as good in both axes, and better in one."),
}


def make(study: Study) -> ExperimentResult:
    """AUDBC against mean tokens per step, which a scores file has, in place of the paper's latency."""
    if study.scores.tokens_fast is None or study.scores.tokens_slow is None:
        missing = "tokens_fast" if study.scores.tokens_fast is None else "tokens_slow"
        raise SkippedError(f"tokens: there is no column {missing}")
    pairs = list(grid(study))
    efficient = frontier([(cell.numbers["tokens"].value, cell.numbers["audbc"].value) for cell in pairs])
    lines = tuple(_line(cell, mark) for cell, mark in zip(pairs, efficient, strict=True))
    note = study.note("Rows are C_FA:C_FN and the margin.")
    sheet = Sheet("pareto", "AUDBC against tokens", "costs and margin", MEASURES, lines, note)
    return ExperimentResult((sheet,), lambda figure: draw(figure, lines, "tokens", "tokens per step"))


def frontier(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which points (burden, quality) are efficient: no other one is at least as good in both and better in one."""
    return [
        not any(x <= burden and y >= quality and (x < burden or y > quality) for x, y in points)
        for burden, quality in points
    ]


def _line(cell: Cell, efficient: bool) -> Line:
    numbers: dict[str, Number | str] = {key: cell.numbers[key] for key in MEASURES if key in cell.numbers}
    name = f"{cell.costs}, {cell.margin:g}"
    return Line(name, numbers | {"frontier": "yes" if efficient else "no"}, strong=efficient)


def draw(figure: Any, lines: Sequence[Line], key: str, label: str) -> None:
    """Every row as a point, and a line through the efficient ones, which are named."""
    axes = figure.subplots()
    points = [(_value(line, key), _value(line, "audbc"), line) for line in lines]
    axes.scatter([x for x, _, _ in points], [100 * y for _, y, _ in points], color="#7a7a7a", s=14, label="other rows")
    best = sorted((x, 100 * y) for x, y, line in points if line.strong)
    axes.plot(
        [x for x, _ in best], [y for _, y in best], "-o", color="#1f5f8b", label="frontier, by C_FA:C_FN and margin"
    )
    named = {(x, y): line.name for x, y, line in points if line.strong}
    for (x, y), name in named.items():
        axes.annotate(name, (x, 100 * y), fontsize=6, xytext=(2, 3), textcoords="offset points")
    axes.set_xlabel(label)
    axes.set_ylabel("AUDBC (%)")
    axes.grid(alpha=0.3)
    legend_outside(figure, axes)


def _value(line: Line, key: str) -> float:
    cell = line.cells[key]
    assert isinstance(cell, Number), "tokens, latency and areas are numbers"
    return cell.value
