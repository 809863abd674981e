"""Numbers that many tables share: rates, AUDBC, cost, tokens, each with its interval over whole streams or people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.decision import metrics
from prism_jax.decision.audbc import audbc, policy_signals
from prism_jax.decision.passes import Pass
from prism_jax.decision.uncertainty import UNBOUNDED, Bounds, Estimate, mean_interval, rate_intervals
from prism_jax.evaluation.policy_rows import SLOW_POLICIES, Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper.sheet import Measure, Number
from prism_jax.experiments.paper.study import IntervalSettings, Study
from prism_jax.scores.labels import acceptance_weight

RATES = {
    "recall": Measure("recall", "TP / (TP + FN), on steps with both labels.", "%"),
    "precision": Measure("precision", "TP / (TP + FP).", "%"),
    "accuracy": Measure("accuracy", "(TP + TN) / all.", "%"),
    "false_alarm": Measure("false alarm", "FP / (TP + FP) = 1 − precision: the paper's False-Alarm.", "%"),
    "f1": Measure("F1", "Harmonic mean of recall and precision.", "%"),
}
AREA = {"audbc": Measure("AUDBC", "Area under benefit over burden, divided by the oracle's.", "%")}
COST = {"cost": Measure("cost", "Mean realised cost: C_FA for an offer not accepted, C_FN for help missed.", "", 4)}
SLOW = {"slow_rate": Measure("slow rate", "Share of all steps on which the slow pass ran.", "%")}
TOKENS = {"tokens": Measure("tokens", "Mean tokens of both passes per step.")}


def rates(data: EvaluationData, decided: Decided, settings: IntervalSettings) -> dict[str, Number]:
    """The rates of `RATES` on judged steps; without intervals for soft labels or few streams."""
    offer, gold, weight, streams = _judged(data, decided)
    computed = metrics.rates(metrics.confusion(offer, gold, weight))
    values = {name: float(getattr(computed, name)) for name in RATES}
    defined = [name for name, value in values.items() if not math.isnan(value)]
    intervals: dict[str, Estimate] = {}
    if hard(gold) and defined:
        options: dict[str, Any] = {
            "streams": streams,
            "weight": None if (weight == 1).all() else weight,
            "names": defined,
        }
        intervals = rate_intervals(offer, gold, **options, **settings.keywords())
    return {
        name: Number(value, *map(float, intervals[name][1:3])) if name in intervals else Number(value)
        for name, value in values.items()
    }


def area(
    data: EvaluationData, policy: str, form: Form, settings: IntervalSettings, margin: float | None = None
) -> Number:
    """AUDBC of a policy that depends on the cost ratio, NaN where the labels have none.

    The policy is one of `policies.answering_to_ratio`, or `slow_on_margin`, for which `slow_only` is margin 1. Without
    a margin, it is that of the operating point.
    """
    judged = data.judged
    need, accept = data.label("need")[judged], data.label("accept")[judged]
    gold, streams = need * accept, data.judged_units
    thought, best = need * data.label("accept", data.everywhere_slow)[judged], data.missed[judged]
    if not (all(hard(labels) for labels in (gold, thought, best)) and best.any()):
        return Number()
    fast = Pass(*(p[judged] for p in data.signals("fast", form)))
    options: dict[str, Any] = {}
    if policy in SLOW_POLICIES:
        delta = 1.0 if policy == "slow_only" else data.point.margin if margin is None else margin
        if delta > 0:
            options = {"slow": Pass(*(p[judged] for p in data.signals("slow", form))), "margin": delta}
            options |= {"y_slow": thought} if data.two_candidates else {}
    else:
        rate = data.fits.offer_rates(data.steps)[judged]
        of_policy = policy_signals(*fast, policy, base_rate=rate)
        fast = Pass(*(np.broadcast_to(np.asarray(p, np.float64), gold.shape) for p in of_policy))
    weight = acceptance_weight(data.steps)[judged]
    options |= {"y_best": best} if data.several_candidates else {}
    measured = audbc(fast, gold, streams=streams, weight=weight, **options, **settings.keywords())
    return Number(measured.value, measured.low, measured.high)


def kept_area(study: Study, data: EvaluationData, policy: str, form: Form) -> Number:
    """`area` on the steps of a study, at whose costs it does not look: every table shows what the first computed."""
    key = policy, form, data.point.margin if policy in SLOW_POLICIES else 0.0
    if key not in study.areas:
        study.areas[key] = area(data, policy, form, study.settings)
    return study.areas[key]


def cost(data: EvaluationData, decided: Decided, settings: IntervalSettings) -> Number:
    """Mean realised cost on judged steps."""
    judged, between = data.judged, Bounds(0.0, max(data.point.c_fa, data.point.c_fn))
    weight = acceptance_weight(data.steps)[judged]
    return mean(data.costs(decided)[judged], weight, data.judged_units, settings, between)


def mean(
    values: np.ndarray, weight: np.ndarray, streams: np.ndarray, settings: IntervalSettings, bounds: Bounds = UNBOUNDED
) -> Number:
    """A weighted mean over steps, with its interval over whole streams (numbers from 0)."""
    totals = [np.bincount(streams, column).sum() for column in (weight * values, weight)]
    interval = mean_interval(values, streams, weight, bounds=bounds, **settings.keywords())
    return Number(float(totals[0] / totals[1]), float(interval.low), float(interval.high))


def slow_rate(decided: Decided) -> Number:
    """Share of all steps on which the slow pass ran."""
    return Number(float(decided.slow.mean()))


def tokens(data: EvaluationData, decided: Decided) -> Number:
    """Mean tokens of both passes over all steps; NaN where the scores do not say."""
    fast = data.steps.tokens_fast
    slow = None if data.thought is None else data.thought.tokens_slow
    if fast is None or (slow is None and decided.slow.any()):
        return Number()
    spent = fast if slow is None else fast + np.where(decided.slow, slow, 0)
    return Number(float(spent.mean()))


def beside(cells: Mapping[str, Number | str], paper: Mapping[str, float] | None) -> dict[str, Number | str]:
    """The cells with the paper's numbers beside them; a number that only the paper has becomes a cell of its own."""
    printed = dict(paper or {})
    row: dict[str, Number | str] = {}
    for key, cell in cells.items():
        number = printed.pop(key, math.nan)
        row[key] = cell if isinstance(cell, str) else Number(cell.value, cell.low, cell.high, number)
    return row | {key: Number(paper=number) for key, number in printed.items()}


def _judged(data: EvaluationData, decided: Decided) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Decision, the gold label with which it counts, weight and independent unit of each judged step."""
    judged = data.judged
    gold = data.counted(decided).gold[judged]
    return decided.offer[judged], gold, acceptance_weight(data.steps)[judged], data.judged_units


def hard(gold: np.ndarray) -> bool:
    """Whether all labels are 0 or 1."""
    return bool(((gold == 0) | (gold == 1)).all())
