"""Some rows as the formulas take them: the steps of the test split, and those that thresholds are chosen on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from prism_jax.evaluation import signals
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged.planning import Plan
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.splits import CALIBRATION, TEST
from prism_jax.scores import Scores


def filled(rows: Scores, plan: Plan) -> Scores:
    """The rows, with certain need where the table has none."""
    return rows if plan.has_need else rows.with_certain_need()


def of_split(rows: Scores, split: str) -> Scores | None:
    """The rows of a split, or all of a table without splits; None where there are none."""
    if rows.split is None:
        return rows
    names, number = rows.numbered("split")
    if split not in names:
        return None
    return rows if len(names) == 1 else rows.take(number == names.index(split))


def test_data(rows: Scores, plan: Plan) -> EvaluationData | None:
    """The steps of the test split among some rows with whole steps, with all that policies need; None without any."""
    if plan.kept is None:
        return _test_data(rows, plan)
    if id(rows) not in plan.kept:
        plan.kept[id(rows)] = _test_data(rows, plan)
    return plan.kept[id(rows)]


def _test_data(rows: Scores, plan: Plan) -> EvaluationData | None:
    part = of_split(filled(rows, plan), TEST)
    if part is None:
        return None
    return EvaluationData(
        part.steps(),
        plan.calibration,
        plan.point,
        part.steps("slow") if plan.slow else None,
        plan.has_truth,
        plan.has_value,
        plan.has_need,
        part,
        plan.whole,
    )


def fitted_parts(rows: Scores, plan: Plan) -> Iterator[tuple[str, Calibration, Scores]]:
    """The rows that each calibration's thresholds are chosen on: its key, its maps and its rows among these."""
    for key in plan.fitted_on:
        of_key = _rows_of(filled(rows, plan), key)
        if of_key is not None:
            yield key, plan.calibration.folds.get(int(key), plan.calibration) if key else plan.calibration, of_key


def _rows_of(rows: Scores, key: str) -> Scores | None:
    """The rows of the calibration split, or those of the other folds than `key`."""
    if not key:
        return of_split(rows, CALIBRATION)
    test = of_split(rows, TEST)
    if test is None or test.fold is None:
        return None
    others = test.fold != int(key)
    return test.take(others) if others.any() else None


def moves_of(rows: Scores, calibration: Calibration, out_of_fold: bool) -> dict[str, dict[str, Any]]:
    """Sums of the moves of the slow pass on each calibration's own rows, by its key."""
    rows = rows if rows.has_need else rows.with_certain_need()
    parts: dict[str, tuple[Calibration, Scores | None]] = {}
    if out_of_fold:
        parts |= {str(fold): (fits, _rows_of(rows, str(fold))) for fold, fits in calibration.folds.items()}
    parts[""] = calibration.pooled(), of_split(rows, TEST if out_of_fold else CALIBRATION)
    sums = {}
    for key, (fits, part) in parts.items():
        both = None if part is None else signals.passes_of(part, fits)
        if both is None:
            continue
        fast, slow, spent = both
        accept, need = slow.accept - fast.accept, slow.need - fast.need
        sums[key] = {
            "count": len(accept),
            "products": np.array([(accept**2).sum(), (need**2).sum(), (accept * need).sum()]),
            "tokens": float(spent.sum()),
            "spent": len(spent),
        }
    return sums
