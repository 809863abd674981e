"""Triggers of the slow pass at one budget: which steps are best thought about (docs/maths.md, section 12).

Every trigger decides by the dynamic gate on calibrated signals and differs only in the steps that it thinks about. Its
thresholds are chosen on calibration steps, one for each budget. A step that is thought about counts with the slow
pass's own candidate and decision. The random trigger is not drawn: its expectation is linear in the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Bounds, Cells, Resampled, interval
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED, known, minus
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.results import Triggers
from prism_jax.evaluation.rows import TriggerRow

BUDGETS = (0.10, 0.20, 0.25, 0.30, 0.40, 0.50)
"""Shares of steps that may be thought about."""


class Passes(NamedTuple):
    """A quantity of each test step without and with thinking."""

    fast: Float64[np.ndarray, "steps"]
    slow: Float64[np.ndarray, "steps"]


class Share(NamedTuple):
    """How much of each test step is thought about: whether it is, or the probability of a random trigger."""

    trigger: str
    budget: float | None
    of: Bool[np.ndarray, "steps"] | Float64[np.ndarray, "steps"]

    def mix(self, passes: Passes) -> Float64[np.ndarray, "steps"]:
        """The mean of what not thinking and thinking bring at each step."""
        return (1 - self.of) * passes.fast + self.of * passes.slow


class ShareSums(NamedTuple):
    """Sums of one share over all steps; None where the table does not know them."""

    slow: float
    expected: float | None
    tokens: float | None

    def merge(self, other: ShareSums) -> ShareSums:
        """The sums over the steps of both."""
        return ShareSums(
            self.slow + other.slow,
            None if self.expected is None or other.expected is None else self.expected + other.expected,
            None if self.tokens is None or other.tokens is None else self.tokens + other.tokens,
        )


def sums_of(
    data: EvaluationData, shares: Sequence[Share]
) -> tuple[Iterator[Float64[np.ndarray, "judged"]], list[ShareSums]]:
    """The realised costs of the judged steps, share by share, and the sums of each share over all steps."""
    realised, expected, tokens = _costs(data)
    sums = [
        ShareSums(
            float(share.of.sum()),
            None if expected is None else float(share.mix(expected).sum()),
            None if tokens is None else float(share.mix(tokens).sum()),
        )
        for share in shares
    ]
    return (share.mix(realised)[data.judged] for share in shares), sums


def rows_of(
    names: Sequence[tuple[str, float | None]],
    sums: Sequence[ShareSums],
    totals: Float64[np.ndarray, "columns"],
    cells: Cells | Resampled,
    point: OperatingPoint,
    number: tuple[int, int],
) -> Triggers:
    """The rows of shares, from the trigger and budget of each, their sums over all steps and their costs by unit.

    The columns of `cells` are the weighted realised costs of each share, and last the weights; `totals` are their sums
    over all units. `number` is that of all steps, and of the calibration steps.
    """
    estimates = _Estimates(names, totals, cells, max(point.c_fa, point.c_fn))
    steps, calibration_steps = number
    rows = []
    for i, ((trigger, budget), of) in enumerate(zip(names, sums, strict=True)):
        spent = None if of.tokens is None else of.tokens / steps
        row = TriggerRow(
            trigger=trigger,
            budget=budget,
            slow_rate=of.slow / steps,
            **estimates.row(i),
            expected_cost=None if of.expected is None else of.expected / steps,
            tokens=spent,
            token_cost=None if spent is None else point.price * spent,
        )
        rows.append(row)
    return Triggers(tuple(rows), calibration_steps, *estimates.gain(), LEVEL, RESAMPLES, SEED)


def _costs(data: EvaluationData) -> tuple[Passes, Passes | None, Passes | None]:
    """Realised costs, expected costs and tokens of every step; None where the table does not know them."""
    thought = data.thought
    assert thought is not None, "triggers are compared where there is a slow pass"
    passes = [data.decide(policy, "calibrated") for policy in ("dynamic", "slow_only")]
    realised = [data.costs(decided) for decided in passes]
    expected = [data.expected_costs(decided) for decided in passes] if data.has_truth else []
    spent = thought.tokens_slow
    tokens = None if spent is None or np.isnan(spent).any() else Passes(np.zeros(len(spent)), spent)
    return Passes(*realised), Passes(*expected) if expected else None, tokens


class _Estimates:
    """Means, shares kept and differences of all rows, with paired intervals."""

    def __init__(
        self,
        names: Sequence[tuple[str, float | None]],
        totals: Float64[np.ndarray, "columns"],
        cells: Cells | Resampled,
        most: float,
    ):
        self.count = len(names)
        # Every row is compared with the margin at the same budget; never and always with themselves.
        margin = {budget: i for i, (trigger, budget) in enumerate(names) if trigger == "margin"}
        self.rival = [margin.get(budget, i) for i, (_, budget) in enumerate(names)]
        self.saves = bool(minus(totals[0], totals[1]) > 0)
        self.estimate = self.numbers(totals)
        number = len(self.estimate)
        costs = np.arange(number) < self.count
        bounds = Bounds(np.where(costs, 0.0, -np.inf), np.where(costs, most, np.inf))
        self.found = interval(cells, self.numbers, bounds=bounds, level=LEVEL, resamples=RESAMPLES, seed=SEED)

    def numbers(self, totals: Float64[np.ndarray, "*resamples sums"]) -> Float64[np.ndarray, "*resamples numbers"]:
        """Cost, share kept and difference of every row, and the gain of always thinking, from weighted sums."""
        mean = totals[..., :-1] / totals[..., -1:]
        gain = minus(mean[..., :1], mean[..., 1:2])
        kept = (mean[..., :1] - mean) / np.where(gain == 0, np.nan, gain) if self.saves else np.zeros_like(mean)
        return np.concatenate([mean, kept, minus(mean, mean[..., self.rival]), gain], axis=-1)

    def of(self, index: int) -> tuple[float, float | None, float | None]:
        """One number with its interval."""
        return float(self.estimate[index]), known(self.found.low[index]), known(self.found.high[index])

    def gain(self) -> tuple[float, float | None, float | None]:
        """What always thinking saves, with its interval."""
        return self.of(3 * self.count)

    def row(self, i: int) -> dict[str, Any]:
        """The fields of one row that come from realised costs."""
        cost, cost_low, cost_high = self.of(i)
        fields: dict[str, Any] = {"realised_cost": cost, "realised_low": cost_low, "realised_high": cost_high}
        if self.saves:
            fields |= dict(zip(("kept", "kept_low", "kept_high"), self.of(self.count + i), strict=True))
        if self.rival[i] != i:
            names = ("difference", "difference_low", "difference_high")
            fields |= dict(zip(names, self.of(2 * self.count + i), strict=True))
        return fields
