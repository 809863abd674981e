"""Numbers that many tables share: rates, AUDBC, cost, tokens, each with its interval over whole streams or people."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prism_jax.decision import metrics
from prism_jax.decision.policies import POLICIES
from prism_jax.decision.uncertainty import Bounds, Estimate, interval, joint_cell, rate_intervals_of
from prism_jax.evaluation.merged.sums import column
from prism_jax.evaluation.policy_rows import SLOW_POLICIES, Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper.sheet import Measure, Number
from prism_jax.experiments.paper.study import SkippedError
from prism_jax.experiments.paper.tallies import Gathered, Tally, Units, as_counts, counts_by_unit, totals_of

RATES = {
    "recall": Measure("recall", "TP / (TP + FN), on steps with both labels.", "%"),
    "precision": Measure("precision", "TP / (TP + FP).", "%"),
    "accuracy": Measure("accuracy", "(TP + TN) / all.", "%"),
    "false_alarm": Measure("false alarm", "FP / (TP + FP) = 1 − precision: the paper's False-Alarm.", "%"),
    "f1": Measure("F1", "Harmonic mean of recall and precision.", "%"),
}
PRINTED = {
    "audbc_printed_text": Measure("AUDBC, main text", "As printed: ΔU over FP / (TP + FP).", "%", optional=True),
    "audbc_printed_appendix": Measure("AUDBC, appendix", "As printed: p_accept over offers.", "%", optional=True),
}
AREA = {"audbc": Measure("AUDBC", "Area under benefit over burden, divided by the oracle's.", "%"), **PRINTED}
COST = {"cost": Measure("cost", "Mean realised cost: C_FA for an offer not accepted, C_FN for help missed.", "", 4)}
SLOW = {"slow_rate": Measure("slow rate", "Share of all steps on which the slow pass ran.", "%")}
TOKENS = {"tokens": Measure("tokens", "Mean tokens of both passes per step.")}


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decisions of a policy, made where a number needs them."""

    name: str  # the same for the same decisions on the same steps
    data: EvaluationData
    decide: Callable[[], Decided]
    constant: bool = False  # whether they are the same at every step, whatever the scores are

    @functools.cached_property
    def decided(self) -> Decided:
        """The decisions themselves."""
        return self.decide()

    @property
    def gold(self) -> np.ndarray:
        """The gold label with which each decision counts, on judged steps."""
        return self.data.counted(self.decided).gold[self.data.judged]


def decisions(data: EvaluationData, policy: str, form: Form) -> Decisions:
    """The decisions of a policy at the operating point; SkippedError for a slow one that the scores do not allow."""
    check_known(data, policy)
    constant = policy in POLICIES and POLICIES[policy].constant is not None
    return Decisions(name_of(data, policy, form), data, lambda: data.decide(policy, form), constant)


def name_of(data: EvaluationData, *policy: object) -> str:
    """The name of a policy's decisions at the operating point."""
    return column(*policy, *dataclasses.astuple(data.point))


def check_known(data: EvaluationData, policy: str) -> None:
    """SkippedError for a policy that needs a slow pass, or what is known of it, where there is none."""
    if policy in SLOW_POLICIES and policy not in data.slow_policies:
        raise SkippedError(f"policy: found {policy!r} without a slow pass that it can decide by, expected another one")


def rates(tally: Tally, of: Decisions) -> dict[str, Number]:
    """The rates of `RATES` on judged steps; without intervals for soft labels or few streams.

    The recall of a constant is 0 or 1 by construction, and has no interval either.
    """

    def gather() -> Gathered:
        offer, gold, weight = of.decided.offer[of.data.judged], of.gold, of.data.weight
        confusion = np.array(metrics.confusion(offer, gold, weight), np.float64) if len(gold) else np.zeros(4)
        soft, weighted = int(((gold != 0) & (gold != 1)).sum()), int((weight != 1).sum())
        cells = counts_by_unit(of.data, f"rates.{of.name}", joint_cell(gold == 1, offer), 4)
        return Gathered(cells, {"confusion": confusion, "soft": soft, "weighted": weighted})

    def compute(units: Units, totals: Mapping[str, Any]) -> dict[str, Number]:
        computed = metrics.rates(metrics.Confusion(*totals["confusion"]))
        values = {name: float(getattr(computed, name)) for name in RATES}
        certain = {"recall"} if of.constant else set()
        defined = [name for name, value in values.items() if not math.isnan(value) and name not in certain]
        intervals: dict[str, Estimate] = {}
        if not totals["soft"] and defined:
            intervals = rate_intervals_of(as_counts(units, totals["weighted"] > 0), defined, **tally.resampling)
        return {
            name: Number(value, *map(float, intervals[name][1:3])) if name in intervals else Number(value)
            for name, value in values.items()
        }

    return tally.number(f"rates.{of.name}", of.data, gather, compute) or dict.fromkeys(RATES, Number())


def cost(tally: Tally, of: Decisions) -> Number:
    """Mean realised cost on judged steps, with its interval over whole units."""
    data = of.data

    def gather() -> Gathered:
        costs = data.costs(of.decided)[data.judged]
        return Gathered({f"cost.{of.name}": data.by_unit(data.weight * costs), "weight": data.by_unit(data.weight)})

    def compute(units: Units, _: Mapping[str, Any]) -> Number:
        bounds = Bounds(0.0, max(data.point.c_fa, data.point.c_fn))
        mean = interval(units, lambda totals: totals[..., 0] / totals[..., 1], bounds=bounds, **tally.resampling)
        total, mass = totals_of(units)
        return Number(float(total / mass), float(mean.low), float(mean.high))

    return tally.number(f"cost.{of.name}", data, gather, compute) or Number()


def slow_rate(tally: Tally, of: Decisions) -> Number:
    """Share of all steps on which the slow pass ran."""
    return _mean(tally, f"slow.{of.name}", of.data, lambda: of.decided.slow)


def tokens(tally: Tally, of: Decisions) -> Number:
    """Mean tokens of both passes over all steps; NaN where the scores do not say."""
    data = of.data
    fast = data.steps.tokens_fast
    if fast is None:
        return Number()
    slow = None if data.thought is None else data.thought.tokens_slow
    price = np.nan if slow is None else slow
    return _mean(tally, f"tokens.{of.name}", data, lambda: fast + np.where(of.decided.slow, price, 0))


def _mean(tally: Tally, name: str, data: EvaluationData, values: Callable[[], np.ndarray]) -> Number:
    def gather() -> Gathered:
        of_steps = values()
        return Gathered({}, {"sum": float(of_steps.sum()), "steps": len(of_steps)})

    return tally.number(name, data, gather, lambda _, totals: Number(totals["sum"] / totals["steps"])) or Number()


def beside(cells: Mapping[str, Number | str], paper: Mapping[str, float] | None) -> dict[str, Number | str]:
    """The cells with the paper's numbers beside them; a number that only the paper has becomes a cell of its own."""
    printed = {key: number for key, number in (paper or {}).items() if key != "latency"}  # its tables have seconds
    row: dict[str, Number | str] = {}
    for key, cell in cells.items():
        number = printed.pop(key, math.nan)
        row[key] = cell if isinstance(cell, str) else Number(cell.value, cell.low, cell.high, number)
    return row | {key: Number(paper=number) for key, number in printed.items()}
