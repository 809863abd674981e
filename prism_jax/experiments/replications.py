"""Logs with known propensities, and what estimates make of them.

They are drawn by any function (`measure`), or from a log in which every offer was answered (`replicate`): every
replication then redraws people with replacement from the full log, draws for each row whether a logging policy makes
the offer, and hides the answers to the others. The full log says what the target policy would have cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import ESTIMATORS, Logged

FOLDS = 5
"""Folds of people for the model of the doubly robust estimate."""
Rows = Float64[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True)
class FullLog:
    """A log in which every offer was answered, sorted by person."""

    starts: Int[np.ndarray, " people"]  # first row of each person
    sizes: Int[np.ndarray, " people"]  # number of rows of each person
    accepted: Rows  # y_a
    rank: Rows  # rank of each row's score, in (0, 1)

    @classmethod
    def of(cls, person: Int[np.ndarray, " rows"], accepted: Rows, score: Rows) -> FullLog:
        """Sorts the rows by person and ranks their scores; ties share their mean rank."""
        order = np.argsort(person, kind="stable")
        sizes = np.bincount(person)
        _, level, counts = np.unique(score[order], return_inverse=True, return_counts=True)
        rank = (np.cumsum(counts) - counts / 2)[level] / len(score)
        return cls(np.cumsum(sizes) - sizes, sizes, accepted[order], rank)


class Policies(NamedTuple):
    """A logging policy and a target policy, as probabilities of an offer at each row of the full log."""

    logging: Rows
    target: Rows


@dataclasses.dataclass(frozen=True)
class Replicated:
    """One estimator over all replications."""

    estimator: str
    truth: float  # the difference in the full log
    estimate: Rows  # the estimate of each replication that was not refused
    covered: Bool[np.ndarray, " rows"]  # whether its interval held the truth
    width: Rows  # width of the interval
    refused: float  # share of replications that were refused

    @property
    def bias(self) -> tuple[float, float]:
        """Mean error of the estimate, and its standard error over replications; NaN where all were refused."""
        if not len(self.estimate):
            return np.nan, np.nan
        return float(self.estimate.mean() - self.truth), float(self.estimate.std() / np.sqrt(len(self.estimate)))


class Drawn(NamedTuple):
    """One log as an estimate sees it."""

    target: Rows  # pi, the probability that the target policy makes each offer
    logged: Logged  # what the log knows
    person: Int[np.ndarray, " rows"]  # person of each row, numbers from 0 without gaps
    features: Float64[np.ndarray, "rows features"]  # what the model of the doubly robust estimate reads


def replicate(
    log: FullLog,
    policies: Policies,
    people: int,
    replications: int,
    *,
    c_fa: float,
    c_fn: float,
) -> list[Replicated]:
    """Estimates the difference from the logging policy in many redrawn logs; one result per estimator.

    Each redrawn log has `people` people. `c_fn` is the cost of not making an offer that would have been accepted.
    """
    full = c_fa * (1 - log.accepted) - c_fn * log.accepted
    truth = float(((policies.target - policies.logging) * full).mean())

    def draw(generator: np.random.Generator) -> Drawn:
        drawn = generator.integers(0, len(log.sizes), people)
        sizes = log.sizes[drawn]
        first = np.cumsum(sizes) - sizes
        rows = np.arange(sizes.sum()) + np.repeat(log.starts[drawn] - first, sizes)
        person = np.repeat(np.arange(people), sizes)
        e, rank = policies.logging[rows], log.rank[rows]
        offered = generator.random(len(rows)) < e
        logged = Logged(offered, e, np.where(offered, log.accepted[rows], 0.0), np.ones(len(rows)))
        return Drawn(policies.target[rows], logged, person, np.column_stack([rank, rank**2]))

    return measure(draw, truth, replications, c_fa=c_fa, c_fn=c_fn)


def measure(
    draw: Callable[[np.random.Generator], Drawn],
    truth: float,
    replications: int,
    *,
    c_fa: float,
    c_fn: float,
    refuse: bool = True,
) -> list[Replicated]:
    """Estimates the difference from the logging policy in many drawn logs; one result per estimator.

    `truth` is the difference that is estimated. `c_fn` is the cost of not making an offer that would have been
    accepted. Logs that cannot tell are refused, as users have it, or without `refuse` estimated all the same.
    """
    generator = np.random.default_rng(0)
    estimates: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ESTIMATORS}
    refused = 0
    for _ in range(replications):
        target, seen, person, features = draw(generator)
        if refuse:
            support = off_policy.measure_support(target, seen, person)
            if off_policy.refusal(support) is not None:
                refused += 1
                continue
        d = off_policy.savings(seen, c_fa, c_fn)
        model = off_policy.cross_fitted(features, d, seen, person % min(FOLDS, int(person.max()) + 1))
        for name in ESTIMATORS:
            interval = off_policy.difference(name, target, seen, person, c_fa=c_fa, c_fn=c_fn, model=model)
            estimates[name].append(interval[:3])
    results = []
    for name in ESTIMATORS:
        estimate, low, high = np.array(estimates[name], np.float64).reshape(-1, 3).T
        covered = (low <= truth) & (truth <= high)
        results.append(Replicated(name, truth, estimate, covered, high - low, refused / replications))
    return results
