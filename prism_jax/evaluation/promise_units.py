"""The people or streams of a promise: which certify and which are measured, and what families of rules do to them.

Scores with the splits calibration and test keep them. All other scores are divided here by digests of the units'
names, which no label and no score influences.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Shaped, UInt64

from prism_jax.decision import audbc, metrics, risk
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, answering_to_ratio
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.need import with_need
from prism_jax.evaluation.policy_rows import judged
from prism_jax.evaluation.splits import CALIBRATION, TEST, evaluated_rows
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Thinking


def promised_policies() -> tuple[str, ...]:
    """The policies that can be promised: deployable ones whose offers are nested in the cost ratio; the gate first."""
    names = [name for name in answering_to_ratio() if POLICIES[name].deployable]
    return tuple(sorted(names, key=lambda name: name != "dynamic"))


class Family(NamedTuple):
    """Rules at rising cost ratios: one policy with one slow margin."""

    policy: str  # one of `promised_policies`
    margin: float = 0.0  # the slow margin; above 0 for `dynamic` only

    def __str__(self) -> str:
        return f"{self.policy}, margin {self.margin:g}" if self.margin else self.policy


class Course(NamedTuple):
    """What one family decides at every step, as indices of cost ratios."""

    first: Int[np.ndarray, "n"]  # the first rule that offers
    start: Int[np.ndarray, "n"]  # the first rule at which the slow pass runs
    stop: Int[np.ndarray, "n"]  # one past the last rule at which it runs


class Answers(NamedTuple):
    """Labels of the candidates that one pass chooses, summed over the steps of each entry."""

    gold: Float64[np.ndarray, "n"]  # need and acceptance together
    accept: Float64[np.ndarray, "n"]  # acceptance


class Units(NamedTuple):
    """The judged steps of some units: each an entry, or one entry for those of a unit with the same courses."""

    courses: Mapping[Family, Course]  # what each family decides at the steps of each entry
    fast: Answers  # labels of the fast pass's candidates
    slow: Answers  # labels of the slow pass's; those of the fast pass where no family has a margin
    # largest known gold label of each step's candidates, summed: what silence misses, whatever would be offered
    missed: Float64[np.ndarray, "n"]
    names: Shaped[np.ndarray, "U"]  # the people or streams, in alphabetical order
    unit: Int[np.ndarray, "n"]  # the place of each entry's unit among the names
    steps: Float64[np.ndarray, "n"]  # number of steps of each entry
    unjudged: int  # number of steps left out because a label is unknown

    @property
    def number(self) -> int:
        """Number of units."""
        return len(self.names)

    def merge(self, other: Units) -> Units:
        """The steps of both, those of a unit with the same courses in one entry."""
        names = np.union1d(self.names, other.names)
        unit = np.concatenate([np.searchsorted(names, part.names)[part.unit] for part in (self, other)])
        courses = {
            family: Course(*(np.concatenate(pair) for pair in zip(course, other.courses[family], strict=True)))
            for family, course in self.courses.items()
        }
        keys = [unit]
        for family, course in courses.items():
            keys += course if family.margin else [course.first]  # without a margin, all three are equal
        order = np.lexsort(keys)
        begins = np.zeros(len(unit), bool)
        begins[0] = True
        for key in keys:
            begins[1:] |= key[order[1:]] != key[order[:-1]]
        starts = np.flatnonzero(begins)
        chosen = order[starts]

        def total(one: Float64[np.ndarray, "n"], two: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "entries"]:
            return np.add.reduceat(np.concatenate([one, two])[order], starts)

        return Units(
            {family: Course(*(index[chosen] for index in course)) for family, course in courses.items()},
            Answers(*map(total, self.fast, other.fast)),
            Answers(*map(total, self.slow, other.slow)),
            total(self.missed, other.missed),
            names,
            unit[chosen],
            total(self.steps, other.steps),
            self.unjudged + other.unjudged,
        )

    def losses(self, family: Family, rules: int, promise: risk.Promise) -> Float[np.ndarray, "U rules"]:
        """The loss of each unit under each rule of a family."""
        course = self.courses[family]
        y, y_slow = (getattr(answers, promise.label) / self.steps for answers in (self.fast, self.slow))
        slow = risk.Slow(course.start, course.stop, y_slow) if family.margin else None
        missed = self.missed / self.steps if promise.label == "gold" else None
        return risk.unit_losses(course.first, y, self.unit, rules, promise, slow, missed, self.steps)

    def losses_at(self, family: Family, rule: int, promise: risk.Promise) -> Float[np.ndarray, "U 1"]:
        """The loss of each unit under one rule of a family."""
        only = Course(*((index > rule).astype(np.int64) for index in self.courses[family]))
        return self._replace(courses={family: only}).losses(family, 1, promise)

    def mean(self, of_step: Shaped[np.ndarray, "n"]) -> float:
        """The mean over units of each unit's mean over its steps, of which each entry's mean is given."""
        return float((np.bincount(self.unit, of_step * self.steps) / np.bincount(self.unit, self.steps)).mean())

    def speak_rate(self, family: Family, rule: int) -> float:
        """Mean share of the steps at which a rule offers."""
        return self.mean(self.courses[family].first <= rule)

    def slow_rate(self, family: Family, rule: int) -> float:
        """Mean share of the steps at which a rule runs the slow pass."""
        return self.mean(self._thinks(family, rule))

    def cost(self, family: Family, rule: int, point: OperatingPoint) -> float:
        """Mean realised cost of a rule at the stated costs; the slow pass itself has no price."""
        thinks = self._thinks(family, rule)
        accept, missed = np.where(thinks, self.slow.accept, self.fast.accept) / self.steps, self.missed / self.steps
        offers = self.courses[family].first <= rule
        return self.mean(metrics.step_costs(offers, accept, missed, point.c_fa, point.c_fn))

    def _thinks(self, family: Family, rule: int) -> Bool[np.ndarray, "n"]:
        course = self.courses[family]
        return (course.start <= rule) & (rule < course.stop)


def units_of(
    rows: Scores, calibration: Calibration, families: Sequence[Family], ratios: Float[np.ndarray, " G"]
) -> Units:
    """The judged steps of a table, with what every family decides at them; as `judged_units`.

    Raises:
      ScoresError: also for no step with both labels.
    """
    units, number = judged_units(rows, calibration, families, ratios)
    if units is None:
        raise without_labels(number)
    return units


def without_labels(steps: int) -> ScoresError:
    """The error for so many steps, none of which has both labels."""
    return ScoresError(f"found no step with both labels among {steps}, expected some", "y_accept")


def judged_units(
    rows: Scores, calibration: Calibration, families: Sequence[Family], ratios: Float[np.ndarray, " G"]
) -> tuple[Units | None, int]:
    """The judged steps of some rows, with what every family decides at them, if any; and the number of all steps.

    Cost ratios ascend. A family with a margin needs slow signals on every row.

    Raises:
      ScoresError: for a missing column, or slow signals that are missing somewhere.
      ValueError: where a margin needs slow signals and the calibration has none.
    """
    rows, calibration = with_need(rows, calibration)
    steps = rows.steps()
    thought = rows.steps("slow") if any(family.margin for family in families) else None
    if steps.y_accept is None:
        raise ScoresError("found no such column, expected it: a promise is about gold labels", "y_accept")
    mask = judged(steps, thought)
    if not mask.any():
        return None, len(steps)
    fast = _signals(steps.take(mask), calibration, "fast")
    slow = fast if thought is None else _signals(thought.take(mask), calibration, "slow")
    courses = {}
    for family in families:
        decided_on = Pass(*(_as_steps(p, fast.need) for p in audbc.policy_signals(*fast, policy=family.policy)))
        course = risk.first_gate_with_slow(decided_on, slow, ratios, family.margin)
        courses[family] = Course(*(index.astype(np.int16) for index in course))  # at most `risk.MOST_RULES`
    names, unit = np.unique(unit_of(steps)[mask], return_inverse=True)
    units = Units(
        courses,
        _answers(steps, mask),
        _answers(steps if thought is None else thought, mask),
        (steps.y_need * rows.largest("y_accept"))[mask],
        names,
        unit,
        np.ones(len(unit)),
        int((~mask).sum()),
    )
    return units, len(steps)


def _signals(steps: Scores, calibration: Calibration, thinking: Thinking) -> Pass:
    """Calibrated need and acceptance of one pass."""
    return Pass(calibration.calibrated("need", thinking, steps), calibration.calibrated("accept", thinking, steps))


def _as_steps(signal: Any, steps: Float64[np.ndarray, "steps"]) -> Float64[np.ndarray, "steps"]:
    """A signal that may be a constant, as one number per step."""
    return np.broadcast_to(np.asarray(signal, np.float64), len(steps))


def _answers(steps: Scores, labelled: Bool[np.ndarray, "steps"]) -> Answers:
    assert steps.y_need is not None and steps.y_accept is not None, "`units_of` looked at them"
    return Answers((steps.y_need * steps.y_accept)[labelled], steps.y_accept[labelled])


def unit_of(rows: Scores) -> Shaped[np.ndarray, "rows"]:
    """The unit of each row: its person where the scores know people, else its stream."""
    return (rows.stream if rows.person is None else rows.person).astype(str)


def divides(has_split: bool, test_share: float, has_maps: bool) -> bool:
    """Whether the units are divided here, and not by the splits calibration and test of the table.

    Raises:
      ScoresError: for a share above 0 of a table whose split calibration has to fit the maps.
    """
    if has_split and test_share and not has_maps:
        raise ScoresError(
            f"found the split {CALIBRATION!r} and --test_share={test_share:g}, expected one of them, or "
            "--calibration as well, which divides the split 'test'",
            "split",
        )
    return not has_split or test_share > 0


def with_splits(scores: Scores, test_share: float, *, has_maps: bool = False) -> Scores:
    """The table with its splits calibration and test, or divided into them by digests of the units' names.

    Without a split calibration, all rows are divided, or those of the split test. `test_share`, in [0, 1), is the share
    of the units to measure; with 0 all units certify. Where maps were fitted before (`has_maps`), a share above 0
    divides the split test also where there is a split calibration, which is not read.

    Raises:
      ScoresError: for a share above 0 of a table whose split calibration has to fit the maps, or too few units.
    """
    has_split = scores.split is not None and bool((scores.split == CALIBRATION).any())
    if not divides(has_split, test_share, has_maps):
        return scores
    rows = evaluated_rows(scores)
    names, code = np.unique(unit_of(rows), return_inverse=True)
    keys = digests(names)
    measured = among(keys, first_share(np.sort(keys), test_share))[code]
    split = np.where(measured, TEST, CALIBRATION).astype(object)
    return dataclasses.replace(rows, split=split, fold=None)


def first_half(unit: Shaped[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
    """The rows of every second unit, in the order of digests of the units' names, which no label influences.

    Fewer than four units raise ScoresError.
    """
    names, code = np.unique(unit, return_inverse=True)
    keys = digests(names)
    return among(keys, every_second(np.sort(keys)))[code]


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
