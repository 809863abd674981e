"""What calibrating on a labelled set changes: probabilities, decisions and their cost, out of fold, from few labels.

Each fold of people, or of streams, is calibrated on the others. The maps are shrunk towards the probabilities as they
are (`calibration.fit_shrunk`), which are what remains without any label.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from prism_jax.decision import gate as formulas
from prism_jax.decision.calibration import (
    IDENTITY_ROWS,
    CalibrationConfig,
    Map,
    apply_map,
    brier_score,
    expected_calibration_error,
    fit_shrunk,
)
from prism_jax.decision.metrics import step_costs
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Bounds, Estimate, mean_interval
from prism_jax.gate import Gate
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Labels, Readings, Signal, acceptance_weight, read
from prism_jax.scores.units import folds_of

FOLDS = 5
SIGNALS: tuple[Signal, ...] = ("need", "accept")
_Z = 1.959963984540054 + 0.8416212335729143


class SignalGain(NamedTuple):
    """How well one signal is calibrated on labelled rows, before and after."""

    labels: int
    kinds: Labels  # the same by kind
    ece_before: float
    brier_before: float
    ece_after: float
    brier_after: float


class Passed(NamedTuple):
    """What a gate lets pass of the judged steps."""

    wrong: float  # share of its offers that are not accepted; NaN where it makes none
    withheld: float  # share of the steps at which it is silent


class Recalibrated(NamedTuple):
    """A gate that was fitted on labels, and what it is worth where it was not fitted."""

    gate: Gate  # the maps of all labels together
    signals: dict[Signal, SignalGain]  # of signals that have labels
    steps: int  # judged steps: those whose labels are known
    units: int  # independent units of these, people or streams
    flips: int  # decisions on judged steps that calibration changes
    selected: bool  # whether steps without labels are left out; those with them count by inverse propensity
    before: Estimate | None = None  # cost per judged step of the gate on the probabilities so far
    after: Estimate | None = None  # the same on newly calibrated ones
    change: Estimate | None = None  # after - before
    passed: tuple[Passed, Passed] | None = None  # what the gate lets pass, before and after

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers as JSON values; null for an end of an interval that is not known."""
        gains = {name: gain._asdict() for name, gain in self.signals.items()}
        costs = {"before": self.before, "after": self.after, "change": self.change}
        return {
            **{name: getattr(self, name) for name in ("steps", "units", "flips")},
            "signals": {name: {key: own[key] for key in own if key != "kinds"} for name, own in gains.items()},
            "cost": {name: None if one is None else _numbers(one) for name, one in costs.items()},
        }

    @property
    def enough(self) -> tuple[float, float] | None:
        """How many judged steps like these would show a gain as large as the interval allows, and as it was measured.

        None where there is no gain above its standard error: anything between no gain and a large one then looks so.
        """
        found = None if self.change is None else labels_to_show(self.change, self.steps)
        return None if found is None or not np.isfinite(found).all() else (float(found[0]), float(found[1]))


def labels_to_show(change: Estimate, labels: Any) -> Float64[np.ndarray, "2 *k"]:
    """How many labels show a gain with a probability of 80 %: one at the lower end of the interval, and the one found.

    A standard error e shrinks with the root of their number, and an interval then excludes 0 with this probability if
    the gain is 2.80 e, the quantiles of 0.975 and 0.8 of the normal distribution together. NaN above -e.
    """
    gain, error = np.stack([change.low, change.value]), change.standard_error
    return np.where(change.value <= -error, labels * (_Z * error / np.where(gain < 0, gain, np.nan)) ** 2, np.nan)


class Apart(NamedTuple):
    """The steps of a table with their signals before and after, each step calibrated on the other folds."""

    steps: Scores  # one row per step, its offer of the highest p_accept
    raw: tuple[Float64[np.ndarray, "steps"], Float64[np.ndarray, "steps"]]  # before: p_need, 1 without it, and p_accept
    calibrated: tuple[Float64[np.ndarray, "steps"], Float64[np.ndarray, "steps"]]  # the same, out of fold
    maps: dict[Signal, Map | None]  # of all labels together
    signals: dict[Signal, SignalGain]

    @property
    def missed(self) -> Float64[np.ndarray, "steps"]:
        """What silence misses at each step, NaN where that is unknown: need and acceptance, or acceptance alone."""
        y = self.accepted
        return y if self.steps.y_need is None else self.steps.y_need * y

    @property
    def accepted(self) -> Float64[np.ndarray, "steps"]:
        """The label of acceptance, NaN where it is unknown."""
        return self.steps.numbers("y_accept")

    @property
    def weight(self) -> Float64[np.ndarray, "steps"]:
        """What each step's labels count for: by inverse propensity where the log has it."""
        return acceptance_weight(self.steps)

    @property
    def units(self) -> Shaped[np.ndarray, "steps"]:
        """The independent unit of each step: the person, or the stream."""
        return self.steps.stream if self.steps.person is None else self.steps.person


def out_of_fold(
    scores: Scores,
    config: CalibrationConfig,
    *,
    identity_rows: int | float = IDENTITY_ROWS,
    current: Gate | None = None,
) -> Apart:
    """Calibrates each fold by the labels of the others; arguments and errors are those of `recalibrate`."""
    if scores.calibrated is not None:
        raise ScoresError("found true, expected no such column: maps are fitted on raw probabilities", "calibrated")
    now: dict[Signal, Map | None] = {
        "need": None if current is None else current.need,
        "accept": None if current is None else current.accept,
    }
    maps = dict(now)
    apart = {signal: [fitted] * FOLDS for signal, fitted in now.items()}
    gains: dict[Signal, SignalGain] = {}
    for signal in SIGNALS if scores.has_need else SIGNALS[1:]:
        readings = read(scores, signal, "fast")
        fold, known = _folds(readings.rows), readings.known
        before = _applied(now[signal], readings.p, readings.rows)
        fit = functools.partial(_fit, readings, config, identity_rows, now[signal])
        maps[signal] = fit(known)
        apart[signal] = [fit(known & (fold != number)) for number in range(FOLDS)]
        if known.any():
            _, y, weight = readings.labelled()
            new = _held_out(apart[signal], readings.p, readings.rows)
            gains[signal] = SignalGain(
                int(known.sum()), readings.labels, *_badness(before[known], y, weight), *_badness(new[known], y, weight)
            )
    steps = scores.steps()
    need = np.ones(len(steps)) if steps.p_need_fast is None else steps.p_need_fast
    accept = steps.p_accept_fast
    raw = _applied(now["need"], need, steps), _applied(now["accept"], accept, steps)
    calibrated = _held_out(apart["need"], need, steps), _held_out(apart["accept"], accept, steps)
    return Apart(steps, raw, calibrated, maps, gains)


def recalibrate(
    scores: Scores,
    point: OperatingPoint,
    config: CalibrationConfig,
    *,
    identity_rows: int | float = IDENTITY_ROWS,
    current: Gate | None = None,
) -> Recalibrated:
    """Fits the gate of a model on labelled scores, and measures it out of fold.

    Args:
      scores: Raw probabilities of the fast pass, of which any labels may be null.
      point: Costs and policy.
      config: The kind of map.
      identity_rows: What the probabilities so far count for, in labels.
      current: The maps so far, of which `before` speaks, and to which few labels stay near; None takes the
        probabilities as they are.

    Raises:
      ScoresError: for scores that are calibrated already.
    """
    apart = out_of_fold(scores, config, identity_rows=identity_rows, current=current)
    gate = Gate(point, apart.maps["accept"], apart.maps["need"], scores.need_meaning)
    offers = [_offers(need, accept, point) for need, accept in (apart.raw, apart.calibrated)]
    y_accept, y_missed = apart.accepted, apart.missed
    judged = ~np.isnan(y_accept) & ~np.isnan(y_missed)
    if not judged.any():
        return Recalibrated(gate, apart.signals, 0, 0, 0, True)
    costs = np.stack([step_costs(one, y_accept, y_missed, point.c_fa, point.c_fn)[judged] for one in offers])
    units = apart.units[judged]
    most = max(point.c_fa, point.c_fn)
    ends = (Bounds(0.0, most), Bounds(0.0, most), Bounds(-most, most))
    values = (*costs, costs[1] - costs[0])
    weight = apart.weight[judged]
    each = [mean_interval(own, units, weight, bounds=bounds) for own, bounds in zip(values, ends, strict=True)]
    flips = int((offers[0] != offers[1])[judged].sum())
    steps, people = int(judged.sum()), len(set(units.tolist()))
    before, after, change = each
    raw, calibrated = (_passed(one[judged], y_accept[judged], weight) for one in offers)
    found = gate, apart.signals, steps, people, flips, not judged.all()
    return Recalibrated(*found, before, after, change, (raw, calibrated))


def _numbers(of: Estimate) -> list[float | None]:
    return [float(one) if np.isfinite(one) else None for one in (of.value, of.low, of.high)]


def _passed(offers: Bool[np.ndarray, "n"], y: Float64[np.ndarray, "n"], weight: Float64[np.ndarray, "n"]) -> Passed:
    made = float(weight[offers].sum())
    wrong = float((weight * (1 - y))[offers].sum()) / made if made else float("nan")
    return Passed(wrong, 1 - made / float(weight.sum()))


def _folds(rows: Scores) -> Int64[np.ndarray, "rows"]:
    return folds_of(rows.stream, rows.person, FOLDS)


def _fit(
    readings: Readings,
    config: CalibrationConfig,
    identity_rows: int | float,
    current: Map | None,
    chosen: Bool[np.ndarray, "n"],
) -> Map | None:
    """The map of the chosen rows; the map so far where no label stands."""
    if not chosen.any():
        return current
    domain = readings.rows.domain
    group = None if domain is None else domain[chosen]
    labelled = readings.p[chosen], readings.y[chosen], readings.weight[chosen]
    return fit_shrunk(config, *labelled, group, current=current, identity_rows=identity_rows)


def _applied(fitted: Map | None, p: Float64[np.ndarray, "n"], rows: Scores) -> Float64[np.ndarray, "n"]:
    """Probabilities of rows by one map; as they are without."""
    return p if fitted is None else apply_map(fitted, p, rows.domain)


def _held_out(maps: Sequence[Map | None], p: Float64[np.ndarray, "n"], rows: Scores) -> Float64[np.ndarray, "n"]:
    """Probabilities of rows, each calibrated by the map of the other folds."""
    fold, new = _folds(rows), p.copy()
    for number, fitted in enumerate(maps):
        own = fold == number
        if fitted is not None and own.any():
            new[own] = apply_map(fitted, p[own], None if rows.domain is None else rows.domain[own])
    return new


def _badness(
    p: Float64[np.ndarray, "n"], y: Float64[np.ndarray, "n"], weight: Float64[np.ndarray, "n"]
) -> tuple[float, float]:
    """Calibration error and Brier score."""
    return float(expected_calibration_error(p, y, weight)), float(brier_score(p, y, weight))


def _offers(
    p_need: Float64[np.ndarray, "n"], p_accept: Float64[np.ndarray, "n"], point: OperatingPoint
) -> Bool[np.ndarray, "n"]:
    costs = point.c_fa, point.c_fn
    return np.asarray(formulas.decide(p_need, p_accept, *costs, point.policy, fixed_threshold=point.fixed_threshold))
