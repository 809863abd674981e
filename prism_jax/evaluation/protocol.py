"""The protocol: maps are fitted on the calibration split; everything else is measured on the test split.

    scores = read_scores("scores.parquet")
    calibration = calibrate(scores)
    evaluation = evaluate(scores, calibration, OperatingPoint(c_fa=1.0, c_fn=2.0))

Out-of-fold scores need no calibration split: each fold is calibrated on the others. Both functions are deterministic.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from prism_jax.decision.arrays import effective_count
from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import (
    breakdowns,
    policy_rows,
    policy_sums,
    ratios,
    second_signal,
    signals,
    surfaces,
    triggers,
)
from prism_jax.evaluation.facts import facts_of, incomparable, missing
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.need import check_need, with_need
from prism_jax.evaluation.results import Counts, Evaluation
from prism_jax.evaluation.rows import Dependence, SignalRow
from prism_jax.evaluation.surfaces import Exploration
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Signal, Thinking, acceptance_weight, read

CALIBRATION, TEST = "calibration", "test"
Prepared = tuple[policy_rows.EvaluationData, dict[str, str]]
"""The steps with everything that policies need, and the results that are switched off, each with its reason."""
_MOST_AT_ONCE = 2_000_000
"""Rows up to which parts of an evaluation are computed at once: each needs memory for copies of some columns."""


def calibrate(scores: Scores, config: CalibrationConfig | None = None) -> Calibration:
    """Fits one map per signal and pass on the rows whose split is "calibration".

    For need, each step counts once. For acceptance, each offer whose answer was observed counts once, weighted by
    min(1 / max(e, 0.05), 20) if the log records the offer's propensity e (docs/maths.md, sections 4 and 7). The moves
    of the slow pass are fitted on every step that has slow signals, with or without labels.

    Out-of-fold scores (`out_of_fold`) have no such rows. Each fold of their test rows is then calibrated by maps fitted
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
    config = CalibrationConfig() if config is None else config
    if not out_of_fold(scores):
        return _fit(rows_of(scores, CALIBRATION), config)
    rows = evaluated_rows(scores)
    assert rows.fold is not None, "`out_of_fold` looked at it"
    parts = {}
    for fold in sorted(set(rows.fold.tolist())):
        try:
            parts[fold] = _fit(rows.take(rows.fold != fold), config)
        except ScoresError as error:
            raise ScoresError(f"all folds but {fold}: {error.problem}", error.column) from None
    return dataclasses.replace(_fit(rows, config), folds=parts)


def _fit(rows: Scores, config: CalibrationConfig) -> Calibration:
    """One map per signal and pass, and the moves of the slow pass, on all the given rows."""
    check_need(rows)
    need, accept = (signals.fit(rows, signal, "fast", config) for signal in _KINDS)
    assert accept is not None, "a scores table has p_accept_fast everywhere"
    need_slow, accept_slow = (signals.fit(rows, signal, "slow", config) for signal in _KINDS)
    fits = Calibration(need, accept, need_slow, accept_slow, need_target=rows.need_meaning)
    return dataclasses.replace(fits, thinking=signals.fit_thinking(*with_need(rows, fits)))


_KINDS: tuple[Signal, ...] = ("need", "accept")


def out_of_fold(scores: Scores) -> bool:
    """Whether the rows to evaluate have two or more folds and there is no calibration split."""
    if scores.fold is None or (scores.split is not None and (scores.split == CALIBRATION).any()):
        return False
    rows = scores.fold if scores.split is None else scores.fold[scores.split == TEST]
    return len(set(rows.tolist())) > 1


def evaluated_rows(scores: Scores) -> Scores:
    """The rows of the split "test", or all rows of scores without splits.

    Raises:
      ScoresError: if there are splits and none of them is "test".
    """
    return scores if scores.split is None else rows_of(scores, TEST)


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
        raise ScoresError(no_judged_step(len(steps), scores.has_need))


def no_judged_step(steps: int, has_need: bool) -> str:
    """What is wrong with `steps` steps of which none has all labels."""
    what = "both y_need and y_accept" if has_need else "y_accept"
    return f"split {TEST!r}: found no step with {what} among {steps}, expected at least one"


def evaluate(
    scores: Scores, calibration: Calibration, point: OperatingPoint, prepared: Prepared | None = None
) -> Evaluation:
    """Measures every policy and every signal on the rows whose split is "test", or on all rows without splits.

    Args:
      scores: The scores table; its optional columns determine what can be computed (see `Evaluation.switched_off`).
      calibration: The map of each signal, from `calibrate` or `read_calibration`.
      point: The costs, margin and policy that are deployed.
      prepared: What `prepare` gives of the same arguments, where it is known.

    Raises:
      ScoresError: for an empty split, one without a step whose need and acceptance labels are both known, or rows that
        the calibration does not apply to.
    """
    data, off = prepare(scores, calibration, point) if prepared is None else prepared
    off = dict(off)
    rows, steps = data.candidates if data.has_need else evaluated_rows(scores), data.steps
    assert rows is not None, "`prepare` gives the candidates"
    fitted = threshold_steps(*with_need(scores, calibration), steps) if data.slow else []
    if data.slow and not fitted:
        off["triggers"] = "triggers at one budget: there are no calibration rows to choose their thresholds on"
    with at_once(rows) as pool:
        measured = pool.submit(_signals, rows, calibration)
        policies = pool.submit(policy_sums.compare, data)
        groups = pool.submit(breakdowns.by_group, data)
        beside = pool.submit(second_signal.second_signal, data) if data.has_need else None
        triggered = pool.submit(triggers.compare_triggers, data, fitted) if fitted else None
        depends = pool.submit(_dependence, scores, calibration, point) if data.has_need else None
        across = ratios.compare_ratios(data, pool.map)
    return Evaluation(
        point=data.point,
        counts=_count(rows, data),
        policies=policies.result(),
        ratios=across,
        signals=measured.result(),
        groups=groups.result(),
        switched_off=(*off.values(), *([across.no_area] if across.no_area else [])),
        trace=breakdowns.trace(data),
        triggers=None if triggered is None else triggered.result(),
        second_signal=() if beside is None else beside.result(),
        dependence=None if depends is None else depends.result(),
        need_given_accept=steps.need_given_accept,
        has_need=data.has_need,
        unit=data.unit,
        units=data.units,
    )


def at_once(rows: Scores) -> Executor:
    """What computes parts of an evaluation: threads, as NumPy sorts and sums outside of the lock; or one by one."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) if len(rows) <= _MOST_AT_ONCE else _OneByOne()


class _OneByOne(Executor):
    """Computes what is submitted when its result is asked for, so that memory holds what one of them needs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return _Asked(functools.partial(fn, *args, **kwargs))

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        return map(fn, *iterables)


class _Asked(Future[Any]):
    def __init__(self, compute: Callable[[], Any]) -> None:
        super().__init__()
        self._compute = compute

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._compute())
        return super().result(timeout)


def explore(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Exploration | str:
    """The dynamic gate over costs and slow triggers on the rows of `evaluate`, or why its decisions cannot be counted.

    Arguments and errors are those of `evaluate`.
    """
    return explored(prepare(scores, calibration, point)[0])


def explored(data: policy_rows.EvaluationData) -> Exploration | str:
    """`explore` of what `prepare` gives."""
    return surfaces.uncountable(data) or surfaces.explore(data)


def prepare(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Prepared:
    """The steps with everything that policies need, and the results that are switched off, each with its reason.

    The reasons stand by those of the keys `need`, `truth`, `slow pass`, `value` and `weights` that apply. Arguments and
    errors are those of `evaluate`.
    """
    data, off = prepare_unlabelled(scores, calibration, point)
    if not data.judged.any():
        raise ScoresError(no_judged_step(len(data.steps), data.has_need))
    return data, off


def prepare_unlabelled(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Prepared:
    """The same for decisions alone, which need no labels."""
    has_need = scores.has_need
    scores, calibration = with_need(scores, calibration)
    rows = evaluated_rows(scores)
    steps = rows.steps()
    facts = facts_of(rows)
    off = ({} if has_need else {"need": without_need(point)}) | missing(facts, calibration, has_need)
    if "slow pass" not in off and (reason := incomparable(facts)):
        off["slow pass"] = reason
    thought = None if "slow pass" in off else rows.steps("slow")
    if thought is not None and (reason := _without_value(scores, steps, calibration)):
        off["value"] = reason
    has_value = thought is not None and "value" not in off
    point = point.triggered(has_value)
    if point.trigger == "value" and not has_value:
        off["value" if "value" in off else "slow pass"] += "; the trigger value has no effect: the fast pass decides"
    has_truth = "truth" not in off
    return policy_rows.EvaluationData(steps, calibration, point, thought, has_truth, has_value, has_need, rows), off


def without_need(point: OperatingPoint) -> str:
    """What a table without need leaves out, and what its gate is."""
    return (
        "need: there is no column p_need_fast, so p_accept alone decides; the gate is p_accept ≥ C_FA / (C_FA + C_FN) "
        f"= {point.c_fa / (point.c_fa + point.c_fn):.4g}, as which static and product would decide; these, need only, "
        "the second signal and the calibration of need are left out"
    )


def _without_value(scores: Scores, steps: Scores, calibration: Calibration) -> str | None:
    """Why the value of thinking is not known although there is a slow pass; None if it is."""
    if calibration.moves(steps) is None:
        return "slow on value: the calibration has no moves of the slow pass"
    if calibration.slow_tokens(steps) is not None:
        return None
    if scores.tokens_slow is None:
        return "slow on value: there is no column tokens_slow"
    return "slow on value: the calibration has no tokens of the slow pass"


def threshold_steps(scores: Scores, calibration: Calibration, steps: Scores) -> list[triggers.Fitted]:
    """The calibration steps on which thresholds for the test steps are chosen; empty if there are none."""
    everywhere = np.ones(len(steps), bool)
    if scores.split is not None and (scores.split == CALIBRATION).any():
        return [triggers.Fitted(calibration, rows_of(scores, CALIBRATION).steps(), everywhere)]
    if not out_of_fold(scores):
        return []
    rows = evaluated_rows(scores)
    assert rows.fold is not None and steps.fold is not None, "`out_of_fold` looked at it"
    return [
        triggers.Fitted(
            calibration.folds.get(fold, calibration), rows.take(rows.fold != fold).steps(), steps.fold == fold
        )
        for fold in sorted(set(rows.fold.tolist()))
    ]


def _dependence(scores: Scores, calibration: Calibration, point: OperatingPoint) -> Dependence | None:
    """What calibration steps say of need and acceptance, or out of fold all steps; None without these."""
    if scores.need_given_accept:
        return None
    if out_of_fold(scores):
        rows = evaluated_rows(scores)
    elif scores.split is not None and (scores.split == CALIBRATION).any() and not calibration.folds:
        rows = rows_of(scores, CALIBRATION)
    else:
        return None
    return second_signal.dependence(policy_rows.EvaluationData(rows.steps(), calibration, point, None, False))


def rows_of(scores: Scores, split: str) -> Scores:
    """The rows of one split.

    Raises:
      ScoresError: if there are none; it names the split and the splits that were found.
    """
    if scores.split is None:
        raise without_split(split, {})
    names, number = scores.numbered("split")
    if split not in names:
        raise without_split(split, dict(zip(names, np.bincount(number).tolist(), strict=True)))
    return scores if len(names) == 1 else scores.take(number == names.index(split))


def without_split(split: str, counts: Mapping[str, int]) -> ScoresError:
    """The error for a table without rows of a split, from the rows of each split that it has; none without splits."""
    if not counts:
        hint = ", or a column fold with two or more folds, or --calibration=FILE" if split == CALIBRATION else ""
        return ScoresError(f"found no such column, expected it to name the split {split!r}{hint}", "split")
    splits = ", ".join(f"{count} of {name!r}" for name, count in sorted(counts.items()))
    return ScoresError(f"found no row of the split {split!r} (there are {splits}), expected at least one", "split")


def _signals(rows: Scores, calibration: Calibration) -> tuple[SignalRow, ...]:
    passes: tuple[Thinking, ...] = ("fast", "slow")
    return tuple(
        row
        for thinking in passes
        for signal in _KINDS
        if getattr(calibration, f"{signal}_{thinking}") is not None
        for row in signals.measure(rows, signal, thinking, calibration)
    )


def _count(rows: Scores, data: policy_rows.EvaluationData) -> Counts:
    judged = data.judged
    weight = acceptance_weight(data.steps)[judged]
    return Counts(
        streams=len(data.steps.numbered("stream")[0]),
        steps=len(data.steps),
        rows=len(rows),
        judged=int(judged.sum()),
        need_unknown=int(np.isnan(data.label("need")).sum()),
        accept_unknown=int(np.isnan(data.label("accept") + data.label("accept", data.everywhere_slow)).sum()),
        positive=float(np.average(data.missed[judged], weights=weight)),
        effective=effective_count(weight),
        fields_correct=_all_fields_correct(data.steps) if data.slow else None,
        people=None if data.steps.person is None else len(set(data.steps.person)),
    )


def _all_fields_correct(steps: Scores) -> float | None:
    """Share of the steps whose fields are known at which all are right."""
    shares = np.array([]) if steps.fields_correct is None else steps.fields_correct[~np.isnan(steps.fields_correct)]
    return float((shares == 1).mean()) if shares.size else None
