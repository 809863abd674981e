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
from jaxtyping import Bool, Float, Float64, Int, Shaped

from prism_jax.decision import audbc, metrics, risk
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, answering_to_ratio
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.need import with_need
from prism_jax.evaluation.policy_rows import judged
from prism_jax.evaluation.protocol import CALIBRATION, TEST, evaluated_rows
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
    """Labels of the candidates that one pass chooses."""

    gold: Float64[np.ndarray, "n"]  # need and acceptance together
    accept: Float64[np.ndarray, "n"]  # acceptance


class Units(NamedTuple):
    """The judged steps of some units."""

    courses: Mapping[Family, Course]  # what each family decides at each step
    fast: Answers  # labels of the fast pass's candidate at each step
    slow: Answers  # labels of the slow pass's; those of the fast pass where no family has a margin
    # largest known gold label of each step's candidates: what silence misses, whatever would be offered
    missed: Float64[np.ndarray, "n"]
    unit: Shaped[np.ndarray, "n"]  # the person or stream of each step
    unjudged: int  # number of steps left out because a label is unknown

    @property
    def number(self) -> int:
        """Number of units."""
        return len(np.unique(self.unit))

    def losses(self, family: Family, rules: int, promise: risk.Promise) -> Float[np.ndarray, "U rules"]:
        """The loss of each unit under each rule of a family."""
        course = self.courses[family]
        y, y_slow = (getattr(answers, promise.label) for answers in (self.fast, self.slow))
        slow = risk.Slow(course.start, course.stop, y_slow) if family.margin else None
        missed = self.missed if promise.label == "gold" else None
        return risk.unit_losses(course.first, y, self.unit, rules, promise, slow, missed)

    def losses_at(self, family: Family, rule: int, promise: risk.Promise) -> Float[np.ndarray, "U 1"]:
        """The loss of each unit under one rule of a family."""
        only = Course(*((index > rule).astype(np.int64) for index in self.courses[family]))
        return self._replace(courses={family: only}).losses(family, 1, promise)

    def mean(self, of_step: Shaped[np.ndarray, "n"]) -> float:
        """The mean over units of each unit's mean over its steps."""
        code = np.unique(self.unit, return_inverse=True)[1]
        return float((np.bincount(code, of_step) / np.bincount(code)).mean())

    def speak_rate(self, family: Family, rule: int) -> float:
        """Mean share of the steps at which a rule offers."""
        return self.mean(self.courses[family].first <= rule)

    def slow_rate(self, family: Family, rule: int) -> float:
        """Mean share of the steps at which a rule runs the slow pass."""
        return self.mean(self._thinks(family, rule))

    def cost(self, family: Family, rule: int, point: OperatingPoint) -> float:
        """Mean realised cost of a rule at the stated costs; the slow pass itself has no price."""
        thinks = self._thinks(family, rule)
        accept = np.where(thinks, self.slow.accept, self.fast.accept)
        offers = self.courses[family].first <= rule
        return self.mean(metrics.step_costs(offers, accept, self.missed, point.c_fa, point.c_fn))

    def _thinks(self, family: Family, rule: int) -> Bool[np.ndarray, "n"]:
        course = self.courses[family]
        return (course.start <= rule) & (rule < course.stop)


def units_of(
    rows: Scores, calibration: Calibration, families: Sequence[Family], ratios: Float[np.ndarray, " G"]
) -> Units:
    """The judged steps of a table, with what every family decides at them.

    Cost ratios ascend. A family with a margin needs slow signals on every row.

    Raises:
      ScoresError: for a missing column, slow signals that are missing somewhere, or no step with both labels.
      ValueError: where a margin needs slow signals and the calibration has none.
    """
    rows, calibration = with_need(rows, calibration)
    steps = rows.steps()
    thought = rows.steps("slow") if any(family.margin for family in families) else None
    if steps.y_accept is None:
        raise ScoresError("found no such column, expected it: a promise is about gold labels", "y_accept")
    mask = judged(steps, thought)
    if not mask.any():
        raise ScoresError(f"found no step with both labels among {len(steps)}, expected some", "y_accept")
    fast = _signals(steps.take(mask), calibration, "fast")
    slow = fast if thought is None else _signals(thought.take(mask), calibration, "slow")
    courses = {}
    for family in families:
        decided_on = Pass(*(_as_steps(p, fast.need) for p in audbc.policy_signals(*fast, policy=family.policy)))
        courses[family] = Course(*risk.first_gate_with_slow(decided_on, slow, ratios, family.margin))
    return Units(
        courses,
        _answers(steps, mask),
        _answers(steps if thought is None else thought, mask),
        (steps.y_need * rows.largest("y_accept"))[mask],
        unit_of(steps)[mask],
        int((~mask).sum()),
    )


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


def with_splits(scores: Scores, test_share: float, *, has_maps: bool = False) -> Scores:
    """The table with its splits calibration and test, or divided into them by digests of the units' names.

    Without a split calibration, all rows are divided, or those of the split test. `test_share`, in [0, 1), is the share
    of the units to measure; with 0 all units certify. Where maps were fitted before (`has_maps`), a share above 0
    divides the split test also where there is a split calibration, which is not read.

    Raises:
      ScoresError: for a share above 0 of a table whose split calibration has to fit the maps, or too few units.
    """
    if scores.split is not None and (scores.split == CALIBRATION).any():
        if test_share and not has_maps:
            raise ScoresError(
                f"found the split {CALIBRATION!r} and --test_share={test_share:g}, expected one of them, or "
                "--calibration as well, which divides the split 'test'",
                "split",
            )
        if not test_share:
            return scores
    rows = evaluated_rows(scores)
    measured = _units_by_digest(unit_of(rows), test_share)
    split = np.where(measured, TEST, CALIBRATION).astype(object)
    return dataclasses.replace(rows, split=split, fold=None)


def _units_by_digest(unit: Shaped[np.ndarray, "rows"], share: float) -> Bool[np.ndarray, "rows"]:
    names, code = np.unique(unit, return_inverse=True)
    chosen = np.zeros(len(names), bool)
    chosen[_by_digest(names)[: round(share * len(names))]] = True
    if chosen.all() or (share and not chosen.any()):
        raise ScoresError(
            f"found {len(names)} units and --test_share={share:g}, expected some that certify and some that are "
            "measured",
            "split",
        )
    return chosen[code]


def first_half(unit: Shaped[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
    """The rows of every second unit, in the order of digests of the units' names, which no label influences.

    Fewer than four units raise ScoresError.
    """
    names, code = np.unique(unit, return_inverse=True)
    if len(names) < 4:
        raise ScoresError(
            f"split {CALIBRATION!r}: found {len(names)} units, expected at least 4: half of them fit the maps and half "
            "certify",
            "split",
        )
    half = np.zeros(len(names), bool)
    half[_by_digest(names)[::2]] = True
    return half[code]


def _by_digest(names: Shaped[np.ndarray, "U"]) -> Int[np.ndarray, "U"]:
    return np.argsort([hashlib.sha256(name.encode()).hexdigest() for name in names.tolist()])
