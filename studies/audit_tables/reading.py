"""Reads a CSV file of printed numbers, and says how each of its columns was understood."""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal

from prism_jax.runtime.files import read_bounded
from studies.audit_tables.cells import Printed, as_percentage, parse
from studies.audit_tables.confusions import MOST_STEPS
from studies.audit_tables.quantities import PAIRED, RATIOS, SHARES, TEXTS, WHOLE, quantity_of

FalseAlarm = Literal["discovery", "positive"]
Numbers = list[tuple[Printed, bool] | None]
"""The numbers of a column, each with whether it had a percent sign; None for a blank."""
MOST_BYTES = 2**22
MOST_ROWS = 10_000


class TableError(ValueError):
    """A file that cannot be read as a table of printed numbers; the message names row and column."""


@dataclasses.dataclass(frozen=True)
class PrintedRow:
    """A row: its name, its numbers by quantity, and the setting that it shares with rows of other tables, or ""."""

    name: str
    cells: dict[str, Printed]
    setting: str = ""

    @property
    def steps(self) -> int | None:
        """The row's own number of decisions, where the table has a column for it."""
        return int(self.cells["N"].value) if "N" in self.cells else None


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table as it was understood."""

    name: str  # name of the file
    # for each column that was understood, in order: heading, quantity, and whether it held percentages
    columns: tuple[tuple[str, str, bool], ...]
    ignored: tuple[str, ...]  # headings of columns that were not understood; the first column always names the rows
    rows: tuple[PrintedRow, ...]


def read_table(path: str, *, decimals: int | None = None, false_alarm: FalseAlarm = "discovery") -> Sheet:
    """Reads a CSV file. Its first line holds the headings and its first column the names of the rows.

    A column holds percentages if its heading or any of its cells has a percent sign. Columns without one have one
    scale, that of percentages if any number in them exceeds 1: a rate of 0.5 % says nothing of it by itself. Brier
    scores are shares unless one exceeds 1, since they are printed as such beside percentages. The two values of a
    comparison, their difference and the ends of its interval have one scale in any case. `decimals` is that of every
    number, where final zeros were lost; None reads them from each cell's text.

    Raises:
      TableError: for a file that is no such table; the message names row and column.
      OSError: if the file cannot be read.
    """
    headings, body = _lines(path)
    quantities = [None, *(quantity_of(heading, false_alarm) for heading in headings[1:])]
    for i, quantity in enumerate(quantities):
        if quantity is not None and quantity in quantities[:i]:
            first = headings[quantities.index(quantity)]
            raise TableError(f"{path}: found the columns {first!r} and {headings[i]!r}, expected one of {quantity}")
    by_column = {
        i: _numbers(path, headings[i], quantity, [row[i] for row in body], decimals)
        for i, quantity in enumerate(quantities)
        if quantity is not None and quantity not in TEXTS
    }
    is_percentage = _percentages(headings, quantities, by_column)
    columns = [(headings[i], str(quantities[i]), is_percentage[i]) for i in by_column]
    cells: list[dict[str, Printed]] = [{} for _ in body]
    for i, numbers in by_column.items():
        for cell, number in zip(cells, numbers, strict=True):
            if number is not None:
                cell[str(quantities[i])] = as_percentage(number[0]) if is_percentage[i] else number[0]
    if not columns:
        raise TableError(f"{path}: found no known column, expected headings such as Recall, Precision, F1, N")
    place = quantities.index("setting") if "setting" in quantities else None
    rows = [
        PrintedRow(row[0].strip() or f"row {i}", by_quantity, row[place].strip() if place is not None else "")
        for i, (row, by_quantity) in enumerate(zip(body, cells, strict=True), start=1)
    ]
    ignored = [heading for heading, quantity in zip(headings[1:], quantities[1:], strict=True) if quantity is None]
    return Sheet(pathlib.PurePath(path).name, tuple(columns), tuple(ignored), tuple(rows))


def _lines(path: str) -> tuple[list[str], list[list[str]]]:
    """The headings, and the rows that are not empty, all of the same length."""
    data = read_bounded(path, TableError, MOST_BYTES)
    try:
        text = data.decode("utf-8-sig")
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if any(cell.strip() for cell in line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path}: found no CSV in UTF-8 ({error})") from error
    if len(lines) < 2:
        raise TableError(f"{path}: found {len(lines)} lines, expected headings and at least one row")
    headings, body = lines[0], lines[1:]
    if len(body) > MOST_ROWS:
        raise TableError(f"{path}: found {len(body)} rows, expected at most {MOST_ROWS}")
    for i, row in enumerate(body, start=1):
        if len(row) != len(headings):
            raise TableError(f"{path}: row {i}: found {len(row)} cells, expected {len(headings)}, one for each heading")
    return headings, body


def _numbers(path: str, heading: str, quantity: str, texts: Sequence[str], decimals: int | None) -> Numbers:
    """The numbers of a column, each with whether it had a percent sign; None for a blank."""
    numbers = []
    for i, text in enumerate(texts, start=1):
        try:
            number = parse(text, None if quantity in WHOLE else decimals)
            if number and quantity in WHOLE and (number[0].value.denominator != 1 or number[0].value < 0):
                raise ValueError(f"found {text!r}, expected a whole number from 0")
            if number and quantity == "N" and not 1 <= number[0].value <= MOST_STEPS:
                raise ValueError(f"found {text!r}, expected a number of decisions from 1 to {MOST_STEPS}")
        except ValueError as error:
            raise TableError(f"{path}: row {i}, column {heading!r}: {error}") from error
        numbers.append(number)
    return numbers


def _percentages(
    headings: Sequence[str], quantities: Sequence[str | None], by_column: Mapping[int, Numbers]
) -> dict[int, bool]:
    """For each known column whether it holds percentages."""
    signed = {i: "%" in headings[i] or any(n is not None and n[1] for n in numbers) for i, numbers in by_column.items()}
    large = {i: any(n is not None and abs(n[0].value) > 1 for n in numbers) for i, numbers in by_column.items()}
    paired = [i for i in by_column if quantities[i] in PAIRED]
    rates = [i for i in by_column if quantities[i] in (*RATIOS, *SHARES)]
    unsigned = [i for i in rates if not signed[i] and quantities[i] != "Brier"]
    percent = {i: i in rates and (signed[i] or large[i]) for i in by_column}
    percent |= dict.fromkeys(unsigned, any(large[i] for i in unsigned))
    return percent | dict.fromkeys(paired, any(signed[i] or large[i] for i in paired))
