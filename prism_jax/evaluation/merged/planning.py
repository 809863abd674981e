"""What follows from a scan: whether the table holds together, the maps, and what can be computed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.decision import calibration as measures
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.thinking import Moves
from prism_jax.evaluation import ratios, surfaces
from prism_jax.evaluation.facts import incomparable, missing, unweighted
from prism_jax.evaluation.fits import Calibration, SignalFit, ThinkingFit
from prism_jax.evaluation.merged.histograms import Grid, Rows, by_bin, by_label, temperature_error
from prism_jax.evaluation.merged.scan import MOST_VALUES, SIGNALS
from prism_jax.evaluation.merged.states import State, merge
from prism_jax.evaluation.need import certain_need
from prism_jax.evaluation.policy_rows import Whole
from prism_jax.evaluation.splits import CALIBRATION, TEST, without_split
from prism_jax.scores import ScoresError
from prism_jax.scores.labels import Labels, Signal, Thinking, fit_labelled
from prism_jax.scores.units import Unit


class OutOfOrderError(ScoresError):
    """The steps of some stream do not follow each other; the rows must be put together by stream first."""


def check(state: State, *, exact: bool = False) -> None:
    """Checks what no part of a table can check alone.

    Raises:
      OutOfOrderError, ScoresError: as `check_structure`; ScoresError too for more values than a state holds, unless
        all rows fit into memory (`exact`), and for offers that were not made, without a propensity.
    """
    check_structure(state)
    groups = state["test"]["groups"] if "test" in state else {}
    counted = (("splits", state["splits"]), ("fits", state["fits"]), ("domain, persona", groups))
    for name, values in () if exact else counted:
        if len(values) > MOST_VALUES:
            raise ScoresError(f"found {len(values)} different values, expected at most {MOST_VALUES}", name)
    if "shown" in state and (error := unweighted(state["shown"], state["rows"])) is not None:
        raise error


def check_structure(state: State) -> None:
    """Checks that the parts of a table go together.

    Raises:
      OutOfOrderError: if the rows of a stream are not together, or its steps not in order.
      ScoresError: for parts with different columns or meanings of need, a stream or person in two splits or folds.
    """
    if not state["rows"]:
        raise ScoresError("found no rows, expected at least one")
    for name, words in (("columns", "columns"), ("need", "meanings of p_need")):
        if len(state[name]) > 1:
            first, second = list(state[name])[:2]
            differing = sorted({*first} ^ {*second}) if name == "columns" else [first, second]
            raise ScoresError(f"found parts with different {words} ({', '.join(differing)}), expected the same in each")
    streams, people = list(state["streams"].values()), list(state["people"].values())
    if any(part.returning for part in streams):
        raise OutOfOrderError("found steps of one stream that do not follow each other", "stream")
    for what, parts, within in (("streams", streams, "a stream"), ("people", people, "a person")):
        divided = sum(part.divided for part in parts)
        divided += sum(part.shared(other) for part, other in itertools.combinations(parts, 2))
        if divided:
            column = "stream" if what == "streams" else "person"
            raise ScoresError(
                f"found {divided} {what} with more than one domain, persona, person, split or fold, expected each "
                f"constant within {within}"
                + (
                    ""
                    if what == "streams"
                    else "; leave out the column person to measure people that the calibration knows"
                ),
                column,
            )


def has_need(state: State) -> bool:
    """Whether the table knows of need."""
    return "p_need_fast" in next(iter(state["columns"]))


def out_of_fold(state: State) -> bool:
    """Whether the rows to evaluate have two or more folds and there is no calibration split."""
    return CALIBRATION not in state["fits"] and len(state["fits"]) > 1


def calibrate(state: State, config: measures.CalibrationConfig) -> Calibration:
    """The maps of a scan, without the moves of the slow pass; as `protocol.calibrate`.

    Raises:
      ScoresError: as `protocol.calibrate`.

    Warns:
      CalibrationWarning: as `protocol.calibrate`.
    """
    fits = state["fits"]
    if not out_of_fold(state):
        if CALIBRATION not in fits:
            raise without_split(CALIBRATION, state["splits"])
        return _fitted(fits[CALIBRATION], config, state)
    parts = {}
    for fold in sorted(fits):
        try:
            parts[fold] = _fitted(_of_others(fits, fold), config, state)
        except ScoresError as error:
            raise ScoresError(f"all folds but {fold}: {error.problem}", error.column) from None
    return dataclasses.replace(_fitted(_of_others(fits, None), config, state), folds=parts)


def _of_others(fits: Mapping[int, State], left_out: int | None) -> State:
    others: State = None
    for fold in sorted(fits):
        if fold != left_out:
            others = fits[fold] if others is None else merge(others, fits[fold])
    return others


def _fitted(part: State, config: measures.CalibrationConfig, state: State) -> Calibration:
    calibrated = "calibrated" in next(iter(state["columns"]))
    found = {(signal, thinking): _fit(part, signal, thinking, config, calibrated) for signal, thinking in SIGNALS}
    (target,) = state["need"]
    accept = found["accept", "fast"]
    assert accept is not None, "a scores table has p_accept_fast everywhere"
    return Calibration(
        found["need", "fast"], accept, found["need", "slow"], found["accept", "slow"], need_target=target
    )


def _fit(
    part: State, signal: Signal, thinking: Thinking, config: measures.CalibrationConfig, calibrated: bool
) -> SignalFit | None:
    of = _fitted_from(part, signal, thinking)
    if not of:
        return None
    rows, domains = Rows(*(np.zeros(0),) * 3), None
    if of["count"]:
        rows, domains = _rows(of["histograms"], by_bin if config.calibrator == "isotonic" else by_label)
    effective = of["weight"] ** 2 / of["squares"] if of["count"] else 0.0
    count = Labels(of["count"], effective, of["certain"], of["unweighted"])
    fitted = fit_labelled(signal, thinking, config, *rows, domains, count, calibrated=calibrated)
    offers = part["offers"]
    return SignalFit(
        fitted,
        of["labels"] / of["weight"],
        count.number,
        count.effective,
        offers["labels"] / offers["weight"] if signal == "accept" and offers["count"] else None,
        count.certain,
    )


def _fitted_from(part: State, signal: Signal, thinking: Thinking) -> State:
    """What one map is fitted from; of need given acceptance, by the slow pass's own offers where every row has one."""
    own = (signal, thinking) == ("need", "slow") and not part["without_slow"] and "by_own_offers" in part
    return part["by_own_offers"] if own else part["signals"][signal, thinking]


def _rows(histograms: Mapping[str, Any], as_rows: Any) -> tuple[Rows, Any]:
    """The rows of all domains, or those that stand for their histograms, and their domains; None without domains."""
    parts = {name: of if isinstance(of, Rows) else as_rows(of) for name, of in sorted(histograms.items())}
    rows = Rows(*(np.concatenate(columns) for columns in zip(*parts.values(), strict=True)))
    if list(parts) == [""]:
        return rows, None
    domains = np.concatenate([np.full(len(part.p), name, object) for name, part in parts.items()])
    return rows, domains


def with_moves(calibration: Calibration, moves: State) -> Calibration:
    """The calibration with what the statistic `moves` found of the slow pass."""
    folds = {
        fold: dataclasses.replace(part, thinking=_thinking(moves.get(str(fold))))
        for fold, part in calibration.folds.items()
    }
    return dataclasses.replace(calibration, folds=folds, thinking=_thinking(moves.get("")))


def _thinking(sums: State | None) -> ThinkingFit | None:
    if not sums or not sums["count"]:
        return None
    accept, need, both = (sums["products"] / sums["count"]).tolist()
    tokens = sums["tokens"] / sums["spent"] if sums["tokens"] > 0 else None
    return ThinkingFit(Moves(accept, need, both), tokens, sums["count"])


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the rows are evaluated, known before any of them is decided about."""

    calibration: Calibration  # as the formulas take it, with certain need where there is none
    point: OperatingPoint
    has_need: bool
    has_truth: bool
    slow: bool  # whether there is a slow pass
    has_value: bool  # whether the value of thinking is known
    whole: Whole
    calibration_unit: Unit  # of the calibration split, or out of fold of all rows
    dependence_on: str | None  # the split on which need and acceptance are compared; None where they are not
    fitted_on: tuple[str, ...]  # keys of the calibrations for thresholds: "" for a split, or the folds; empty for none
    no_area: str | None
    uncountable: str | None
    columns: tuple[str, ...]  # the columns that the groups of the surface are made of
    groups: tuple[tuple[str, ...], ...]
    off: Mapping[str, str]  # what cannot be computed, with its reason
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    unbounded_maps: bool = False  # whether maps were fitted on histograms that may move far with them
    exact: bool = False  # whether all rows fit into memory, so that nothing is counted on a grid
    own_offers: bool = True  # whether every test row has a p_accept of the slow pass (`scores.labels.read`)
    surface: bool = True  # whether decisions are counted over costs and triggers
    # what the ranks know of a table that stays in memory: its steps by the `id` of its rows, the orders of its signals,
    # and the sums by unit of each curve by policy and form; None where no table does
    kept: dict[Any, Any] | None = dataclasses.field(default=None, compare=False)

    def grid(self, of: Grid) -> Grid | None:
        """The grid of a histogram; None where it has a bin for each distinct value."""
        return None if self.exact else of


def plan(
    state: State,
    calibration: Calibration,
    point: OperatingPoint,
    *,
    bounds: Mapping[str, float] | None = None,
    unbounded_maps: bool = False,
    exact: bool = False,
    labelled: bool = True,
) -> Plan:
    """How to evaluate the rows of a scan.

    Args:
      state: The scan.
      calibration: The maps.
      point: The costs, margin and policy that are deployed.
      bounds: How far temperatures can be off, by name.
      unbounded_maps: Whether maps were fitted on histograms that may move far with them.
      exact: Whether all rows fit into memory.
      labelled: Whether a step with all labels is needed.

    Raises:
      ScoresError: if there is no test row, or none with all labels.
    """
    needs = has_need(state)
    if "test" not in state:
        raise without_split(TEST, state["splits"])
    test, facts = state["test"], state["test"]["facts"]
    filled = calibration if needs else certain_need(calibration)
    off = ({} if needs else {"need": _without_need(point)}) | missing(facts, filled, needs)
    if "slow pass" not in off and (reason := incomparable(facts)):
        off["slow pass"] = reason
    slow = "slow pass" not in off
    names = next(iter(state["columns"]))
    if slow and (reason := _without_value(filled, names)):
        off["value"] = reason
    has_value = slow and "value" not in off
    point = point.triggered(has_value)
    if point.trigger == "value" and not has_value:
        off["value" if "value" in off else "slow pass"] += "; the trigger value has no effect: the fast pass decides"
    if labelled and not (facts.judged_thought if slow else facts.judged):
        raise ScoresError(no_judged_step(facts.steps, needs))
    fitted_on = _fitted_on(state, calibration) if slow else ()
    if slow and not fitted_on:
        off["triggers"] = "triggers at one budget: there are no calibration rows to choose their thresholds on"
    columns, groups = surfaces.choose_groups(
        tuple(name for name in ("domain", "persona") if name in names), list(test["groups"])
    )
    labels = test["labels"]["slow" if slow else "fast"]
    fit_split = TEST if out_of_fold(state) and state["splits"] else CALIBRATION if state["splits"] else ""
    return Plan(
        calibration=filled,
        point=point,
        has_need=needs,
        has_truth="truth" not in off,
        slow=slow,
        has_value=has_value,
        whole=Whole(
            _unit(state, TEST if state["splits"] else ""),
            two_candidates=bool(test["two"]) and slow,
            several_candidates=bool(test["several"]),
            soft=bool(labels["soft_gold"]),
            has_gold=bool(labels["gold"]),
        ),
        calibration_unit=_unit(state, fit_split),
        dependence_on=_dependence_on(state, calibration),
        fitted_on=fitted_on,
        no_area=ratios.no_area(bool(labels["soft_gold"]), bool(labels["gold"])),
        uncountable=surfaces.uncountable_words(bool(labels["soft"]), bool(labels["weighted"])),
        columns=columns,
        groups=groups,
        off=off,
        bounds=bounds or {},
        unbounded_maps=unbounded_maps,
        exact=exact,
        own_offers=facts.slow,
    )


def no_judged_step(steps: int, has_need: bool) -> str:
    """What is wrong with `steps` steps of which none has all labels."""
    what = "both y_need and y_accept" if has_need else "y_accept"
    return f"split {TEST!r}: found no step with {what} among {steps}, expected at least one"


def _without_need(point: OperatingPoint) -> str:
    """What a table without need leaves out, and what its gate is."""
    return (
        "need: there is no column p_need_fast, so p_accept alone decides; the gate is p_accept ≥ C_FA / (C_FA + C_FN) "
        f"= {point.c_fa / (point.c_fa + point.c_fn):.4g}, as which static and product would decide; these, need only, "
        "the second signal and the calibration of need are left out"
    )


def _without_value(calibration: Calibration, names: tuple[str, ...]) -> str | None:
    """Why the value of thinking is not known although there is a slow pass; None if it is."""
    parts = list(calibration.folds.values()) or [calibration]
    if any(part.thinking is None for part in parts):
        return "slow on value: the calibration has no moves of the slow pass"
    if all(part.thinking is not None and part.thinking.tokens is not None for part in parts):
        return None
    if "tokens_slow" not in names:
        return "slow on value: there is no column tokens_slow"
    return "slow on value: the calibration has no tokens of the slow pass"


def _fitted_on(state: State, calibration: Calibration) -> tuple[str, ...]:
    """The calibrations whose steps thresholds are chosen on."""
    if CALIBRATION in state["fits"]:
        return ("",)
    return tuple(str(fold) for fold in sorted(state["fits"])) if out_of_fold(state) else ()


def _dependence_on(state: State, calibration: Calibration) -> str | None:
    if not has_need(state) or calibration.need_target == "given_accept":
        return None
    if out_of_fold(state):
        return TEST
    return CALIBRATION if CALIBRATION in state["fits"] and not calibration.folds else None


def _unit(state: State, split: str) -> Unit:
    people = state["people"].get(split)
    streams = state["streams"].get(split)
    if people is None or streams is None or len(people) == len(streams):
        return "streams"
    return "people"


def temperature_errors(state: State, calibration: Calibration) -> dict[str, float]:
    """A bound of the error of each temperature that was fitted on histograms; of folds, the largest."""
    errors: dict[str, float] = {}
    fits = state["fits"]
    parts = (
        [(_of_others(fits, fold), part) for fold, part in calibration.folds.items()]
        if calibration.folds
        else [(fits[CALIBRATION], calibration)]
    )
    for signal, thinking in SIGNALS:
        for part, fitted in parts:
            fit = getattr(fitted, f"{signal}_{thinking}")
            if fit is None or fit.temperature is None or calibration.identity:
                continue
            error = temperature_error(_fitted_from(part, signal, thinking)["histograms"][""], fit.temperature)
            name = f"{signal}_{thinking}.temperature"
            errors[name] = max(errors.get(name, 0.0), error)
    return {name: error for name, error in errors.items() if not math.isnan(error)}
