"""A log by surface or kind of offer: how often each is accepted, and what the gate saves there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.acceptance.measures import as_json, means_of
from prism_jax.acceptance.parts import Answers
from prism_jax.decision.gate import intervene
from prism_jax.decision.metrics import step_costs
from prism_jax.decision.uncertainty import Cells, Estimate
from prism_jax.report.numbers import DASH, number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table


class Group(NamedTuple):
    """The answers of one surface or kind."""

    name: str
    answers: int
    people: int
    accepted: float  # share of the answers that accepted
    brier: float  # of the prediction that the gate is on
    speak_rate: float  # share of the offers that the gate would have made
    gain: Estimate | None  # the gate's cost minus that of always offering; None of one person

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return self._asdict() | {"gain": None if self.gain is None else as_json(self.gain)}


def groups_of(rows: Answers, p: Float64[np.ndarray, " rows"], costs: tuple[float, float], seed: int) -> list[Group]:
    """The groups of a log in memory, those with most answers first, by the prediction p that the gate is on.

    Costs and the share of offers are weighted as in the table of gates; how many accepted and Brier scores are not.
    """
    assert rows.group is not None, "there are groups"
    y, weight, found = rows.accepted, rows.inverse, []
    offer = np.asarray(intervene(p, p, *costs))
    gain = step_costs(offer, y, y, *costs) - step_costs(np.ones(len(y), bool), y, y, *costs)
    codes = rows.group.values.astype(np.int64)
    for code in np.unique(codes).tolist():
        held = codes == code
        people, number_of = np.unique(rows.person[held], return_inverse=True)
        columns = (weight * gain, weight)
        sums = np.stack([np.bincount(number_of, column[held], len(people)) for column in columns], axis=1)
        saved = means_of(Cells.of_units(sums), np.array([np.inf]), seed)[0] if len(people) > 1 else None
        found.append(
            Group(
                rows.group.levels[code] if code >= 0 else "(none)",
                int(held.sum()),
                len(people),
                float(y[held].mean()),
                float(((p - y)[held] ** 2).mean()),
                float(weight[held] @ offer[held] / weight[held].sum()),
                saved,
            )
        )
    return sorted(found, key=lambda group: (-group.answers, group.name))


def group_table(title: str, column: str, groups: Sequence[Group], gate: str) -> Table:
    """One row per group; `gate` is what the gate is on."""
    columns = (
        Column("answers", "Number of answers."),
        Column("people", "Who gave them."),
        Column("accepted", "Share of the answers that accepted.", "%"),
        Column("Brier", f"Of {gate}, on people that it was not fitted on."),
        Column("offers", "Share of the offers that the gate would have made.", "%"),
        Column("gate minus always", "Its cost minus that of always offering, paired; below 0 is cheaper."),
    )
    rows = tuple(
        Row(
            group.name,
            (
                f"{group.answers:,}",
                f"{group.people:,}",
                percent(group.accepted),
                number(group.brier, 3),
                percent(group.speak_rate),
                DASH if group.gain is None else show_estimate(group.gain, sign=True),
            ),
        )
        for group in groups
    )
    note = f"The gate is on {gate}, the same for all; it is fitted on other people and on every {column}."
    return Table(title, column, columns, (Section("", rows),), note)
