"""All policies on the same steps: constants, oracles, and policies on raw and on calibrated signals.

The pass that decides also chooses the step's offer, its candidate of highest p_accept (`Scores.steps`), and an offer
counts with the labels of that candidate. Silence counts with the labels of the step's best labelled candidate, whatever
a policy would have offered, so that all policies pay the same for it (docs/maths.md, section 3). Constants and the
Bayes oracle decide about the fast pass's candidate, the clairvoyant about the best one. Realised costs, gold costs and
all rates are computed on judged steps, where the labels of both passes' candidates are known, with the weights of
acceptance labels. Expected costs are computed on all steps and need no labels.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from prism_jax.decision import arrays, gate, metrics, thinking
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, Policy
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.intervals import with_intervals
from prism_jax.evaluation.rows import Form, PolicyRow
from prism_jax.scores import Scores
from prism_jax.scores.labels import Thinking, acceptance_weight
from prism_jax.scores.texts import ordered
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


def judged(steps: Scores, thought: Scores | None = None) -> Bool[np.ndarray, "steps"]:
    """Steps whose need and acceptance labels are known, those of the slow pass's candidates `thought` included."""
    tables = (steps,) if thought is None else (steps, thought)
    masks = [~np.isnan(_label(table, signal)) for table in tables for signal in ("need", "accept")]
    return np.logical_and.reduce(masks)


def _label(steps: Scores, signal: str) -> Float64[np.ndarray, "steps"]:
    column = getattr(steps, f"y_{signal}")
    return np.full(len(steps), np.nan) if column is None else column


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

    @property
    def slow(self) -> bool:
        """Whether there is a slow pass."""
        return self.thought is not None

    @property
    def fast_policies(self) -> tuple[str, ...]:
        """The policies on the fast signals that tell something of their own, and the deployed one."""
        left_out = () if self.has_need else NOT_WITHOUT_NEED
        return tuple(name for name in FAST_POLICIES if name not in left_out or name == self.deployed())

    @functools.cached_property
    def unit(self) -> Unit:
        """The units of intervals: streams, or people where one of them has several streams."""
        return independent_unit(self.steps.stream, self.steps.person)

    @property
    def slow_policies(self) -> tuple[str, ...]:
        """The policies with a slow pass that can be computed."""
        if not self.slow:
            return ()
        return tuple(name for name in SLOW_POLICIES if name != "slow_on_value" or self.has_value)

    @property
    def two_candidates(self) -> bool:
        """Whether the slow pass chooses another candidate than the fast pass at some step."""
        return self.thought is not None and bool((self.thought.candidate != self.steps.candidate).any())

    @property
    def several_candidates(self) -> bool:
        """Whether some step has more than one candidate."""
        return self.candidates is not None and len(self.candidates) > len(self.steps)

    @functools.cached_property
    def judged(self) -> Bool[np.ndarray, "steps"]:
        """Steps whose need and acceptance labels are known, of both passes' candidates."""
        return judged(self.steps, self.thought)

    @functools.cached_property
    def judged_units(self) -> Int64[np.ndarray, "judged"]:
        """The unit of each judged step, as its number in alphabetical order."""
        name = self.steps.stream if self.unit == "streams" else self.steps.person
        assert name is not None, "`unit` looked at it"
        return ordered(name[self.judged])[1]

    def label(self, signal: str, decided: Decided | None = None) -> Float64[np.ndarray, "steps"]:
        """Labels of `need` or `accept`, NaN where unknown: of the fast pass's candidate, or of that `decided` about."""
        label = _label(self.steps, signal)
        if decided is None or self.thought is None:
            return label
        return np.where(decided.slow, _label(self.thought, signal), label)

    def _largest(self, column: str) -> Float64[np.ndarray, "steps"]:
        return (self.steps if self.candidates is None else self.candidates).largest(column)

    @functools.cached_property
    def best_accept(self) -> Float64[np.ndarray, "steps"]:
        """The largest known acceptance label of each step's candidates, NaN where none is known."""
        return self._largest("y_accept")

    @functools.cached_property
    def best_both(self) -> Float64[np.ndarray, "steps"]:
        """The largest true probability of need and acceptance together among each step's candidates."""
        return self._largest("p_both_true")

    @functools.cached_property
    def missed(self) -> Float64[np.ndarray, "steps"]:
        """What silence misses, whatever a policy would offer: the largest label of need and acceptance together."""
        return self.label("need") * self.best_accept

    def counted(self, decided: Decided) -> Counted:
        """The labels that each decision counts with: its candidate's for an offer, the best candidate's for silence."""
        return Counted(self.label("need"), np.where(decided.offer, self.label("accept", decided), self.best_accept))

    def costs(self, decided: Decided) -> Float64[np.ndarray, "steps"]:
        """Realised cost of each step, NaN where a label is unknown."""
        return self.cost_of(decided.offer, self.counted(decided))

    def cost_of(self, offer: Bool[np.ndarray, "steps"], counted: Counted) -> Float64[np.ndarray, "steps"]:
        """Realised cost of decisions that count with these labels."""
        return metrics.step_costs(offer, counted.accept, counted.gold, self.point.c_fa, self.point.c_fn)

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
        """Probabilities of a signal such as `need_fast`, of its pass's candidate."""
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
        offer = gate.decide(
            *fast,
            *costs,
            policy,
            fixed_threshold=self.point.fixed_threshold,
            base_rate=self.fits.offer_rates(self.steps),
        )
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


def compare(data: EvaluationData) -> tuple[PolicyRow, ...]:
    """One row per policy: constants and oracles, then the policies on calibrated signals, then on raw signals."""
    references = {name: data.decide(name, "raw") for name in ("always", "never")}
    if data.has_truth:
        references["bayes"] = data.oracle(data.truth())
    table = _Table(data, references)
    best, missed = (np.where(data.judged, label, 0.0) for label in (data.best_accept, data.missed))
    decisions: list[tuple[str, Form | None, Decided]] = [(name, None, decided) for name, decided in references.items()]
    decisions.append(("clairvoyant", None, data.oracle(Truth(best, missed))))
    compared = (*data.fast_policies, *data.slow_policies)
    decisions += [(name, form, data.decide(name, form)) for form in FORMS for name in compared]
    costs = (table.step_costs(policy, decided) for policy, _, decided in decisions)
    most = max(data.point.c_fa, data.point.c_fn)
    return with_intervals([table.row(*row) for row in decisions], costs, table.weight, data.judged_units, most)


class _Table:
    """Evaluates decisions against the labels, the truth and the reference policies."""

    def __init__(self, data: EvaluationData, references: dict[str, Decided]):
        self.data, self.judged = data, data.judged
        self.weight = acceptance_weight(data.steps)[self.judged]
        self.realised = {name: self.realised_cost(name, decided) for name, decided in references.items()}
        self.expected: dict[str, float] = {}  # empty without the truth
        if data.has_truth:
            self.expected = {name: self.expected_cost(decided) for name, decided in references.items()}

    def labels(self, policy: str, decided: Decided) -> Counted:
        """Labels with which the decisions of the judged steps count; the clairvoyant chooses the best candidate."""
        best = Counted(self.data.label("need"), self.data.best_accept)
        counted = best if policy == "clairvoyant" else self.data.counted(decided)
        return Counted(*(label[self.judged] for label in counted))

    def step_costs(self, policy: str, decided: Decided) -> Float64[np.ndarray, "judged"]:
        """Realised cost of each judged step."""
        return self.data.cost_of(decided.offer[self.judged], self.labels(policy, decided))

    def realised_cost(self, policy: str, decided: Decided) -> float:
        """Mean realised cost on the labels of the judged steps."""
        costs = self.data.point.c_fa, self.data.point.c_fn
        offer = decided.offer[self.judged]
        return float(metrics.realised_cost(offer, *self.labels(policy, decided), *costs, self.weight))

    def expected_cost(self, decided: Decided) -> float:
        """Mean expected cost under the truth, on all steps."""
        return float(self.data.expected_costs(decided).mean())

    def under_truth(self, policy: str, decided: Decided, realised: float) -> dict[str, Any]:
        """The numbers that need the simulator's truth; decisions made on the labels have no expected cost."""
        numbers: dict[str, Any] = dict.fromkeys(("expected_cost", "regret", "gap_closed", "gap_closed_realised"))
        if self.expected:
            numbers["gap_closed_realised"] = _gap_closed(realised, self.realised)
        if self.expected and policy != "clairvoyant":
            numbers["expected_cost"] = expected = self.expected_cost(decided)
            numbers["regret"] = expected - self.expected["bayes"]
            numbers["gap_closed"] = _gap_closed(expected, self.expected)
        return numbers

    def row(self, policy: str, form: Form | None, decided: Decided) -> PolicyRow:
        """All numbers of one policy."""
        offer, point = decided.offer[self.judged], self.data.point
        need, accept = self.labels(policy, decided)
        gold = need * accept
        counts = metrics.confusion(offer, gold, self.weight)
        rates = metrics.rates(counts)
        realised = self.realised_cost(policy, decided)
        sees_labels = policy == "clairvoyant"
        return PolicyRow(
            policy=policy,
            form=form,
            deployed=policy == self.data.deployed() and form in (None, "calibrated"),
            realised_cost=realised,
            gold_cost=float(metrics.gold_cost(offer, gold, point.c_fa, point.c_fn, self.weight)),
            **self.under_truth(policy, decided, realised),
            speak_rate=float((offer if sees_labels else decided.offer).mean()),
            slow_rate=float(decided.slow.mean()) if self.data.slow and not sees_labels else None,
            recall=float(rates.recall),
            precision=float(rates.precision),
            false_alarm=float(rates.false_alarm),
            dismissed=float(metrics.rates(metrics.confusion(offer, accept, self.weight)).false_alarm),
            false_positive_rate=float(rates.false_positive_rate),
            false_alarms_per_step=float(rates.false_alarms_per_step),
            f1=float(rates.f1),
            accuracy=float(rates.accuracy),
            mcc=float(rates.matthews),
            **{name: float(count) for name, count in counts._asdict().items()},
        )


def _gap_closed(cost: float, references: dict[str, float]) -> float:
    """Share of the gap between the better constant and the Bayes decisions that a cost closes; NaN without a gap."""
    constant = min(references["always"], references["never"])
    gap = constant - references["bayes"]
    return (constant - cost) / gap if gap > 0 else np.nan


def least_acceptance(policy: str, p_need: Float64[np.ndarray, "n"], point: OperatingPoint) -> Float64[np.ndarray, "n"]:
    """The p_accept from which on a policy that can be deployed intervenes, infinite where it never does.

    Agrees with `gate.decide` except at floating-point ties. Others raise ValueError.
    """
    arrays.check_probability("p_need", p_need)
    threshold = ALL_POLICIES[policy].threshold
    if threshold is None:
        raise ValueError(f"policy: found {policy!r}, expected one with a threshold on p_accept")
    return threshold(p_need, point.c_fa, point.c_fn, point.fixed_threshold)
