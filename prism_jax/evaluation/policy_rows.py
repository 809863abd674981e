"""All policies on the same steps: constants, oracles, and policies on raw and on calibrated signals.

The pass that decides also chooses the step's offer, its candidate of highest p_accept (`Scores.steps`), and an offer
counts with the labels of that candidate. Silence counts with the labels of the step's best labelled candidate, whatever
a policy would have offered, so that all policies pay the same for it (docs/maths.md, section 3). Constants and the
Bayes oracle decide about the fast pass's candidate, the clairvoyant about the best one. Realised costs, gold costs and
all rates are computed on judged steps, where the labels of both passes' candidates are known, with the weights of
acceptance labels. Expected costs are computed on all steps and need no labels.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from prism_jax.decision import arrays, gate, metrics, thinking
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, Policy
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.rows import Form
from prism_jax.scores import Scores
from prism_jax.scores.labels import Thinking, acceptance_weight
from prism_jax.scores.texts import ordered, renumbered
from prism_jax.scores.units import Unit, independent_unit

FAST_POLICIES = tuple(name for name, policy in POLICIES.items() if policy.constant is None)
"""The policies that decide on the fast signals."""
ORACLES = {
    "bayes": Policy("Bayes", "Decides on the simulator's truth: about the same offers, no expected cost is lower."),
    "clairvoyant": Policy("clairvoyant", "Chooses and decides on the labels themselves: no realised cost is lower."),
}
SLOW_POLICIES = {
    "slow_only": Policy("slow only", "The dynamic gate on the slow pass's signals at every step."),
    "slow_on_margin": Policy(
        "on margin",
        "The dynamic gate; thinks slowly where p_accept is within the margin of tau.",
        threshold=POLICIES["dynamic"].threshold,
    ),
    "slow_on_value": Policy(
        "on value",
        "The dynamic gate; thinks slowly where this is expected to save more than the price of its tokens.",
        threshold=POLICIES["dynamic"].threshold,
    ),
}
ALL_POLICIES = {**POLICIES, **ORACLES, **SLOW_POLICIES}
"""Every policy that a row of an evaluation may name."""
NOT_WITHOUT_NEED = ("static", "product", "need_only")
"""Policies that are not compared where need is certain: the first two decide as `dynamic`, the last always the same."""
FORMS: tuple[Form, ...] = ("calibrated", "raw")
PIECE = 1 << 16
"""Steps of a piece."""


class Truth(NamedTuple):
    """The simulator's true probabilities: acceptance of an offer, and what silence misses (`best_both`)."""

    p_accept: Float64[np.ndarray, "steps"]
    p_both: Float64[np.ndarray, "steps"]


class Decided(NamedTuple):
    """The decision of a policy at each step, and whether the slow pass ran."""

    offer: Bool[np.ndarray, "steps"]
    slow: Bool[np.ndarray, "steps"]


class Counted(NamedTuple):
    """The labels with which decisions count."""

    need: Float64[np.ndarray, "steps"]
    accept: Float64[np.ndarray, "steps"]

    @property
    def gold(self) -> Float64[np.ndarray, "steps"]:
        """Need and acceptance together."""
        return self.need * self.accept


class Whole(NamedTuple):
    """What holds for all steps of a table, some or all of which are at hand."""

    unit: Unit = "streams"  # the units of intervals: streams, or people where one of them has several streams
    two_candidates: bool = False  # whether the slow pass chooses another candidate than the fast pass at some step
    several_candidates: bool = False  # whether some step has more than one candidate
    soft: bool = False  # whether a gold label of a judged step is soft: of either pass's candidate, or of the best one
    has_gold: bool = True  # whether some judged step has a gold candidate
    units: int = 0  # number of units with judged steps; 0 where it is not known yet


ONE_CANDIDATE = Whole()
"""What holds for steps of one candidate each, of which only decisions are asked."""


def judged(steps: Scores, thought: Scores | None = None) -> Bool[np.ndarray, "steps"]:
    """Steps whose need and acceptance labels are known, those of the slow pass's candidates `thought` included."""
    tables = (steps,) if thought is None else (steps, thought)
    masks = [~np.isnan(table.numbers(f"y_{signal}")) for table in tables for signal in ("need", "accept")]
    return np.logical_and.reduce(masks)


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """The steps of the test split, with everything that policies need to decide on them."""

    steps: Scores  # one row per step, the fast pass's candidate
    fits: Calibration  # the map of each signal, and the acceptance rate of `need_only`
    point: OperatingPoint  # costs, margin and fixed threshold
    # the same steps, with the slow pass's candidate; None if not every candidate has slow signals
    thought: Scores | None
    has_truth: bool  # whether the simulator's true probabilities are known at every step
    # whether the calibration knows the moves and tokens of the slow pass, by which thinking has a value
    has_value: bool = False
    has_need: bool = True  # whether need is a signal with labels; otherwise it is taken as certain (`evaluation.need`)
    candidates: Scores | None = None  # every candidate of these steps; None where they have one each
    whole: Whole = ONE_CANDIDATE  # what holds for all steps, of which these may be a part
    # of `pieces`: the names of the units of all judged steps, and the number of each of these steps' unit
    units: tuple[list[str], Int64[np.ndarray, "steps"]] | None = None

    def at(self, point: OperatingPoint) -> EvaluationData:
        """The same steps at another operating point, with what is known of them already: none of it depends on it."""
        same = copy.copy(self)
        object.__setattr__(same, "point", point)
        return same

    @property
    def slow(self) -> bool:
        """Whether there is a slow pass."""
        return self.thought is not None

    @property
    def fast_policies(self) -> tuple[str, ...]:
        """The policies on the fast signals that tell something of their own, and the deployed one."""
        left_out = () if self.has_need else NOT_WITHOUT_NEED
        return tuple(name for name in FAST_POLICIES if name not in left_out or name == self.deployed())

    @property
    def slow_policies(self) -> tuple[str, ...]:
        """The policies with a slow pass that can be computed."""
        if not self.slow:
            return ()
        return tuple(name for name in SLOW_POLICIES if name != "slow_on_value" or self.has_value)

    @functools.cached_property
    def judged(self) -> Bool[np.ndarray, "steps"]:
        """Steps whose need and acceptance labels are known, of both passes' candidates."""
        return judged(self.steps, self.thought)

    @functools.cached_property
    def named_units(self) -> tuple[list[str], Int64[np.ndarray, "judged"]]:
        """The units of the judged steps in alphabetical order, and the number of each judged step's unit."""
        if self.units is not None:
            return self.units[0], self.of_judged(self.units[1])
        names, number = self.steps.numbered("stream" if self.whole.unit == "streams" else "person")
        return ordered(*renumbered(names, number[self.judged]))

    @property
    def judged_units(self) -> Int64[np.ndarray, "judged"]:
        """The unit of each judged step, as its number in alphabetical order."""
        return self.named_units[1]

    def pieces(self) -> Iterator[EvaluationData]:
        """These steps in pieces whose temporary arrays fit the cache; all at once where steps have many candidates."""
        if len(self.steps) <= PIECE or self.rows is not self.steps:
            yield self
            return
        number = np.zeros(len(self.steps), np.int64)
        number[self.judged] = self.judged_units
        for start in range(0, len(self.steps), PIECE):
            part = slice(start, start + PIECE)
            steps, units = self.steps.take(part), (self.named_units[0], number[part])
            thought = None if self.thought is None else steps
            piece = dataclasses.replace(self, steps=steps, thought=thought, candidates=None, units=units)
            piece._kept.update({name: p[part] for name, p in self._kept.items()})
            yield piece

    def by_unit(self, values: Float64[np.ndarray, "judged"]) -> Float64[np.ndarray, "units"]:
        """The sum of values over the judged steps of each unit."""
        starts, units = self._runs
        sums = np.bincount(units, np.add.reduceat(values, starts), minlength=len(self.named_units[0]))
        return sums.astype(np.float64, copy=False)  # of no rows at all they are integers

    @functools.cached_property
    def _runs(self) -> tuple[Int64[np.ndarray, "runs"], Int64[np.ndarray, "runs"]]:
        """Where runs of judged steps of one unit begin, and their units: adding up runs is faster than single steps."""
        unit = self.judged_units
        starts = np.flatnonzero(np.append(True, unit[1:] != unit[:-1])[: len(unit)])
        return starts, unit[starts]

    def of_judged(self, values: Shaped[np.ndarray, "steps"]) -> Shaped[np.ndarray, "judged"]:
        """The values of the judged steps; those of all where every step is judged, without a copy."""
        return values if self._all_judged else values[self.judged]

    @functools.cached_property
    def _all_judged(self) -> bool:
        return bool(self.judged.all())

    @functools.cached_property
    def judged_labels(
        self,
    ) -> tuple[Float64[np.ndarray, "judged"], Float64[np.ndarray, "judged"], Float64[np.ndarray, "judged"] | None]:
        """Need and acceptance labels of the judged steps; of their best candidates, where a step has several."""
        best = self.of_judged(self.best_accept) if self.whole.several_candidates else None
        return self.of_judged(self.label("need")), self.of_judged(self.label("accept")), best

    @functools.cached_property
    def weight(self) -> Float64[np.ndarray, "judged"]:
        """The weight of each judged step's acceptance label."""
        return self.of_judged(acceptance_weight(self.steps))

    @functools.cached_property
    def offer_rates(self) -> Float64[np.ndarray, "steps"]:
        """The acceptance rate of offers that each step's calibration knows."""
        return self.fits.offer_rates(self.steps)

    def label(self, signal: str, decided: Decided | None = None) -> Float64[np.ndarray, "steps"]:
        """Labels of `need` or `accept`, NaN where unknown: of the fast pass's candidate, or of that `decided` about."""
        label = self.steps.numbers(f"y_{signal}")
        if decided is None or self.thought is None:
            return label
        return np.where(decided.slow, self.thought.numbers(f"y_{signal}"), label)

    @property
    def rows(self) -> Scores:
        """Every candidate of the steps."""
        return self.steps if self.candidates is None else self.candidates

    @functools.cached_property
    def best_accept(self) -> Float64[np.ndarray, "steps"]:
        """The largest known acceptance label of each step's candidates, NaN where none is known."""
        return self.rows.largest("y_accept")

    @functools.cached_property
    def best_both(self) -> Float64[np.ndarray, "steps"]:
        """The largest true probability of need and acceptance together among each step's candidates."""
        return self.rows.largest("p_both_true")

    @functools.cached_property
    def missed(self) -> Float64[np.ndarray, "steps"]:
        """What silence misses, whatever a policy would offer: the largest label of need and acceptance together."""
        return self.label("need") * self.best_accept

    def counted(self, decided: Decided) -> Counted:
        """The labels that each decision counts with: its candidate's for an offer, the best candidate's for silence."""
        accept, best = self.label("accept", decided), self.best_accept  # of one candidate, the same column
        return Counted(self.label("need"), accept if accept is best else np.where(decided.offer, accept, best))

    def costs(self, decided: Decided) -> Float64[np.ndarray, "steps"]:
        """Realised cost of each step, NaN where a label is unknown."""
        counted = self.counted(decided)
        return metrics.step_costs(decided.offer, counted.accept, counted.gold, self.point.c_fa, self.point.c_fn)

    @property
    def everywhere_slow(self) -> Decided:
        """An offer at every step after thinking slowly, for the labels of the slow pass's candidates."""
        everywhere = np.ones(len(self.steps), bool)
        return Decided(everywhere, everywhere)

    def truth(self, decided: Decided | None = None) -> Truth:
        """The simulator's truth about the fast pass's candidate, or about that `decided` about, and about silence."""
        fast = self.steps.p_accept_true
        assert fast is not None, "read only where `has_truth`"
        slow = fast if self.thought is None else self.thought.p_accept_true
        assert slow is not None, "the same column as of the fast pass"
        thinks = np.zeros(len(self.steps), bool) if decided is None else decided.slow
        return Truth(np.where(thinks, slow, fast), self.best_both)

    def expected_costs(self, decided: Decided) -> Float64[np.ndarray, "steps"]:
        """Expected cost of each step under the truth."""
        truth = self.truth(decided)
        offer, silence = gate.expected_costs(truth.p_accept, truth.p_both, self.point.c_fa, self.point.c_fn)
        return np.where(decided.offer, offer, silence)

    def signal(self, name: str, form: Form) -> Float64[np.ndarray, "steps"]:
        """Probabilities of a signal such as `need_fast`, of its pass's candidate; they are kept."""
        if (name, form) not in self._kept:
            self._kept[name, form] = self._signal(name, form)
        return self._kept[name, form]

    @functools.cached_property
    def _kept(self) -> dict[tuple[str, Form], Float64[np.ndarray, "steps"]]:
        return {}

    def _signal(self, name: str, form: Form) -> Float64[np.ndarray, "steps"]:
        signal, thinking = name.split("_")
        rows = self.thought if thinking == "slow" else self.steps
        assert rows is not None, "a slow signal is read only where there is a slow pass"
        if form == "raw":
            return getattr(rows, f"p_{name}")
        return self.fits.calibrated(signal, thinking, rows)

    def signals(self, thinking: Thinking, form: Form) -> Pass:
        """Both signals of a pass, of its candidate."""
        return Pass(self.signal(f"need_{thinking}", form), self.signal(f"accept_{thinking}", form))

    def deployed(self) -> str:
        """The policy that the operating point deploys; a trigger has an effect only where there is a slow pass."""
        if self.point.policy != "dynamic" or not self.slow:
            return self.point.policy
        if self.point.triggered(self.has_value).trigger == "value":
            return "slow_on_value" if self.has_value else "dynamic"
        return "slow_on_margin" if self.point.margin > 0 else "dynamic"

    def decide(self, policy: str, form: Form) -> Decided:
        """The decisions of one policy on raw or calibrated signals."""
        fast = self.signals("fast", form)
        costs = self.point.c_fa, self.point.c_fn
        if policy in SLOW_POLICIES:
            slow = self.signals("slow", form)
            if policy == "slow_on_value":
                price, (moves, tokens) = self.point.price, self.expected_thinking
                return Decided(*map(np.asarray, thinking.decide_by_value(fast, slow, *costs, moves, price, tokens)))
            margin = 1.0 if policy == "slow_only" else self.point.margin
            return Decided(*map(np.asarray, gate.decide_with_slow(fast, slow, *costs, margin)))
        rule = POLICIES[policy]
        offer = gate.decide_unchecked(rule, *fast, *costs, self.point.fixed_threshold, self.offer_rates)
        return Decided(np.asarray(offer), np.zeros(len(self.steps), bool))

    @property
    def expected_thinking(self) -> tuple[thinking.Moves, Float64[np.ndarray, "steps"]]:
        """The moves and the expected tokens of the slow pass at each step."""
        moves, tokens = self.fits.moves(self.steps), self.fits.slow_tokens(self.steps)
        assert moves is not None and tokens is not None, "read only where `has_value`"
        return moves, tokens

    def oracle(self, truth: Truth) -> Decided:
        """The decisions of the gate on `truth`: if it is true, no decisions have a lower expected cost."""
        offer = gate.intervene(truth.p_accept, truth.p_both, self.point.c_fa, self.point.c_fn)
        return Decided(np.asarray(offer), np.zeros(len(self.steps), bool))


def whole_of(data: EvaluationData) -> Whole:
    """What holds for all steps, which are these."""
    steps, thought = data.steps, data.thought
    people = None if steps.person is None else len(steps.numbered("person")[0])
    unit = independent_unit(len(steps.numbered("stream")[0]), people)
    accepts = (data.label("accept"), data.label("accept", data.everywhere_slow), data.best_accept)
    golds = [data.of_judged(data.label("need") * accept) for accept in accepts]
    return Whole(
        unit,
        two_candidates=thought is not None and bool((thought.candidate != steps.candidate).any()),
        several_candidates=len(data.rows) > len(steps),
        soft=any(bool(((gold != 0) & (gold != 1)).any()) for gold in golds),
        has_gold=bool(golds[-1].any()),
        units=len(dataclasses.replace(data, whole=Whole(unit)).named_units[0]),
    )


def least_acceptance(policy: str, p_need: Float64[np.ndarray, "n"], point: OperatingPoint) -> Float64[np.ndarray, "n"]:
    """The p_accept from which on a policy that can be deployed intervenes, infinite where it never does.

    Others raise ValueError.
    """
    arrays.check_probability("p_need", p_need)
    return ALL_POLICIES[policy].least_acceptance(p_need, point.c_fa, point.c_fn, point.fixed_threshold)
