"""The rows of the results tables: one record per policy, group, signal, trigger or cost ratio.

`results` holds what these rows are collected in.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from prism_jax.decision.calibration import Reliability
from prism_jax.scores.labels import Signal, Thinking

Form = Literal["raw", "calibrated"]


@dataclasses.dataclass(frozen=True)
class PolicyRow:
    """One policy's results on the test split; costs are means over steps. None means not known, NaN undefined.

    Attributes:
      policy: The policy's name.
      form: Whether it decided on raw or calibrated signals; None for constants and oracles.
      deployed: Whether this is the policy of the operating point, on calibrated signals.
      realised_cost: Mean of C_FA a (1 - y_a) + C_FN (1 - a) y_n y_a, on judged steps. An offer counts with the labels
        of the policy's candidate, silence with the largest y_n y_a of the step's labelled candidates; so below.
      gold_cost: Mean of C_FA FP + C_FN FN against y_n y_a, on judged steps.
      expected_cost: Realised cost's expectation under the simulator's truth, on all steps.
      regret: Expected cost minus that of the Bayes decisions.
      gap_closed: (K - expected cost) / (K - Bayes), with K the expected cost of the better constant.
      gap_closed_realised: The same share for realised costs.
      speak_rate: Share of all steps with an offer; weighted share of judged steps for the clairvoyant.
      slow_rate: Share of all steps on which the slow pass ran.
      recall: TP / (TP + FN).
      precision: TP / (TP + FP).
      false_alarm: FP / (TP + FP), the paper's False-Alarm: offers that were not needed or not accepted.
      dismissed: Share of offers that were not accepted, whether needed or not.
      false_positive_rate: FP / (FP + TN).
      false_alarms_per_step: FP / all.
      f1: 2 P R / (P + R + 1e-8).
      accuracy: (TP + TN) / all.
      mcc: Matthews correlation coefficient.
      tp: Offers with y_n y_a = 1, with the weights of the labels.
      fp: Other offers.
      fn: Silences with y_n y_a = 1.
      tn: Other silences.
      realised_low: Lower end of the interval of `realised_cost` over units (`Evaluation.unit`).
      realised_high: Upper end of that interval.
      difference: Realised cost minus that of the deployed policy, on the same steps.
      difference_low: Lower end of its paired interval.
      difference_high: Upper end of that interval.
    """

    policy: str
    form: Form | None
    deployed: bool
    realised_cost: float
    gold_cost: float
    expected_cost: float | None
    regret: float | None
    gap_closed: float | None
    gap_closed_realised: float | None
    speak_rate: float
    slow_rate: float | None
    recall: float
    precision: float
    false_alarm: float
    dismissed: float
    false_positive_rate: float
    false_alarms_per_step: float
    f1: float
    accuracy: float
    mcc: float
    tp: float
    fp: float
    fn: float
    tn: float
    realised_low: float | None = None
    realised_high: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None


@dataclasses.dataclass(frozen=True)
class GroupRow:
    """The deployed policy on the test steps of one domain or persona. NaN means undefined.

    Attributes:
      column: domain or persona.
      value: The domain or persona.
      streams: Number of its streams.
      steps: Number of its steps.
      judged: Number of steps whose need and acceptance labels are both known; all costs are on these.
      positive: Weighted share of judged steps at which some labelled offer has y_n y_a = 1.
      realised_cost: Mean realised cost of the deployed policy.
      always: Mean realised cost of an offer at every step.
      never: Mean realised cost of silence.
      speak_rate: Share of all steps with an offer.
      ece_need: Partly debiased expected calibration error of the deployed signals of need; None without need.
      ece_accept: The same of acceptance, on the steps' offers.
    """

    column: str
    value: str
    streams: int
    steps: int
    judged: int
    positive: float
    realised_cost: float
    always: float
    never: float
    speak_rate: float
    ece_need: float | None
    ece_accept: float


@dataclasses.dataclass(frozen=True)
class RatioRow:
    """One policy's results across cost ratios, on judged steps. None means not known, NaN undefined.

    Attributes:
      policy: The policy's name.
      form: Whether it decided on raw or calibrated signals; None for references.
      deployed: Whether this is the policy of the operating point, on calibrated signals.
      audbc: Area under benefit over burden, divided by the oracle's.
      audbc_low: Lower end of its interval.
      audbc_high: Upper end of its interval.
      audbc_rescaled: 0 for a random ranking, 1 for the oracle's.
      mean_cost: Realised cost per step with costs normalised to C_FA + C_FN = 1, averaged over log-uniform ratios.
      mean_cost_rescaled: 0 for the better constant's mean cost, 1 for that of deciding on the labels.
    """

    policy: str
    form: Form | None
    deployed: bool
    audbc: float | None
    audbc_low: float | None
    audbc_high: float | None
    audbc_rescaled: float | None
    mean_cost: float
    mean_cost_rescaled: float


@dataclasses.dataclass(frozen=True)
class TriggerRow:
    """The dynamic gate with one trigger of the slow pass, on calibrated signals. None means not known.

    Attributes:
      trigger: never, always, or one of `budgets.TRIGGERS`.
      budget: Share of calibration steps that its threshold thinks about; None for never and always.
      slow_rate: Share of all test steps that it thinks about; for `random` in expectation, as are its costs.
      realised_cost: Mean realised cost on judged steps, without the price of tokens.
      kept: (never - cost) / (never - always) of realised costs; None where always thinking saves nothing.
      difference: Realised cost minus that of the trigger `margin` at the same budget, on the same steps.
      expected_cost: Mean expected cost under the simulator's truth, on all steps.
      tokens: Mean slow tokens per step.
      token_cost: Price of these tokens; it stands beside the costs and is never part of them.
      realised_low: Lower end of the interval of `realised_cost`.
      realised_high: Upper end of that interval.
      kept_low: Lower end of the interval of `kept`.
      kept_high: Upper end of that interval.
      difference_low: Lower end of the paired interval of `difference`.
      difference_high: Upper end of that interval.
    """

    trigger: str
    budget: float | None
    slow_rate: float
    realised_cost: float
    kept: float | None = None
    difference: float | None = None
    expected_cost: float | None = None
    tokens: float | None = None
    token_cost: float | None = None
    realised_low: float | None = None
    realised_high: float | None = None
    kept_low: float | None = None
    kept_high: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None


@dataclasses.dataclass(frozen=True)
class SignalRow:
    """How well one signal is calibrated on the test split.

    Attributes:
      signal: need or accept.
      thinking: fast or slow.
      form: raw or calibrated.
      temperature: The temperature; 1 for raw signals, None where the calibrator is not one temperature for all rows.
      map: The map in words; None for raw signals and where `temperature` says it.
      count: Number of labels it was measured on.
      ece: Expected calibration error, 15 bins of equal width.
      ece_debiased: The same minus an estimate of what the labels' noise adds to it, which removes part of that.
      brier: Mean of (p - y)^2 = miscalibration - discrimination + uncertainty (CORP).
      miscalibration: What isotonic recalibration would take off the Brier score.
      discrimination: What the recalibrated signal takes off the Brier score of the labels' mean.
      uncertainty: Brier score of the labels' mean.
      nll: Mean negative log-likelihood, in nats; infinite where a certain p is wrong.
      distance: Mean of |p - true p| on the simulator; None elsewhere.
      constant_distance: The same distance for the calibration split's base rate.
      reliability: The bins of the reliability diagram.
    """

    signal: Signal
    thinking: Thinking
    form: Form
    temperature: float | None
    map: str | None
    count: int
    ece: float
    ece_debiased: float
    brier: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    nll: float
    distance: float | None
    constant_distance: float | None
    reliability: Reliability


@dataclasses.dataclass(frozen=True)
class SecondSignalRow:
    """The gate and p_accept alone at one cost ratio, on calibrated signals of the fast pass.

    Attributes:
      ratio: Cost ratio C_FN / C_FA.
      speak_rate: Weighted share of judged steps with an offer, of both.
      gate: Mean realised cost of the gate.
      accept_alone: Mean realised cost of p_accept alone.
      difference: Cost of the gate minus that of p_accept alone; below 0 the second signal saves.
      low: Lower end of its interval; None for a single stream.
      high: Upper end.
    """

    ratio: float
    speak_rate: float
    gate: float
    accept_alone: float
    difference: float
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Dependence:
    """Whether need and acceptance depend on each other given what the fast pass sees, which Eq. 1 takes for no.

    Attributes:
      covariance: Weighted mean of (y_need - p_need)(y_accept - p_accept) over judged steps, with calibrated signals and
        without what these tell of either factor; the gate misjudges the cost of silence by C_FN times as much.
      low: Lower end of its interval over units; None where there are too few.
      high: Upper end.
      steps: Number of steps: of the calibration split, or out of fold of all.
    """

    covariance: float
    low: float | None
    high: float | None
    steps: int

    def __str__(self) -> str:
        """What the gate assumes, what was measured, and what p_need is to estimate."""
        said = (
            "The gate takes need and acceptance for independent given what the fast pass sees; on "
            f"{self.steps:,} labelled steps, the mean of (y_need − p_need)(y_accept − p_accept) without what "
            f"miscalibration adds is {_signed(self.covariance)}"
        )
        if self.low is None or self.high is None:
            return f"{said}, of too few units for an interval."
        said += f" [{_signed(self.low)}, {_signed(self.high)}]"
        if self.low <= 0 <= self.high:
            return f"{said}: no sign of the contrary."
        return (
            f"{said}: they are not. A p_need given acceptance needs no independence, but learns from accepted offers "
            "alone: compare the costs (loss.need_target=given_accept in training, fit.need_target of a probe, a column "
            "need_target of scores of your own)."
        )


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")
