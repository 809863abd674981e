"""Metrics corrected for the errors of judges, where some rows also have human labels (docs/maths.md, section 8).

A judge labels every row, and humans label some. The human label is taken for the truth. Each method estimates how many
offers and silences were right, and its interval carries the estimation of the judge's errors:

- `inversion` inverts the judge's confusion matrix (Rogan and Gladen 1978). The judge's sensitivity and specificity must
  be the same at every decision, and the same on the rows with and without human labels. The base rates may differ.
- `inversion_by_decision` estimates them separately at offers and at silences, so that a judge may be more lenient to
  one of them.
- `rectified` estimates the share of right rows among those with the same decision and the same label of the judge
  (Tenenbein 1970; Begg and Greenes 1983). It assumes nothing about the judge's errors. Which rows have human labels may
  depend on the decision and on the judge's label, but on nothing else. For 0-1 labels this is prediction-powered
  inference with the best weight of the judge (Angelopoulos, Duchi and Zrnic 2023).

`judge_only` and `human_only` are what they correct: the judge's labels taken for the truth, and the rows with human
labels alone. Host only, in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Num

from prism_jax.decision import arrays, metrics
from prism_jax.decision.arrays import Vector
from prism_jax.decision.uncertainty import jackknife
from prism_jax.decision.uncertainty.bootstrap import (
    MOST_UNITS,
    Cells,
    Estimate,
    Statistic,
    count_cells,
    jackknifed,
    resample,
    summarise,
)
from prism_jax.decision.uncertainty.jackknife import LEAST_UNITS, Bounds
from prism_jax.decision.uncertainty.rates import rate_intervals, rates_between

CorrectionMethod = Literal["rectified", "inversion", "inversion_by_decision", "judge_only", "human_only"]
NOISE_NAMES = ("prevalence", "precision", "recall", "f1", "false_alarm", "cost")
"""Default numbers of `corrected_rates`: fields of `metrics.Rates`, and `cost`."""
_CELLS = 12  # decision, judge's label, human label (0, 1, or 2 for none)


class ErrorRates(NamedTuple):
    """How often a judge gives the human label.

    Attributes:
      sensitivity: Pr(judge says 1 | human label 1).
      specificity: Pr(judge says 0 | human label 0).
      rows: Number of rows with a human label.
    """

    sensitivity: Estimate
    specificity: Estimate
    rows: int


def error_rates(
    judge: Vector,
    human: Float[np.ndarray, "_n"],
    *,
    streams: Any | None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> ErrorRates:
    """Estimates a judge's sensitivity and specificity on the rows with human labels, with intervals.

    Args:
      judge: The judge's labels, 0 or 1.
      human: Human labels, 0 or 1; NaN where there is none.
      streams: Stream of each row; streams are the units. None treats rows as independent.
      level: Nominal coverage, in (0, 1).
      resamples: Number of resamples.
      seed: Seed of the resamples.

    Raises:
      ValueError: for unequal lengths, labels other than 0 and 1, or human labels that do not hold both 0 and 1.
    """
    judged, labels = _checked(judge, human)
    labelled = labels < 2
    intervals = rate_intervals(
        judged[labelled],
        labels[labelled],
        streams=None if streams is None else np.asarray(streams)[labelled],
        names=("recall", "specificity"),
        level=level,
        resamples=resamples,
        seed=seed,
    )
    return ErrorRates(intervals["recall"], intervals["specificity"], int(labelled.sum()))


def corrected_rates(
    decision: Vector,
    judge: Vector,
    human: Float[np.ndarray, "_n"],
    *,
    streams: Any | None,
    method: CorrectionMethod = "rectified",
    names: Sequence[str] = NOISE_NAMES,
    c_fa: float = 1.0,
    c_fn: float = 2.0,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Rates and cost of decisions, corrected for the judge's errors, with intervals.

    Streams with human labels and the other streams are separate groups of units. Everything is estimated anew without
    each unit, or with very many of them on each resample, so the interval carries the uncertainty of the judge's error
    rates. With fewer than `LEAST_UNITS` streams in the first group there is no interval.

    The label says whether an offer is right. For the paper's rates and the cost against gold, it is y_need AND
    y_accept. For `realised_cost`, it is y_accept where the policy intervened and y_need AND y_accept elsewhere. For
    official counts, it is the verdict on the proposal, and the opposite of the verdict on silence.

    Args:
      decision: Whether the policy intervened.
      judge: The judge's label of each row, 0 or 1.
      human: The human label of the same, NaN where there is none.
      streams: Stream of each row; streams are the units. None treats rows as independent.
      method: How the judge's errors are taken into account (see the module's docstring).
      names: Numbers to compute: fields of `metrics.Rates`, and `cost`, which is C_FA FP + C_FN FN per row.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      level: Nominal coverage, in (0, 1).
      resamples: Number of resamples.
      seed: Seed of the resamples.

    Raises:
      ValueError: for unequal lengths, an unknown method or name, a decision, label or cost outside its range, or a
        number that is undefined on the data, such as an inversion for a judge who is not better than chance.
    """
    arrays.check_choice("method", method, get_args(CorrectionMethod))
    known_names = (*(field.name for field in dataclasses.fields(metrics.Rates)), "cost")
    for name in names:
        arrays.check_choice("names", name, known_names)
    arrays.check_costs(c_fa, c_fn)
    arrays.check_lengths(decision=decision, streams=streams)
    code = _code(decision, judge, human)

    def statistic(counts: Num[np.ndarray, "*r 12"]) -> Float[np.ndarray, "*r k"]:
        return _numbers(_shares(counts, method), names, c_fa, c_fn)

    estimate = statistic(np.bincount(code, minlength=_CELLS))
    if np.isnan(estimate).any():
        unknown = [name for name, value in zip(names, estimate, strict=True) if np.isnan(value)]
        raise ValueError(
            f"method: {method} cannot tell {', '.join(unknown)}, expected human labels for each decision and each "
            "label of the judge, and for an inversion a judge who is better than chance"
        )
    parts = _parts(code, streams)
    if sum(part.number for part in parts) > MOST_UNITS:
        seeds = np.random.SeedSequence(seed).generate_state(len(parts))
        drawn = [resample(part, resamples, int(part_seed)) for part, part_seed in zip(parts, seeds, strict=True)]
        result = summarise(estimate, statistic(np.sum(drawn, axis=0)), level)
    else:
        spread = jackknife.together([_without_each(part, parts, statistic) for part in parts])
        low, high = rates_between(names)
        bounds = Bounds(low, np.where(np.array(names) == "cost", max(c_fa, c_fn), high))
        ends = jackknife.ends(spread, level, bounds)
        result = Estimate(estimate, *ends, spread.error, spread.undefined, spread.units)
    units = np.full(len(names), min(part.number for part in parts))
    result = result._replace(units=units)
    return {name: Estimate(*(field[index] for field in result)) for index, name in enumerate(names)}


def _without_each(part: Cells, parts: Sequence[Cells], statistic: Statistic) -> jackknife.Spread:
    """How the statistic varies between the units of one part, with the other parts as they are."""
    rest = sum(group.totals() for group in parts) - part.totals()
    return jackknifed(part, lambda counts: statistic(counts + rest))


def _parts(code: np.ndarray, streams: Any | None) -> list[Cells]:
    """The streams with human labels and those without, which keep their numbers; one part where the latter are few."""
    unit = np.arange(len(code)) if streams is None else np.unique(np.asarray(streams), return_inverse=True)[1]
    with_humans = np.isin(unit, unit[code % 3 < 2])
    without = len(np.unique(unit[~with_humans]))
    groups = [with_humans, ~with_humans] if without >= LEAST_UNITS else [np.ones(len(code), bool)]
    return [count_cells(code[rows], _CELLS, None if streams is None else unit[rows]) for rows in groups]


def _shares(counts: Num[np.ndarray, "*r 12"], method: CorrectionMethod) -> list[Float[np.ndarray, "*r"]]:
    """Shares of TP, FP, FN and TN among all rows, NaN where they cannot be known."""
    cube = counts.reshape(*counts.shape[:-1], 2, 2, 3).astype(np.float64)  # decision, judge, human
    checked, judged = cube[..., :2], cube.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if method == "human_only":
            cells = checked.sum(-2)  # decision, human
            cells = cells / cells.sum((-1, -2), keepdims=True)
            return [cells[..., 1, 1], cells[..., 1, 0], cells[..., 0, 1], cells[..., 0, 0]]
        judged = judged / judged.sum((-1, -2), keepdims=True)
        decided = judged.sum(-1)
        if method == "judge_only":
            right = judged[..., 1]
        elif method == "rectified":
            share = checked[..., 1] / checked.sum(-1)  # right rows, by decision and label of the judge
            right = np.where(judged > 0, judged * share, 0.0).sum(-1)
        else:
            right = np.clip(_inverted(judged, checked, by_decision=method != "inversion"), 0.0, decided)
    right = np.where(decided > 0, right, 0.0)  # a decision that never occurs needs no human label
    wrong = decided - right
    return [right[..., 1], wrong[..., 1], right[..., 0], wrong[..., 0]]


def _inverted(judged: np.ndarray, checked: np.ndarray, *, by_decision: bool) -> np.ndarray:
    """Pr(decision, right) = (Pr(decision, judge 1) - (1 - specificity) Pr(decision)) / (sensitivity + specificity - 1).

    NaN where the judge is not better than chance, since no labels could then give such a matrix an inverse.
    """
    checked = checked if by_decision else checked.sum(-3, keepdims=True)
    sensitivity = checked[..., 1, 1] / checked[..., :, 1].sum(-1)
    specificity = checked[..., 0, 0] / checked[..., :, 0].sum(-1)
    informed = sensitivity + specificity - 1
    informed = np.where(informed > 0, informed, np.nan)
    return (judged[..., 1] - (1 - specificity) * judged.sum(-1)) / informed


def _numbers(shares: Sequence[np.ndarray], names: Sequence[str], c_fa: float, c_fn: float) -> Float[np.ndarray, "*r k"]:
    """The named numbers, stacked last; all NaN where a share is."""
    unknown = np.isnan(np.stack(shares)).any(0)
    tp, fp, fn, tn = (np.where(unknown, 0.0, np.maximum(share, 0.0)) for share in shares)
    rates = metrics.rates(metrics.Confusion(tp, fp, fn, tn))
    columns = [c_fa * fp + c_fn * fn if name == "cost" else getattr(rates, name) for name in names]
    return np.where(unknown[..., None], np.nan, np.stack(columns, axis=-1))


def _code(decision: Any, judge: Any, human: Any) -> np.ndarray:
    """The joint cell of each row: decision, judge's label, human label."""
    arrays.check_lengths(decision=decision, judge=judge, human=human)
    arrays.check_decision(decision=decision)
    judged, labels = _checked(judge, human)
    return (np.asarray(decision).astype(np.intp) * 2 + judged) * 3 + labels


def _checked(judge: Any, human: Any) -> tuple[np.ndarray, np.ndarray]:
    """The judge's labels, and the human ones with 2 for none."""
    arrays.check_lengths(judge=judge, human=human)
    arrays.check_hard("judge", judge)
    labels = arrays.host(human)
    unknown = np.isnan(labels)
    if unknown.all():
        raise ValueError(f"human: found no label on any of {labels.size} rows, expected labels on some")
    arrays.check_hard("human", labels[~unknown])
    return np.asarray(judge).astype(np.intp), np.where(unknown, 2, np.nan_to_num(labels)).astype(np.intp)
