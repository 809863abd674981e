"""The results of evaluation: the rows of `rows` with what they were computed on, ready to be written as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.rows import (
    Dependence,
    Form,
    GroupRow,
    PolicyRow,
    RatioRow,
    SecondSignalRow,
    SignalRow,
    TriggerRow,
)
from prism_jax.scores.units import Unit

LEAST_CAUTION = 5e-5
"""Cost per step, half of the last digit shown, by which something else must be cheaper to be named."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """Sizes of the test split.

    Attributes:
      streams: Number of streams.
      steps: Number of steps; each is decided once.
      rows: Number of rows, one per step and candidate offer.
      judged: Number of steps whose need and acceptance labels are known, of both passes' offers; the others are masked.
      need_unknown: Number of steps without a need label.
      accept_unknown: Number of steps whose offer, of either pass, has no observed answer.
      positive: Weighted share of judged steps at which some labelled offer has y_n y_a = 1, the prevalence.
      effective: (sum w)^2 / sum w^2 of the judged steps' weights.
      fields_correct: Share of steps at which the slow pass wrote all fields as the data have them; None if not known.
      people: Number of people; None if not known.
    """

    streams: int
    steps: int
    rows: int
    judged: int
    need_unknown: int
    accept_unknown: int
    positive: float
    effective: float
    fields_correct: float | None = None
    people: int | None = None


@dataclasses.dataclass(frozen=True)
class Trace:
    """The deployed policy on each step of the test split; NaN means an unknown label.

    Attributes:
      stream: The step's stream.
      step: The step's position in its stream.
      p_need: Calibrated probability of need, from the slow pass where it ran.
      p_accept: Calibrated probability of acceptance, from the slow pass where it ran.
      threshold: The least p_accept at which the policy intervenes, infinite where it never does.
      decision: Whether it intervened.
      slow: Whether the slow pass ran.
      y_need: Need labels.
      y_accept: Acceptance labels of the offers that were decided about.
      y_best: Largest known acceptance label of the step's offers, with which silence counts.
      time: Times in seconds, NaN where unknown; None where the table has none.
    """

    stream: Shaped[np.ndarray, "steps"]
    step: Int64[np.ndarray, "steps"]
    p_need: Float64[np.ndarray, "steps"]
    p_accept: Float64[np.ndarray, "steps"]
    threshold: Float64[np.ndarray, "steps"]
    decision: Bool[np.ndarray, "steps"]
    slow: Bool[np.ndarray, "steps"]
    y_need: Float64[np.ndarray, "steps"]
    y_accept: Float64[np.ndarray, "steps"]
    y_best: Float64[np.ndarray, "steps"]
    time: Float64[np.ndarray, "steps"] | None = None


@dataclasses.dataclass(frozen=True)
class Ratios:
    """The policies across cost ratios, and the data and settings behind the numbers.

    Attributes:
      rows: One row per policy: references, then policies on calibrated signals, then on raw signals.
      steps: Number of judged steps.
      streams: Number of their streams.
      low_ratio: Smallest cost ratio of the mean cost.
      high_ratio: Largest cost ratio of the mean cost.
      level: Nominal coverage of the interval.
      resamples: Number of resamples, where there are very many units.
      seed: Seed of the resamples.
      no_area: The reason why there is no AUDBC; None if there is one.
    """

    rows: tuple[RatioRow, ...]
    steps: int
    streams: int
    low_ratio: float
    high_ratio: float
    level: float
    resamples: int
    seed: int
    no_area: str | None


@dataclasses.dataclass(frozen=True)
class Triggers:
    """What the slow pass is best triggered by, at equal slow budgets.

    Attributes:
      rows: Never and always thinking, then the triggers of each budget.
      calibration_steps: Number of steps that thresholds were chosen on; with folds, summed over the folds.
      gain: Realised cost that always thinking saves per step, the whole of which `TriggerRow.kept` is a share.
      gain_low: Lower end of its interval.
      gain_high: Upper end of its interval.
      level: Nominal coverage of the intervals.
      resamples: Number of resamples, where there are very many units.
      seed: Seed of the resamples.
    """

    rows: tuple[TriggerRow, ...]
    calibration_steps: int
    gain: float
    gain_low: float | None
    gain_high: float | None
    level: float
    resamples: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """All results of `protocol.evaluate` on the test split.

    Attributes:
      point: The operating point of the policies.
      counts: Sizes of the split.
      policies: One row per policy: constants and oracles, then policies on calibrated signals, then on raw signals.
      ratios: Policies that depend on the cost ratio, across ratios.
      signals: One row per signal, pass and form.
      groups: The deployed policy by domain and by persona, where the table has these columns.
      switched_off: Results that could not be computed, each with the missing input.
      trace: The deployed policy step by step.
      population: Words for the rows that were evaluated, if these are not all; empty otherwise.
      calibrated: Words for what the signals were calibrated on, if not on the calibration split; empty otherwise.
      base: The same results for the student before training; None if it was not evaluated.
      second_signal: The gate beside p_accept alone at equal speak rates, by cost ratio; empty without need.
      dependence: Whether need and acceptance depend on each other given the fast pass, on calibration steps; None
        where that is not known, and where p_need is given acceptance, so that it does not matter.
      need_given_accept: Whether p_need estimates need given that the step's offer is accepted.
      triggers: Triggers of the slow pass at equal budgets; None without a slow pass or without calibration rows.
      has_need: Whether need is a signal with labels; otherwise p_accept alone was evaluated, with need as certain.
      unit: The units of intervals: streams, or people where one of them has several streams, or days of one person.
      units: Number of units of the judged steps.
      bounds: How far numbers that follow from histograms can be from those of the rows themselves, by the number's
        name, in its own unit; empty where all are exact. The trace has the first steps alone then.
    """

    point: OperatingPoint
    counts: Counts
    policies: tuple[PolicyRow, ...]
    ratios: Ratios
    signals: tuple[SignalRow, ...]
    groups: tuple[GroupRow, ...]
    switched_off: tuple[str, ...]
    trace: Trace
    population: str = ""
    calibrated: str = ""
    base: Evaluation | None = None
    triggers: Triggers | None = None
    second_signal: tuple[SecondSignalRow, ...] = ()
    dependence: Dependence | None = None
    need_given_accept: bool = False
    has_need: bool = True
    unit: Unit = "streams"
    units: int = 0
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def policy(self, name: str, form: Form | None = None) -> PolicyRow:
        """The row of one policy.

        Raises:
          KeyError: if there is none.
        """
        for row in self.policies:
            if (row.policy, row.form) == (name, form):
                return row
        names = ", ".join(f"{row.policy} ({row.form})" if row.form else row.policy for row in self.policies)
        raise KeyError(f"policy {name!r} on {form or 'no'} signals: expected one of {names}")

    @property
    def deployed(self) -> PolicyRow:
        """The row of the operating point's policy."""
        return next(row for row in self.policies if row.deployed)

    @property
    def caution(self) -> str:
        """`caution_of` the deployed policy."""
        return self.caution_of(self.deployed)

    def caution_of(self, row: PolicyRow) -> str:
        """A sentence where a calibrated policy costs more than on the raw signals or than a constant, else empty."""
        words = {
            (row.policy, "raw"): "on the raw signals",
            ("never", None): "by never offering",
            ("always", None): "by always offering",
        }
        less = [
            f"{rival.realised_cost:.4f} {words[rival.policy, rival.form]}{_less(rival) if row.deployed else ''}"
            for rival in self.policies
            if (rival.policy, rival.form) in words and rival.realised_cost - row.realised_cost <= -LEAST_CAUTION
        ]
        if not less or row.form != "calibrated":
            return ""
        gate = "deployed gate" if row.deployed else "gate of the fast pass"
        return (
            f"Caution: on these test steps the {gate} costs {row.realised_cost:.4f} per step, and "
            f"{'; '.join(less)}. A map that is chosen by this comparison should be measured on other steps."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything except the trace, ready for JSON; undefined and infinite numbers become null."""
        names = tuple(field.name for field in dataclasses.fields(self) if field.name not in ("trace", "base"))
        optional = {"triggers": self.triggers, "bounds": self.bounds}
        tree = {name: _plain(getattr(self, name)) for name in names if name not in optional or optional[name]}
        tree |= {"caution": self.caution} if self.caution else {}
        return tree if self.base is None else tree | {"base": self.base.to_dict()}


def doubt(row: PolicyRow) -> str:
    """What to add where the interval of a policy's difference to the deployed one holds 0."""
    low, high = row.difference_low, row.difference_high
    return "" if low is None or high is None or not low <= 0 <= high else ", not told apart"


def _less(row: PolicyRow) -> str:
    """By how much a policy costs less than the deployed one, with its interval, to be appended."""
    low, high = row.difference_low, row.difference_high
    ends = "[no interval]" if low is None or high is None else f"[{-high:.4f}, {-low:.4f}]"
    return f", less by {-(row.difference or 0.0):.4f} {ends}{doubt(row)}"


def _plain(value: Any) -> Any:
    """Records, arrays and numbers as values that JSON can represent."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
