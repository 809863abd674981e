"""A log by surface or kind of offer: how often each is accepted, and what the gate saves there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.acceptance.measures import RESAMPLES, as_json, means_of
from prism_jax.acceptance.parts import Answers
from prism_jax.acceptance.statistics import Predictor, study_weight
from prism_jax.decision.gate import intervene
from prism_jax.decision.metrics import step_costs
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.merged.states import State, Statistic, UnitSums, merge
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


@dataclasses.dataclass(frozen=True)
class Groups(Statistic):
    """What the answers of each group are, and what the gate on a prediction does there, by its code.

    Costs and the share of offers are weighted as in the table of gates, the others as in that of predictions.
    """

    predictor: Predictor
    gate: str  # the prediction
    costs: tuple[float, float]  # C_FA and C_FN
    seed: int

    def add(self, state: State, rows: Answers) -> State:
        """The state with the rows of more people."""
        assert rows.group is not None, "there are groups"
        p, y, weight = self.predictor.predictions(rows)[self.gate], rows.accepted, rows.inverse
        offer, of_study = np.asarray(intervene(p, p, *self.costs)), study_weight(rows, self.predictor.model.weighted)
        gain = step_costs(offer, y, y, *self.costs) - step_costs(np.ones(len(y), bool), y, y, *self.costs)
        summed = np.stack([np.ones(len(y)), of_study, of_study * y, of_study * (p - y) ** 2, weight, weight * offer])
        more: dict[int, State] = {}
        for code in np.unique(rows.group).tolist():
            held = rows.group == code
            people, number_of = np.unique(rows.person[held], return_inverse=True)
            of_people = {"gain": weight * gain, "weight": weight}
            columns = {name: np.bincount(number_of, column[held], len(people)) for name, column in of_people.items()}
            names = [f"{person:012d}" for person in people.tolist()]  # in the order of their places
            units = UnitSums.of(names, columns, resamples=RESAMPLES, seed=self.seed)
            more[code] = {"sums": summed[:, held].sum(axis=1), "units": units}
        return merge(state, more)

    def read(self, state: State, levels: Sequence[str]) -> list[Group]:
        """The groups, those with most answers first; `levels` are their names by code, and -1 is none."""
        found = []
        for code, of in state.items():
            answers, weight, accepted, error, gate_weight, offers = of["sums"].tolist()
            people = of["units"].number
            gain = means_of(of["units"].cells(), np.array([np.inf]), self.seed)[0] if people > 1 else None
            shares = accepted / weight, error / weight, offers / gate_weight
            found.append(Group(levels[code] if code >= 0 else "(none)", int(answers), people, *shares, gain))
        return sorted(found, key=lambda group: (-group.answers, group.name))


def group_table(title: str, column: str, groups: Sequence[Group], gate: str, unit: str = "people") -> Table:
    """One row per group; `gate` is what the gate is on, `unit` what intervals are over."""
    columns = (
        Column("answers", "Number of answers."),
        Column(unit, "Who gave them, or when."),
        Column("accepted", "Share of the answers that accepted.", "%"),
        Column("Brier", f"Of {gate}, on {unit} that it was not fitted on."),
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
    note = f"The gate is on {gate}, the same for all; it is fitted on other {unit} and on every {column}."
    return Table(title, column, columns, (Section("", rows),), note)
