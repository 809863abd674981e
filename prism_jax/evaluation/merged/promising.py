"""Promises about tables that need not fit into memory: who certifies, the maps, and the courses of the units.

Three statistics follow each other: `Census` has the units of each split, `Fitting` what the maps are fitted from, and
`Judging` the judged steps of each unit. Scores with the splits calibration and test keep them. All other scores are
divided here by digests of the units' names, which no label and no score influences.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt64

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import planning
from prism_jax.evaluation.merged.parts import of_split
from prism_jax.evaluation.merged.running import Runner
from prism_jax.evaluation.merged.scan import Scan, structure_of
from prism_jax.evaluation.merged.states import Beginning, Keys, State, Statistic, merge, stored
from prism_jax.evaluation.need import check_need
from prism_jax.evaluation.promise_units import Answers, Course, Family, Units, judged_units
from prism_jax.evaluation.promises import ByFamily, Population, PromiseResult, Wanted, certified
from prism_jax.evaluation.splits import CALIBRATION, TEST, without_split
from prism_jax.scores import Scores, ScoresError

for _class in (Units, Course, Answers, Family):
    stored(_class)


class Census:
    """What there is, as in `Scan`, and beside it the units and the first offer that was not made, by split."""

    def init(self) -> State:
        """The state of no rows."""
        return {"rows": 0}

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        check_need(rows)
        more: dict[str, Any] = structure_of(rows) | {"fits": {}, "units": {}, "hidden": {}}
        for split in [""] if rows.split is None else sorted(set(rows.split.tolist())):
            part = of_split(rows, split)
            assert part is not None, "a split that some row has"
            if split == CALIBRATION:
                more["fits"][split] = 1
            elif split in ("", TEST) and part.fold is not None:
                more["fits"] |= dict.fromkeys(part.fold.tolist(), 1)
            more["units"][split] = Keys(np.unique(digests(part.numbered(_unit(part))[0])))
            if part.logged is not None and (hidden := np.flatnonzero(part.logged == 0)[:1]).size:
                more["hidden"][split] = Beginning({"stream": part.stream[hidden], "step": part.step[hidden]}, 1)
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
class Fitting(Statistic):
    """What the maps are fitted from: of the rows that fit them, as in `Scan`."""

    scan: Scan
    division: Division

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        part = self.division.fits(rows)
        if part is None:
            return state
        columns = {name: column for name, column in part.columns().items() if name != "fold"}
        split = np.full(len(part), CALIBRATION, object)
        return merge(state, self.scan.maps(Scores.of_checked(columns | {"split": split})))


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
            units, steps = ({}, 0) if part is None else judged_units(part, self.calibration, self.families, self.ratios)
            more["unjudged"][name] = 0 if units else steps
            if units:
                more["units"][name] = units
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
    exact: bool = False,
) -> PromiseResult:
    """Certifies gates on some units and measures them on others, by statistics that need not hold all rows.

    The state grows with the units and with the courses that their steps take, not with the steps.

    Args:
      run: What runs a statistic over the rows, which have the splits calibration and test, or folds or nothing.
      wanted: What is to be promised.
      config: The choice of the map; None is one temperature.
      calibration: Maps fitted earlier, on other units.
      test_share: Share of the units that are measured and do not certify, for scores without a split calibration; with
        `calibration`, of the split test.
      exact: Whether all rows fit into memory, so that maps are fitted on the signals and not on histograms of them.

    Raises:
      OutOfOrderError: where the rows of a stream are not together; they must be put together first.
      ScoresError: for missing splits, offers that were not made, or labels or slow signals that are missing.
      ValueError: for a policy that the cost ratio does not order, a margin without the policy dynamic, or repetitions.
    """
    config = CalibrationConfig() if config is None else config
    census = run("scan", Census())
    planning.check_structure(census)
    has_need = planning.has_need(census)
    wanted.check(has_need)
    division = _divided(census, test_share, calibration is not None)
    halves = calibration is None and not wanted.maps_cannot_matter(has_need, config)
    if halves:
        keys = census["units"][CALIBRATION].keys if division.by_split else _others(census, division)
        division = dataclasses.replace(division, fitting=every_second(keys))
    if calibration is None:
        calibration = planning.calibrate(run("maps", Fitting(Scan(config, exact), division)), config)
    fits = calibration

    def units(ratios: Float[np.ndarray, " G"], tested: bool) -> tuple[ByFamily, ByFamily]:
        measured = tested and (
            len(division.measured) > 0 or (division.by_split and set(census["splits"]) != {CALIBRATION})
        )
        name = "courses" if tested else "starts"
        state = run(name, Judging(division, fits, wanted.families, ratios, measured))
        return _units(state, CALIBRATION), _units(state, TEST) if measured else {}

    people = "person" in next(iter(census["columns"]))
    folds = planning.out_of_fold(census)
    return certified(wanted, Population("person" if people else "stream", has_need, halves, folds, calibration, units))


def _unit(rows: Scores) -> str:
    return "stream" if rows.person is None else "person"


def _evaluated(census: State) -> str:
    """The split that is divided where the table's own splits are not used; none of a table without."""
    return TEST if census["splits"] else ""


def _divided(census: State, test_share: float, has_maps: bool) -> Division:
    """Who certifies and who is measured; checks that all their offers were made."""
    splits, nobody = census["splits"], np.zeros(0, np.uint64)
    if CALIBRATION in splits and test_share and not has_maps:
        raise ScoresError(
            f"found the split {CALIBRATION!r} and --test_share={test_share:g}, expected one of them, or "
            "--calibration as well, which divides the split 'test'",
            "split",
        )
    by_split = CALIBRATION in splits and not test_share
    for split, hidden in census["hidden"].items():
        if by_split or split == _evaluated(census):
            stream, step = (hidden.columns[name][0] for name in ("stream", "step"))
            raise ScoresError(
                f"found an offer that was not made (stream {stream!r}, step {step}), expected that all were: its "
                "answer is unknown, and a promise about the offers that a log happened to make is not one about the "
                "gate",
                "logged",
            )
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
        raise ScoresError(f"found no step with both labels among {unjudged}, expected some", "y_accept")
    return {family: units._replace(unjudged=units.unjudged + unjudged) for family, units in by_family.items()}


def digests(names: Shaped[np.ndarray, "U"] | Sequence[str]) -> UInt64[np.ndarray, "U"]:
    """The first eight bytes of the SHA-256 of each unit's name, by which units are divided."""
    return np.array([int.from_bytes(hashlib.sha256(str(name).encode()).digest()[:8]) for name in names], np.uint64)


def among(keys: UInt64[np.ndarray, "U"], chosen: UInt64[np.ndarray, "n"]) -> Bool[np.ndarray, "U"]:
    """Whether each digest is one of the chosen ones, which ascend."""
    place = np.searchsorted(chosen, keys)
    known = place < len(chosen)
    known[known] = chosen[place[known]] == keys[known]
    return known


def first_share(keys: UInt64[np.ndarray, "U"], share: float) -> UInt64[np.ndarray, "n"]:
    """The first share of all units, whose digests ascend; ScoresError for no unit in a part that needs some."""
    chosen = keys[: round(share * len(keys))]
    if len(chosen) == len(keys) or (share and not len(chosen)):
        raise ScoresError(
            f"found {len(keys)} units and --test_share={share:g}, expected some that certify and some that are "
            "measured",
            "split",
        )
    return chosen


def every_second(keys: UInt64[np.ndarray, "U"]) -> UInt64[np.ndarray, "n"]:
    """Every second of the units, whose digests ascend; fewer than four units raise ScoresError."""
    if len(keys) < 4:
        raise ScoresError(
            f"split {CALIBRATION!r}: found {len(keys)} units, expected at least 4: half of them fit the maps and half "
            "certify",
            "split",
        )
    return keys[::2]
