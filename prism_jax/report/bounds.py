"""Columns that say how far numbers from histograms can be off, beside these numbers."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

from prism_jax.evaluation.results import Evaluation
from prism_jax.evaluation.rows import SignalRow
from prism_jax.report.numbers import DASH
from prism_jax.report.table import Column

Format = Callable[[Any], str]


class Bounded(types.SimpleNamespace):
    """A row of results, with the bounds of its numbers."""


BOUND = "How far the number before it can be from that of the rows themselves, by the width of the histogram's bins."


def scientific(value: float | None) -> str:
    """Formats a small bound, such as 3e-06."""
    return DASH if value is None else f"{value:.0e}"


def signal_bounds(row: SignalRow) -> dict[str, str]:
    """The names of a signal's bounds."""
    signal = f"{row.signal}_{row.thinking}"
    names = {name: f"signals.{signal}.{row.form}.{name}" for name in ("miscalibration", "discrimination")}
    return names | {"temperature": f"{signal}.temperature" if row.form == "calibrated" else ""}


def bounded(row: Any, names: dict[str, str], evaluation: Evaluation) -> Any:
    """The row with the bound of each number that has a name among them, where there are bounds."""
    if not evaluation.bounds:
        return row
    bounds = {f"{name}_bound": evaluation.bounds.get(key) for name, key in names.items()}
    return Bounded(**{field.name: getattr(row, field.name) for field in dataclasses.fields(row)}, **bounds)


def with_bounds(
    columns: dict[str, tuple[Column, Format]], names: Sequence[str], evaluation: Evaluation
) -> dict[str, tuple[Column, Format]]:
    """The columns, with one for the bound of each of these numbers beside it, where there are bounds."""
    if not evaluation.bounds:
        return columns
    shown = {}
    for name, column in columns.items():
        shown[name] = column
        if name in names:
            shown[f"{name}_bound"] = (Column(f"± {column[0].label}", BOUND), scientific)
    return shown
