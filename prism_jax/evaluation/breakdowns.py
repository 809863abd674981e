"""The deployed policy step by step, by domain and by persona, on the test split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from prism_jax.decision import calibration as measures
from prism_jax.decision import metrics
from prism_jax.evaluation.policy_rows import EvaluationData, least_acceptance
from prism_jax.evaluation.results import Trace
from prism_jax.evaluation.rows import GroupRow
from prism_jax.scores.labels import acceptance_weight
from prism_jax.scores.texts import ordered

COLUMNS = ("domain", "persona")


def trace(data: EvaluationData) -> Trace:
    """The deployed policy step by step."""
    policy = data.deployed()
    decided = data.decide(policy, "calibrated")
    p_need, p_accept = data.signal("need_fast", "calibrated"), data.signal("accept_fast", "calibrated")
    if data.slow:
        p_need = np.where(decided.slow, data.signal("need_slow", "calibrated"), p_need)
        p_accept = np.where(decided.slow, data.signal("accept_slow", "calibrated"), p_accept)
    return Trace(
        stream=data.steps.stream,
        step=data.steps.step,
        p_need=p_need,
        p_accept=p_accept,
        threshold=least_acceptance(policy, p_need, data.point),
        decision=decided.offer,
        slow=decided.slow,
        y_need=data.label("need", decided),
        y_accept=data.label("accept", decided),
        y_best=data.best_accept,
    )


def by_group(data: EvaluationData) -> tuple[GroupRow, ...]:
    """One row per domain and per persona, in alphabetical order; none for a column that the table does not have.

    Groups may be small: each row says how many steps it is computed on.
    """
    groups = _Groups(data)
    return tuple(
        groups.row(column, value, members)
        for column in COLUMNS
        if (values := getattr(data.steps, column)) is not None
        for value, members in _members(values)
    )


def _members(values: Shaped[np.ndarray, "steps"]) -> Iterator[tuple[str, Int64[np.ndarray, "members"]]]:
    """Each value in alphabetical order with the steps that have it: one sort, however many values there are."""
    names, codes = ordered(values)
    by_value = np.argsort(codes, kind="stable")
    yield from zip(names, np.split(by_value, np.cumsum(np.bincount(codes))[:-1]), strict=True)


class _Groups:
    """What every group is computed from: the deployed policy's decisions and signals at each step."""

    def __init__(self, data: EvaluationData):
        self.data, self.deployed = data, trace(data)
        self.weight = acceptance_weight(data.steps)
        self.need_weight = np.ones_like(self.weight)
        deployed, point = self.deployed, data.point
        if data.steps.need_given_accept:
            self.need_weight = self.weight * np.nan_to_num(deployed.y_accept)
        everywhere = np.ones(len(self.weight), bool)
        decided = {
            "always": (everywhere, data.label("accept")),
            "never": (~everywhere, data.label("accept")),
            "realised_cost": (deployed.decision, deployed.y_accept),
        }
        self.costs = {
            name: metrics.step_costs(offer, accept, data.missed, point.c_fa, point.c_fn)
            for name, (offer, accept) in decided.items()
        }

    def row(self, column: str, value: str, members: Int64[np.ndarray, "members"]) -> GroupRow:
        """The numbers of one group of steps."""
        judged = members[self.data.judged[members]]
        return GroupRow(
            column=column,
            value=value,
            streams=len(set(self.data.steps.stream[members])),
            steps=len(members),
            judged=len(judged),
            positive=self._mean(self.data.missed, judged),
            **{name: self._mean(cost, judged) for name, cost in self.costs.items()},
            speak_rate=float(self.deployed.decision[members].mean()),
            ece_need=self._ece(self.deployed.p_need, self.deployed.y_need, self.need_weight, members)
            if self.data.has_need
            else None,
            ece_accept=self._ece(self.deployed.p_accept, self.deployed.y_accept, self.weight, members),
        )

    def _mean(self, values: Float64[np.ndarray, "steps"], rows: Int64[np.ndarray, "members"]) -> float:
        return float(np.average(values[rows], weights=self.weight[rows])) if len(rows) else np.nan

    def _ece(
        self,
        p: Float64[np.ndarray, "steps"],
        y: Float64[np.ndarray, "steps"],
        weight: Float64[np.ndarray, "steps"],
        members: Int64[np.ndarray, "members"],
    ) -> float:
        labelled = members[~np.isnan(y[members]) & (weight[members] > 0)]
        if not len(labelled):
            return np.nan
        return float(measures.expected_calibration_error(p[labelled], y[labelled], weight[labelled], debiased=True))
