"""The dynamic gate at every cost ratio and every setting of its slow trigger: exact counts, and the steps behind them.

Everything is on calibrated signals. Costs and rates of error are counted on judged steps, offers and slow passes on all
steps, as in `policy_sums`. Counting needs labels that are 0 or 1 and weights of 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64, Shaped

from prism_jax.decision.passes import Pass
from prism_jax.decision.surface import Surface, control_surface
from prism_jax.decision.thinking import value_of_thinking
from prism_jax.decision.value_surface import prices_reached, value_surface
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.scores.labels import Thinking
from prism_jax.scores.texts import ordered

_ROUND = (1.0, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 2.8, 3.2, 3.6, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0, 9.0)
RATIOS = (*(number / 10 for number in _ROUND), *_ROUND, 10.0)
"""Cost ratios from 0.1 to 10: round numbers, about evenly spaced in their logarithm."""
MARGINS = (*(k / 100 for k in range(21)), 0.25, 0.3, 0.4, 0.5, 1.0)
"""Margins; 0 never thinks slowly, 1 always does."""
PRICES = (0.0, *(float(f"{digit}e{power}") for power in range(-6, -1) for digit in (1, 2, 5)), 0.1)
"""Prices of a slow token in units of C_FA; at 0 it thinks slowly at every step."""
MOST_GROUPS = 32
"""Largest number of pairs of domain and persona that are counted apart."""

SlowTrigger = Literal["none", "margin", "value"]
Counts = Int64[np.ndarray, "groups settings ratios"]


class Counted(NamedTuple):
    """The counts of one trigger, which add up; the arrays are those of `Table`."""

    tp: Counts
    fp: Counts
    fn: Counts
    rejected: Counts
    offers: Counts
    slow: Counts

    def merge(self, other: Counted) -> Counted:
        """The counts of both."""
        return Counted(*(one + two for one, two in zip(self, other, strict=True)))


@dataclasses.dataclass(frozen=True)
class Table:
    """Counts of one trigger of the slow pass, [group, setting, ratio]."""

    trigger: SlowTrigger  # what triggers the slow pass; "none" without one
    settings: Float64[np.ndarray, " settings"]  # margins, or prices in units of C_FA, in ascending order
    deployed: int  # index of the operating point's own setting
    tp: Counts  # offers of gold-positive candidates on judged steps
    fp: Counts  # other offers on judged steps
    fn: Counts  # silences on judged steps whose best candidate is gold-positive
    rejected: Counts  # offers on judged steps that were not accepted
    offers: Counts  # offers on all steps
    slow: Counts  # slow passes on all steps
    # for the trigger "value": at how many settings, from the first, each step thinks at each ratio
    reach: Int[np.ndarray, "steps ratios"] | None = None


class Totals(NamedTuple):
    """How many steps of each group there are, [groups] each."""

    steps: Int64[np.ndarray, " groups"]  # all
    judged: Int64[np.ndarray, " groups"]  # those whose labels are known
    gold: Int64[np.ndarray, " groups"]  # judged ones where silence misses help
    refused: Int64[np.ndarray, " groups"]  # judged ones whose fast candidate is refused


@dataclasses.dataclass(frozen=True)
class Exploration:
    """The gate over costs and triggers, and each step's signals and labels, in the order of the data."""

    c_fa: float  # C_FA; C_FN is the ratio times it
    ratios: Float64[np.ndarray, " ratios"]  # cost ratios in ascending order; the operating point's is among them
    deployed: int  # index of the operating point's ratio
    columns: tuple[str, ...]  # the columns that groups are made of: domain, persona, both or neither
    groups: tuple[tuple[str, ...], ...]  # the values of these columns, one tuple for each group
    group: Int64[np.ndarray, " steps"]
    judged: Bool[np.ndarray, " steps"]
    tables: tuple[Table, ...]  # one table for each trigger; the deployed trigger's comes first
    stream: Shaped[np.ndarray, " steps"]
    step: Int64[np.ndarray, " steps"]  # position of each step in its stream
    time: Float64[np.ndarray, " steps"]  # time of each step in seconds, NaN where unknown
    passes: tuple[Pass, ...]  # calibrated signals of the fast pass, then those of the slow pass if there is one
    y_need: Float64[np.ndarray, " steps"]  # need labels, NaN where unknown
    # acceptance labels of the fast pass's candidates, and those of the slow pass's if there is one
    y_accept: tuple[Float64[np.ndarray, " steps"], ...]
    y_best: Float64[np.ndarray, " steps"]  # largest known acceptance label of each step's candidates
    totals: Totals  # sizes of the groups
    has_need: bool = True  # whether need is a signal; otherwise it is taken as certain
    part: bool = False  # whether there are more steps than those whose signals and labels are here


def uncountable_words(soft: bool, weighted: bool) -> str | None:
    """Why steps with soft labels, or with weights other than 1, cannot be counted; None without any."""
    if soft:
        return "some labels are soft, neither 0 nor 1, and steps with such labels cannot be counted"
    if weighted:
        return "steps have inverse-propensity weights, and weighted steps cannot be counted"
    return None


def counts(data: EvaluationData, columns: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """The counts of these steps, which those of other steps can be added to: by trigger, and under `totals` the sizes.

    The groups are known: the columns that make them, and their values.
    """
    group = group_of(data, columns, groups)
    labels, place = _labels(data), group * 2 + data.judged
    found: dict[str, Any] = {"totals": dict(_totals(data, group, len(groups))._asdict())}
    for trigger in _triggers(data):
        fast, slow = _passes(data)[0], _passes(data)[-1]
        number: dict[str, Any] = {"num_groups": 2 * len(groups), **labels}
        y, axis = number.pop("y"), (_ratios(data)[0], _settings(data, trigger)[0])
        if trigger == "value":
            surface = value_surface(fast, slow, y, *data.expected_thinking, *axis, groups=place, **number)
        else:
            surface = control_surface(fast, slow, y, *axis, place, **number)
        found[trigger] = _by_group(surface, len(groups))
    return found


def exploration(
    data: EvaluationData,
    columns: tuple[str, ...],
    groups: tuple[tuple[str, ...], ...],
    counted: Mapping[str, Any],
    *,
    part: bool = False,
) -> Exploration:
    """The surface from the `counts` of all steps, and these steps, which may be a part of them, to browse."""
    ratios, ratio = _ratios(data)
    accept = [data.label("accept")] + ([data.label("accept", data.everywhere_slow)] if data.slow else [])
    steps = data.steps
    tables = [
        Table(trigger, *_settings(data, trigger), **counted[trigger]._asdict(), reach=_reach(data, trigger))
        for trigger in _triggers(data)
    ]
    return Exploration(
        c_fa=data.point.c_fa,
        ratios=ratios,
        deployed=ratio,
        columns=columns,
        groups=groups,
        group=group_of(data, columns, groups),
        judged=data.judged,
        tables=tuple(tables),
        stream=steps.stream,
        step=steps.step,
        time=steps.numbers("time"),
        passes=_passes(data),
        y_need=data.label("need"),
        y_accept=tuple(accept),
        y_best=data.best_accept,
        totals=Totals(**counted["totals"]),
        has_need=data.has_need,
        part=part,
    )


def _ratios(data: EvaluationData) -> tuple[Float64[np.ndarray, " ratios"], int]:
    """The cost ratios, and the place of the operating point's own."""
    return _with(RATIOS, data.point.cost_ratio)


def _settings(data: EvaluationData, trigger: SlowTrigger) -> tuple[Float64[np.ndarray, " settings"], int]:
    """The settings of a trigger, and the place of the operating point's own."""
    if trigger == "value":
        return _with(PRICES, data.point.price / data.point.c_fa)
    return _with(MARGINS, data.point.margin) if data.slow else (np.zeros(1), 0)


def _triggers(data: EvaluationData) -> list[SlowTrigger]:
    """The triggers of the slow pass, the deployed one first."""
    found: list[SlowTrigger] = ["margin" if data.slow else "none"]
    if data.has_value:
        found.append("value")
    return found[::-1] if data.deployed() == "slow_on_value" else found


def _passes(data: EvaluationData) -> tuple[Pass, ...]:
    """Calibrated signals of the passes."""
    thinkings: tuple[Thinking, ...] = ("fast", "slow") if data.slow else ("fast",)
    return tuple(data.signals(thinking, "calibrated") for thinking in thinkings)


def _reach(data: EvaluationData, trigger: SlowTrigger) -> Int[np.ndarray, "steps ratios"] | None:
    """At how many prices, from the first, each step thinks at each ratio; None for other triggers than by value."""
    if trigger != "value":
        return None
    fast, (moves, tokens), settings = _passes(data)[0], data.expected_thinking, _settings(data, trigger)[0]
    reached = [
        prices_reached(np.asarray(value_of_thinking(*fast, 1.0, ratio, moves)), tokens, settings)
        for ratio in map(float, _ratios(data)[0])
    ]
    return np.stack(reached, axis=1)


def _totals(data: EvaluationData, group: Int64[np.ndarray, " steps"], groups: int) -> Totals:
    judged, accept = data.judged, data.label("accept")
    members = (np.ones(len(group), bool), judged, judged & (data.missed == 1), judged & (accept == 0))
    return Totals(*(np.bincount(group[member], minlength=groups) for member in members))


def _with(values: tuple[float, ...], own: float) -> tuple[Float64[np.ndarray, " values"], int]:
    """The values with one more, in ascending order, and the place of that one."""
    axis = np.unique(np.array([*values, own], np.float64))
    return axis, int(np.searchsorted(axis, own))


def choose_groups(
    columns: tuple[str, ...], occurring: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """As many of the columns as make at most `MOST_GROUPS` groups, and the groups, from the values that occur."""
    for chosen in (columns, columns[:1], columns[1:]):
        if not chosen:
            continue
        places = [columns.index(name) for name in chosen]
        groups = sorted({tuple(values[place] for place in places) for values in occurring})
        if len(groups) <= MOST_GROUPS:
            return chosen, tuple(groups)
    return (), ((),)


def group_of(
    data: EvaluationData, columns: tuple[str, ...], groups: tuple[tuple[str, ...], ...]
) -> Int64[np.ndarray, " steps"]:
    """The number of each step's group."""
    if not columns:
        return np.zeros(len(data.steps), np.int64)
    texts, codes = zip(*(ordered(*data.steps.numbered(name)) for name in columns), strict=True)
    sizes = tuple(map(len, texts))
    place = {group: number for number, group in enumerate(groups)}
    every = zip(*(index.ravel().tolist() for index in np.indices(sizes)), strict=True)
    number = [place.get(tuple(names[i] for names, i in zip(texts, at, strict=True)), -1) for at in every]
    return np.array(number, np.int64)[np.ravel_multi_index(codes, sizes)]


def _labels(data: EvaluationData) -> dict[str, Any]:
    """The labels that both surfaces take; those of steps that are not judged are 0."""

    def known(label: Float64[np.ndarray, " steps"]) -> Float64[np.ndarray, " steps"]:
        return np.where(data.judged, label, 0.0)

    need, accept = known(data.label("need")), known(data.label("accept"))
    labels = {"y": need * accept, "y_need": need, "y_accept": accept, "y_best": need * known(data.best_accept)}
    if data.slow:
        slow = known(data.label("accept", data.everywhere_slow))
        labels |= {"y_slow": need * slow, "y_accept_slow": slow}
    return labels


def _by_group(surface: Surface, groups: int) -> Counted:
    """Counts by group, of counts by group and whether its steps are judged."""
    judged = {name: np.asarray(getattr(surface, name))[1::2] for name in ("tp", "fp", "fn", "rejected")}
    by_group = (groups, 2, *np.shape(surface.tp)[1:])
    everywhere = {"offers": np.asarray(surface.tp + surface.fp), "slow": np.asarray(surface.slow)}
    return Counted(**judged, **{name: count.reshape(by_group).sum(axis=1) for name, count in everywhere.items()})
