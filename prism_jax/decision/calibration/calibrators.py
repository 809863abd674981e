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
    scaled = arrays.sigmoid(_logit(xp, prob) / t)
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
    sum w z (sigmoid(beta z) - y) = 0 with z = logit(p), for beta in [1/20, 20]. Probabilities of exactly 0 and 1 take
    the largest finite logit that p's precision can represent, so swapping the classes does not change T. If every p is
    1/2, every T gives the same probabilities, and T = 1 is returned.

    Args:
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.

    Returns:
      T in [1/20, 20].

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, or labels of one class only.

    Warns:
      CalibrationWarning: if T ends at a bound.
    """
    z, labels, w = _fit_inputs(p, y, weight)
    need_two_classes(labels, w)
    return 1 / _fit_beta(z, labels, w)


@dataclasses.dataclass(frozen=True)
class Platt:
    """The map p -> sigmoid(scale * logit(p) + bias)."""

    scale: float
    bias: float

    def of_log_odds(self, z: Any) -> Any:
        """Scale * z + bias: the map from log-odds to log-odds."""
        return self.scale * z + self.bias

    def __call__(self, p: Reals) -> Floats:
        """Calibrated probabilities.

        Raises:
          ValueError: for a probability outside [0, 1].
        """
        arrays.check_probability("p", p)
        xp, prob = arrays.as_floats(p)
        return arrays.sigmoid(self.of_log_odds(_logit(xp, prob, finite=True)))


def fit_platt(p: Vector, y: Vector, weight: Vector | None = None, *, smooth_targets: bool = True) -> Platt:
    """Scale and bias on the logit, by maximum likelihood (Platt 1999).

    Args:
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.
      smooth_targets: Platt's targets (N1 + 1) / (N1 + 2) and 1 / (N0 + 2) in place of 1 and 0, with N1 and N0 the
        weights of the two classes; they keep the optimum finite for separable data.

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, labels of one class only, or separable
        data without smooth targets, which have no finite optimum.
    """
    z, labels, w = _fit_inputs(p, y, weight)
    need_two_classes(labels, w)
    if smooth_targets:
        positive, total = float(np.dot(w, labels)), float(w.sum())
        high, low = (positive + 1) / (positive + 2), 1 / (total - positive + 2)
        labels = low + (high - low) * labels
    elif _separable(z[w > 0], labels[w > 0]):
        raise ValueError("y: found labels that the scores separate, expected overlap, or smooth_targets=True")
    scale, bias = _newton(z, labels, w)
    return Platt(scale, bias)


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
    z, labels, w = _fit_inputs(p, y, weight)
    need_two_classes(labels, w)
    pooled = _fit_beta(z, labels, w)
    curvature = _score(z, labels, w, pooled)[1] / float(w.sum())
    temperatures = {}
    names, index = np.unique(np.asarray(group), return_inverse=True)
    for number, name in enumerate(names.tolist()):
        rows = index == number
        if prior_rows == 0:
            need_two_classes(labels[rows], w[rows], f"y of group {name!r}")
        beta = _fit_beta(z[rows], labels[rows], w[rows], prior_rows * curvature, pooled, f" of group {name!r}")
        temperatures[name] = 1 / beta
    return GroupedTemperature(temperatures, 1 / pooled)


def _logit(xp: Any, p: Any, *, finite: bool = False) -> Any:
    """log(p) - log(1 - p); 0 and 1 give 0 as a placeholder, or the largest logit of p's precision with `finite`."""
    end = (p == 0) | (p == 1)
    z = arrays.log_odds(xp.where(end, 0.5, p))
    if not finite:
        return z
    half = float(arrays.finfo(getattr(p, "dtype", np.dtype(np.float64))).eps) / 2
    bound = float(np.log1p(-half) - np.log(half))
    return xp.clip(xp.where(end, (2 * p - 1) * bound, z), -bound, bound)


def _fit_inputs(p: Any, y: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Checked logits, labels and weights, in float64 on the host."""
    arrays.check_scored_rows(p, y, weight)
    prob = arrays.as_float(np.asarray(p))
    z = _logit(np, prob, finite=True).astype(np.float64)
    labels = arrays.host(y)
    return z, labels, np.ones_like(labels) if weight is None else arrays.host(weight)


def need_two_classes(labels: np.ndarray, w: np.ndarray, name: str = "y") -> None:
    """Raises ValueError unless both classes have a positive weight."""
    mean = float(np.dot(w, labels)), float(np.dot(w, 1 - labels))
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


def _separable(z: np.ndarray, y: np.ndarray) -> bool:
    """Whether a threshold on z splits the labels, ties on it allowed; then the likelihood has no finite optimum."""
    zeros, ones = z[y < 1], z[y > 0]  # a soft label belongs to both
    return bool(z.min() < z.max() and (zeros.max() <= ones.min() or ones.max() <= zeros.min()))


def _newton(z: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """Scale and bias that minimise the logistic loss: Newton's method with halved steps."""
    theta = np.array([1.0, 0.0])
    loss, gradient, hessian = _logistic(z, y, w, theta)
    for _ in range(100):
        # Least squares, because the Hessian is singular for constant scores.
        step = -np.linalg.lstsq(hessian, gradient, rcond=1e-12)[0]
        decrement = -float(gradient @ step)
        if decrement <= 1e-18 * loss:  # the loss is within this relative distance of its minimum
            break
        size = 1.0
        new = _logistic(z, y, w, theta + step)
        while new[0] > loss - 1e-4 * size * decrement + 1e-14 * loss:
            size /= 2
            new = _logistic(z, y, w, theta + size * step)
        theta = theta + size * step
        loss, gradient, hessian = new
    return float(theta[0]), float(theta[1])


def _logistic(z: np.ndarray, y: np.ndarray, w: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss, gradient and Hessian in (scale, bias) of weighted logistic regression, computed in chunks."""
    loss, gradient, hessian = 0.0, np.zeros(2), np.zeros((2, 2))
    for start in range(0, z.size, CHUNK):
        rows = slice(start, start + CHUNK)
        x = np.stack([z[rows], np.ones_like(z[rows])])
        logit = theta @ x
        q = arrays.sigmoid(logit)
        loss += float(np.dot(w[rows], np.logaddexp(0.0, logit) - y[rows] * logit))
        gradient += x @ (w[rows] * (q - y[rows]))
        hessian += (x * (w[rows] * q * (1 - q))) @ x.T
    return loss, gradient, hessian
