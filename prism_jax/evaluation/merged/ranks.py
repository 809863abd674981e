"""The second and the third statistic: the moves of the slow pass, and histograms of what policies rank steps by."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64, Inexact, Int32, Int64

from prism_jax.decision import budgets, gate
from prism_jax.decision.arrays import log_odds
from prism_jax.decision.audbc import CriticalRatio, Events
from prism_jax.decision.thinking import Moves as Moments
from prism_jax.evaluation import ratios, second_signal, triggers
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import histograms
from prism_jax.evaluation.merged.histograms import MOST, Area, Histogram
from prism_jax.evaluation.merged.parts import fitted_parts, moves_of, test_data
from prism_jax.evaluation.merged.planning import Plan
from prism_jax.evaluation.merged.scan import SIGNALS
from prism_jax.evaluation.merged.states import State, Statistic, merge
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.scores import Scores
from prism_jax.scores.labels import Readings, Signal, Thinking, read


@dataclasses.dataclass(frozen=True)
class Moves(Statistic):
    """How far the slow pass moves the log-odds, by a calibration, on the rows that it was fitted on."""

    calibration: Calibration
    out_of_fold: bool

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        return merge(state, moves_of(rows, self.calibration, self.out_of_fold))


@dataclasses.dataclass(frozen=True)
class Ranks:
    """What the areas, the thresholds of triggers, and p_accept alone at the gate's speak rate follow from."""

    plan: Plan

    def init(self) -> State:
        """The state of no rows."""
        return {"curves": {}, "turning": {}, "signals": {}, "urgency": {}, "fitted": {}}

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        data, more = test_data(rows, self.plan), self.init()
        if data is not None:
            more |= self._test(data) | {"signals": self._signals(data)}
        for key, calibration, fitted in fitted_parts(rows, self.plan):
            steps = fitted.steps()
            more["fitted"][key] = len(steps)
            need, accept = (calibration.calibrated(signal, "fast", steps) for signal in ("need", "accept"))
            for name, urgency in urgencies(self.plan, need, accept, calibration.moves(steps)).items():
                grid, share = self.plan.grid(histograms.SHARE), functools.partial(share_of, self.plan, name)
                more["urgency"][key, name] = Histogram.of(grid, urgency, {"steps": np.ones(len(steps))}, share)
        return merge(state, more)

    def _test(self, data: EvaluationData) -> State:
        weight = data.weight
        state: dict[str, Any] = {"curves": {}, "turning": {}}
        if not len(weight):
            return state
        for policy, form in ratios.deciding(data) if self.plan.no_area is None else ():
            if isinstance(policy, ratios.ByValue):
                turns, grid = policy.critical_ratios(), self.plan.grid(histograms.LOG_RATIO)
                state["turning"][form] = Histogram.of(grid, turns, {"turns": np.ones(len(turns))}, log_ratio)
            else:
                state["curves"][policy.policy, form] = self._curve(data, policy, form)
        if self.plan.has_need:
            need, accept = map(data.of_judged, data.signals("fast", "calibrated"))
            point = self.plan.point
            grid, orders = self.plan.grid(histograms.LOG_ODDS), self._orders(data)
            state["accept"] = Histogram.of(grid, accept, {"weight": weight}, log_odds, orders=orders)
            state["gate"] = np.array(
                [
                    float((np.asarray(gate.decide(need, accept, point.c_fa, ratio * point.c_fa)) * weight).sum())
                    for ratio in second_signal.ratios_of(point)
                ]
            )
        return state

    def _orders(self, data: EvaluationData) -> list[Int64[np.ndarray, "judged"]]:
        """The orders of the raw signals, which maps and some policies keep or reverse; none where they are on grids."""
        if self.plan.kept is None:
            return []
        if "orders" not in self.plan.kept:
            self.plan.kept["orders"] = [np.argsort(data.of_judged(p)) for p in data.signals("fast", "raw")]
        return self.plan.kept["orders"]

    def _curve(self, data: EvaluationData, policy: ratios.Sweep, form: Form) -> Histogram | Area:
        """The histogram of what a policy ranks by; of a table in memory the area, whose sums by unit are kept."""
        kept, events = self.plan.kept, policy.events(data.weight)
        if kept is None:
            return curve_of(events, exact=self.plan.exact)
        bins, none = np.empty(len(events.mass), np.int32), np.zeros(0)
        area = histograms.area(curve_of(events, exact=True, bins=bins, orders=self._orders(data)))
        kept[policy.policy, form] = [*map(data.by_unit, shares_of(area, events, data.judged_units, bins))]
        return area._replace(before_benefit=none, after_burden=none, value=none)

    def _signals(self, data: EvaluationData) -> dict[Measured, Histogram]:
        """The weight of either label by the value of each signal."""
        found: dict[Measured, Histogram] = {}
        grid, orders = self.plan.grid(histograms.LOG_ODDS), self._orders(data)
        for key, readings in measured(data, self.plan):
            p, y, weight = readings.labelled()
            if len(y):
                columns = {"one": weight * y, "zero": weight * (1 - y)}
                found[key] = Histogram.of(grid, p, columns, log_odds, orders=orders)
        return found


Measured = tuple[Signal, Thinking, Form]


def measured(data: EvaluationData, plan: Plan) -> Iterator[tuple[Measured, Readings]]:
    """Each signal that has a map, raw and calibrated, on the rows that it is measured on; no need that is certain."""
    for signal, thinking in SIGNALS:
        if getattr(plan.calibration, f"{signal}_{thinking}") is None or (signal == "need" and not plan.has_need):
            continue
        raw = read(data.rows, signal, thinking, own_offers=thinking == "fast" or plan.own_offers)
        calibrated = raw.p  # all NaN
        if raw.rows is data.steps and (thinking == "fast" or data.slow):
            calibrated = data.signal(f"{signal}_{thinking}", "calibrated")
        elif not np.isnan(raw.p).all():
            calibrated = plan.calibration.calibrated(signal, thinking, raw.rows)
        yield (signal, thinking, "raw"), raw
        yield (signal, thinking, "calibrated"), raw._replace(p=calibrated)


def log_ratio(ratio: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """The logarithm of cost ratios, infinite for 0 and for those that nothing reaches."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(ratio, np.float64))


def rank_of(at: CriticalRatio) -> Float64[np.ndarray, "events"]:
    """The logarithm of critical ratios, a neighbouring float higher where a decision turns only beyond its ratio."""
    value = np.clip(log_ratio(at.ratio), -MOST - 1, MOST + 1)  # finite, so that each has neighbours
    return value if at.beyond is None else np.nextafter(value, np.where(at.beyond, np.inf, -np.inf))


def curve_of(events: Events, *, exact: bool = False, **known: Any) -> Histogram:
    """The histogram of a curve's events, of which `histograms.area` is the area; `known` goes to `Histogram.of`."""
    mass, gold = (np.asarray(column, np.float64) for column in (events.mass, events.gold))
    columns, grid = {"mass": mass, "gold": gold}, None if exact else histograms.LOG_RATIO
    columns |= {} if exact else {"abs_gold": np.abs(gold)}
    return Histogram.of(grid, _place_of(events.at), columns, lambda _: rank_of(events.at), **known)


def _place_of(at: CriticalRatio) -> Inexact[np.ndarray, "events"]:
    """What tells critical ratios apart, of which two can have one logarithm; beyond the ratio with an imaginary part.

    Complex numbers are sorted by their real part and then by their imaginary part.
    """
    ratio = np.asarray(at.ratio, np.float64)
    if at.beyond is None:
        return ratio
    place = np.empty(len(ratio), np.complex128)
    place.real, place.imag = ratio, at.beyond
    return place


def shares_of(
    area: Area, events: Events, unit: Int64[np.ndarray, "steps"], bins: Int32[np.ndarray, "events"] | None = None
) -> tuple[Float64[np.ndarray, "steps"], Float64[np.ndarray, "steps"], Float64[np.ndarray, "steps"]]:
    """The part of each step in the area of a curve, in what its unit's own pairs are above that, and its last gold.

    `bins` are those of the events, where they are known.
    """
    bins = area.bin_of(_place_of(events.at), lambda _: rank_of(events.at)) if bins is None else bins
    mass, gold = (np.asarray(column, np.float64) for column in events[1:3])
    parts = area.shares(bins, mass, gold)
    of_events = parts, area.own_excess(bins, mass, gold, unit, parts), gold
    of_steps = (of_event.reshape(-1, len(unit)).sum(axis=0) for of_event in of_events)
    return next(of_steps), next(of_steps), next(of_steps)


def urgencies(
    plan: Plan, need: Float64[np.ndarray, "n"], accept: Float64[np.ndarray, "n"], moves: Moments | None
) -> dict[str, Float64[np.ndarray, "n"]]:
    """The urgency of each trigger."""
    costs = plan.point.c_fa, plan.point.c_fn
    names = [name for name in budgets.TRIGGERS if name != "random" and (name != "value" or moves is not None)]
    return {name: np.asarray(budgets.urgency(name, need, accept, *costs, moves)) for name in names}


def share_of(plan: Plan, name: str, urgency: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """The urgency of a trigger mapped to [0, 1] in the same order; by value on a logarithm, below 0 for none."""
    if name == "margin":
        return urgency + 1
    if name == "entropy":
        return urgency / math.log(2)
    with np.errstate(divide="ignore"):
        return 1 + np.log(urgency / max(plan.point.c_fa, plan.point.c_fn)) / _LEAST_VALUE


_LEAST_VALUE = 64.0
"""Values of thinking below exp(-64) of the larger cost are not told apart."""


def thresholds(state: State) -> dict[tuple[str, str, float], float]:
    """The least place inside, by calibration, trigger and budget: an urgency, or the number of a bin on a grid.

    The highest bins that hold no more than the budget are inside. An urgency is halfway to the highest outside, so that
    rounding moves no step across it, infinite where no bin or all of them are inside.
    """
    found = {}
    for (key, name), histogram in state["urgency"].items():
        for budget in triggers.BUDGETS:
            first = budgets.first_within(histogram.sums["steps"], budget)
            on_grid = histogram.grid is not None
            found[key, name, budget] = float(first) if on_grid else budgets.threshold_before(histogram.value, first)
    return found


def turning_ratios(histogram: Histogram) -> list[float]:
    """Ratios among which most decisions turn: quantiles of critical ratios, on a grid of the middles of bins."""
    turns = histogram.sums["turns"]
    total = turns.sum()
    if not total:
        return [1.0]
    places = np.linspace(0, 1, ratios.RATIOS)
    if histogram.grid is None:
        return np.unique(np.quantile(np.repeat(histogram.value, turns.astype(np.int64)), places)).tolist()
    bins = np.searchsorted(np.cumsum(turns), places * (total - 1), side="right")
    value = np.where(histogram.mixed, np.exp(histogram.grid.middle()), histogram.value)
    return np.unique(value[bins]).tolist()
