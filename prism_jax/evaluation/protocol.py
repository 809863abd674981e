"""The protocol: temperatures are fitted on the calibration split; everything else is measured on the test split.

    scores = read_scores("scores.parquet")
    calibration = calibrate(scores)
    evaluation = evaluate(scores, calibration, OperatingPoint(c_fa=1.0, c_fn=2.0))

Both are deterministic functions of their arguments.
"""

from __future__ import annotations

import collections

import numpy as np

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import policies, ratios, signals
from prism_jax.evaluation.results import Calibration, Counts, Evaluation, Signal, SignalRow, Thinking
from prism_jax.scores import Scores, ScoresError

CALIBRATION, TEST = "calibration", "test"


def calibrate(scores: Scores) -> Calibration:
    """Fits one temperature per signal and pass on the rows whose split is "calibration".

    For need, each step counts once. For acceptance, each offer whose answer was observed counts once, weighted by
    min(1 / max(e, 0.05), 20) if the log records the offer's propensity e (docs/maths.md, sections 4 and 7).

    Raises:
      ScoresError: for an empty split, or labels that no temperature can be fitted on.

    Warns:
      CalibrationWarning: naming the signal, if its temperature ends at a bound.
    """
    rows = rows_of(scores, CALIBRATION)
    need, accept = signals.fit(rows, "need", "fast"), signals.fit(rows, "accept", "fast")
    assert need is not None and accept is not None, "a scores table has both fast signals everywhere"
    return Calibration(need, accept, signals.fit(rows, "need", "slow"), signals.fit(rows, "accept", "slow"))


def evaluate(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Evaluation:
    """Measures every policy and every signal on the rows whose split is "test".

    Args:
      scores: The scores table; its optional columns determine what can be computed (see `Evaluation.switched_off`).
      calibration: The temperatures, from `calibrate`.
      point: The costs, margin and policy that are deployed.

    Raises:
      ScoresError: for an empty split, or one without a step whose need and acceptance labels are both known.
    """
    rows = rows_of(scores, TEST)
    steps = rows.steps()
    off = _missing(steps, calibration)
    truth = None
    if "truth" not in off and steps.p_accept_true is not None and steps.p_both_true is not None:
        truth = policies.Truth(steps.p_accept_true, steps.p_both_true)
    data = policies.EvaluationData(steps, calibration, point, "slow pass" not in off, truth)
    if not data.judged.any():
        raise ScoresError(
            f"split {TEST!r}: found no step with both y_need and y_accept among {len(steps)}, expected at least one"
        )
    across = ratios.compare_ratios(data)
    return Evaluation(
        point=point,
        counts=_count(rows, data),
        policies=policies.compare(data),
        ratios=across,
        signals=_signals(rows, calibration),
        switched_off=(*off.values(), *([across.no_area] if across.no_area else [])),
        trace=policies.trace(data),
    )


def rows_of(scores: Scores, split: str) -> Scores:
    """The rows of one split.

    Raises:
      ScoresError: if there are none; it names the split and the splits that were found.
    """
    if scores.split is None:
        raise ScoresError(f"found no such column, expected it to name the split {split!r}", "split")
    mask = scores.split == split
    if not mask.any():
        counts = collections.Counter(scores.split.tolist())
        found = ", ".join(f"{count} of {name!r}" for name, count in sorted(counts.items()))
        raise ScoresError(f"found no row of the split {split!r} (there are {found}), expected at least one", "split")
    return scores.take(mask)


def _signals(rows: Scores, calibration: Calibration) -> tuple[SignalRow, ...]:
    passes: tuple[Thinking, ...] = ("fast", "slow")
    kinds: tuple[Signal, ...] = ("need", "accept")
    return tuple(
        row
        for thinking in passes
        for signal in kinds
        if getattr(calibration, f"{signal}_{thinking}") is not None
        for row in signals.measure(rows, signal, thinking, calibration)
    )


def _missing(steps: Scores, calibration: Calibration) -> dict[str, str]:
    """The results that cannot be computed on the test split, each with the missing input."""
    off = {}
    needed = {
        "truth": (
            "Bayes oracle, regret, gap closed and distance to the truth",
            ("need_true", "accept_true", "both_true"),
        ),
        "slow pass": ("slow pass", ("need_slow", "accept_slow")),
    }
    for key, (what, names) in needed.items():
        for name in (f"p_{name}" for name in names):
            column = getattr(steps, name)
            if column is None:
                off[key] = f"{what}: there is no column {name}"
            elif np.isnan(column).any():
                off[key] = f"{what}: {name} is null on {np.isnan(column).sum()} of {len(steps)} test steps"
    if "slow pass" not in off and (calibration.need_slow is None or calibration.accept_slow is None):
        off["slow pass"] = "slow pass: the calibration split has no slow signals"
    if steps.logged is None or steps.propensity is None:
        missing = "logged" if steps.logged is None else "propensity"
        off["weights"] = f"inverse-propensity weights (all are 1): there is no column {missing}"
    return off


def _count(rows: Scores, data: policies.EvaluationData) -> Counts:
    judged = data.judged
    weight = signals.acceptance_weight(data.steps)[judged]
    gold = (data.label("need") * data.label("accept"))[judged]
    return Counts(
        streams=len(set(data.steps.stream)),
        steps=len(data.steps),
        rows=len(rows),
        judged=int(judged.sum()),
        need_unknown=int(np.isnan(data.label("need")).sum()),
        accept_unknown=int(np.isnan(data.label("accept")).sum()),
        positive=float(np.average(gold, weights=weight)),
        effective=signals.effective_count(weight),
    )
