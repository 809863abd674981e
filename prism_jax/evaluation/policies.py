"""All policies on the same steps: constants, oracles, and policies on raw and on calibrated signals.

The fast pass chooses a step's offer (`Scores.steps`), and all policies decide about this offer, so that their costs are
comparable; the slow pass reconsiders the same offer. Realised costs, gold costs and all rates are computed on judged
steps, whose two labels are known, with the weights of acceptance labels. Expected costs are computed on all steps and
need no labels.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.decision import arrays, gate, metrics
from prism_jax.decision.calibration import apply_temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.policies import POLICIES, Policy
from prism_jax.evaluation.results import Calibration, Form, PolicyRow, Trace
from prism_jax.evaluation.signals import acceptance_weight
from prism_jax.scores import Scores

RULES = tuple(name for name, policy in POLICIES.items() if policy.constant is None)
"""The policies that decide on the fast signals."""
ORACLES = {
    "bayes": Policy("Bayes", "Decides on the simulator's true probabilities: no policy has a lower expected cost."),
    "clairvoyant": Policy("clairvoyant", "Decides on the labels themselves: a bound that nobody can reach."),
}
SLOW_POLICIES = {
    "slow_only": Policy("slow only", "The dynamic gate on the slow pass's signals at every step."),
    "slow_on_margin": Policy(
        "on margin",
        "The dynamic gate; thinks slowly where p_accept is within the margin of tau.",
        threshold=POLICIES["dynamic"].threshold,
    ),
}
ALL_POLICIES = {**POLICIES, **ORACLES, **SLOW_POLICIES}
"""Every policy that a row of an evaluation may name."""
FORMS: tuple[Form, ...] = ("calibrated", "raw")


class Truth(NamedTuple):
    """The simulator's true probabilities: acceptance of an offer, and that together with need."""

    p_accept: Float64[np.ndarray, "steps"]
    p_both: Float64[np.ndarray, "steps"]


class Decided(NamedTuple):
    """The decision of a policy at each step, and whether the slow pass ran."""

    offer: Bool[np.ndarray, "steps"]
    slow: Bool[np.ndarray, "steps"]


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """The steps of the test split, with everything that policies need to decide on them.

    Attributes:
      steps: One row per step.
      fits: Temperatures, and the base rate of `need_only`.
      point: Costs, margin and fixed threshold.
      slow: Whether every step has slow signals.
      truth: The simulator's true probabilities; None elsewhere.
    """

    steps: Scores
    fits: Calibration
    point: OperatingPoint
    slow: bool
    truth: Truth | None

    @property
    def judged(self) -> Bool[np.ndarray, "steps"]:
        """Steps whose need and acceptance labels are both known."""
        return ~np.isnan(self.label("need")) & ~np.isnan(self.label("accept"))

    def label(self, signal: str) -> Float64[np.ndarray, "steps"]:
        """Labels of `need` or `accept`, NaN where unknown."""
        column = getattr(self.steps, f"y_{signal}")
        return np.full(len(self.steps), np.nan) if column is None else column

    def signal(self, name: str, form: Form) -> Float64[np.ndarray, "steps"]:
        """Probabilities of a signal such as `need_fast`."""
        p = getattr(self.steps, f"p_{name}")
        signal, thinking = name.split("_")
        temperature = 1.0 if form == "raw" else self.fits.fit(signal, thinking).temperature
        return np.asarray(apply_temperature(p, temperature))

    def deployed(self) -> str:
        """The policy that the operating point deploys; a margin has an effect only where there is a slow pass."""
        if self.point.policy == "dynamic" and self.slow and self.point.margin > 0:
            return "slow_on_margin"
        return self.point.policy

    def decide(self, policy: str, form: Form) -> Decided:
        """The decisions of one policy on raw or calibrated signals."""
        fast = self.signal("need_fast", form), self.signal("accept_fast", form)
        costs = self.point.c_fa, self.point.c_fn
        if policy in SLOW_POLICIES:
            slow = self.signal("need_slow", form), self.signal("accept_slow", form)
            margin = 1.0 if policy == "slow_only" else self.point.margin
            return Decided(*map(np.asarray, gate.decide_with_slow(*fast, *slow, *costs, margin)))
        offer = gate.decide(
            *fast,
            *costs,
            policy,
            fixed_threshold=self.point.fixed_threshold,
            base_rate=self.fits.accept_fast.base_rate,
        )
        return Decided(np.asarray(offer), np.zeros(len(self.steps), bool))

    def oracle(self, truth: Truth) -> Decided:
        """The decisions of the gate on `truth`: if it is true, no decisions have a lower expected cost."""
        offer = gate.intervene(truth.p_accept, truth.p_both, self.point.c_fa, self.point.c_fn)
        return Decided(np.asarray(offer), np.zeros(len(self.steps), bool))


def compare(data: EvaluationData) -> tuple[PolicyRow, ...]:
    """One row per policy: constants and oracles, then the policies on calibrated signals, then on raw signals."""
    references = {name: data.decide(name, "raw") for name in ("always", "never")}
    if data.truth is not None:
        references["bayes"] = data.oracle(data.truth)
    table = _Table(data, references)
    y_need, y_accept = (np.where(data.judged, data.label(signal), 0.0) for signal in ("need", "accept"))
    rows = [table.row(name, None, decided) for name, decided in references.items()]
    rows.append(table.row("clairvoyant", None, data.oracle(Truth(y_accept, y_need * y_accept))))
    rules = (*RULES, *(SLOW_POLICIES if data.slow else ()))
    rows += [table.row(name, form, data.decide(name, form)) for form in FORMS for name in rules]
    return tuple(rows)


class _Table:
    """Evaluates decisions against the labels, the truth and the reference policies."""

    def __init__(self, data: EvaluationData, references: dict[str, Decided]):
        self.data, self.judged = data, data.judged
        self.weight = acceptance_weight(data.steps)[self.judged]
        self.y_need, self.y_accept = (data.label(signal)[self.judged] for signal in ("need", "accept"))
        self.gold = self.y_need * self.y_accept
        self.realised = {name: self.realised_cost(decided) for name, decided in references.items()}
        self.expected: dict[str, float] = {}  # empty without the truth
        if data.truth is not None:
            self.expected = {name: self.expected_cost(decided) for name, decided in references.items()}

    def realised_cost(self, decided: Decided) -> float:
        """Mean realised cost on the labels of the judged steps."""
        costs = self.data.point.c_fa, self.data.point.c_fn
        return float(metrics.realised_cost(decided.offer[self.judged], self.y_need, self.y_accept, *costs, self.weight))

    def expected_cost(self, decided: Decided) -> float:
        """Mean expected cost under the truth, on all steps."""
        assert self.data.truth is not None
        costs = self.data.point.c_fa, self.data.point.c_fn
        return float(metrics.expected_realised_cost(decided.offer, *self.data.truth, *costs))

    def under_truth(self, policy: str, decided: Decided, realised: float) -> dict[str, Any]:
        """The numbers that need the simulator's truth; decisions made on the labels have no expected cost."""
        known: dict[str, Any] = dict.fromkeys(("expected_cost", "regret", "gap_closed", "gap_closed_realised"))
        if self.expected:
            known["gap_closed_realised"] = _gap_closed(realised, self.realised)
        if self.expected and policy != "clairvoyant":
            known["expected_cost"] = expected = self.expected_cost(decided)
            known["regret"] = expected - self.expected["bayes"]
            known["gap_closed"] = _gap_closed(expected, self.expected)
        return known

    def row(self, policy: str, form: Form | None, decided: Decided) -> PolicyRow:
        """All numbers of one policy."""
        offer, point = decided.offer[self.judged], self.data.point
        counts = metrics.confusion(offer, self.gold, self.weight)
        rates = metrics.rates(counts)
        realised = self.realised_cost(decided)
        sees_labels = policy == "clairvoyant"
        return PolicyRow(
            policy=policy,
            form=form,
            deployed=policy == self.data.deployed() and form in (None, "calibrated"),
            realised_cost=realised,
            gold_cost=float(metrics.gold_cost(offer, self.gold, point.c_fa, point.c_fn, self.weight)),
            **self.under_truth(policy, decided, realised),
            speak_rate=float((offer if sees_labels else decided.offer).mean()),
            slow_rate=float(decided.slow.mean()) if self.data.slow and not sees_labels else None,
            recall=float(rates.recall),
            precision=float(rates.precision),
            false_alarm=float(rates.false_alarm),
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


def trace(data: EvaluationData) -> Trace:
    """The deployed policy step by step."""
    policy = data.deployed()
    decided = data.decide(policy, "calibrated")
    p_need, p_accept = data.signal("need_fast", "calibrated"), data.signal("accept_fast", "calibrated")
    if data.slow:
        p_need = np.where(decided.slow, data.signal("need_slow", "calibrated"), p_need)
        p_accept = np.where(decided.slow, data.signal("accept_slow", "calibrated"), p_accept)
    return Trace(
        stream=data.steps.stream,
        step=data.steps.step,
        p_need=p_need,
        p_accept=p_accept,
        threshold=least_acceptance(policy, p_need, data.point),
        decision=decided.offer,
        slow=decided.slow,
        y_need=data.label("need"),
        y_accept=data.label("accept"),
    )


def least_acceptance(policy: str, p_need: Float64[np.ndarray, "n"], point: OperatingPoint) -> Float64[np.ndarray, "n"]:
    """The p_accept from which on a policy that can be deployed intervenes, infinite where it never does.

    Agrees with `gate.decide` except at floating-point ties.

    Raises:
      ValueError: for a policy without such a threshold, or a p_need outside [0, 1].
    """
    arrays.check_probability("p_need", p_need)
    threshold = ALL_POLICIES[policy].threshold
    if threshold is None:
        raise ValueError(f"policy: found {policy!r}, expected one with a threshold on p_accept")
    return threshold(p_need, point.c_fa, point.c_fn, point.fixed_threshold)
