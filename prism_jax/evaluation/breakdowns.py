"""The deployed policy by domain and by persona, on the test split."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.decision import calibration as measures
from prism_jax.evaluation.policies import EvaluationData, trace
from prism_jax.evaluation.results import GroupRow
from prism_jax.evaluation.signals import acceptance_weight

COLUMNS = ("domain", "persona")


def by_group(data: EvaluationData) -> tuple[GroupRow, ...]:
    """One row per domain and per persona, in alphabetical order; none for a column that the table does not have.

    Groups may be small: each row says how many steps it is computed on.
    """
    groups = _Groups(data)
    return tuple(
        groups.row(column, str(value), values == value)
        for column in COLUMNS
        if (values := getattr(data.steps, column)) is not None
        for value in sorted(set(values))
    )


class _Groups:
    """What every group is computed from: the deployed policy's decisions and signals at each step."""

    def __init__(self, data: EvaluationData):
        self.data, self.deployed = data, trace(data)
        self.weight = acceptance_weight(data.steps)
        self.need_weight = np.ones_like(self.weight)
        self.gold = data.label("need") * data.label("accept")
        always, never = data.point.c_fa * (1 - data.label("accept")), data.point.c_fn * self.gold
        one = self.deployed
        offered, silent = data.point.c_fa * (1 - one.y_accept), data.point.c_fn * (one.y_need * one.y_accept)
        if data.steps.need_given_accept:
            self.need_weight = self.weight * np.nan_to_num(one.y_accept)
        self.costs = {"always": always, "never": never, "realised_cost": np.where(one.decision, offered, silent)}

    def row(self, column: str, value: str, member: Bool[np.ndarray, "steps"]) -> GroupRow:
        """The numbers of one group of steps."""
        judged = member & self.data.judged
        return GroupRow(
            column=column,
            value=value,
            streams=len(set(self.data.steps.stream[member])),
            steps=int(member.sum()),
            judged=int(judged.sum()),
            positive=self._mean(self.gold, judged),
            **{name: self._mean(cost, judged) for name, cost in self.costs.items()},
            speak_rate=float(self.deployed.decision[member].mean()),
            ece_need=self._ece(self.deployed.p_need, self.deployed.y_need, self.need_weight, member)
            if self.data.has_need
            else None,
            ece_accept=self._ece(self.deployed.p_accept, self.deployed.y_accept, self.weight, member),
        )

    def _mean(self, values: Float64[np.ndarray, "steps"], rows: Bool[np.ndarray, "steps"]) -> float:
        return float(np.average(values[rows], weights=self.weight[rows])) if rows.any() else np.nan

    def _ece(
        self,
        p: Float64[np.ndarray, "steps"],
        y: Float64[np.ndarray, "steps"],
        weight: Float64[np.ndarray, "steps"],
        member: Bool[np.ndarray, "steps"],
    ) -> float:
        known = member & ~np.isnan(y) & (weight > 0)
        if not known.any():
            return np.nan
        return float(measures.expected_calibration_error(p[known], y[known], weight[known], debiased=True))
