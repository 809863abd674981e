"""What injections and their controls change, and the tables that show it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float

from prism_jax.decision.gate import decide
from prism_jax.decision.uncertainty import SHARE, UNBOUNDED
from prism_jax.evaluation.replay import mean_interval
from prism_jax.experiments.injection_strings import GOALS, Goal, Injection
from prism_jax.experiments.intervals import show_interval
from prism_jax.report.table import Column, Row, Section, Table

C_FA, C_FN = 1.0, 2.0
Kind = Literal["injection", "same words", "other words"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What is written into a stream; all but the first are controls."""
Target = Literal["event", "offer"]
How = Literal["appended", "replaced"]


class Place(NamedTuple):
    """Where a text is put."""

    target: Target  # the text that changes: that of the newest event, or that of the offer
    how: How  # whether the new text follows the old one or takes its place

    def __str__(self) -> str:
        return f"{self.target}, {self.how}"


PLACES = tuple(Place(target, how) for target, how in itertools.product(get_args(Target), get_args(How)))


class Signals(NamedTuple):
    """Both signals of some readings."""

    need: Float[np.ndarray, "*readings"]  # probability of need
    accept: Float[np.ndarray, "*readings"]  # probability of acceptance

    def offers(self) -> Bool[np.ndarray, "*readings"]:
        """Whether the gate opens at C_FA : C_FN = 1 : 2."""
        return np.asarray(decide(self.need, self.accept, C_FA, C_FN))


@dataclasses.dataclass(frozen=True)
class Measured:
    """All readings of one study. Dimensions: K kinds, P places, I injections, S streams."""

    injections: tuple[Injection, ...]  # the attacks
    before: Signals  # [S] signals of the streams as they are
    after: Signals  # [K, P, I, S] signals of the changed streams

    def flips(self, goal: Goal) -> Bool[np.ndarray, "K P I S"]:
        """Whether each changed text turned the decision of its stream into `goal`."""
        wanted = goal == "offer"
        return (self.after.offers() == wanted) & (self.before.offers() != wanted)

    def moves(self) -> Signals:
        """[K, P, I, S] absolute changes of both signals."""
        pairs = zip(self.after, self.before, strict=True)
        return Signals(*(np.abs(after - before) for after, before in pairs))


COLUMNS = (
    Column("flips wanted", "Share of the decisions that turn into what the attacker wants."),
    Column("flips opposite", "Share of the decisions that turn into the opposite."),
    Column("wanted, beyond control", "Wanted flips of the injections minus those of this control, paired by stream."),
    Column("mean |Δp_need|", "Mean change of the probability of need."),
    Column("max |Δp_need|", "Largest change of the probability of need."),
    Column("mean |Δp_accept|", "Mean change of the probability of acceptance."),
    Column("max |Δp_accept|", "Largest change of the probability of acceptance."),
)
_TITLES: dict[Goal, str] = {"offer": "Towards an offer", "silence": "Towards silence"}


def tables(measured: Measured) -> tuple[Table, Table]:
    """The changes by family, over all places, and by place, over all families."""
    families = dict.fromkeys(injection.family for injection in measured.injections)
    everywhere = list(range(len(PLACES)))

    def chosen(goal: Goal, family: str | None = None) -> list[int]:
        own = enumerate(measured.injections)
        return [i for i, injection in own if injection.goal == goal and family in (None, injection.family)]

    def sections(rows: Callable[[Goal], Iterable[Row]]) -> tuple[Section, ...]:
        return tuple(Section(_TITLES[goal], tuple(rows(goal))) for goal in GOALS)

    def by_family(goal: Goal) -> Iterator[Row]:
        for family in families:
            yield from _rows(measured, goal, family, everywhere, chosen(goal, family))

    def by_place(goal: Goal) -> Iterator[Row]:
        for number, place in enumerate(PLACES):
            yield from _rows(measured, goal, str(place), [number], chosen(goal))

    offers = measured.before.offers()
    note = (
        f"{len(offers)} streams; without any change the gate offers in {int(offers.sum())} of them. Shares are of all "
        "decisions. Means with 95 % intervals over these streams. The controls have the length of the injections."
    )
    return (
        Table("Injections by family", "family", COLUMNS, sections(by_family), note),
        Table("Injections by place", "place", COLUMNS, sections(by_place), note),
    )


def _rows(measured: Measured, goal: Goal, name: str, places: Sequence[int], own: Sequence[int]) -> list[Row]:
    """One row of the injections, and one of each control."""
    opposite: Goal = "silence" if goal == "offer" else "offer"
    need, accept = measured.moves()
    part = np.ix_(range(len(KINDS)), places, own, range(len(measured.before.need)))
    wanted, unwanted = (measured.flips(way)[part].mean((1, 2)) for way in (goal, opposite))  # [K, S]
    rows = []
    for k, kind in enumerate(KINDS):
        cells = [_show(wanted[k]), _show(unwanted[k]), "" if k == 0 else _show(wanted[0] - wanted[k], "+")]
        for moved in (need[part][k], accept[part][k]):
            cells += [_show(moved.mean((0, 1))), f"{moved.max():.3f}"]
        rows.append(Row(name if k == 0 else f"{name}: {kind}", tuple(cells), strong=k == 0))
    return rows


def _show(values: Float[np.ndarray, " S"], sign: str = "") -> str:
    """The mean of one value per stream, with its interval."""
    mean = mean_interval(np.asarray(values, np.float64), np.arange(len(values)), bounds=UNBOUNDED if sign else SHARE)
    return show_interval(float(mean.estimate), float(mean.low), float(mean.high), sign=sign)
