"""Promises about tables that need not fit into memory: who certifies, the maps, and the courses of the units.

Three statistics follow each other, as `evaluation.promises.promise` does on a table in memory: `Census` has the units
of each split, `Fitting` the histograms that the maps are fitted from, and `Judging` the judged steps of each unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt64

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import planning
from prism_jax.evaluation.merged.parts import of_split
from prism_jax.evaluation.merged.running import Runner
from prism_jax.evaluation.merged.scan import Scan
from prism_jax.evaluation.merged.states import Keys, State, Statistic, merge, stored
from prism_jax.evaluation.promise_units import (
    Answers,
    Course,
    Family,
    Units,
    among,
    digests,
    divides,
    every_second,
    first_share,
    judged_units,
    without_labels,
)
from prism_jax.evaluation.promises import ByFamily, Population, PromiseResult, Wanted, certified, hidden_offer
from prism_jax.evaluation.splits import CALIBRATION, TEST, without_split
from prism_jax.scores import Scores

for _class in (Units, Course, Answers, Family):
    stored(_class)


@dataclasses.dataclass(frozen=True)
class Census(Statistic):
    """The statistic `Scan`, and beside it the units and the offers that were not made, by split."""

    config: CalibrationConfig

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        scan = Scan(self.config)
        more: dict[str, Any] = {"scan": scan.add(scan.init(), rows), "units": {}, "hidden": {}}
        for split in [""] if rows.split is None else sorted(set(rows.split.tolist())):
            part = of_split(rows, split)
            assert part is not None, "a split that some row has"
            more["units"][split] = Keys(np.unique(digests(part.numbered(_unit(part))[0])))
            more["hidden"][split] = 0 if part.logged is None else int((part.logged == 0).sum())
        return merge(state, more)


@dataclasses.dataclass(frozen=True)
class Division:
    """Which rows fit the maps, certify, and are measured."""

    by_split: bool  # whether by the splits calibration and test, and else by the digests of the units' names
    measured: UInt64[np.ndarray, "measured"]  # of units that are measured, where the splits do not say so
    fitting: UInt64[np.ndarray, "fitting"] | None = None  # of units that fit the maps and do not certify

    def calibration(self, rows: Scores) -> Scores | None:
        """The rows of the units that fit the maps or certify; None where there are none."""
        return of_split(rows, CALIBRATION) if self.by_split else self._of(of_split(rows, TEST), self.measured, False)

    def fits(self, rows: Scores) -> Scores | None:
        """The rows that the maps are fitted on."""
        part = self.calibration(rows)
        return part if self.fitting is None else self._of(part, self.fitting, True)

    def certifies(self, rows: Scores) -> Scores | None:
        """The rows of the units that certify."""
        part = self.calibration(rows)
        return part if self.fitting is None else self._of(part, self.fitting, False)

    def measures(self, rows: Scores) -> Scores | None:
        """The rows of the units that are measured."""
        part = of_split(rows, TEST)
        return part if self.by_split else self._of(part, self.measured, True)

    def _of(self, rows: Scores | None, keys: UInt64[np.ndarray, "n"], within: bool) -> Scores | None:
        if rows is None:
            return None
        names, number = rows.numbered(_unit(rows))
        chosen = (among(digests(names), keys) == within)[number]
        return rows.take(chosen) if chosen.any() else None


@dataclasses.dataclass(frozen=True)
class Fitting:
    """The statistic `Scan` of the rows that fit the maps."""

    config: CalibrationConfig
    division: Division

    def init(self) -> State:
        """The state of no rows."""
        return Scan(self.config).init()

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        part = self.division.fits(rows)
        if part is None:
            return state
        columns = {name: column for name, column in part.columns().items() if name != "fold"}
        split = np.full(len(part), CALIBRATION, object)
        return Scan(self.config).add(state, Scores.of_checked(columns | {"split": split}))


@dataclasses.dataclass(frozen=True)
class Judging:
    """The judged steps of the units, and what the families do at them."""

    division: Division
    calibration: Calibration
    families: Sequence[Family]
    ratios: Float[np.ndarray, " G"]
    tested: bool  # whether the units that are measured are wanted, too

    def init(self) -> State:
        """The state of no rows."""
        return {"units": {}, "unjudged": {}}

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        more: dict[str, Any] = self.init()
        for name, part in self._parts(rows):
            units, steps = (
                (None, 0) if part is None else judged_units(part, self.calibration, self.families, self.ratios)
            )
            more["unjudged"][name] = steps if units is None else 0
            if units is not None:  # each family apart: there are fewer courses of one than of all together
                more["units"][name] = {
                    family: units._replace(courses={family: course}) for family, course in units.courses.items()
                }
        return merge(state, more)

    def _parts(self, rows: Scores) -> Iterator[tuple[str, Scores | None]]:
        yield CALIBRATION, self.division.certifies(rows)
        if self.tested:
            yield TEST, self.division.measures(rows)


def promise(
    run: Runner,
    wanted: Wanted,
    *,
    config: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
    test_share: float = 0.0,
) -> PromiseResult:
    """Certifies and measures as `promises.promise`, by statistics that need not hold all rows.

    Maps that are fitted here are those of histograms of the signals, as in `merged.running.evaluate`; all else is
    exact. The state grows with the units and with the courses that their steps take, not with the steps.

    Args:
      run: What runs a statistic over the rows.
      wanted: What is to be promised.
      config: The choice of the map; None is one temperature.
      calibration: Maps fitted earlier, on other units.
      test_share: Share of the units that are measured and do not certify.

    Raises:
      OutOfOrderError: where the rows of a stream are not together; they must be put together first.
      ScoresError, ValueError: as `promises.promise`.
    """
    config = CalibrationConfig() if config is None else config
    census = run("scan", Census(config))
    scan = census["scan"]
    # Offers that were not made are looked at below: they may stand among rows that nothing is promised about.
    planning.check({name: value for name, value in scan.items() if name != "shown"})
    has_need = planning.has_need(scan)
    wanted.check(has_need)
    division = _divided(census, test_share, calibration is not None)
    halves = calibration is None and not wanted.maps_cannot_matter(has_need, config)
    if halves:
        keys = census["units"][CALIBRATION].keys if division.by_split else _others(census, division)
        division = dataclasses.replace(division, fitting=every_second(keys))
    if calibration is None:
        calibration = planning.calibrate(run("maps", Fitting(config, division)), config)
    fits = calibration

    def units(ratios: Float[np.ndarray, " G"], tested: bool) -> tuple[ByFamily, ByFamily]:
        measured = tested and (
            len(division.measured) > 0 or (division.by_split and set(scan["splits"]) != {CALIBRATION})
        )
        name = "courses" if tested else "starts"
        state = run(name, Judging(division, fits, wanted.families, ratios, measured))
        return _units(state, CALIBRATION), _units(state, TEST) if measured else {}

    people = "person" in next(iter(scan["columns"]))
    folds = planning.out_of_fold(scan)
    return certified(wanted, Population("person" if people else "stream", has_need, halves, folds, calibration, units))


def _unit(rows: Scores) -> str:
    """The column of the units."""
    return "stream" if rows.person is None else "person"


def _evaluated(census: State) -> str:
    """The split that is divided where the table's own splits are not used; none of a table without."""
    return TEST if census["scan"]["splits"] else ""


def _divided(census: State, test_share: float, has_maps: bool) -> Division:
    """Who certifies and who is measured; checks that all their offers were made."""
    splits, nobody = census["scan"]["splits"], np.zeros(0, np.uint64)
    by_split = not divides(CALIBRATION in splits, test_share, has_maps)
    hidden = census["hidden"]
    if sum(hidden.values()) if by_split else hidden.get(_evaluated(census)):
        raise hidden_offer()
    if by_split:
        if TEST not in splits and set(splits) != {CALIBRATION}:
            raise without_split(TEST, splits)
        return Division(True, nobody)
    if _evaluated(census) not in census["units"]:
        raise without_split(TEST, splits)
    return Division(False, first_share(census["units"][_evaluated(census)].keys, test_share))


def _others(census: State, division: Division) -> UInt64[np.ndarray, "n"]:
    return np.setdiff1d(census["units"][_evaluated(census)].keys, division.measured)


def _units(state: State, role: str) -> ByFamily:
    by_family, unjudged = state["units"].get(role), state["unjudged"].get(role, 0)
    if by_family is None:
        raise without_labels(unjudged)
    return {family: units._replace(unjudged=units.unjudged + unjudged) for family, units in by_family.items()}
