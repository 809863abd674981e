"""How far judges, panels and people agree, as numbers with intervals over streams; `prism_jax.report` makes the tables.

Offers and silences are compared separately. Their base rates differ, and over both together a judge would look good who
only tells the two apart.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import judge_noise
from prism_jax.decision.uncertainty import UNDEFINED, Estimate, agreement_intervals, panel_intervals
from prism_jax.labelling.judges.ballots import Ballots, Item, PanelConfig, majority

Kind = Literal["offers", "silences"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HUMAN, ALL_BUT = "human majority", "all but "
HUMAN_CONFIG = PanelConfig(missing="majority_of_present", ties="missing")
"""How people's votes become a label: their majority, and none at a tie."""


@dataclasses.dataclass(frozen=True)
class PairRow:
    """Agreement of two raters on one kind of item."""

    kind: Kind
    judge: str  # name of the first rater
    reference: str  # name of the second rater
    items: int  # number of items that both labelled
    streams: int  # number of streams that these belong to
    measures: Mapping[str, Estimate]  # the measures of `PAIR_MEASURES`; NaN where undefined
    constant: float  # agreement with the reference of the better constant judge
    sensitivity: Estimate  # share of the items accepted by the reference that the judge accepts
    specificity: Estimate  # share of the items rejected by the reference that the judge rejects


@dataclasses.dataclass(frozen=True)
class PanelRow:
    """Agreement within a panel on one kind of item."""

    kind: Kind
    panel: str
    judges: int
    items: int  # number of items with at least two verdicts
    complete: int  # number of items with a verdict of every judge
    ties: int  # number of items with equally many verdicts for and against
    measures: Mapping[str, Estimate]  # the measures of `PANEL_MEASURES`; NaN where undefined


class Agreements(NamedTuple):
    """All numbers about agreement."""

    pairs: tuple[PairRow, ...]
    panels: tuple[PanelRow, ...]


def compare_judges(
    panels: Mapping[str, Ballots],
    human: Ballots | None = None,
    *,
    config: PanelConfig | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> Agreements:
    """Compares panels with people, with each other, and the judges of each panel.

    For each kind of item, pairs have this order: each panel and each judge against the human majority, each panel
    against the panels after it, the judges of each panel against each other, people against each other, and each of
    three or more people against the majority of the others. Then each panel, and people among themselves. What has
    fewer than two common items is left out. The resamples are of streams.
    """
    raters, pairs = _raters(panels, human, config or PanelConfig())
    settings = {"resamples": resamples, "seed": seed}
    compared = [
        row
        for kind in KINDS
        for judge, reference in pairs
        if (row := _pair(kind, judge, reference, raters, settings)) is not None
    ]
    among = {**panels, **({"human votes": human} if human is not None else {})}
    rows = [
        one
        for kind in KINDS
        for name, ballots in among.items()
        if (one := _panel(kind, name, ballots, settings)) is not None
    ]
    return Agreements(tuple(compared), tuple(rows))


def _raters(
    panels: Mapping[str, Ballots], human: Ballots | None, config: PanelConfig
) -> tuple[dict[str, Ballots], list[tuple[str, str]]]:
    """Every rater by name (panels, their judges, people), and the pairs to compare, in order and without repetition."""
    raters: dict[str, Ballots] = {name: majority(ballots, config) for name, ballots in panels.items()}
    judges: list[str] = []
    within: list[tuple[str, str]] = []
    for panel, ballots in panels.items():
        alone = len(panels) == 1 and panel not in ballots.judges
        names = [judge if alone else f"{panel}: {judge}" for judge in ballots.judges]
        raters.update(_single(ballots, names))
        judges += names if len(names) > 1 else []  # a single judge is its own majority
        within += itertools.combinations(names, 2)
    against: list[tuple[str, str]] = []
    if human is not None:
        raters.update(_single(human, human.judges))
        raters[HUMAN] = majority(human, HUMAN_CONFIG)
        against = [(name, HUMAN) for name in (*panels, *judges)]
        within += itertools.combinations(human.judges, 2)
        for column, name in enumerate(human.judges if len(human.judges) > 2 else ()):
            rest = Ballots(human.items, human.judges[:-1], np.delete(human.verdicts, column, axis=1))
            raters[ALL_BUT + name] = majority(rest, HUMAN_CONFIG)
            within.append((name, ALL_BUT + name))
    return raters, list(dict.fromkeys([*against, *itertools.combinations(panels, 2), *within]))


def _single(ballots: Ballots, names: Sequence[str]) -> dict[str, Ballots]:
    """Each judge of some ballots alone, under the given names."""
    return {name: Ballots(ballots.items, (name,), ballots.verdicts[:, [index]]) for index, name in enumerate(names)}


class Common(NamedTuple):
    """The labels that two raters gave to the same items, and the stream of each item."""

    first: Float64[np.ndarray, " items"]
    second: Float64[np.ndarray, " items"]
    streams: np.ndarray


def common(first: Ballots, second: Ballots, kind: Kind | None = None) -> Common:
    """Matches two single raters, each ballots with one column, on the items that both labelled; None is every kind."""
    labels = dict(zip(second.items, second.verdicts[:, 0], strict=True))
    rows = [
        (label, labels[item], item.stream)
        for item, label in zip(first.items, first.verdicts[:, 0], strict=True)
        if item in labels and of_kind(item, kind) and not np.isnan(label) and not np.isnan(labels[item])
    ]
    first_labels, second_labels, streams = zip(*rows, strict=True) if rows else ((), (), ())
    return Common(np.array(first_labels, np.float64), np.array(second_labels, np.float64), np.array(streams, str))


def of_kind(item: Item, kind: Kind | None) -> bool:
    """Whether an item is of a kind; every item is of the kind None."""
    return kind is None or item.silence == (kind == "silences")


def _pair(
    kind: Kind, judge: str, reference: str, raters: Mapping[str, Ballots], settings: Mapping[str, int]
) -> PairRow | None:
    """One row; None for fewer than two common items. Intervals are NaN where the items belong to few streams."""
    labels = common(raters[judge], raters[reference], kind)
    if len(labels.first) < 2:
        return None
    measures = agreement_intervals(labels.first, labels.second, streams=labels.streams, **settings)
    errors = {"sensitivity": UNDEFINED, "specificity": UNDEFINED}
    if 0 < labels.second.mean() < 1:
        rates = judge_noise.error_rates(labels.first, labels.second, streams=labels.streams, **settings)
        errors = {"sensitivity": rates.sensitivity, "specificity": rates.specificity}
    base = float(labels.second.mean())
    return PairRow(
        kind, judge, reference, len(labels.first), len(set(labels.streams)), measures, max(base, 1 - base), **errors
    )


def _panel(kind: Kind, name: str, ballots: Ballots, settings: Mapping[str, int]) -> PanelRow | None:
    """One row; None for fewer than two items with two verdicts."""
    rows = np.array([of_kind(item, kind) for item in ballots.items], bool)
    verdicts = ballots.verdicts[rows]
    streams = np.array([item.stream for item in ballots.items], str)[rows]
    votes = np.stack([(verdicts == 0).sum(1), (verdicts == 1).sum(1)], axis=1)
    paired = votes.sum(1) >= 2
    if paired.sum() < 2:
        return None
    measures = panel_intervals(votes[paired], streams=streams[paired], **settings)
    complete = int((~np.isnan(verdicts)).all(1).sum())
    ties = int((votes[paired, 0] == votes[paired, 1]).sum())
    return PanelRow(kind, name, len(ballots.judges), int(paired.sum()), complete, ties, measures)
