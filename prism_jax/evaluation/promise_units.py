"""The people or streams of a promise, and what families of rules do to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Shaped

from prism_jax.decision import audbc, metrics, risk
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.need import with_need
from prism_jax.evaluation.policy_rows import judged
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Thinking


class Family(NamedTuple):
    """Rules at rising cost ratios: one policy with one slow margin."""

    policy: str  # one of `promised_policies`
    margin: float = 0.0  # the slow margin; above 0 for `dynamic` only

    def __str__(self) -> str:
        return f"{self.policy}, margin {self.margin:g}" if self.margin else self.policy


class Course(NamedTuple):
    """What a family decides at every step, as indices of cost ratios."""

    first: Int[np.ndarray, "n"]  # the first rule that offers
    start: Int[np.ndarray, "n"]  # the first rule at which the slow pass runs
    stop: Int[np.ndarray, "n"]  # one past the last rule at which it runs


class Answers(NamedTuple):
    """Labels of the candidates that one pass chooses, summed over the steps of each entry."""

    gold: Float64[np.ndarray, "n"]  # need and acceptance together
    accept: Float64[np.ndarray, "n"]  # acceptance


class Units(NamedTuple):
    """The judged steps of some units: each an entry, or one entry for those of a unit with the same course."""

    family: Family
    course: Course  # what the family decides at the steps of each entry
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
        """The steps of both, those of a unit with the same course in one entry."""
        names = np.union1d(self.names, other.names)
        unit = np.concatenate([np.searchsorted(names, part.names)[part.unit] for part in (self, other)])
        course = Course(*(np.concatenate(pair) for pair in zip(self.course, other.course, strict=True)))
        keys = [unit, *(course if self.family.margin else [course.first])]  # without a margin, all three are equal
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
            self.family,
            Course(*(index[chosen] for index in course)),
            Answers(*map(total, self.fast, other.fast)),
            Answers(*map(total, self.slow, other.slow)),
            total(self.missed, other.missed),
            names,
            unit[chosen],
            total(self.steps, other.steps),
            self.unjudged + other.unjudged,
        )

    def losses(self, rules: int, promise: risk.Promise) -> Float[np.ndarray, "U rules"]:
        """The loss of each unit under each rule of the family."""
        y, y_slow = (getattr(answers, promise.label) / self.steps for answers in (self.fast, self.slow))
        slow = risk.Slow(self.course.start, self.course.stop, y_slow) if self.family.margin else None
        missed = self.missed / self.steps if promise.label == "gold" else None
        return risk.unit_losses(self.course.first, y, self.unit, rules, promise, slow, missed, self.steps)

    def losses_at(self, rule: int, promise: risk.Promise) -> Float[np.ndarray, "U 1"]:
        """The loss of each unit under one rule."""
        only = Course(*((index > rule).astype(np.int64) for index in self.course))
        return self._replace(course=only).losses(1, promise)

    def mean(self, of_step: Shaped[np.ndarray, "n"]) -> float:
        """The mean over units of each unit's mean over its steps, of which each entry's mean is given."""
        return float((np.bincount(self.unit, of_step * self.steps) / np.bincount(self.unit, self.steps)).mean())

    def speak_rate(self, rule: int) -> float:
        """Mean share of the steps at which a rule offers."""
        return self.mean(self.course.first <= rule)

    def slow_rate(self, rule: int) -> float:
        """Mean share of the steps at which a rule runs the slow pass."""
        return self.mean(self._thinks(rule))

    def cost(self, rule: int, point: OperatingPoint) -> float:
        """Mean realised cost of a rule at the stated costs; the slow pass itself has no price."""
        thinks = self._thinks(rule)
        accept, missed = np.where(thinks, self.slow.accept, self.fast.accept) / self.steps, self.missed / self.steps
        offers = self.course.first <= rule
        return self.mean(metrics.step_costs(offers, accept, missed, point.c_fa, point.c_fn))

    def _thinks(self, rule: int) -> Bool[np.ndarray, "n"]:
        return (self.course.start <= rule) & (rule < self.course.stop)


def judged_units(
    rows: Scores, calibration: Calibration, families: Sequence[Family], ratios: Float[np.ndarray, " G"]
) -> tuple[dict[Family, Units], int]:
    """The judged steps of some rows with what each family decides, if any is judged; and the number of all steps.

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
        return {}, len(steps)
    fast = _signals(steps.take(mask), calibration, "fast")
    slow = fast if thought is None else _signals(thought.take(mask), calibration, "slow")
    answers = _answers(steps, mask), _answers(steps if thought is None else thought, mask)
    missed = (steps.y_need * rows.largest("y_accept"))[mask]
    names, unit = np.unique(
        (steps.stream if steps.person is None else steps.person)[mask].astype(str), return_inverse=True
    )
    units = {}
    for family in families:
        own = audbc.policy_signals(*fast, policy=family.policy)  # either may be one number for all steps
        decided_on = Pass(*(np.broadcast_to(np.asarray(p, np.float64), len(fast.need)) for p in own))
        first = risk.first_gate_with_slow(decided_on, slow, ratios, family.margin)
        course = Course(*(index.astype(np.int16) for index in first))  # at most `risk.MOST_RULES`
        units[family] = Units(family, course, *answers, missed, names, unit, np.ones(len(unit)), int((~mask).sum()))
    return units, len(steps)


def _signals(steps: Scores, calibration: Calibration, thinking: Thinking) -> Pass:
    """Calibrated need and acceptance of one pass."""
    return Pass(calibration.calibrated("need", thinking, steps), calibration.calibrated("accept", thinking, steps))


def _answers(steps: Scores, labelled: Bool[np.ndarray, "steps"]) -> Answers:
    assert steps.y_need is not None and steps.y_accept is not None, "`judged_units` looked at them"
    return Answers((steps.y_need * steps.y_accept)[labelled], steps.y_accept[labelled])
