"""The counts behind published rates, and whether the published traces can have led to them.

The published script adds 1e-8 to each denominator, which makes a rate depend on its denominator: 112 of 226 and 56 of
113 differ in the eleventh decimal. So the rates of a row determine its four counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from prism_jax.evaluation.official import STABILISER, Counts, official_rates
from prism_jax.streams.published_scores import PublishedRow
from prism_jax.streams.traces import Trace, fixed_turn, official_predictions


def implied_counts(row: PublishedRow) -> tuple[Counts, ...]:
    """Every set of counts, of at most the row's events, that gives all its rates bit for bit.

    Raises:
      KeyError: for a row without one of the rates that are needed.
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

    Raises:
      ValueError: for a row whose rates no counts give, or an unknown category.
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
