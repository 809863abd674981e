"""The choice of a map that recalibrates, and its numbers as a tree for JSON (docs/maths.md, section 7)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Vector
from prism_jax.decision.calibration.calibrators import (
    BETA_RANGE,
    GroupedTemperature,
    Temperature,
    fit_grouped,
    fit_temperature,
    need_two_classes,
)
from prism_jax.decision.calibration.isotonic import Isotonic, fit_isotonic
from prism_jax.decision.calibration.platt import IDENTITY_ROWS, Platt, fit_penalised, fit_platt

Calibrator = Literal["temperature", "platt", "penalised", "isotonic", "grouped"]
CALIBRATORS: tuple[Calibrator, ...] = get_args(Calibrator)
OF_SCORES: Calibrator = "penalised"
"""What calibrates somebody's own numbers where nothing is said: these may be too high or too low everywhere."""
Map = Temperature | Platt | Isotonic | GroupedTemperature


@dataclasses.dataclass(frozen=True)
class CalibrationConfig:
    """The map that recalibrates every signal.

    Attributes:
      calibrator: `temperature` (one number, keeps ranks and 1/2), `platt` (scale and bias on the logit), `penalised`
        (the same, which few labels move little, and which keeps ranks), `isotonic` (the best non-decreasing map) or
        `grouped` (one temperature per domain, shrunk towards that of all rows).
      prior_rows: Strength of that shrinkage in rows, at least 0; used by `grouped` only.
    """

    calibrator: Calibrator = "temperature"
    prior_rows: float = 100.0

    def __post_init__(self) -> None:
        arrays.check_choice("calibrator", self.calibrator, CALIBRATORS)
        arrays.check_range("prior_rows", self.prior_rows, 0.0, np.inf, "a finite number of at least 0")


def fit_map(
    config: CalibrationConfig,
    p: Vector,
    y: Vector,
    weight: Vector | None = None,
    group: Any = None,
    *,
    effective: float | None = None,
) -> Map:
    """Fits the map of a config.

    Args:
      config: The choice of the map.
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.
      group: The group of each row; required by `grouped`, ignored by the others.
      effective: How many labels the weights are worth, where rows stand for several; None is (sum w)^2 / sum w^2.

    Raises:
      ValueError: for invalid rows, labels of one class only, or `grouped` without groups.

    Warns:
      CalibrationWarning: if a temperature or a scale ends at a bound.
    """
    if config.calibrator == "grouped":
        if group is None:
            raise ValueError("group: found None, expected the group of each row for the calibrator 'grouped'")
        return fit_grouped(p, y, group, weight, prior_rows=config.prior_rows)
    if config.calibrator == "platt":
        return fit_platt(p, y, weight)
    if config.calibrator == "temperature":
        return Temperature(fit_temperature(p, y, weight))
    arrays.check_scored_rows(p, y, weight)
    labels = np.asarray(y, np.float64)
    w = np.ones_like(labels) if weight is None else np.asarray(weight, np.float64)
    need_two_classes(labels, w)
    if config.calibrator == "penalised":
        return fit_penalised(p, y, weight, effective=effective)
    fitted, rows = fit_isotonic(p, y, weight), arrays.effective_count(w) if effective is None else effective
    # Labels of n rows make nothing certain.
    return Isotonic(fitted.x, np.clip(fitted.y, 1 / (rows + 2), 1 - 1 / (rows + 2)))


def fit_shrunk(
    config: CalibrationConfig,
    p: Vector,
    y: Vector,
    weight: Vector | None = None,
    group: Any = None,
    *,
    current: Map | None = None,
    identity_rows: int | float = IDENTITY_ROWS,
) -> Map:
    """Fits the map of a config to few labels: the probabilities so far count as much as so many rows.

    For `platt` and `penalised` this is `fit_penalised` around the map so far. For others each row is there a second
    time, with its probability so far as the label, and these weigh as much as `identity_rows` rows. Few labels
    therefore move the probabilities little, and labels of one class are enough.

    Args:
      config: The choice of the map.
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.
      group: The group of each row; required by `grouped`, ignored by the others.
      current: The map so far; None takes the probabilities as they are.
      identity_rows: What the probabilities so far count for, in rows of mean weight, above 0.

    Raises:
      ValueError: as `fit_map`.
    """
    arrays.check_lengths(p=p, y=y)
    arrays.check_range("identity_rows", identity_rows, 0.0, np.inf, "a finite number above 0", open_low=True)
    p, y = np.asarray(p, np.float64), np.asarray(y, np.float64)
    so_far = p if current is None else apply_map(current, p, group)
    if config.calibrator in ("platt", "penalised"):
        return fit_penalised(p, y, weight, around=_line(current, p, so_far), identity_rows=identity_rows)
    own = np.ones(len(p)) if weight is None else np.asarray(weight, np.float64)
    both = np.concatenate([own, own * (identity_rows / len(own))])
    groups = None if group is None else np.tile(np.asarray(group), 2)
    return fit_map(config, np.tile(p, 2), np.concatenate([y, so_far]), both, groups)


def _line(current: Map | None, p: Vector, so_far: Vector) -> tuple[float, float]:
    """Scale and bias of a map on the log-odds; of a map that is none, those of the line nearest to it on some rows.

    The scale of a map that is nearly flat, or falls, is 1: no line around it could be fitted.
    """
    if current is None:
        return 1.0, 0.0
    if isinstance(current, Temperature):
        return 1 / current.temperature, 0.0
    if isinstance(current, Platt) and current.scale >= BETA_RANGE[0]:
        return current.scale, current.bias
    least = np.finfo(np.float64).eps
    before, now = (arrays.log_odds(np.asarray(one), least) for one in (p, so_far))
    scale = float(np.polyfit(before, now, 1)[0]) if np.ptp(before) > 0 else 0.0
    scale = min(scale, BETA_RANGE[1]) if scale >= BETA_RANGE[0] else 1.0
    return scale, float(now.mean() - scale * before.mean())


def apply_map(fitted: Map, p: Float[np.ndarray, "n"], group: Any = None) -> Float[np.ndarray, "n"]:
    """Calibrated probabilities.

    Args:
      fitted: The map.
      p: Raw probabilities.
      group: The group of each row; required by a `GroupedTemperature`, ignored by the others.

    Raises:
      ValueError: for a probability outside [0, 1], or groups that are missing.
    """
    if isinstance(fitted, GroupedTemperature):
        if group is None:
            raise ValueError("group: found None, expected the group of each row for the calibrator 'grouped'")
        return fitted(p, group)
    return np.asarray(fitted(p))


def map_to_dict(fitted: Map) -> dict[str, Any]:
    """The map as plain values: its name under `calibrator`, and its numbers."""
    if isinstance(fitted, Temperature):
        return {"calibrator": "temperature", "temperature": fitted.temperature}
    if isinstance(fitted, Platt):
        return {"calibrator": "platt", "scale": fitted.scale, "bias": fitted.bias} | (
            {} if fitted.bound is None else {"bound": fitted.bound}
        )
    if isinstance(fitted, Isotonic):
        return {"calibrator": "isotonic", "x": fitted.x.tolist(), "y": fitted.y.tolist()}
    temperatures = {str(name): temperature for name, temperature in fitted.temperatures.items()}
    return {"calibrator": "grouped", "pooled": fitted.pooled, "temperatures": temperatures}


_NUMBERS = {
    "temperature": ("temperature",),
    "platt": ("scale", "bias"),
    "isotonic": ("x", "y"),
    "grouped": ("pooled", "temperatures"),
}


def map_from_dict(tree: Mapping[str, Any]) -> tuple[Map, dict[str, Any]]:
    """Reads what `map_to_dict` wrote; a tree without `calibrator` is a temperature.

    Args:
      tree: An object with the map's keys, with or without others.

    Returns:
      The map, and the keys that are not the map's.

    Raises:
      ValueError: naming the key, for a missing one or a value that no such map has.
    """
    name = tree.get("calibrator", "temperature")
    if name not in tuple(_NUMBERS):
        raise ValueError(f"calibrator: found {name!r:.80}, expected one of {', '.join(_NUMBERS)}")
    keys = _NUMBERS[name]
    for key in keys:
        if key not in tree:
            raise ValueError(f"{key}: found no such key, expected it beside the calibrator {name!r}")
    optional = ("bound",) if name == "platt" else ()
    remaining = {key: value for key, value in tree.items() if key not in ("calibrator", *keys, *optional)}
    if name == "temperature":
        return Temperature(_positive("temperature", tree["temperature"])), remaining
    if name == "platt":
        bound = None if tree.get("bound") is None else _positive("bound", tree["bound"])
        return Platt(_number("scale", tree["scale"]), _number("bias", tree["bias"]), bound), remaining
    if name == "isotonic":
        return _isotonic(tree["x"], tree["y"]), remaining
    temperatures = tree["temperatures"]
    if not isinstance(temperatures, Mapping):
        raise ValueError(f"temperatures: found {temperatures!r}, expected an object with a temperature per group")
    groups = {group: _positive(f"temperatures.{group}", value) for group, value in temperatures.items()}
    return GroupedTemperature(groups, _positive("pooled", tree["pooled"])), remaining


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key}: found {value!r}, expected a finite number")
    return float(value)


def _positive(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{key}: found {value!r}, expected a finite number above 0")
    return float(value)


def _isotonic(x: Any, y: Any) -> Isotonic:
    """A map with checked knots."""
    knots = []
    for key, values in (("x", x), ("y", y)):
        if not isinstance(values, list) or not values:
            raise ValueError(f"{key}: found {values!r}, expected a list of numbers")
        knots.append(np.array([_number(f"{key}[{i}]", value) for i, value in enumerate(values)]))
    at, level = knots
    if len(at) != len(level):
        raise ValueError(f"y: found {len(level)} numbers, expected {len(at)}, as many as in x")
    for key, array, right in (("x", at, np.diff(at) > 0), ("y", level, np.diff(level) >= 0)):
        if not right.all() or array[0] < 0 or array[-1] > 1:
            order = "increasing" if key == "x" else "non-decreasing"
            raise ValueError(f"{key}: found {array.tolist()}, expected {order} numbers in [0, 1]")
    return Isotonic(at, level)


def in_words(fitted: Map) -> str:
    """The map in a few words, for tables and captions."""
    if isinstance(fitted, Temperature):
        return f"T = {fitted.temperature:.3f}"
    if isinstance(fitted, Platt):
        return f"{fitted.scale:.3f} logit {'-' if fitted.bias < 0 else '+'} {abs(fitted.bias):.3f}"
    if isinstance(fitted, Isotonic):
        return f"isotonic, {len(fitted.x)} knots"
    values = [*fitted.temperatures.values(), fitted.pooled]
    count = len(fitted.temperatures)
    return f"T = {min(values):.3f} to {max(values):.3f}, {count} group{'s' if count != 1 else ''}"
