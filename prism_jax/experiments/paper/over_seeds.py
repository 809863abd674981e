"""The tables of several seeds as one: means over seeds, with t intervals over seeds.

Each seed has streams, initial parameters and an order of the data of its own, so the spread over seeds holds both what
training and what the draw of the streams add.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from prism_jax.experiments.intervals import MeanInterval
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import Outcome


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of an experiment over its seeds; that of one seed stays as it is.

    Rows that a seed lacks are left out, and so are measures without a mean, such as p-values. A number that is
    undefined in one seed is undefined. The figure is that of the first seed.
    """
    first = outcomes[0]
    if len(outcomes) == 1:
        return first
    by_name = [{sheet.name: sheet for sheet in outcome.sheets} for outcome in outcomes]
    sheets = (_sheet([of_seed[sheet.name] for of_seed in by_name]) for sheet in first.sheets)
    return dataclasses.replace(first, sheets=tuple(sheets))


def _sheet(sheets: Sequence[Sheet]) -> Sheet:
    first = sheets[0]
    measures = {key: measure for key, measure in first.measures.items() if measure.averaged}
    rows = [{(line.section, line.name): line for line in sheet.lines} for sheet in sheets]
    lines = tuple(
        _line([of_seed[key] for of_seed in rows]) for key in rows[0] if all(key in of_seed for of_seed in rows)
    )
    note = f"{first.note} Means over {len(sheets)} seeds with 95 % t intervals over seeds; a figure shows the first."
    return dataclasses.replace(first, measures=measures, lines=lines, note=note)


def _line(lines: Sequence[Line]) -> Line:
    keys = lines[0].cells
    return dataclasses.replace(
        lines[0], cells={key: _cell([line.cells.get(key, Number()) for line in lines]) for key in keys}
    )


def _cell(cells: Iterable[Number | str]) -> Number | str:
    """The mean of numbers with its interval, or the texts that occur."""
    contents = list(cells)
    texts = [cell if isinstance(cell, str) else "" for cell in contents]
    if any(texts):
        return " / ".join(dict.fromkeys(texts))
    numbers = [cell for cell in contents if isinstance(cell, Number)]
    values, paper = np.array([number.value for number in numbers]), numbers[0].paper
    if np.isnan(values).any():
        return Number(paper=paper)
    if np.ptp(values) == 0:
        return Number(float(values[0]), float(values[0]), float(values[0]), paper)
    mean = MeanInterval.of(values)
    return Number(mean.mean, mean.low, mean.high, paper)
