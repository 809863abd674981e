"""Quality against tokens or seconds over the paper's grid of cost ratios and margins, with the efficient frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import legend_outside
from prism_jax.experiments.paper.inference import grid
from prism_jax.experiments.paper.latency import SECONDS, spent, summary
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, SkippedError, Study

_QUALITY = {
    **cells.SLOW,
    **cells.AREA,
    "f1": cells.RATES["f1"],
    **cells.COST,
    "frontier": Measure("frontier", "Whether no other row is at least as good in both axes, and better in one."),
}
BY_TOKENS = cells.TOKENS | _QUALITY
BY_SECONDS = {name: SECONDS[name] for name in ("mean", "p95")} | _QUALITY
_ROWS = "Rows are C_FA:C_FN and the margin."


def by_tokens(study: Study) -> ExperimentResult:
    """AUDBC against mean tokens per step, which a scores file has, in place of the paper's latency."""
    if study.scores.tokens_fast is None or study.scores.tokens_slow is None:
        missing = "tokens_fast" if study.scores.tokens_fast is None else "tokens_slow"
        raise SkippedError(f"tokens: there is no column {missing}")
    lines = _lines({cell.name: cell.numbers for cell in grid(study)}, "tokens", BY_TOKENS)
    sheet = Sheet("pareto", "AUDBC against tokens", "costs and margin", BY_TOKENS, lines, study.note(_ROWS))
    return ExperimentResult((sheet,), lambda figure: draw(figure, lines, "tokens", "tokens per step"))


def by_seconds(study: Study) -> ExperimentResult:
    """AUDBC against mean seconds, whose frontier is marked, as percentiles only show which pass is slower."""
    if not study.with_slow().judged.any():
        raise SkippedError("labels: found no step with both, expected them in the streams, or in --scores")
    measured, rows = study.timing(), {}
    for cell in grid(study):
        data = study.with_slow(cell.point)
        seconds, _ = spent(measured, data, data.decide("slow_on_margin", "calibrated"))
        rows[cell.name] = summary(seconds) | cell.numbers
    printed = {name: {"p95": of["latency"], "audbc": of["audbc"]} for name, of in references.GRID.items()}
    lines = _lines(rows, "mean", BY_SECONDS, printed)
    note = study.note(_ROWS, "Seconds differ between calls and machines.")
    words = "The paper draws the 95th percentile; where more than 5 % of the steps think, that is the slow pass's."
    sheet = Sheet("latency_pareto", "AUDBC against seconds", "costs and margin", BY_SECONDS, lines, note, words)
    return ExperimentResult((sheet,), lambda figure: draw(figure, lines, "mean", "mean seconds per step"))


def frontier(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which points (burden, quality) are efficient: no other one is at least as good in both and better in one.

    A point whose quality is not known is not.
    """
    return [
        not math.isnan(quality)
        and not any(x <= burden and y >= quality and (x < burden or y > quality) for x, y in points)
        for burden, quality in points
    ]


def _lines(
    rows: Mapping[str, Mapping[str, Number]],
    burden: str,
    measures: Mapping[str, Measure],
    printed: Mapping[str, Mapping[str, float]] | None = None,
) -> tuple[Line, ...]:
    """The rows by name, with the efficient ones marked, and numbers of the paper where they are given."""
    efficient = frontier([(numbers[burden].value, numbers["audbc"].value) for numbers in rows.values()])
    lines = []
    for (name, numbers), mark in zip(rows.items(), efficient, strict=True):
        kept = {key: numbers[key] for key in measures if key in numbers}
        of_row = cells.beside(kept, None if printed is None else printed[name])
        lines.append(Line(name, of_row | {"frontier": "yes" if mark else "no"}, strong=mark))
    return tuple(lines)


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
