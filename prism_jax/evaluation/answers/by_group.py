"""A log by surface or kind of offer: how often each is accepted, and what the gate saves there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from prism_jax.decision.gate import intervene
from prism_jax.decision.metrics import step_costs
from prism_jax.evaluation.answers.findings import Group
from prism_jax.evaluation.answers.measures import RESAMPLES, means_of
from prism_jax.evaluation.answers.parts import Answers
from prism_jax.evaluation.answers.statistics import Predictor, study_weight
from prism_jax.evaluation.merged.states import State, Statistic, UnitSums, merge


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
