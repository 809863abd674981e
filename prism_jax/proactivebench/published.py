"""The counts behind published rates, and whether the published traces can have led to them.

The published script adds 1e-8 to each denominator, which makes a rate depend on its denominator: 112 of 226 and 56 of
113 differ in the eleventh decimal. So the rates of a row determine its four counts.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from prism_jax.proactivebench.official import STABILISER, Counts, official_rates
from prism_jax.runtime.files import read_bounded
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.traces import Trace, fixed_turn, official_predictions

CATEGORY, TOTAL = "Category", "Total Events"
PAPER_SYSTEMS = {
    "Claude-3.5-Sonnet": "claude-3-5-sonnet",
    "GPT-4o-mini": "gpt-4o-mini",
    "GPT-4o": "gpt-4o",
    "LLaMA-3.1-8B-Proactive": "activellama",
    "Qwen2-7B-Proactive": "activeqwen",
}
"""The rows of the paper's main table whose answers are published, and their folders in `eval/traces_new`."""


class PublishedRow(NamedTuple):
    """One line of a file."""

    category: str
    rates: Mapping[str, float]  # the other columns by name; shortest decimals of a double, so reading loses nothing
    events: int  # the column `TOTAL`


def read_published(path: epath.PathLike) -> tuple[PublishedRow, ...]:
    """Reads the scores of one model: one row per category; none for a file without a table, of a folder never judged.

    Raises StreamError naming file, line and column, for a value that is not a number, surplus values, or bytes that are
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


def implied_counts(row: PublishedRow) -> tuple[Counts, ...]:
    """Every set of counts, of at most the row's events, that gives all its rates bit for bit.

    Raises KeyError for a row without one of the rates that are needed.
    """
    solutions = []
    for tp in range(row.events + 1):
        for fp in _matching(tp, row.events - tp, row.rates["Precision"], tp):
            for fn in _matching(tp, row.events - tp - fp, row.rates["Recall"], tp):
                silences = np.arange(row.events - tp - fp - fn + 1)
                share = (tp + silences) / (tp + silences + fp + fn + STABILISER)
                for tn in silences[share == row.rates["Accuracy"]].tolist():
                    counts = Counts(tp, fp, tn, fn)
                    if official_rates(counts) == dict(row.rates):
                        solutions.append(counts)
    return tuple(solutions)


def _matching(part: int, most: int, rate: float, start: int) -> list[int]:
    """The numbers n up to `most` for which part / (start + n + stabiliser) is the rate."""
    numbers = np.arange(most + 1)
    return numbers[part / (start + numbers + STABILISER) == rate].tolist()


class Consistency(NamedTuple):
    """A published row beside the traces of the same model."""

    category: str
    counts: Counts  # the counts that its rates imply
    exact: bool  # whether exactly one set of counts gives the published decimals
    events: int  # the row's total of events
    present: int  # number of its events whose traces are there
    official: int  # proposals among these as the published script counts them
    fixed: int  # proposals among these in mode `fixed`

    @property
    def proposals(self) -> int:
        """Proposals that the published rates count."""
        return self.counts.tp + self.counts.fp

    def allows(self, counted: int) -> bool:
        """Whether the events without a trace can hold the rest of the proposals, if `counted` are in the traces."""
        return 0 <= self.proposals - counted <= self.events - self.present


def check_published(
    rows: Sequence[PublishedRow], traces: Mapping[str, Trace], categories: Mapping[str, Sequence[str]]
) -> tuple[Consistency, ...]:
    """Compares a model's published rows with the traces that are there of the same model.

    Raises ValueError for a row whose rates no counts give, or an unknown category.
    """
    results = []
    for row in rows:
        if row.category not in categories:
            raise ValueError(f"{row.category}: found no such category, expected one of {', '.join(categories)}")
        counts = implied_counts(row)
        if not counts:
            raise ValueError(f"{row.category}: found rates that no counts up to {row.events} events give")
        events = [event for name in categories[row.category] for event in traces.get(name, ())]
        official = sum(any(prediction is not None for prediction in official_predictions(event)) for event in events)
        fixed = sum(bool(fixed_turn(event).proposals) for event in events)
        results.append(Consistency(row.category, counts[0], len(counts) == 1, row.events, len(events), official, fixed))
    return tuple(results)
