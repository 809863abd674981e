"""The rows of all policies on the same steps, from sums that those of other steps can be added to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import metrics
from prism_jax.evaluation.policy_rows import FORMS, Counted, Decided, EvaluationData, Truth
from prism_jax.evaluation.rows import Form, PolicyRow


class PolicySums(NamedTuple):
    """What a policy's row is computed from: sums, which those of other steps can be added to."""

    mass: float  # weight of the judged steps
    realised: float  # their weighted realised costs
    gold: float  # their weighted gold costs
    expected: float | None  # expected costs of all steps; None without the truth
    offers: int  # offers on all steps
    steps: int  # all steps
    slow: int  # slow passes on all steps
    counts: metrics.Confusion  # judged decisions against gold labels
    answers: metrics.Confusion  # the same against labels of acceptance

    @property
    def realised_cost(self) -> float:
        """Mean realised cost of the judged steps."""
        return self.realised / self.mass

    @property
    def expected_cost(self) -> float:
        """Mean expected cost of all steps."""
        assert self.expected is not None, "read only with the truth"
        return self.expected / self.steps

    def merge(self, other: PolicySums) -> PolicySums:
        """The sums over the steps of both."""
        plain = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("mass", "realised", "gold", "offers", "steps", "slow")
        }
        expected = None if self.expected is None or other.expected is None else self.expected + other.expected
        return PolicySums(
            **plain,
            expected=expected,
            counts=metrics.Confusion(*(one + two for one, two in zip(self.counts, other.counts, strict=True))),
            answers=metrics.Confusion(*(one + two for one, two in zip(self.answers, other.answers, strict=True))),
        )


class Deciding(NamedTuple):
    """A policy that is compared, and its decisions."""

    policy: str
    form: Form | None  # on which signals it decides; None for constants and oracles
    decided: Decided


def compared(data: EvaluationData) -> Iterator[Deciding]:
    """Every policy with its decisions: constants and oracles, then on calibrated signals, then on raw signals."""
    for name in ("always", "never"):
        yield Deciding(name, None, data.decide(name, "raw"))
    if data.has_truth:
        yield Deciding("bayes", None, data.oracle(data.truth()))
    best, missed = (np.where(data.judged, label, 0.0) for label in (data.best_accept, data.missed))
    yield Deciding("clairvoyant", None, data.oracle(Truth(best, missed)))
    for form in FORMS:
        for name in (*data.fast_policies, *data.slow_policies):
            yield Deciding(name, form, data.decide(name, form))


class _Counting(NamedTuple):
    """What the decisions of the judged steps count with."""

    refused: Float64[np.ndarray, "judged"]  # the cost of an offer
    missed: Float64[np.ndarray, "judged"]  # the cost of silence
    gold: tuple[Float64[np.ndarray, "judged"], Float64[np.ndarray, "judged"]]  # weights of the label and its complement
    answer: tuple[Float64[np.ndarray, "judged"], Float64[np.ndarray, "judged"]]  # the same of labels of acceptance

    @classmethod
    def of(cls, data: EvaluationData, counted: Counted) -> _Counting:
        """Of these labels; `metrics.step_costs` is a choice of `refused` and `missed`, which takes longer."""
        need, accept = map(data.of_judged, counted)
        gold, weight, point = need * accept, data.weight, data.point
        pairs = ((weight * y, weight * (1 - y)) for y in (gold, accept))
        return cls(point.c_fa * (1 - accept), point.c_fn * gold, *pairs)


def sums_of(data: EvaluationData) -> Iterator[tuple[Deciding, Float64[np.ndarray, "judged"], PolicySums]]:
    """Each of `compared` with the realised cost of each judged step, and the sums over all steps."""
    point, weight = data.point, data.weight
    best = Counted(data.label("need"), data.best_accept)
    of_best = _Counting.of(data, best)
    for deciding in compared(data):
        decided = deciding.decided
        counted = best if deciding.policy == "clairvoyant" else data.counted(decided)  # it chooses the best candidate
        counting = of_best if counted.accept is best.accept else _Counting.of(data, counted)
        offer = data.of_judged(decided.offer)
        offered = offer.astype(np.float64)
        counts, answers = (
            metrics.weighted_confusion(offered, *of) if len(weight) else metrics.Confusion(0.0, 0.0, 0.0, 0.0)
            for of in (counting.gold, counting.answer)
        )
        sums = PolicySums(
            mass=float(weight.sum()),
            realised=float(point.c_fa * answers.fp + point.c_fn * counts.fn),
            gold=float(point.c_fa * counts.fp + point.c_fn * counts.fn),
            expected=float(data.expected_costs(decided).sum()) if data.has_truth else None,
            offers=int(np.count_nonzero(decided.offer)),
            steps=len(decided.offer),
            slow=int(np.count_nonzero(decided.slow)),
            counts=counts,
            answers=answers,
        )
        yield deciding, offered * counting.refused + (1 - offered) * counting.missed, sums


def rows_of(sums: Mapping[tuple[str, Form | None], PolicySums], deployed: str, has_slow: bool) -> list[PolicyRow]:
    """All numbers of every policy but its intervals; `sums` has the references, too."""
    references = {name: sums[name, None] for name in ("always", "never", "bayes") if (name, None) in sums}
    realised = {name: reference.realised_cost for name, reference in references.items()}
    has_truth = "bayes" in references
    expected = {name: reference.expected_cost for name, reference in references.items()} if has_truth else {}
    return [_row(policy, form, of, deployed, has_slow, realised, expected) for (policy, form), of in sums.items()]


def _row(
    policy: str,
    form: Form | None,
    sums: PolicySums,
    deployed: str,
    has_slow: bool,
    realised: dict[str, float],
    expected: dict[str, float],
) -> PolicyRow:
    """All numbers of one policy; `realised` and `expected` are the costs of the references."""
    rates = metrics.rates(sums.counts)
    sees_labels = policy == "clairvoyant"
    return PolicyRow(
        policy=policy,
        form=form,
        deployed=policy == deployed and form in (None, "calibrated"),
        realised_cost=sums.realised_cost,
        gold_cost=sums.gold / sums.mass,
        **_under_truth(sums, sees_labels, realised, expected),
        speak_rate=(sums.counts.tp + sums.counts.fp) / sums.mass if sees_labels else sums.offers / sums.steps,
        slow_rate=sums.slow / sums.steps if has_slow and not sees_labels else None,
        recall=float(rates.recall),
        precision=float(rates.precision),
        false_alarm=float(rates.false_alarm),
        dismissed=float(metrics.rates(sums.answers).false_alarm),
        false_positive_rate=float(rates.false_positive_rate),
        false_alarms_per_step=float(rates.false_alarms_per_step),
        f1=float(rates.f1),
        accuracy=float(rates.accuracy),
        mcc=float(rates.matthews),
        **{name: float(count) for name, count in sums.counts._asdict().items()},
    )


def _under_truth(
    sums: PolicySums, sees_labels: bool, realised: dict[str, float], expected: dict[str, float]
) -> dict[str, Any]:
    """The numbers that need the simulator's truth; decisions made on the labels have no expected cost."""
    numbers: dict[str, Any] = dict.fromkeys(("expected_cost", "regret", "gap_closed", "gap_closed_realised"))
    if expected:
        numbers["gap_closed_realised"] = _gap_closed(sums.realised_cost, realised)
    if expected and not sees_labels:
        numbers["expected_cost"] = cost = sums.expected_cost
        numbers["regret"] = cost - expected["bayes"]
        numbers["gap_closed"] = _gap_closed(cost, expected)
    return numbers


def _gap_closed(cost: float, references: dict[str, float]) -> float:
    """Share of the gap between the better constant and the Bayes decisions that a cost closes; NaN without a gap."""
    constant = min(references["always"], references["never"])
    gap = constant - references["bayes"]
    return (constant - cost) / gap if gap > 0 else np.nan
