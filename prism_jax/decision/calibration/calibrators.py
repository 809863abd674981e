"""Maps that recalibrate probabilities, fitted on a calibration split (docs/maths.md, section 7).

One map is fitted per signal and pass, never on the test data. Fits run on the host in float64 and take concrete arrays
only; the fitted maps apply to NumPy arrays, JAX arrays and tracers.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Reals, Vector

CHUNK = 1 << 13
"""Rows per chunk: temporary arrays fit the cache, and dot products this short run in one thread."""
BETA_RANGE = (1 / 20, 20.0)
"""Range of 1 / T. An optimum outside it means separable or anti-correlated data rather than miscalibration."""


class CalibrationWarning(UserWarning):
    """A fit ended at a bound of its range and is not reliable."""


def apply_temperature(p: Reals, temperature: Reals) -> Floats:
    """Sigmoid(logit(p) / T). T = 1 is the identity; 0, 1/2, 1 and the order of p are preserved.

    Args:
      p: Probabilities.
      temperature: Temperature T > 0; above 1 moves p towards 1/2.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.

    Examples:
      >>> apply_temperature(np.array([0.01, 0.5, 0.99]), 2.0).round(3)  # less sure, in the same order
      array([0.091, 0.5  , 0.909])
    """
    arrays.check_broadcast(p=p, temperature=temperature)
    arrays.check_probability("p", p)
    arrays.check_range("temperature", temperature, 0.0, np.inf, "a finite temperature above 0", open_low=True)
    xp, prob, t = arrays.as_floats(p, temperature)
    scaled = arrays.sigmoid(logit(xp, prob) / t)
    # Both identities hold up to rounding; this makes them exact.
    return xp.where((t == 1) | (prob == 0) | (prob == 1), prob, xp.where(prob == 0.5, 0.5, scaled))[()]


@dataclasses.dataclass(frozen=True)
class Temperature:
    """The map p -> sigmoid(logit(p) / temperature)."""

    temperature: float

    def __call__(self, p: Reals) -> Floats:
        """Calibrated probabilities.

        Raises:
          ValueError: for a probability outside [0, 1] or a temperature that is not a finite number above 0.
        """
        return apply_temperature(p, self.temperature)


def fit_temperature(p: Vector, y: Vector, weight: Vector | None = None) -> float:
    """The temperature T that minimises the negative log-likelihood of sigmoid(logit(p) / T) (Guo et al. 2017).

    The NLL is convex in beta = 1 / T; safeguarded Newton steps solve its score equation
    sum w z (sigmoid(beta z) - y) = 0 with z = logit(p), for beta in [1/20, 20]. No T moves a probability of exactly 0
    or 1, so these rows are left out. If all others are 1/2, no T moves any, and T = 1 is returned.

    Args:
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.

    Returns:
      T in [1/20, 20].

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, or labels of one class only.

    Warns:
      CalibrationWarning: if T ends at a bound, or the rows that are left have labels of one class only, so that T = 1.
    """
    z, labels, w = fit_inputs(p, y, weight)
    need_two_classes(labels, w)
    inside = ~certain(p)
    return 1 / _fit_beta(z[inside], labels[inside], w[inside])


@dataclasses.dataclass(frozen=True, eq=False)
class GroupedTemperature:
    """One temperature per group; groups that did not occur in the fit use the pooled one.

    Attributes:
      temperatures: T of each group.
      pooled: T of all rows together.
    """

    temperatures: dict[Any, float]
    pooled: float

    def __call__(self, p: Float[np.ndarray, "_n"], group: Any) -> Float[np.ndarray, "_n"]:
        """Calibrated probabilities; `group` names the group of each row. Host only.

        Raises:
          ValueError: for unequal lengths or a probability outside [0, 1].
        """
        arrays.check_lengths(p=p, group=group)
        names, index = np.unique(np.asarray(group), return_inverse=True)
        table = np.array([self.temperatures.get(name, self.pooled) for name in names.tolist()])
        return np.asarray(apply_temperature(p, table[index]))


def fit_grouped(
    p: Vector, y: Vector, group: Any, weight: Vector | None = None, *, prior_rows: int | float = 100
) -> GroupedTemperature:
    """One temperature per group, shrunk towards that of all rows.

    Group g's beta = 1 / T minimises its NLL plus prior_rows * h / 2 * (beta - beta_pooled)^2, where h is the pooled
    NLL's curvature per row, so the pooled temperature counts as much as `prior_rows` rows. At 0 each group is fitted
    separately (and needs both classes); as it grows, all groups approach the pooled temperature.

    Args:
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      group: The group of each row, any sortable values.
      weight: Importance of each row; None is 1 everywhere.
      prior_rows: Strength of the shrinkage in rows, at least 0.

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, or labels of one class only.

    Warns:
      CalibrationWarning: if a temperature ends at a bound.
    """
    arrays.check_lengths(p=p, group=group)
    arrays.check_range("prior_rows", prior_rows, 0.0, np.inf, "a finite number of at least 0")
    z, labels, w = fit_inputs(p, y, weight)
    need_two_classes(labels, w)
    inside = ~certain(p)  # as for one temperature
    pooled = _fit_beta(z[inside], labels[inside], w[inside])
    curvature = _score(z[inside], labels[inside], w[inside], pooled)[1] / max(float(w[inside].sum()), 1e-300)
    temperatures = {}
    names, index = np.unique(np.asarray(group), return_inverse=True)
    for number, name in enumerate(names.tolist()):
        rows = (index == number) & inside
        if prior_rows == 0 and rows.any():
            need_two_classes(labels[rows], w[rows], f"y of group {name!r}")
        beta = _fit_beta(z[rows], labels[rows], w[rows], prior_rows * curvature, pooled, f" of group {name!r}")
        temperatures[name] = 1 / beta
    return GroupedTemperature(temperatures, 1 / pooled)


def logit(xp: Any, p: Any, *, finite: bool = False) -> Any:
    """log(p) - log(1 - p); 0 and 1 give 0 as a placeholder, or the largest logit of p's precision with `finite`."""
    end = (p == 0) | (p == 1)
    z = arrays.log_odds(xp.where(end, 0.5, p))
    if not finite:
        return z
    half = float(arrays.finfo(getattr(p, "dtype", np.dtype(np.float64))).eps) / 2
    bound = float(np.log1p(-half) - np.log(half))
    return xp.clip(xp.where(end, (2 * p - 1) * bound, z), -bound, bound)


def certain(p: Any) -> np.ndarray:
    """Whether each probability is stated as certain, exactly 0 or 1."""
    prob = np.asarray(p)
    return np.asarray((prob == 0) | (prob == 1))


def fit_inputs(p: Any, y: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Checked logits, labels and weights, in float64 on the host."""
    arrays.check_scored_rows(p, y, weight)
    prob = arrays.as_float(np.asarray(p))
    z = logit(np, prob, finite=True).astype(np.float64)
    labels = arrays.host(y)
    return z, labels, np.ones_like(labels) if weight is None else arrays.host(weight)


def need_two_classes(labels: np.ndarray, w: np.ndarray, name: str = "y") -> None:
    """Raises ValueError unless both classes have a positive weight."""
    mean = float((w * labels).sum()), float((w * (1 - labels)).sum())  # one long dot product would start threads
    if min(mean) <= 0:
        only = 1 if mean[0] > 0 else 0
        raise ValueError(f"{name}: found only the label {only} on rows of positive weight, expected both classes")


def _score(z: np.ndarray, y: np.ndarray, w: np.ndarray, beta: float) -> tuple[float, float]:
    """First and second derivative of the NLL in beta, computed in chunks of rows that fit the cache."""
    first = second = 0.0
    for start in range(0, z.size, CHUNK):
        zs, ws = z[start : start + CHUNK], w[start : start + CHUNK]
        q = arrays.sigmoid(beta * zs)
        wz = ws * zs
        first += float(np.dot(wz, q - y[start : start + CHUNK]))
        second += float(np.dot(wz * zs, q * (1 - q)))
    return first, second


def _fit_beta(
    z: np.ndarray, y: np.ndarray, w: np.ndarray, stiffness: float = 0.0, centre: float = 1.0, place: str = ""
) -> float:
    """Beta = 1 / T that minimises NLL(beta) + stiffness / 2 * (beta - centre)^2 in BETA_RANGE; warns at a bound."""
    if stiffness == 0 and np.any(z * w) and (np.all(y[w > 0] == 0) or np.all(y[w > 0] == 1)):
        warnings.warn(
            f"temperature{place}: found only the label {y[w > 0][0]:g} on the {int((w > 0).sum())} rows whose "
            "probability is not exactly 0 or 1, expected both classes, so T = 1",
            CalibrationWarning,
            stacklevel=3,
        )
        return centre
    beta = _solve_beta(z, y, w, stiffness, centre)
    if beta in BETA_RANGE:
        why = "separable data" if beta == BETA_RANGE[1] else "scores that do not agree with the labels"
        warnings.warn(
            f"temperature{place}: found T = {1 / beta:g}, a bound of its range, as for {why}",
            CalibrationWarning,
            stacklevel=3,
        )
    return beta


def _solve_beta(z: np.ndarray, y: np.ndarray, w: np.ndarray, stiffness: float, centre: float) -> float:
    """`_fit_beta` without the warning; for many rows, it starts from the solution for every k-th row."""
    if not np.any(z * w):
        return centre
    stride = z.size // CHUNK
    start = centre if stride < 4 else _solve_beta(z[::stride], y[::stride], w[::stride], stiffness / stride, centre)

    def slope(beta: float) -> tuple[float, float]:
        first, second = _score(z, y, w, beta)
        return first + stiffness * (beta - centre), second + stiffness

    return _increasing_root(slope, *BETA_RANGE, start=start)


def _increasing_root(slope: Callable[[float], tuple[float, float]], bottom: float, top: float, start: float) -> float:
    """The root of an increasing function in [bottom, top], or the nearer bound if the root lies outside.

    It takes Newton steps inside a shrinking bracket, and bisects where a step leaves the bracket or does not at least
    halve. A bound is evaluated only when a step leads to it. SciPy's root finders stop at other points within their
    tolerance, which would change fitted temperatures in the last digits, and evaluate both bounds on all rows first.
    """
    low, high, x, last, tried = bottom, top, start, np.inf, set()
    while True:
        value, derivative = slope(x)
        if value == 0 or (value > 0 and x == bottom) or (value < 0 and x == top):
            return x
        step = value / derivative if derivative > 0 else np.copysign(np.inf, value)
        if abs(step) <= 1e-8 * x:  # the error after a Newton step is of the order of its square
            return min(max(x - step, bottom), top)
        tried.add(x)
        low, high = (low, x) if value > 0 else (x, high)
        new = x - step
        if not (low < new < high and abs(step) <= last / 2):
            edge = bottom if new <= low else top
            reach = edge in (low, high) and edge not in tried and not low < new < high
            new = edge if reach else (low + high) / 2
        last = abs(new - x)
        if last <= 1e-15 * x:
            return new
        x = new
