"""The deployed policy step by step, by domain and by persona, on the test split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from prism_jax.decision import calibration as measures
from prism_jax.decision import metrics
from prism_jax.decision.uncertainty import unit_keys
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
        time=data.steps.time,
    )


def sums_by_group(data: EvaluationData) -> dict[tuple[str, str], GroupSums]:
    """The sums of each domain and persona among these steps, by column and value."""
    groups = _Groups(data)
    return {(column, value): groups.sums(members) for column, value, members in _all_members(data)}


class GroupSums(NamedTuple):
    """What the row of a group is computed from: sums, which those of other steps can be added to."""

    streams: UInt64[np.ndarray, "streams"]  # keys of its streams, in ascending order
    steps: int
    judged: int
    offers: int  # on all steps
    mass: float  # weight of the judged steps
    costs: Float64[np.ndarray, "4"]  # weighted sums over judged steps: gold, and the costs of `_Groups.costs` by name
    need: measures.BinSums | None  # bins of the deployed signals; None without a label
    accept: measures.BinSums | None

    def merge(self, other: GroupSums) -> GroupSums:
        """The sums over the steps of both."""
        bins = (
            two if one is None else one if two is None else one.merge(two)
            for one, two in ((self.need, other.need), (self.accept, other.accept))
        )
        return GroupSums(
            np.union1d(self.streams, other.streams),
            self.steps + other.steps,
            self.judged + other.judged,
            self.offers + other.offers,
            self.mass + other.mass,
            self.costs + other.costs,
            *bins,
        )

    def row(self, column: str, value: str, has_need: bool) -> GroupRow:
        """The numbers of the group."""
        positive, always, never, realised = (
            (self.costs / self.mass).tolist() if self.judged else [np.nan] * len(self.costs)
        )
        need, accept = (np.nan if bins is None else bins.error(debiased=True) for bins in (self.need, self.accept))
        return GroupRow(
            column=column,
            value=value,
            streams=len(self.streams),
            steps=self.steps,
            judged=self.judged,
            positive=positive,
            realised_cost=realised,
            always=always,
            never=never,
            speak_rate=self.offers / self.steps,
            ece_need=need if has_need else None,
            ece_accept=accept,
        )


def _all_members(data: EvaluationData) -> Iterator[tuple[str, str, Int64[np.ndarray, "members"]]]:
    for column in COLUMNS:
        if getattr(data.steps, column) is not None:
            numbers = ordered(*data.steps.numbered(column))
            yield from ((column, value, members) for value, members in _members(*numbers))


def _members(names: list[str], codes: Int64[np.ndarray, "steps"]) -> Iterator[tuple[str, Int64[np.ndarray, "members"]]]:
    """Each value in alphabetical order with the steps that have it: one sort, however many values there are."""
    by_value = np.argsort(codes, kind="stable")
    yield from zip(names, np.split(by_value, np.cumsum(np.bincount(codes))[:-1]), strict=True)


class _Groups:
    """What every group is computed from: the deployed policy's decisions and signals at each step."""

    def __init__(self, data: EvaluationData):
        self.data, self.deployed = data, trace(data)
        names, self.stream = data.steps.numbered("stream")
        self.streams = unit_keys(names)
        self.weight = acceptance_weight(data.steps)
        self.need_weight = np.ones_like(self.weight)
        deployed, point = self.deployed, data.point
        if data.steps.need_given_accept:
            self.need_weight = self.weight * np.nan_to_num(deployed.y_accept)
        labelled = (deployed.y_need, self.need_weight), (deployed.y_accept, self.weight)
        self.need_known, self.accept_known = (~np.isnan(y) & (weight > 0) for y, weight in labelled)
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

    def sums(self, members: Int64[np.ndarray, "members"]) -> GroupSums:
        """The sums of one group of steps."""
        data, deployed = self.data, self.deployed
        judged = _of(members, data.judged)
        weight = self.weight[judged]
        costs = [(weight * values[judged]).sum() for values in (data.missed, *self.costs.values())]
        return GroupSums(
            streams=np.unique(self.streams[np.flatnonzero(np.bincount(self.stream[members]))]),
            steps=len(members),
            judged=len(judged),
            offers=int(np.count_nonzero(deployed.decision[members])),
            mass=float(weight.sum()),
            costs=np.array(costs),
            need=_bins(deployed.p_need, deployed.y_need, self.need_weight, _of(members, self.need_known)),
            accept=_bins(deployed.p_accept, deployed.y_accept, self.weight, _of(members, self.accept_known)),
        )


def _of(members: Int64[np.ndarray, "members"], chosen: Bool[np.ndarray, "steps"]) -> Int64[np.ndarray, "some"]:
    """The members among some chosen steps."""
    among = chosen[members]
    return members if among.all() else members[among]


def _bins(
    p: Float64[np.ndarray, "steps"],
    y: Float64[np.ndarray, "steps"],
    weight: Float64[np.ndarray, "steps"],
    labelled: Int64[np.ndarray, "labelled"],
) -> measures.BinSums | None:
    return measures.BinSums.of(p[labelled], y[labelled], weight[labelled]) if len(labelled) else None
