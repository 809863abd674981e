"""Gates that keep promises: certified on some units, measured on others (docs/promises.md).

The rules are gates at rising cost ratios, one fixed grid for all data, in one or several families: policies and slow
margins. Units are people where the scores have a column `person`, else streams.

Which units certify: those of the calibration split, or of a table without one, all that are not set aside for the test.
Where the maps have no influence on which rules there are, the same units fit the maps and certify: gates on acceptance
alone without a margin, with an increasing map and monotone risks. Elsewhere the units are divided in halves by their
names: one half fits the maps, the other certifies. Maps from an earlier calibration.json leave all units to certify;
they must come from other people.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision import risk
from prism_jax.decision.calibration import CalibrationConfig, Map
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.policies import promised_policies
from prism_jax.decision.uncertainty import SHARE, Cells, Estimate, interval
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.promise_units import (
    Family,
    Units,
)

INCREASING = ("temperature", "penalised", "isotonic")
"""Calibrators whose map never reverses the order of a signal."""
GRID = np.array([float(f"{ratio:.4g}") for ratio in np.geomspace(1e-3, 1e3, 241)])
"""Cost ratios of the gates that are tested, short enough to be typed; the stated ratio and the starts join them."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is to be promised."""

    promises: Sequence[risk.Promise]  # one or more, kept together
    point: OperatingPoint  # the costs to which the deployed gate comes as near as the promises allow
    error: float  # the probability eta with which any of the promises may fail for any of the families, in (0, 1)
    families: tuple[Family, ...]  # policies and margins
    # Cost ratio at which the tests of false discovery and dismissals begin, fixed beforehand; None is
    # limit / (1 - limit). There a calibrated gate keeps a limit of dismissals at every single offer, and one of false
    # discovery if its policy is `product`.
    start: float | None = None

    def check(self, has_need: bool) -> None:
        """ValueError for promises or families that cannot be."""
        if len(set(self.promises)) != len(self.promises) or not self.promises:
            words = ", ".join(map(str, self.promises)) or "none"
            raise ValueError(f"promise: found {words}, expected each once, and some")
        for family in self.families:
            if family.policy not in (policies := promised_policies()):
                raise ValueError(
                    f"policy: found {family.policy!r}, expected one of {', '.join(policies)}: ordered by the costs"
                )
            if family.margin and family.policy != "dynamic":
                raise ValueError(
                    f"margin: found {family.margin:g} of {family.policy}, expected 0: only dynamic has a slow margin"
                )
            if not 0 <= family.margin <= 1:
                raise ValueError(f"margin: found {family.margin:g}, expected a number in [0, 1]")
        words = "; ".join(map(str, self.families))
        if len(set(self.families)) != len(self.families):
            raise ValueError(f"policy, margin: found {words}, expected each once")
        if not has_need and len({family.policy for family in self.families}) > 1:
            raise ValueError(
                f"policy: found {words}, expected one policy: without p_need_fast they all decide the same"
            )

    @property
    def starts(self) -> dict[risk.Promise, float]:
        """Cost ratio at which the tests of each share of offers begin."""
        return {
            promised: promised.limit / (1 - promised.limit) if self.start is None else self.start
            for promised in self.promises
            if promised.grows is None
        }

    def maps_cannot_matter(self, has_need: bool, config: CalibrationConfig) -> bool:
        """Whether the maps have no influence on which rules are certified (docs/maths.md, section 14)."""
        alone = all((family.policy == "static" or not has_need) and not family.margin for family in self.families)
        return alone and config.calibrator in INCREASING and not self.starts


ByFamily = Mapping[Family, Units]


class Population(NamedTuple):
    """The units of some scores, and how they are divided."""

    unit: str  # `person` or `stream`
    has_need: bool  # whether the scores know of need
    halves: bool  # whether half of the calibration units fitted the maps
    folds: bool  # whether scores of different folds were put together
    calibration: Calibration
    # what each family does at cost ratios to the units that certify and to those that are measured, which are left out
    # where there are none or the flag does not ask for them
    units: Callable[[Float[np.ndarray, " G"], bool], tuple[ByFamily, ByFamily]]


class Gate(NamedTuple):
    """One certified gate and how it does."""

    ratio: float  # its cost ratio
    speak_rate: float  # mean speak rate of the certifying units
    slow_rate: float  # mean share of their steps with a slow pass
    cost: float  # their mean realised cost at the stated costs
    test_speak_rate: float | None  # mean speak rate of the test units; None without any
    # risk of the test units per promise, with its interval over units; None for false discovery where nothing is
    # offered; empty without test units
    test_risks: Mapping[risk.Promise, Estimate | None]


class Line(NamedTuple):
    """What one bound certifies of one family."""

    family: Family
    bound: str  # a name of `risk.BOUNDS`, or `expectation`
    # cost ratios of the certified gates, ascending; empty if only silence, or only offers everywhere, is
    certified: tuple[float, ...]
    # the certified gate whose ratio is nearest to the operating point's; None if there is none
    gate: Gate | None = None


class PromiseResult(NamedTuple):
    """The result for some promises."""

    promises: tuple[risk.Promise, ...]
    error: float  # the probability eta with which one of them may fail, for all families together
    families: tuple[Family, ...]  # all of them are promised at once
    unit: str  # `person` or `stream`, or `day` of the log of one person
    halves: bool  # whether half of the calibration units fitted the maps
    folds: bool  # whether scores of different folds, which different models may have given, were put together
    certifying: Units  # with what the first family does to them
    test: Units | None  # None without any
    lines: tuple[Line, ...]  # one per family and bound; in each family, the first is the one that promises
    # the line to deploy: of the promising bound's, the one whose gate has the lowest realised cost at the stated costs
    # on the certifying units; None if nothing is certified
    chosen: Line | None
    # cost ratio at which the tests of shares of offers begin; None is each limit's own, limit / (1 - limit)
    start: float | None = None
    # policies whose gate may break a promise of false discovery at its own start, although calibrated
    too_talkative: tuple[str, ...] = ()
    # for each promise of a share of offers, if nothing is certified: the smallest limit, in hundredths, whose first
    # test the certifying units pass; None if there is none
    passing: Mapping[risk.Promise, float | None] = {}
    # the map of the fast pass's p_accept, where it alone decides; None where need decides with it
    accept_map: Map | None = None


def certified(wanted: Wanted, population: Population) -> PromiseResult:
    """What is promised of some units; `Population.units` is called once, and again where nothing can be promised."""
    promises, families, starts = wanted.promises, wanted.families, wanted.starts
    ratios = np.unique(np.concatenate([GRID, [wanted.point.cost_ratio], list(starts.values())]))
    certifying, tested = population.units(ratios, True)
    at = {promised: (int(np.searchsorted(ratios, ratio)),) for promised, ratio in starts.items()}
    lines: list[Line] = []
    for family in families:
        of_family = certifying[family], tested.get(family)
        lines += _lines(family, len(families), *of_family, ratios, promises, wanted.point, wanted.error, at)
    chosen = _cheapest(lines)
    return PromiseResult(
        promises=tuple(promises),
        error=wanted.error,
        families=families,
        unit=population.unit,
        halves=population.halves,
        folds=population.folds,
        certifying=certifying[families[0]],
        test=tested.get(families[0]),
        lines=tuple(lines),
        chosen=chosen,
        start=wanted.start,
        too_talkative=_too_talkative(families, promises, wanted.start, population.has_need),
        passing={} if chosen else _passing(wanted, population),
        accept_map=None if population.has_need else population.calibration.accept_fast.map,
    )


def _too_talkative(
    families: Sequence[Family], promises: Sequence[risk.Promise], start: float | None, has_need: bool
) -> tuple[str, ...]:
    """The policies for which limit / (1 - limit) is no start of false discovery (docs/maths.md, section 14)."""
    if start is not None or not has_need or all(promised.risk != "false_discovery" for promised in promises):
        return ()
    return tuple(dict.fromkeys(family.policy for family in families if family.policy != "product"))


def _passing(wanted: Wanted, population: Population) -> dict[risk.Promise, float | None]:
    """The smallest limit of each share of offers whose first test passes for some family; see `PromiseResult`."""
    promises, families, start = wanted.promises, wanted.families, wanted.start
    shares = [promised for promised in promises if promised.grows is None]
    limits = np.arange(1, 100) / 100
    starts = limits / (1 - limits) if start is None else np.array([start])
    units = population.units(starts, False)[0] if shares else None
    level, promising = wanted.error / (len(promises) * len(families)), next(iter(risk.BOUNDS.values()))

    def passes(promise: risk.Promise, place: int) -> bool:
        assert units is not None, "there are shares of offers"
        tried = risk.Promise(promise.risk, float(limits[place]))
        rule = place if start is None else 0
        losses = (units[family].losses_at(rule, tried) for family in families)
        return any(promising(loss_Ux1, tried.limit)[0, 0] <= level for loss_Ux1 in losses)

    places = {share: next((place for place in range(len(limits)) if passes(share, place)), None) for share in shares}
    return {share: None if place is None else float(limits[place]) for share, place in places.items()}


def _cheapest(lines: Sequence[Line]) -> Line | None:
    """The promising bound's line with the lowest cost; of equal ones the first."""
    promising = next(iter(risk.BOUNDS))
    costs = {index: line.gate.cost for index, line in enumerate(lines) if line.bound == promising and line.gate}
    return lines[min(costs, key=costs.__getitem__)] if costs else None


def _lines(
    family: Family,
    families: int,
    certifying: Units,
    test: Units | None,
    ratios: Float[np.ndarray, " G"],
    promises: Sequence[risk.Promise],
    point: OperatingPoint,
    error: float,
    starts: Mapping[risk.Promise, Sequence[int]],
) -> list[Line]:
    """What each bound certifies of one family, at its share of the error."""
    losses = {promised: certifying.losses(len(ratios), promised) for promised in promises}
    # With a margin, the passes may choose different candidates, whose losses need no order; their maps never come from
    # the certifying units.
    monotone = not family.margin
    rules = {
        bound: risk.certify(losses, error, bound=bound, starts=starts, families=families, monotone=monotone).rules
        for bound in risk.BOUNDS
    }
    if families == 1 and monotone and all(promised.grows is not None for promised in promises):
        rules["expectation"] = risk.kept_in_expectation(losses)
    lines = []
    for bound, kept in rules.items():
        index = np.flatnonzero(kept)
        if not len(index):
            lines.append(Line(family, bound, ()))
            continue
        stated_ratio = max(point.cost_ratio, GRID[0] / 2)
        distance = np.abs(np.log(np.maximum(ratios[index], GRID[0] / 2)) - np.log(stated_ratio))
        best = int(index[distance.argmin()])
        gate = Gate(
            float(ratios[best]),
            certifying.speak_rate(best),
            certifying.slow_rate(best),
            certifying.cost(best, point),
            None if test is None else test.speak_rate(best),
            {} if test is None else _measured(test, best, len(ratios), promises),
        )
        lines.append(Line(family, bound, tuple(ratios[index].tolist()), gate))
    return lines


def _measured(
    test: Units, rule: int, rules: int, promises: Sequence[risk.Promise]
) -> dict[risk.Promise, Estimate | None]:
    """The risks of one rule over the test units."""
    burden_U = test.losses(rules, risk.Promise("burden", 0.5))[:, rule]
    return {
        promised: _with_interval(promised, test.losses(rules, promised)[:, rule], burden_U) for promised in promises
    }


def _with_interval(
    promise: risk.Promise, loss_U: Float[np.ndarray, " U"], burden_U: Float[np.ndarray, " U"]
) -> Estimate | None:
    """The risk over units, with its interval: the mean loss, or of false discovery the share of the offers, if any."""
    if promise.grows is None and not burden_U.any():
        return None

    def measured(drawn: Any) -> Any:
        if promise.grows is not None:
            return drawn @ loss_U / drawn.sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return promise.limit + drawn @ (loss_U - promise.limit) / (drawn @ burden_U)

    return interval(Cells(None, np.ones(len(loss_U), np.int64)), measured, bounds=SHARE, resamples=2_000)
