"""The dynamic gate at every cost ratio and every setting of its slow trigger: exact counts, and the steps behind them.

Everything is on calibrated signals. Costs and rates of error are counted on judged steps, offers and slow passes on all
steps, as in `policy_sums.compare`. Counting needs labels that are 0 or 1 and weights of 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64, Shaped

from prism_jax.decision.passes import Pass
from prism_jax.decision.surface import Surface, control_surface
from prism_jax.decision.thinking import value_of_thinking
from prism_jax.decision.value_surface import prices_reached, value_surface
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.scores.labels import Thinking, acceptance_weight
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


def uncountable(data: EvaluationData) -> str | None:
    """Why decisions cannot be counted exactly; None if they can."""
    labels = [data.label("need"), data.label("accept"), data.label("accept", data.everywhere_slow)]
    labels.append(np.where(data.judged, data.best_accept, np.nan))
    soft = any(((label != 0) & (label != 1) & ~np.isnan(label)).any() for label in labels)
    return uncountable_words(soft, bool((acceptance_weight(data.steps)[data.judged] != 1).any()))


def uncountable_words(soft: bool, weighted: bool) -> str | None:
    """Why steps with soft labels, or with weights other than 1, cannot be counted; None without any."""
    if soft:
        return "some labels are soft, neither 0 nor 1, and steps with such labels cannot be counted"
    if weighted:
        return "steps have inverse-propensity weights, and weighted steps cannot be counted"
    return None


def explore(data: EvaluationData) -> Exploration:
    """Counts the gate's decisions over costs and settings.

    Raises:
      ValueError: if they cannot be counted (`uncountable`).
    """
    if (reason := uncountable(data)) is not None:
        raise ValueError(f"control surface: exploration that {reason}; expected labels of 0 and 1 with weights of 1")
    return explore_part(data, *_groups(data))


def explore_part(
    data: EvaluationData,
    columns: tuple[str, ...],
    groups: tuple[tuple[str, ...], ...],
    group: Int64[np.ndarray, " steps"],
) -> Exploration:
    """The counts of these steps, in known groups: the columns that make them, their values, and that of each step."""
    ratios, ratio = _with(RATIOS, data.point.cost_ratio)
    thinkings: tuple[Thinking, ...] = ("fast", "slow") if data.slow else ("fast",)
    accept = [data.label("accept")] + ([data.label("accept", data.everywhere_slow)] if data.slow else [])
    steps = data.steps
    exploration = Exploration(
        c_fa=data.point.c_fa,
        ratios=ratios,
        deployed=ratio,
        columns=columns,
        groups=groups,
        group=group,
        judged=data.judged,
        tables=(),
        stream=steps.stream,
        step=steps.step,
        time=np.full(len(steps), np.nan) if steps.time is None else steps.time,
        passes=tuple(data.signals(thinking, "calibrated") for thinking in thinkings),
        y_need=data.label("need"),
        y_accept=tuple(accept),
        y_best=data.best_accept,
        totals=_totals(data, group, len(groups)),
        has_need=data.has_need,
    )
    tables = [_by_margin(exploration, data.point.margin)]
    if data.has_value:
        tables.append(_by_value(exploration, data))
    if data.deployed() == "slow_on_value":
        tables.reverse()
    return dataclasses.replace(exploration, tables=tuple(tables))


def _totals(data: EvaluationData, group: Int64[np.ndarray, " steps"], groups: int) -> Totals:
    """The sizes of the groups."""
    judged, accept = data.judged, data.label("accept")
    members = (np.ones(len(group), bool), judged, judged & (data.missed == 1), judged & (accept == 0))
    return Totals(*(np.bincount(group[member], minlength=groups) for member in members))


def _with(values: tuple[float, ...], own: float) -> tuple[Float64[np.ndarray, " values"], int]:
    """The values with one more, in ascending order, and the place of that one."""
    axis = np.unique(np.array([*values, own], np.float64))
    return axis, int(np.searchsorted(axis, own))


def _groups(
    data: EvaluationData,
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], Int64[np.ndarray, " steps"]]:
    """Columns, groups and the group of each step: as many of the columns as make at most `MOST_GROUPS` groups."""
    present = tuple(name for name in ("domain", "persona") if getattr(data.steps, name) is not None)
    texts, codes = zip(*(ordered(*data.steps.numbered(name)) for name in present), strict=True) if present else ((), ())
    sizes = tuple(map(len, texts))
    occurring = np.unique(np.ravel_multi_index(codes, sizes)) if present else np.zeros(0, np.int64)
    places = zip(*(place.tolist() for place in np.unravel_index(occurring, sizes)), strict=True) if present else ()
    every = [tuple(names[i] for names, i in zip(texts, place, strict=True)) for place in places]
    columns, groups = choose_groups(present, every)
    return columns, groups, group_of(data, columns, groups)


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


def _labels(exploration: Exploration) -> dict[str, Any]:
    """The labels that both surfaces take; those of steps that are not judged are 0."""

    def known(label: Float64[np.ndarray, " steps"]) -> Float64[np.ndarray, " steps"]:
        return np.where(exploration.judged, label, 0.0)

    need, accept = known(exploration.y_need), [known(label) for label in exploration.y_accept]
    labels = {"y": need * accept[0], "y_need": need, "y_accept": accept[0], "y_best": need * known(exploration.y_best)}
    if len(accept) > 1:
        labels |= {"y_slow": need * accept[1], "y_accept_slow": accept[1]}
    return labels


def _by_margin(exploration: Exploration, margin: float) -> Table:
    """The surface over margins; without a slow pass, the gate alone."""
    slow = len(exploration.passes) > 1
    settings, deployed = _with(MARGINS, margin) if slow else (np.zeros(1), 0)
    labels = _labels(exploration)
    surface = control_surface(
        exploration.passes[0],
        exploration.passes[-1],
        labels.pop("y"),
        exploration.ratios,
        settings,
        exploration.group * 2 + exploration.judged,
        num_groups=2 * len(exploration.groups),
        **labels,
    )
    return Table("margin" if slow else "none", settings, deployed, **_table(surface, exploration))


def _by_value(exploration: Exploration, data: EvaluationData) -> Table:
    """The surface over prices."""
    settings, deployed = _with(PRICES, data.point.price / data.point.c_fa)
    moves, tokens = data.expected_thinking
    fast, slow = exploration.passes
    labels = _labels(exploration)
    surface = value_surface(
        fast,
        slow,
        labels.pop("y"),
        moves,
        tokens,
        exploration.ratios,
        settings,
        groups=exploration.group * 2 + exploration.judged,
        num_groups=2 * len(exploration.groups),
        **labels,
    )
    reach = np.stack(
        [
            prices_reached(np.asarray(value_of_thinking(*fast, 1.0, ratio, moves)), tokens, settings)
            for ratio in map(float, exploration.ratios)
        ],
        axis=1,
    )
    return Table("value", settings, deployed, **_table(surface, exploration), reach=reach)


def _table(surface: Surface, exploration: Exploration) -> dict[str, Counts]:
    """Counts by group, of counts by group and whether its steps are judged."""
    judged = {name: np.asarray(getattr(surface, name))[1::2] for name in ("tp", "fp", "fn", "rejected")}
    by_group = (len(exploration.groups), 2, *np.shape(surface.tp)[1:])
    everywhere = {"offers": np.asarray(surface.tp + surface.fp), "slow": np.asarray(surface.slow)}
    return judged | {name: count.reshape(by_group).sum(axis=1) for name, count in everywhere.items()}
