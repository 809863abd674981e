"""Gates that keep promises: certified on the calibration split, measured on the test split (docs/promises.md).

The rules are the gate at rising cost ratios, one fixed grid for all data. Units are people where the scores have a
column `person`, else streams.

Which units certify: those of the calibration split. Where the maps have no influence on which rules there are, the
same units fit the maps and certify: gates on acceptance alone, with an increasing map and monotone risks. Elsewhere the
units are divided in halves by their names: one half fits the maps, the other certifies. Maps from an earlier
calibration.json leave all units to certify; they must come from other people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Shaped

from prism_jax.decision import audbc, risk
from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Cells, Interval, interval
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.need import check_need, with_need
from prism_jax.evaluation.protocol import CALIBRATION, TEST, calibrate, rows_of
from prism_jax.scores import Scores, ScoresError

POLICIES = ("dynamic", "static", "product")
"""The deployable policies that are ordered by the cost ratio."""
INCREASING = ("temperature", "isotonic")
"""Calibrators whose map never reverses the order of a signal."""
GRID = np.array([float(f"{ratio:.4g}") for ratio in np.geomspace(1e-3, 1e3, 241)])
"""Cost ratios of the gates that are tested, short enough to be typed; the stated ratio and the starts join them."""


class Units(NamedTuple):
    """The judged steps of some units.

    Attributes:
      first: The first rule that offers at each step.
      y: Gold label of each step.
      unit: The person or stream of each step.
      unjudged: Number of steps left out because a label is unknown.
    """

    first: Shaped[np.ndarray, "n"]
    y: Float64[np.ndarray, "n"]
    unit: Shaped[np.ndarray, "n"]
    unjudged: int

    @property
    def number(self) -> int:
        """Number of units."""
        return len(np.unique(self.unit))


class Line(NamedTuple):
    """What one bound certifies, and how it does on the test split.

    Attributes:
      bound: A name of `risk.BOUNDS`, or `expectation`.
      certified: Cost ratios of the certified gates, ascending; empty if only silence, or only offers everywhere, is.
      chosen: The certified ratio nearest to the operating point's; None if there is none.
      speak_rate: Mean speak rate of the certifying units at it; None without one.
      test_speak_rate: The same of the test units.
      test_risks: Risk of the test units per promise, with its interval over units; None for false discovery where
        nothing is offered.
    """

    bound: str
    certified: tuple[float, ...]
    chosen: float | None = None
    speak_rate: float | None = None
    test_speak_rate: float | None = None
    test_risks: Mapping[risk.Promise, Interval | None] = {}


class PromiseResult(NamedTuple):
    """The result for some promises.

    Attributes:
      promises: The promises.
      error: The probability eta with which one of them may fail.
      unit: `person` or `stream`.
      halves: Whether half of the calibration units fitted the maps.
      certifying: The certifying units.
      test: The test units.
      lines: One per bound; the first is the one that promises.
    """

    promises: tuple[risk.Promise, ...]
    error: float
    unit: str
    halves: bool
    certifying: Units
    test: Units
    lines: tuple[Line, ...]


def promise(
    scores: Scores,
    promises: Sequence[risk.Promise],
    point: OperatingPoint,
    *,
    error: float,
    config: CalibrationConfig | None = None,
    calibration: Calibration | None = None,
    start: float | None = None,
) -> PromiseResult:
    """Certifies gates on the calibration split and measures them on the test split.

    Args:
      scores: The scores table, with the splits calibration and test.
      promises: One or more promises, kept together.
      point: The policy, and the costs to which the deployed gate comes as near as the promises allow.
      error: The probability eta with which a promise may fail, in (0, 1).
      config: The choice of the map; None is one temperature.
      calibration: Maps fitted earlier, on other units.
      start: Cost ratio at which the tests of false discovery begin, fixed beforehand; by default limit / (1 - limit),
        at which a calibrated gate would keep the limit at every single offer.

    Raises:
      ScoresError: for missing splits, offers that were not made, or labels that are missing.
      ValueError: for a policy that the cost ratio does not order, or repeated promises.
    """
    if point.policy not in POLICIES:
        raise ValueError(f"policy: found {point.policy!r}, expected one of {', '.join(POLICIES)}: ordered by the costs")
    if len(set(promises)) != len(promises) or not promises:
        raise ValueError(f"promise: found {', '.join(map(str, promises)) or 'none'}, expected each once, and some")
    config = CalibrationConfig() if config is None else config
    _check_splits(scores)
    _check_answers(scores)
    check_need(scores)
    rows, test = rows_of(scores, CALIBRATION), rows_of(scores, TEST)
    starts = {one: one.limit / (1 - one.limit) if start is None else start for one in promises if one.grows is None}
    halves = calibration is None and not _maps_cannot_matter(scores, promises, point, config)
    if calibration is None:
        fitting = _first_half(unit_of(rows)) if halves else np.ones(len(rows), bool)
        calibration = calibrate(rows.take(fitting), config)
        rows = rows.take(~fitting) if halves else rows
    ratios = np.unique(np.concatenate([GRID, [point.cost_ratio], list(starts.values())]))
    certifying, tested = (_units(one, calibration, point, ratios) for one in (rows, test))
    at = {one: (int(np.searchsorted(ratios, ratio)),) for one, ratio in starts.items()}
    lines = _lines(certifying, tested, ratios, promises, point.cost_ratio, error, at)
    unit = "stream" if scores.person is None else "person"
    return PromiseResult(tuple(promises), error, unit, halves, certifying, tested, tuple(lines))


def _lines(
    certifying: Units,
    test: Units,
    ratios: Float[np.ndarray, " G"],
    promises: Sequence[risk.Promise],
    own: float,
    error: float,
    starts: Mapping[risk.Promise, Sequence[int]],
) -> list[Line]:
    losses, tested = (
        {one: risk.unit_losses(*part[:3], len(ratios), one) for one in promises} for part in (certifying, test)
    )
    rules = {bound: risk.certify(losses, error, bound=bound, starts=starts).rules for bound in risk.BOUNDS}
    if all(one.grows is not None for one in promises):
        rules["expectation"] = risk.kept_in_expectation(losses)
    B_UxG, T_UxG = (
        risk.unit_losses(*part[:3], len(ratios), risk.Promise("burden", 0.5)) for part in (certifying, test)
    )
    found = []
    for bound, kept in rules.items():
        index = np.flatnonzero(kept)
        if not len(index):
            found.append(Line(bound, ()))
            continue
        distance = np.abs(np.log(np.maximum(ratios[index], GRID[0] / 2)) - np.log(max(own, GRID[0] / 2)))
        best = int(index[distance.argmin()])
        risks = {one: _with_interval(one, tested[one][:, best], T_UxG[:, best]) for one in promises}
        chosen = (float(ratios[best]), float(B_UxG[:, best].mean()), float(T_UxG[:, best].mean()))
        found.append(Line(bound, tuple(ratios[index].tolist()), *chosen, risks))
    return found


def _with_interval(
    one: risk.Promise, loss_U: Float[np.ndarray, " U"], burden_U: Float[np.ndarray, " U"]
) -> Interval | None:
    """The risk over units, with its interval: the mean loss, or of false discovery the share of the offers, if any."""
    if one.grows is None and not burden_U.any():
        return None

    def measured(drawn: Any) -> Any:
        if one.grows is not None:
            return drawn @ loss_U / drawn.sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return one.limit + drawn @ (loss_U - one.limit) / (drawn @ burden_U)

    return interval(Cells(None, np.ones(len(loss_U), np.int64)), measured, resamples=2_000)


def unit_of(rows: Scores) -> Shaped[np.ndarray, "rows"]:
    """The unit of each row: its person where the scores know people, else its stream."""
    return (rows.stream if rows.person is None else rows.person).astype(str)


def _units(rows: Scores, calibration: Calibration, point: OperatingPoint, ratios: Float[np.ndarray, " G"]) -> Units:
    """The judged steps, each with the first cost ratio at which the policy offers."""
    steps, calibration = with_need(rows.steps(), calibration)
    if steps.y_accept is None:
        raise ScoresError("found no such column, expected it: a promise is about gold labels", "y_accept")
    assert steps.y_need is not None, "`with_need` gives labels of need, or refuses the table"
    gold = steps.y_need * steps.y_accept
    known = ~np.isnan(gold)
    if not known.any():
        raise ScoresError(f"found no step with both labels among {len(steps)}, expected some", "y_accept")
    need, accept = (calibration.calibrated(signal, "fast", steps) for signal in ("need", "accept"))
    p_need, p_accept = audbc.policy_signals(need, accept, point.policy)
    p_need, p_accept = (np.broadcast_to(np.asarray(one, np.float64), len(steps)) for one in (p_need, p_accept))
    first = risk.first_gate(p_need[known], p_accept[known], ratios)
    return Units(first, gold[known], unit_of(steps)[known], int((~known).sum()))


def _maps_cannot_matter(
    scores: Scores, promises: Sequence[risk.Promise], point: OperatingPoint, config: CalibrationConfig
) -> bool:
    """Whether the maps have no influence on which rules are certified (docs/maths.md, section 14)."""
    alone = point.policy == "static" or not scores.has_need
    return alone and config.calibrator in INCREASING and all(one.grows is not None for one in promises)


def _first_half(unit: Shaped[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
    """The rows of every second unit, in the order of digests of the units' names, which no label influences."""
    names, code = np.unique(unit, return_inverse=True)
    if len(names) < 4:
        raise ScoresError(
            f"split {CALIBRATION!r}: found {len(names)} units, expected at least 4: half of them fit the maps and half "
            "certify",
            "split",
        )
    order = np.argsort([hashlib.sha256(name.encode()).hexdigest() for name in names.tolist()])
    half = np.zeros(len(names), bool)
    half[order[::2]] = True
    return half[code]


def _check_splits(scores: Scores) -> None:
    if scores.split is None:
        raise ScoresError(
            f"found no such column, expected the splits {CALIBRATION!r} and {TEST!r}: a promise is certified on units "
            "that are not measured, and folds, in which every unit is measured, do not do",
            "split",
        )


def _check_answers(scores: Scores) -> None:
    if scores.logged is not None and (scores.logged == 0).any():
        row = int((scores.logged == 0).argmax())
        raise ScoresError(
            "found an offer that was not made, expected that all were: its answer is unknown, and a promise about the "
            "offers that a log happened to make is not one about the gate",
            "logged",
            row,
        )
