"""AUDBC against seconds over the paper's grid of cost ratios and margins: the twin of `pareto`, which counts tokens."""

from __future__ import annotations

from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.cost_margin_grid import grid
from prism_jax.experiments.paper.latency import SECONDS, spent, summary
from prism_jax.experiments.paper.pareto import MEASURES as BY_TOKENS
from prism_jax.experiments.paper.pareto import draw, frontier
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study

MEASURES = {name: SECONDS[name] for name in ("mean", "p95")} | {
    name: measure for name, measure in BY_TOKENS.items() if name != "tokens"
}


def make(study: Study) -> ExperimentResult:
    """Every cell of the grid; the frontier is that of mean seconds, as percentiles only show which pass is slower."""
    if not study.with_slow().judged.any():
        raise SkippedError("labels: found no step with both, expected them in the streams, or in --scores")
    measured, rows = study.timing(), []
    for cell in grid(study):
        data = study.with_slow(cell.point)
        seconds, _ = spent(measured, data, data.decide("slow_on_margin", "calibrated"))
        rows.append((f"{cell.costs}, {cell.margin:g}", summary(seconds) | cell.numbers))
    efficient = frontier([(numbers["mean"].value, numbers["audbc"].value) for _, numbers in rows])
    lines = tuple(_line(name, numbers, mark) for (name, numbers), mark in zip(rows, efficient, strict=True))
    note = study.note("Rows are C_FA:C_FN and the margin. Seconds differ between calls and machines.")
    words = "The paper draws the 95th percentile; where more than 5 % of the steps think, that is the slow pass's."
    sheet = Sheet("latency_pareto", "AUDBC against seconds", "costs and margin", MEASURES, lines, note, of_paper=words)
    return ExperimentResult((sheet,), lambda figure: draw(figure, lines, "mean", "mean seconds per step"))


def _line(name: str, numbers: dict[str, Number], efficient: bool) -> Line:
    kept: dict[str, Number | str] = {key: numbers[key] for key in MEASURES if key in numbers}
    printed = {"p95": references.GRID[name]["latency"], "audbc": references.GRID[name]["audbc"]}
    return Line(name, cells.beside(kept, printed) | {"frontier": "yes" if efficient else "no"}, strong=efficient)
