"""A sheet of numbers with intervals and the paper's own values, which becomes a `Table` and a CSV file.

The table shows an estimate and its interval in one cell, the CSV in columns of their own, with six significant digits.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import math
from collections.abc import Mapping

from prism_jax.decision.uncertainty import Estimate
from prism_jax.report.numbers import DASH, number, show_estimate
from prism_jax.report.table import Column, Row, Section, Table

NOT_REPRODUCIBLE = "on other data: not reproducible without the 8B weights and the paper's judges"
"""What stands beside every number of the paper."""


@dataclasses.dataclass(frozen=True)
class Number:
    """One number, NaN where undefined, with its interval and the paper's number where there are such."""

    value: float = math.nan  # our number
    low: float = math.nan  # lower end of its interval
    high: float = math.nan  # upper end
    paper: float = math.nan  # the number that the paper prints at this place

    @classmethod
    def of(cls, estimate: Estimate, paper: float = math.nan) -> Number:
        """An estimate as a number of a sheet."""
        value, low, high = map(float, estimate[:3])
        return cls(value, low, high, paper)


@dataclasses.dataclass(frozen=True)
class Measure:
    """A column of a sheet."""

    label: str  # heading of the table
    meaning: str  # what the numbers mean, in a sentence
    unit: str = ""  # unit, shown in the heading; "%" multiplies shares by 100 in the table, but not in the CSV
    digits: int = 1  # decimals in the table
    averaged: bool = True  # whether its mean over seeds means anything; that of p-values does not
    optional: bool = False  # whether the column is left out where no row has it

    def show(self, value: float, *, sign: bool = False) -> str:
        """Formats one value for the table, with a sign where differences need it."""
        return number(100 * value if self.unit == "%" else value, self.digits, sign=sign)


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of a sheet."""

    name: str
    cells: Mapping[str, Number | str]  # numbers, or texts, by the key of their measure; a missing one is unknown
    section: str = ""  # heading of the rows that it belongs to; may be empty
    meaning: str = ""  # what the row is, in a sentence
    strong: bool = False  # whether it is emphasised


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table of an experiment."""

    name: str  # stem of its files
    title: str
    names: str  # heading of the rows' names
    measures: Mapping[str, Measure]  # its columns by key; the key is the column's name in the CSV
    lines: tuple[Line, ...]  # its rows; those of one section stand together
    note: str = ""  # what to know to read it
    of_paper: str = ""  # what to know to read the paper's numbers in it
    signed: tuple[str, ...] = ()  # keys of measures that are differences, shown with their sign

    def __post_init__(self) -> None:
        cells = {key for line in self.lines for key in line.cells}
        kept = {key: of for key, of in self.measures.items() if not of.optional or key in cells}
        object.__setattr__(self, "measures", kept)

    def without_paper(self) -> Sheet:
        """The sheet without the paper's numbers and without the rows that have no others."""
        lines = []
        for line in self.lines:
            own = {
                key: cell if isinstance(cell, str) else dataclasses.replace(cell, paper=math.nan)
                for key, cell in line.cells.items()
                if isinstance(cell, str) or math.isnan(cell.paper) or not math.isnan(cell.value)
            }
            if own or not line.cells:
                lines.append(dataclasses.replace(line, cells=own))
        return dataclasses.replace(self, lines=tuple(lines), of_paper="")

    def table(self) -> Table:
        """The sheet as a table: estimate and interval in one cell, and the paper's number in the next one."""
        columns: list[Column] = []
        for key, measure in self.measures.items():
            columns.append(Column(measure.label, measure.meaning, measure.unit))
            if self._has(key, "paper"):
                columns.append(Column("paper*", f"The paper's number, {NOT_REPRODUCIBLE}.", measure.unit))
        sections = tuple(
            Section(title, tuple(Row(line.name, self._shown(line), line.meaning, line.strong) for line in lines))
            for title, lines in itertools.groupby(self.lines, key=lambda line: line.section)
        )
        star = f"*{NOT_REPRODUCIBLE}." if any(self._has(key, "paper") for key in self.measures) else ""
        note = " ".join(filter(None, (self.note, self.of_paper, star)))
        return Table(self.title, self.names, tuple(columns), sections, note=note)

    def to_csv(self) -> str:
        """The sheet as CSV (RFC 4180): estimate, ends of the interval and the paper's number in columns of their own.

        Shares are fractions, not percentages. An empty cell is unknown or undefined. Rows with a number of the paper
        say in the last column that it is not reproducible.
        """
        with_section = any(line.section for line in self.lines)
        parts = ("value", "low", "high", "paper")
        columns = [(key, part) for key in self.measures for part in parts if part == "value" or self._has(key, part)]
        with_paper = any(part == "paper" for _, part in columns)
        names = [key if part == "value" else f"{key}_{part}" for key, part in columns]
        file = io.StringIO()
        writer = csv.writer(file)
        first = ["section"] * with_section + [self.names or "row"]
        writer.writerow([*first, *names, *["paper_status"] * with_paper])
        for line in self.lines:
            cells = [_plain(line.cells.get(key, Number()), part) for key, part in columns]
            printed = any(part == "paper" and cell for (_, part), cell in zip(columns, cells, strict=True))
            status = [NOT_REPRODUCIBLE if printed else ""] * with_paper
            writer.writerow([line.section] * with_section + [line.name, *cells, *status])
        return file.getvalue()

    def _has(self, key: str, part: str) -> bool:
        """Whether a row has this part of a measure."""
        cells = (line.cells.get(key) for line in self.lines)
        return any(isinstance(cell, Number) and not math.isnan(getattr(cell, part)) for cell in cells)

    def _shown(self, line: Line) -> tuple[str, ...]:
        shown = []
        for key, measure in self.measures.items():
            cell = line.cells.get(key, Number())
            signed = key in self.signed
            if isinstance(cell, str):
                shown.append(cell)
                cell = Number()
            else:
                form = functools.partial(measure.show, sign=signed)
                shown.append(show_estimate(Estimate(cell.value, cell.low, cell.high), form=form))
            if self._has(key, "paper"):
                shown.append(DASH if math.isnan(cell.paper) else measure.show(cell.paper, sign=signed))
        return tuple(shown)


def _plain(cell: Number | str, part: str) -> str:
    """One part of a cell for CSV; empty where unknown."""
    if isinstance(cell, str):
        return cell if part == "value" else ""
    value = getattr(cell, part)
    return "" if math.isnan(value) else f"{value + 0.0:.6g}"
