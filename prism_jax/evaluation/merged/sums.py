"""The last statistic: every decision on its own row, and the sums that all tables are made of."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import calibration as measures
from prism_jax.decision import gate, metrics
from prism_jax.decision.arrays import log_odds
from prism_jax.evaluation import breakdowns, policy_rows, policy_sums, ratios, second_signal, surfaces, triggers
from prism_jax.evaluation.intervals import RESAMPLES, SEED
from prism_jax.evaluation.merged import histograms
from prism_jax.evaluation.merged.histograms import Above, Area
from prism_jax.evaluation.merged.parts import of_split, test_data
from prism_jax.evaluation.merged.planning import Plan
from prism_jax.evaluation.merged.ranks import Measured, measured, share_of, shares_of, urgencies
from prism_jax.evaluation.merged.states import Beginning, Keys, State, Statistic, UnitSums, merge, stored
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.scores import Scores
from prism_jax.scores.texts import renumbered

MOST_SHOWN = 2_000
"""Steps that the report can browse, from the beginning of the first file."""
MOST_POINTS = 1_000
"""Up to so many units, the points of a curve that has no ranks are kept for each of them."""
for _class in (
    policy_sums.PolicySums,
    metrics.Confusion,
    breakdowns.GroupSums,
    triggers.ShareSums,
    measures.BinSums,
    surfaces.Counted,
):
    stored(_class)


AREA = ("area", "own", "gold")
"""The columns of a curve, beside the gold of the best candidates and the weights."""
_Columns = dict[str, Float64[np.ndarray, "units"]]
_Deciding = Sequence[tuple[ratios.Sweep | ratios.ByValue, Form]]


def column(*names: object) -> str:
    """The name of a column of the sums by unit."""
    return ".".join(map(str, names))


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the ranks say: areas by curve, bins of thresholds, and ratios of the policy that has no ranks."""

    areas: dict[tuple[str, str], Area]
    turning: dict[str, list[float]]
    thresholds: dict[tuple[str, str, float], float]
    above: tuple[Above, ...]  # where p_accept alone stops to offer, by cost ratio


@stored
class SignalSums(NamedTuple):
    """Sums of one signal in one form over the rows that it is measured on."""

    bins: measures.BinSums | None  # of labelled rows; None without any
    labels: int  # labelled rows
    loss: float  # weighted negative log-likelihood
    squares: float  # weighted squared labels
    rows: int  # all rows, over which distances to the truth are means
    distance: float  # sum of |p - true p|; NaN where a row does not know it
    constant: float  # the same of the base rate

    def merge(self, other: SignalSums) -> SignalSums:
        """The sums over the rows of both."""
        one, two = self.bins, other.bins
        return SignalSums(
            two if one is None else one if two is None else one.merge(two),
            self.labels + other.labels,
            self.loss + other.loss,
            self.squares + other.squares,
            self.rows + other.rows,
            self.distance + other.distance,
            self.constant + other.constant,
        )


@dataclasses.dataclass(frozen=True)
class Sums(Statistic):
    """The statistic, after `Ranks`."""

    plan: Plan
    settings: Settings

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        plan = self.plan
        more: dict[str, Any] = {}
        data = test_data(rows, plan)
        if data is not None:
            more |= self._test(data)
            if plan.kept is None:
                more["shown"] = _beginning(data.rows, sys.maxsize if plan.exact else MOST_SHOWN)
        if (dependence := self._dependence(rows)) is not None:
            more["dependence"] = dependence
        return merge(state, more)

    def _test(self, data: EvaluationData) -> State:
        state: dict[str, Any] = {}
        for piece in data.pieces():
            state = merge(state, self._piece(piece))
        columns, most = state.pop("columns"), sys.maxsize if self.plan.exact else None
        if len(data.weight):
            if self.plan.no_area is None:
                deciding = ratios.deciding(data)
                columns |= self._areas(data, deciding)
                state["points"] = self._points(data, deciding)
            state["units"] = UnitSums.of(data.named_units[0], columns, resamples=RESAMPLES, seed=SEED, most=most)
        return state

    def _piece(self, data: EvaluationData) -> State:
        """What adds up over the pieces of some test steps, with the `columns` of the sums by unit."""
        plan, weight = self.plan, data.weight
        state: dict[str, Any] = {"counts": _counts(data, weight), "groups": breakdowns.sums_by_group(data)}
        state["signals"] = self._signals(data)
        if plan.surface and plan.uncountable is None:
            state["surface"] = surfaces.counts(data, plan.columns, plan.groups)
        policies: dict[Any, Any] = {}
        columns = {"weight": data.by_unit(weight)}
        state |= {"policies": policies, "columns": columns}
        for (policy, form, _), costs, sums in policy_sums.sums_of(data):
            policies[policy, form] = sums
            columns[column("policy", policy, form)] = data.by_unit(costs * weight)
        if plan.fitted_on:
            shares = self.shares(data)
            costs_of_shares, sums_of_shares = triggers.sums_of(data, shares)
            names = [(share.trigger, share.budget) for share in shares]
            columns |= {
                column("share", *name): data.by_unit(cost * weight)
                for name, cost in zip(names, costs_of_shares, strict=True)
            }
            state["shares"] = dict(zip(names, sums_of_shares, strict=True))
        if not len(weight):
            return state
        if plan.has_need:
            columns |= self._second(data, weight)
        state["references"], state["mean_costs"] = self._mean_costs(data, ratios.deciding(data))
        return state

    def _second(self, data: EvaluationData, weight: Float64[np.ndarray, "judged"]) -> _Columns:
        """Costs of the gate, and of p_accept alone at the same speak rate, at each ratio."""
        point = data.point
        need, accept = map(data.of_judged, data.signals("fast", "calibrated"))
        y_accept, missed = map(data.of_judged, (data.label("accept"), data.missed))
        place = histograms.place(self.plan.grid(histograms.LOG_ODDS), accept, log_odds)
        columns = {}
        for ratio, above in zip(second_signal.ratios_of(point), self.settings.above, strict=True):
            c_fn = ratio * point.c_fa
            ours = np.asarray(gate.decide(need, accept, point.c_fa, c_fn), np.float64)
            alone = (place > above.at) + (place == above.at) * above.share
            for who, offer in (("gate", ours), ("alone", alone)):
                costs = offer * (point.c_fa * (1 - y_accept)) + (1 - offer) * (c_fn * missed)
                columns[column(who, ratio)] = data.by_unit(costs * weight)
        return columns

    def shares(self, data: EvaluationData) -> list[triggers.Share]:
        """What each trigger thinks about at each budget, by the thresholds of these steps' calibration."""
        number = len(data.steps)
        need, accept = (data.signal(f"{signal}_fast", "calibrated") for signal in ("need", "accept"))
        grid = self.plan.grid(histograms.SHARE)
        places = {
            name: histograms.place(grid, urgency, functools.partial(share_of, self.plan, name))
            for name, urgency in urgencies(self.plan, need, accept, data.fits.moves(data.steps)).items()
        }
        shares = [
            triggers.Share("never", None, np.zeros(number, bool)),
            triggers.Share("always", None, np.ones(number, bool)),
        ]
        for budget in triggers.BUDGETS:
            for name, at in places.items():
                first = np.full(number, np.inf)
                for key in self.plan.fitted_on:
                    member = slice(None) if not key else data.steps.fold == int(key)
                    first[member] = self.settings.thresholds[key, name, budget]
                shares.append(triggers.Share(name, budget, at >= first))
            shares.append(triggers.Share("random", budget, np.broadcast_to(np.float64(budget), number)))
        return shares

    def _mean_costs(self, data: EvaluationData, deciding: _Deciding) -> tuple[Any, Any]:
        """Mean costs over cost ratios times the weight: of the references, and of each policy."""
        weight, mass = data.weight, data.weight.sum()
        need, accept, best = map(data.of_judged, (data.label("need"), data.label("accept"), data.best_accept))
        references = ratios.references_of(need, accept, best, weight)
        means = {name: cost * mass for name, cost in ratios.mean_costs(deciding, weight).items()}
        return np.array([references.always, references.never, references.oracle], np.float64) * mass, means

    def _areas(self, data: EvaluationData, deciding: _Deciding) -> _Columns:
        """The part of each step in the area of each curve, the gold of the curve's end, and that of the best."""
        plan, weight = self.plan, data.weight
        columns = {"best": data.by_unit(weight * data.of_judged(data.missed))}
        for policy, form in deciding:
            if isinstance(policy, ratios.Sweep):
                parts: Any = (plan.kept or {}).get((policy.policy, form))  # the ranks may have summed them already
                if parts is None:
                    area = self.settings.areas[policy.policy, form]
                    parts = map(data.by_unit, shares_of(area, policy.events(weight), data.judged_units))
                columns |= zip((column(part, policy.policy, form) for part in AREA), parts, strict=True)
        return columns

    def _points(self, data: EvaluationData, deciding: _Deciding) -> dict[str, UnitSums]:
        """The points of the curves without ranks, by unit."""
        return {
            form: UnitSums.of(
                data.named_units[0],
                {
                    str(i): data.by_unit(part)
                    for i, part in enumerate(policy.points(data.weight, self.settings.turning[form]))
                },
                resamples=RESAMPLES,
                seed=SEED,
                most=sys.maxsize if self.plan.exact else MOST_POINTS,
            )
            for policy, form in deciding
            if isinstance(policy, ratios.ByValue)
        }

    def _signals(self, data: EvaluationData) -> dict[Measured, SignalSums]:
        """The measures' sums of each signal, raw and calibrated."""
        found: dict[Measured, SignalSums] = {}
        for (signal, thinking, form), readings in measured(data, self.plan):
            p, y, weight = readings.labelled()
            constant = self.plan.calibration.base_rates(signal, thinking, readings.rows)
            found[signal, thinking, form] = SignalSums(
                bins=measures.BinSums.of(p, y, weight) if len(y) else None,
                labels=len(y),
                loss=float(measures.negative_log_likelihood(p, y, weight)) * float(weight.sum()) if len(y) else 0.0,
                squares=float((weight * y**2).sum()),
                rows=len(readings.p),
                distance=float(np.abs(readings.p - readings.true).sum()),
                constant=float(np.abs(constant - readings.true).sum()),
            )
        return found

    def _dependence(self, rows: Scores) -> UnitSums | None:
        """Sums by unit of what tells whether need and acceptance depend on each other, on calibration rows."""
        plan = self.plan
        part = None if plan.dependence_on is None else of_split(rows, plan.dependence_on)
        if part is None:
            return None
        whole = policy_rows.Whole(plan.calibration_unit)
        data = EvaluationData(part.steps(), plan.calibration, plan.point, None, has_truth=False, whole=whole)
        if not data.judged.any():
            return None
        sums: dict[str, Any] = {}
        for piece in data.pieces():
            sums = merge(sums, second_signal.dependence_sums(piece))
        most = sys.maxsize if plan.exact else None
        return UnitSums.of(data.named_units[0], sums, resamples=RESAMPLES, seed=SEED, most=most)


def _beginning(rows: Scores, most: int) -> Beginning:
    """The first rows of the test split, which the report shows; those of a step together."""
    number = rows.step_numbers()
    first = np.full(len(rows), len(rows))  # the first row of each step
    np.minimum.at(first, number, np.arange(len(rows)))
    shown = np.argsort(first[number], kind="stable")[:most]
    columns = {name: column[shown] for name, column in rows.columns().items() if name != "votes"}
    return Beginning(columns, most)


def _counts(data: EvaluationData, weight: Float64[np.ndarray, "judged"]) -> State:
    correct = data.steps.fields_correct
    names, number = data.steps.numbered("stream")
    shares = np.array([]) if correct is None else correct[~np.isnan(correct)]
    return {
        "judged": len(weight),
        "need_unknown": int(np.isnan(data.label("need")).sum()),
        "accept_unknown": int(np.isnan(data.label("accept") + data.label("accept", data.everywhere_slow)).sum()),
        "mass": float(weight.sum()),
        "squares": float((weight**2).sum()),
        "positive": float((weight * data.of_judged(data.missed)).sum()),
        "fields": len(shares),
        "fields_correct": int((shares == 1).sum()),
        "streams": Keys.of(renumbered(names, number[data.judged])[0]),
    }
