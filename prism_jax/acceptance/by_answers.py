"""What knowing a person is worth, by how many of their answers had been seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.acceptance.measures import MEANINGS, as_json
from prism_jax.decision.uncertainty import Estimate
from prism_jax.report.numbers import DASH, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units

SEEN = ((0, 0), (1, 4), (5, 19), (20, None))
"""Numbers of earlier answers of the person, from and to, that are compared."""


class Pair(NamedTuple):
    """Two predictions that are compared."""

    with_person: str
    without: str


class Part(NamedTuple):
    """The answers before which some number of their person's answers had been seen."""

    low: int
    high: int | None  # None where there is no largest number
    answers: int
    people: int
    brier: Mapping[str, float]  # Brier score of each prediction
    difference: Estimate | None  # that of the pair, negative where the person layer gains; None for a single person

    def as_dict(self, pair: Pair) -> dict[str, Any]:
        """JSON values."""
        difference = None if self.difference is None else as_json(self.difference)
        return {
            "from": self.low,
            "to": self.high,
            "answers": self.answers,
            "people": self.people,
            "brier": dict(self.brier),
            "difference": {"row": pair.with_person, "minus": pair.without, "brier": difference},
        }


def pair_of(names: Sequence[str]) -> Pair:
    """The best of the named predictions that knows the person, and the one below it that does not."""
    if "context+person" in names:
        return Pair("context+person", "context")
    return Pair("score+person", "score, Platt") if "score+person" in names else Pair("person", "constant")


def by_answers_table(parts: Sequence[Part], pair: Pair) -> Table:
    """One row per number of answers seen before."""
    names = list(parts[0].brier)
    columns = (
        Column("answers", "Number of rows"),
        Column("people", "Number of people who gave them"),
        *(Column(name, f"Brier score. {MEANINGS[name]}") for name in names),
        Column(
            f"{pair.with_person} minus {pair.without}",
            "Difference of the two Brier scores on the same answers; below 0 the person layer gains.",
        ),
    )
    rows = []
    for part in parts:
        seen = str(part.low) if part.low == part.high else f"{part.low} to {part.high}"
        seen = f"{part.low} or more" if part.high is None else seen
        cells = (*(f"{part.brier[name]:.3f}" for name in names), _signed(part.difference))
        rows.append(Row(seen, (f"{part.answers:,}", str(part.people), *cells)))
    title = "Brier score by how many answers of the person had been seen"
    people = [part.people for part in parts]
    note = f"Of the difference, {over_units(min(people), 'people', most=max(people))}."
    return Table(title, "seen before", columns, (Section("", tuple(rows)),), note)


def _signed(difference: Estimate | None) -> str:
    """A difference and its interval, each with its sign; what rounds to 0 has none."""
    return (
        DASH if difference is None else show_estimate(Estimate(*(round(end, 3) for end in difference[:3])), sign=True)
    )
