"""The tables and the figure of the field."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from prism_jax.decision.uncertainty import SHARE, mean_interval
from prism_jax.evaluation.replay import RATIOS
from prism_jax.experiments.field.interface import Baseline
from prism_jax.experiments.field.material import Material
from prism_jax.experiments.field.measures import (
    SIGNALS,
    constants,
    cost_of,
    gated,
    realised,
    second_signal,
    signal_of,
    steps_of,
)
from prism_jax.experiments.field.running import Cell, Flips, Moved, misfit
from prism_jax.experiments.ranking import MEASURES, Ranked, ece_of_exact, intervals
from prism_jax.report.numbers import percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units

TITLES = {"accept": "Acceptance of an offer", "need": "Need at a step"}
MIDDLE = 2.0
"""C_FN / C_FA of the figure and of transfer."""


def columns_of(unit: str) -> tuple[Column, ...]:
    """Headings of `MEASURES`, where intervals are over streams or people."""
    return (
        Column("AUROC, pooled", "Over all pairs of a positive and a negative label."),
        Column(f"AUROC, within {unit}", f"Over the pairs of the same {'person' if unit == 'people' else 'stream'}."),
        Column("Brier", "Mean of (p − y)² of the calibrated signal."),
        Column("ECE", "Expected calibration error of the calibrated signal, 15 bins of equal width."),
    )


def ratio_in_words(ratio: float) -> str:
    """C_FA : C_FN, such as 1:4."""
    return f"1:{ratio:g}" if ratio >= 1 else f"{1 / ratio:g}:1"


def fits(baselines: Sequence[Baseline], materials: Sequence[Material]) -> Table:
    """What each baseline gives, on which source it runs, and why not."""
    columns = tuple(Column(material.name, f"{len(material.units)} units", text=True) for material in materials)
    rows = tuple(
        Row(baseline.label, (baseline.gives, *(misfit(baseline, material) or "yes" for material in materials)))
        for baseline in baselines
    )
    return Table("Which baseline fits which source", "", (Column("gives", text=True), *columns), (Section("", rows),))


def quality(cells: Sequence[Cell], resamples: int) -> Table | None:
    """Ranking and calibration of every baseline's signals on one source; None where all of them decide."""
    scored = [cell for cell in cells if cell.folds]
    sections, units, unit = [], 0, cells[0].unit
    for signal in SIGNALS:
        rows = []
        for cell in scored:
            if signal == "need" and not cell.folds[0].scores.has_need:
                continue
            ranked = signal_of(cell.folds, signal)
            measured = intervals(ranked, resamples=resamples)
            units = max(units, len(np.unique(ranked.stream)))
            cells_of_row = tuple(show_estimate(measured[name]) for name in MEASURES)
            rows.append(Row(cell.baseline.label, (f"{len(ranked.y):,}", percent(ranked.y.mean()), *cells_of_row)))
        if rows:
            sections.append(Section(TITLES[signal], tuple(rows)))
    if not sections:
        return None
    columns = (Column("labels"), Column("positive", "Share of labels that are 1.", "%"), *columns_of(unit))
    note = f"{over_units(units, unit)}, in brackets. Brier score and ECE are those of out-of-fold calibrated signals."
    return Table(f"{cells[0].source}: signals", "", columns, tuple(sections), note)


def measure(
    ranked: Mapping[str, Ranked], title: str, resamples: int, pairs: Iterable[tuple[str, str]] | None = None
) -> Table:
    """Measures of every row, and of the second minus the first of each pair; without pairs, of all neighbours."""
    names = list(ranked)
    rows = [
        Row(name, tuple(show_estimate(intervals(signal, resamples=resamples)[of]) for of in MEASURES))
        for name, signal in ranked.items()
    ]
    for before, after in itertools.pairwise(names) if pairs is None else pairs:
        differences = intervals(ranked[before], ranked[after], resamples=resamples)
        rows.append(Row(f"{after} minus {before}", tuple(show_estimate(differences[of], sign=True) for of in MEASURES)))
    streams = len(set(ranked[names[0]].stream.tolist()))
    labels, exact = ranked[names[0]].y, show_estimate(ece_of_exact(ranked[names[-1]].p))
    return Table(
        f"{title} ({len(labels)} labels, {labels.mean():.0%} positive)",
        "",
        columns_of("streams"),
        (Section("", tuple(rows)),),
        f"{over_units(streams)}, in brackets. If the last method's p were exact, its ECE would be {exact}: "
        "labels drawn from p.",
    )


def decisions(cells: Sequence[Cell], resamples: int) -> Table:
    """What every baseline's decisions cost on one source, at each ratio."""
    columns = (
        Column("steps"),
        Column("speaks", "Share of steps with an offer.", "%"),
        Column("cost", "Realised cost per step, in units of C_FA."),
        Column("minus the better constant", "Below 0 it is cheaper than both always and never, on the same steps."),
    )
    sections, units = [], 0
    for ratio in RATIOS:
        steps = cells[0].decided[ratio].steps
        units = len(np.unique(steps.stream))
        own = constants(steps) | {cell.baseline.label: cell.decided[ratio] for cell in cells}
        rows = []
        for name, decided in own.items():
            cost = cost_of(decided, ratio, resamples)
            numbers = show_estimate(cost.cost), show_estimate(cost.over_constant, sign=True)
            rows.append(Row(name, (f"{cost.steps:,}", percent(cost.speak_rate), *numbers)))
        sections.append(Section(f"C_FA : C_FN = {ratio_in_words(ratio)}", tuple(rows)))
    note = f"{over_units(units, cells[0].unit)}, in brackets. A step's offer is the one of highest p_accept."
    return Table(f"{cells[0].source}: what decisions cost", "", columns, tuple(sections), note)


def two_signals(cells: Sequence[Cell], resamples: int) -> Table | None:
    """What the second signal is worth wherever there are labels of need; None where there are none."""
    rows = []
    for cell in cells:
        if cell.folds and cell.folds[0].scores.has_need:
            steps = steps_of(cell.folds)
            difference = show_estimate(second_signal(steps, resamples), sign=True)
            rows.append(Row(f"{cell.source}, {cell.baseline.label}", (f"{len(steps):,}", difference)))
    if not rows:
        return None
    columns = (Column("steps"), Column("gate minus p_accept alone", "Realised cost per step, mean over the ratios."))
    note = "At the same speak rate; below 0 the second signal pays. In brackets 95 % intervals over streams."
    return Table("What the second signal is worth", "", columns, (Section("", tuple(rows)),), note)


def transfer(found: Sequence[Moved], resamples: int) -> Table | None:
    """What few labels of a new source are worth; None where nothing was moved."""
    columns = (
        Column("AUROC"),
        Column("Brier"),
        Column("minus 0 labels", "Difference of the Brier scores."),
        Column("cost", f"Realised cost of p_accept alone at {ratio_in_words(MIDDLE)}."),
        Column("minus 0 labels", "Difference of the costs."),
    )
    sections = []
    for one in found:
        before, rows = one.by_labels[0], []
        first = realised(gated(steps_of(before), MIDDLE), MIDDLE)
        for labels, folds in one.by_labels.items():
            ranked, steps = signal_of(folds, "accept"), steps_of(folds)
            measured, cost = intervals(ranked, resamples=resamples), realised(gated(steps, MIDDLE), MIDDLE)
            differences = ("", "")
            if labels:
                brier = intervals(signal_of(before, "accept"), ranked, resamples=resamples)["brier"]
                change = mean_interval(cost - first, steps.stream, resamples=resamples)
                differences = show_estimate(brier, sign=True), show_estimate(change, sign=True)
            costs = show_estimate(mean_interval(cost, steps.stream, resamples=resamples))
            fewest = min(fold.calibration.accept_fast.count for fold in folds)
            rows.append(
                Row(
                    f"{labels} labels" + (f", {fewest} found" if fewest < labels else ""),
                    (
                        *(show_estimate(measured[name]) for name in ("auroc", "brier")),
                        differences[0],
                        costs,
                        differences[1],
                    ),
                )
            )
        origin = f", fitted on {one.fitted_on}" if one.fitted_on else ", as it is"
        sections.append(Section(f"{one.source}: {one.baseline.label}{origin}", tuple(rows)))
    note = (
        "Each half of the streams, or of a log's people, is calibrated with labels of the other half. In brackets 95 % "
        "intervals over them."
    )
    return Table("A new source with few labels", "", columns, tuple(sections), note) if sections else None


def noise(found: Sequence[Flips], resamples: int) -> Table | None:
    """What noise among the events does to decisions; None without twins."""
    sections = []
    for one in found:
        rows = []
        for ratio, twins in one.by_ratio.items():
            changed = mean_interval(np.abs(twins.plain - twins.noisy), twins.stream, bounds=SHARE, resamples=resamples)
            rates = percent(twins.plain.mean()), percent(twins.noisy.mean())
            rows.append(Row(ratio_in_words(ratio), (*rates, show_estimate(changed))))
        origin = f"fitted on {one.fitted_on}" if one.fitted_on else "as it is"
        sections.append(Section(f"{one.source}: {one.baseline.label}, {origin}", tuple(rows)))
    columns = (
        Column("speaks", "Share of steps with an offer, without noise.", "%"),
        Column("with noise", "The same in the noisy twins.", "%"),
        Column("changed", "Share of steps at which the decision is another one."),
    )
    note = "In brackets 95 % intervals over streams."
    return Table("What noise does to decisions", "C_FA : C_FN", columns, tuple(sections), note) if sections else None


def figure(cells: Sequence[Cell], resamples: int) -> Callable[[Any], None]:
    """Draws what each baseline costs more than the better constant at `MIDDLE`, with intervals, source by source."""
    sources = list(dict.fromkeys(cell.source for cell in cells))
    points = [(cell, cost_of(cell.decided[MIDDLE], MIDDLE, resamples).over_constant) for cell in cells]

    def draw(canvas: Any) -> None:
        canvas.set_size_inches(7.0, 1.0 + 0.22 * len(cells))
        heights = [sum(cell.source == source for cell in cells) for source in sources]
        panels = canvas.subplots(len(sources), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for panel, source in zip(panels, sources, strict=True):
            own = [(cell, over) for cell, over in points if cell.source == source]
            for place, (_, over) in enumerate(own):
                ends = [[max(over.value - over.low, 0)], [max(over.high - over.value, 0)]]
                panel.errorbar([over.value], [place], xerr=ends, fmt="o", color="#1f5f8b", markersize=4)
            panel.axvline(0, color="#7a7a7a", linewidth=0.8)
            panel.set_yticks(range(len(own)), [cell.baseline.label for cell, _ in own])
            panel.set_ylim(len(own) - 0.5, -0.5)
            panel.set_title(source, loc="left", fontsize=9)
        panels[-1].set_xlabel(f"cost minus the better constant's at C_FA : C_FN = {ratio_in_words(MIDDLE)}")

    return draw
