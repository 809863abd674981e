"""The protocol: maps are fitted on the calibration split; everything else is measured on the test split.

    scores = read_scores("scores.parquet")
    calibration = calibrate(scores)
    evaluation = evaluate(scores, calibration, OperatingPoint(c_fa=1.0, c_fn=2.0))

Out-of-fold scores need no calibration split: each fold is calibrated on the others. Both functions are deterministic.
A table in memory is one part of the statistics that evaluate files of any size (`evaluation.merged`); of a table in
memory every number is exact.
"""

from __future__ import annotations

import dataclasses

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import policy_rows, signals, surfaces
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import planning, running
from prism_jax.evaluation.merged.parts import test_data
from prism_jax.evaluation.need import check_need
from prism_jax.evaluation.results import Evaluation
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.evaluation.surfaces import Exploration
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Signal, read

_KINDS: tuple[Signal, ...] = ("need", "accept")


def calibrate(scores: Scores, config: CalibrationConfig | None = None) -> Calibration:
    """Fits one map per signal and pass on the rows whose split is "calibration".

    For need, each step counts once. For acceptance, each offer whose answer was observed counts once, weighted by
    min(1 / max(e, 0.05), 20) if the log records the offer's propensity e (docs/maths.md, sections 4 and 7). The moves
    of the slow pass are fitted on every step that has slow signals, with or without labels.

    Out-of-fold scores have no such rows. Each fold of their test rows is then calibrated by maps fitted
    on the rows of the other folds; the maps in `Calibration.need_fast` and so on are fitted on all of them.

    Args:
      scores: The scores table.
      config: The choice of the map; None is one temperature.

    Raises:
      ScoresError: for an empty split, labels that no map can be fitted on, or a missing column `domain` for the
        calibrator `grouped`.

    Warns:
      CalibrationWarning: naming the signal, if a temperature ends at a bound or the map reverses the order.
    """
    return running.calibrate(scores, CalibrationConfig() if config is None else config)


def check_labels(scores: Scores, config: CalibrationConfig | None = None) -> None:
    """Checks that `calibrate` and `evaluate` will find the labels that they need, whatever the signals are.

    The config is the choice of the map; None is one temperature.

    Raises:
      ScoresError: for an empty split, calibration labels of a single class, or a test split without a step whose need
        and acceptance labels are both known, or a missing column `domain` for the calibrator `grouped`.
    """
    rows = rows_of(scores, CALIBRATION)
    check_need(scores)
    signals.check_domains(rows, CalibrationConfig() if config is None else config)
    for signal in _KINDS if scores.has_need else _KINDS[1:]:
        _, labels, _ = read(rows, signal, "fast").labelled()
        if len(labels) == 0 or labels.max() == 0 or labels.min() == 1:
            words = f"only {labels[0]:g} among {len(labels)} labels" if len(labels) else "no label"
            raise ScoresError(
                f"split {CALIBRATION!r}: found {words}, expected both classes: the signals are calibrated on them",
                f"y_{signal}",
            )
    table = scores if scores.has_need else scores.with_certain_need()
    steps = rows_of(table, TEST).steps()
    if not policy_rows.judged(steps).any():
        raise ScoresError(planning.no_judged_step(len(steps), scores.has_need))


def evaluate(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Evaluation:
    """Measures every policy and every signal on the rows whose split is "test", or on all rows without splits.

    Args:
      scores: The scores table; its optional columns determine what can be computed (see `Evaluation.switched_off`).
      calibration: The map of each signal, from `calibrate` or `read_calibration`.
      point: The costs, margin and policy that are deployed.

    Raises:
      ScoresError: for an empty split, one without a step whose need and acceptance labels are both known, or rows that
        the calibration does not apply to.
    """
    return running.evaluate_rows(scores, point, calibration=calibration, explored=False)[1].evaluation


def explore(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Exploration | str:
    """The dynamic gate over costs and slow triggers on the rows of `evaluate`, or why its decisions cannot be counted.

    Arguments and errors are those of `evaluate`.
    """
    plan = _plan(scores, calibration, point)
    if plan.uncountable is not None:
        return plan.uncountable
    data = test_data(scores, plan)
    assert data is not None, "the plan has judged steps"
    return surfaces.exploration(data, plan.columns, plan.groups, surfaces.counts(data, plan.columns, plan.groups))


def prepare(
    scores: Scores, calibration: Calibration, point: OperatingPoint, *, labelled: bool = True
) -> tuple[policy_rows.EvaluationData, dict[str, str]]:
    """The steps with everything that policies need, and the results that are switched off, each with its reason.

    The reasons stand by those of the keys `need`, `truth`, `slow pass`, `value` and `weights` that apply. Arguments and
    errors are those of `evaluate`; decisions alone need no labels, and are had without them where not `labelled`.
    """
    plan = _plan(scores, calibration, point, labelled=labelled)
    data = test_data(scores, plan)
    assert data is not None, "the plan has steps"
    data = dataclasses.replace(data, whole=policy_rows.whole_of(data))
    return data, {name: reason for name, reason in plan.off.items() if name != "triggers"}


def _plan(scores: Scores, calibration: Calibration, point: OperatingPoint, *, labelled: bool = True) -> planning.Plan:
    run = running.over([scores])
    return running.planned(run, point, calibration=calibration, exact=True, checked=True, labelled=labelled)[2]
