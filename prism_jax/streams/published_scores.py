"""Reads ProactiveBench's published scores (`eval/results/MODEL.csv`)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import NamedTuple

from etils import epath

from prism_jax.runtime.files import read_bounded
from prism_jax.streams.jsonl import StreamError

CATEGORY, TOTAL = "Category", "Total Events"


class PublishedRow(NamedTuple):
    """One line of a file."""

    category: str
    rates: Mapping[str, float]  # the other columns by name; shortest decimals of a double, so reading loses nothing
    events: int  # the column `TOTAL`


def read_published(path: epath.PathLike) -> tuple[PublishedRow, ...]:
    """Reads the scores of one model: one row per category; none for a file without a table, of a folder never judged.

    Raises:
      StreamError: naming file, line and column, for a value that is not a number, surplus values, or bytes that are
        not UTF-8.
    """
    try:
        text = read_bounded(path, StreamError).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StreamError(f"{path}: found bytes that are not UTF-8 at byte {error.start}, expected a CSV") from None
    lines = csv.DictReader(io.StringIO(text))
    if not lines.fieldnames or CATEGORY not in lines.fieldnames:
        return ()
    rows = []
    for number, line in enumerate(lines, start=2):
        if None in line:
            raise StreamError(f"{path}:{number}: found more values than columns, expected {len(lines.fieldnames)}")
        values = {name: _number(line[name], f"{path}:{number}: {name}") for name in line if name != CATEGORY}
        if TOTAL not in values or values[TOTAL] < 0 or not values[TOTAL].is_integer():
            raise StreamError(f"{path}:{number}: {TOTAL}: found {line.get(TOTAL)!r}, expected a number of events")
        events = int(values.pop(TOTAL))
        rows.append(PublishedRow(str(line[CATEGORY]), values, events))
    return tuple(rows)


def _number(text: str | None, place: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise StreamError(f"{place}: found {text!r}, expected a number")
    return value
