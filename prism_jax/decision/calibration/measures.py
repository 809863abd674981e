"""Measures of how well probabilities agree with outcomes (docs/maths.md, section 7).

Every p is the probability of the positive class, never of the predicted one. Labels may be soft; weights are optional.
Measures follow the namespace of their inputs; the fits (`calibrators`), the CORP decomposition and reliability curves
are computed by NumPy on the host, in float64.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy
from jaxtyping import Float, Int

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Vector
from prism_jax.decision.calibration import binning
from prism_jax.decision.calibration.binning import Scheme
from prism_jax.decision.calibration.isotonic import fit_isotonic


def expected_calibration_error(
    p: Vector,
    y: Vector,
    weight: Vector | None = None,
    *,
    bins: int = 15,
    scheme: Scheme = "equal_width",
    norm: Literal[1, 2] = 1,
    debiased: bool = False,
) -> Floats:
    """ECE: the mean over rows of the gap between mean p and mean y of their bin.

    With bin masses m_b and gaps d_b, `norm=1` is sum m_b |d_b| (Naeini et al. 2015) and `norm=2` the root of
    sum m_b d_b^2. Sampling noise alone makes both positive; `debiased` subtracts an estimate of this bias from each
    bin's variance v_b of p - y, the weighted mean of (p - y - d_b)^2, which is right for soft labels as well:
      norm 1: 2 |d_b| - E|N(d_b, v_b / n_b)|, the plug-in bias of a normal gap, in closed form. It takes off part of the
        bias only, about two fifths of it where the truth is 0, since |d_b| is itself too large there;
      norm 2: d_b^2 - v_b / (n_b - 1), without bias (Kumar, Liang and Ma 2019). Bins with n_b <= 1 count 0.
    With weights, n_b is the effective sample size (sum w)^2 / sum w^2 of the bin.

    Args:
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.
      bins: Number of bins K.
      scheme: `equal_width` or `equal_mass` (see `binning`).
      norm: 1 or 2.
      debiased: Whether to subtract the estimated bias; the norm-1 result may then be slightly negative, and a negative
        norm-2 sum counts as 0 under the root.

    Returns:
      A scalar in [0, 1], up to debiasing. For constant p it is |p - mean y|.

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, or an unknown scheme or norm.

    Examples:
      >>> float(round(expected_calibration_error(np.full(4, 0.9), np.array([1, 1, 0, 0])), 3))
      0.4
    """
    xp, p, y, weight, edges = _prepare(p, y, weight, bins, scheme)
    if norm not in (1, 2):
        raise ValueError(f"norm: found {norm!r}, expected 1 or 2")
    uniform = scheme == "equal_width"
    total = p.shape[0] if weight is None else weight.sum(dtype=_accumulator(xp, weight))
    if norm == 1 and not debiased:
        (gap,) = binning.bin_sums(p, bins, edges, uniform=uniform, columns=lambda rows: [_gap(p, y, weight, rows)])
        return (xp.abs(gap).sum() / total)[()]
    mass, mean_gap, mean_square, size = _bin_means(xp, p, y, weight, bins, edges, uniform)
    if norm == 1:
        return (_debiased(xp, mass, mean_gap, mean_square, size) / total)[()]
    variance = xp.maximum(mean_square - mean_gap**2, 0.0)
    error = mean_gap**2
    if debiased:
        error = xp.where(size > 1, error - variance / xp.maximum(size - 1, 1e-6), 0.0)
    return xp.sqrt(xp.maximum((mass * error).sum() / total, 0.0))[()]


def _debiased(xp: Any, mass: Any, mean_gap: Any, mean_square: Any, size: Any) -> Any:
    """The debiased norm-1 error of all bins, each times its mass."""
    variance = xp.maximum(mean_square - mean_gap**2, 0.0)
    spread = xp.sqrt(variance / xp.maximum(size, 1.0))
    return (mass * (2 * xp.abs(mean_gap) - _mean_absolute_normal(xp, mean_gap, spread))).sum()


def brier_score(p: Vector, y: Vector, weight: Vector | None = None) -> Floats:
    """The weighted mean of (p - y)^2 (Brier 1950).

    Raises:
      ValueError: for unequal lengths, empty input, or a value outside its range.
    """
    xp, p, y, weight = _checked(p, y, weight)
    return _mean(xp, (p - y) ** 2, weight)


def negative_log_likelihood(p: Vector, y: Vector, weight: Vector | None = None) -> Floats:
    """The weighted mean of -y log p - (1 - y) log(1 - p), in nats; infinite where a certain p is wrong.

    Raises:
      ValueError: for unequal lengths, empty input, or a value outside its range.
    """
    xp, p, y, weight = _checked(p, y, weight)
    if xp is np:
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = y * np.log(p), (1 - y) * np.log1p(-p)
        one, zero = (np.where(np.isnan(term), 0.0, term) for term in terms)  # 0 * log 0, the only NaN here, is 0
    else:
        special = arrays.special(xp)
        one, zero = special.xlogy(y, p), special.xlog1py(1 - y, -p)
    return _mean(xp, -(one + zero), weight)


@dataclasses.dataclass(frozen=True)
class BrierDecomposition:
    """The CORP decomposition: score = miscalibration - discrimination + uncertainty, all in Brier units.

    Attributes:
      score: Mean of (p - y)^2.
      miscalibration: Gain from isotonic recalibration; 0 exactly for a calibrated p.
      discrimination: Gain of the recalibrated p over the base rate.
      uncertainty: Mean of (ybar - y)^2, the score of the base rate.
    """

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def brier_decomposition(p: Vector, y: Vector, weight: Vector | None = None) -> BrierDecomposition:
    """CORP decomposition of the Brier score by isotonic regression (Dimitriadis, Gneiting and Jordan 2021). Host only.

    Raises:
      ValueError: for unequal lengths, empty input, or a value outside its range.
    """
    _checked(p, y, weight)
    rows, labels = arrays.host(p), arrays.host(y)
    weights = None if weight is None else arrays.host(weight)
    recalibrated = fit_isotonic(rows, labels, weights)(rows)
    base_rate = np.full_like(labels, np.average(labels, weights=weights))
    score, isotonic, uncertainty = (
        float(np.average((q - labels) ** 2, weights=weights)) for q in (rows, recalibrated, base_rate)
    )
    return BrierDecomposition(score, score - isotonic, uncertainty - isotonic, uncertainty)


@dataclasses.dataclass(frozen=True)
class Reliability:
    """A reliability diagram with K bins; means and bands of empty bins are NaN.

    Attributes:
      edges: The K + 1 bin edges.
      count: Rows in each bin.
      weight: Sum of weights in each bin.
      mean_p: Weighted mean probability in each bin.
      mean_y: Weighted mean label in each bin.
      low: Lower end of the consistency band, around the diagonal.
      high: Upper end of the consistency band.
      level: Probability that a calibrated bin's mean label lies within the band.
    """

    edges: Float[np.ndarray, " edges"]
    count: Int[np.ndarray, " bins"]
    weight: Float[np.ndarray, " bins"]
    mean_p: Float[np.ndarray, " bins"]
    mean_y: Float[np.ndarray, " bins"]
    low: Float[np.ndarray, " bins"]
    high: Float[np.ndarray, " bins"]
    level: float


def reliability_curve(
    p: Vector,
    y: Vector,
    weight: Vector | None = None,
    *,
    bins: int = 15,
    scheme: Scheme = "equal_width",
    level: float = 0.95,
) -> Reliability:
    """Mean label against mean probability in each bin, with consistency bands. Host only.

    The band is the range in which the bin's mean label would lie if p were calibrated (Broecker and Smith 2007 find it
    by resampling). The sum of a calibrated bin's hard labels is a sum of unequal Bernoulli variables; the binomial of
    the same mean has heavier tails (Hoeffding 1956), so its quantiles give a band in closed form with coverage of at
    least `level`. Soft labels vary less than hard ones. With weights the binomial has the bin's effective sample size,
    rounded down, and the band is approximate.

    Args:
      p: Probabilities of the positive class.
      y: Labels in [0, 1].
      weight: Importance of each row; None is 1 everywhere.
      bins: Number of bins K.
      scheme: `equal_width` or `equal_mass`.
      level: Coverage of each bin's band, in (0, 1).

    Raises:
      ValueError: for unequal lengths, empty input, a value outside its range, or an unknown scheme.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: found {level}, expected a probability in (0, 1)")
    arrays.check_scored_rows(p, y, weight)
    sums, edges = _sums(p, y, np.ones(np.shape(p)) if weight is None else weight, bins, scheme)
    return _reliability(edges, *sums[:5], level)


def _sums(p: Any, y: Any, weight: Any, bins: int, scheme: Scheme) -> tuple[BinSums, Any]:
    """The sums of some rows over bins of either scheme, and the bins' edges."""
    _, prob, label, w, edges = _prepare(np.asarray(p), np.asarray(y), np.asarray(weight), bins, scheme)

    def columns(rows: slice) -> list[Any]:
        mass, gap = w[rows], prob[rows] - label[rows]
        return [None, mass, mass**2, mass * prob[rows], mass * label[rows], gap * mass, gap * mass * gap]

    uniform = scheme == "equal_width"
    return BinSums(*binning.bin_sums(prob, bins, edges, uniform=uniform, columns=columns)), edges


def _reliability(edges: Any, count: Any, mass: Any, squares: Any, sum_p: Any, sum_y: Any, level: float) -> Reliability:
    """The diagram from the sums of each bin: rows, weights, squared weights, weighted probabilities and labels."""
    filled = mass > 0
    safe = np.where(filled, mass, 1.0)
    mean_p, mean_y = sum_p / safe, sum_y / safe
    size = np.floor(np.where(filled, mass**2 / np.where(filled, squares, 1.0), 1.0) * (1 + 1e-12))
    tail = (1 - level) / 2
    share = np.clip(mean_p, 0, 1)
    low, high = _binomial_quantile(tail, size, share), size - _binomial_quantile(tail, size, 1 - share)
    low, high = low / size, high / size
    mean_p, mean_y, low, high = (np.where(filled, column, np.nan) for column in (mean_p, mean_y, low, high))
    return Reliability(edges.astype(np.float64), count, mass.astype(np.float64), mean_p, mean_y, low, high, level)


def _binomial_quantile(tail: float, size: Any, p: Any) -> Any:
    """The least k with P(X <= k) >= tail of binomial X; by special functions, as scipy.stats takes long to load."""
    n = size.astype(np.int64)
    with np.errstate(invalid="ignore"):
        above = np.ceil(scipy.special.bdtrik(tail, n, p))  # off by one at times; NaN for the smallest p
    below = np.maximum(above - 1, 0)
    found = np.where(scipy.special.bdtr(below, n, p) >= tail, below, above)
    return np.where(scipy.special.bdtr(0, n, p) >= tail, 0.0, found)


class BinSums(NamedTuple):
    """Sums over bins of equal width, from which calibration errors and a diagram follow; those of parts add up."""

    rows: Int[np.ndarray, " bins"]  # number of rows
    mass: Float[np.ndarray, " bins"]  # weights
    squares: Float[np.ndarray, " bins"]  # squared weights
    p: Float[np.ndarray, " bins"]  # weighted probabilities
    y: Float[np.ndarray, " bins"]  # weighted labels
    gap: Float[np.ndarray, " bins"]  # weighted p - y
    square: Float[np.ndarray, " bins"]  # weighted (p - y)^2

    @classmethod
    def of(cls, p: Vector, y: Vector, weight: Vector, *, bins: int = 15) -> BinSums:
        """The sums of some rows. Host only.

        Raises:
          ValueError: for unequal lengths, empty input, or a value outside its range.
        """
        return _sums(p, y, weight, bins, "equal_width")[0]

    def merge(self, other: BinSums) -> BinSums:
        """The sums over the rows of both."""
        return BinSums(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def brier_score(self) -> float:
        """The weighted mean of (p - y)^2."""
        return float(self.square.sum() / self.mass.sum())

    def error(self, *, debiased: bool = False) -> float:
        """`expected_calibration_error` of the rows, in norm 1."""
        if not debiased:
            return float(np.abs(self.gap).sum() / self.mass.sum())
        safe = np.where(self.mass > 0, self.mass, 1)
        size = self.mass**2 / np.where(self.squares > 0, self.squares, 1)
        return float(_debiased(np, self.mass, self.gap / safe, self.square / safe, size) / self.mass.sum())

    def reliability(self, *, level: float = 0.95) -> Reliability:
        """`reliability_curve` of the rows."""
        bins = len(self.mass)
        edges = np.arange(bins + 1, dtype=np.float64) / bins
        return _reliability(edges, self.rows, self.mass, self.squares, self.p, self.y, level)


def _checked(p: Any, y: Any, weight: Any) -> tuple[Any, Any, Any, Any]:
    """Namespace, then p, y and weight as floats, after the checks shared by all measures."""
    arrays.check_scored_rows(p, y, weight)
    xp = arrays.namespace(p, y, weight)
    return xp, arrays.as_float(p), arrays.as_float(y), None if weight is None else arrays.as_float(weight)


def _prepare(p: Any, y: Any, weight: Any, bins: int, scheme: Scheme) -> tuple[Any, Any, Any, Any, Any]:
    """The results of `_checked`, followed by the bin edges."""
    arrays.check_choice("scheme", scheme, get_args(Scheme))
    if bins < 1:
        raise ValueError(f"bins: found {bins}, expected at least 1")
    xp, p, y, weight = _checked(p, y, weight)
    return xp, p, y, weight, binning.bin_edges(p, weight, bins, scheme)


def _gap(p: Any, y: Any, weight: Any, rows: slice) -> Any:
    """Weighted p - y of some rows."""
    gap = p[rows] - y[rows]
    return gap if weight is None else gap * weight[rows]


def _bin_means(xp: Any, p: Any, y: Any, weight: Any, bins: int, edges: Any, uniform: bool) -> tuple[Any, Any, Any, Any]:
    """Mass, means of p - y and of its square, and effective sample size of each bin; means are 0 in empty bins."""

    def columns(rows: slice) -> list[Any]:
        gap = _gap(p, y, weight, rows)
        weights = [None] if weight is None else [weight[rows], weight[rows] ** 2]
        return [gap, gap * (p[rows] - y[rows]), *weights]

    gap, square, mass, *squares = binning.bin_sums(p, bins, edges, uniform=uniform, columns=columns)
    safe = xp.where(mass > 0, mass, 1)
    size = mass**2 / xp.where(squares[0] > 0, squares[0], 1) if squares else mass
    return mass, gap / safe, square / safe, size


def _mean_absolute_normal(xp: Any, mean: Any, spread: Any) -> Any:
    """E|N(mean, spread^2)|, the folded normal's mean; |mean| where the spread is 0."""
    safe = xp.where(spread > 0, spread, 1.0)
    z = mean / safe
    erf = arrays.special(xp).erf(z / np.sqrt(2))
    folded = safe * np.sqrt(2 / np.pi) * xp.exp(-(z**2) / 2) + mean * erf
    return xp.where(spread > 0, folded, xp.abs(mean))


def _accumulator(xp: Any, value: Any) -> Any:
    """The precision of sums: float64 for NumPy, that of the input for JAX."""
    return np.float64 if xp is np else value.dtype


def _mean(xp: Any, values: Any, weight: Any) -> Any:
    """The weighted mean, summed in the precision of `_accumulator`; values in rows of weight 0 are ignored."""
    dtype = _accumulator(xp, values)
    if weight is None:
        return values.mean(dtype=dtype)[()]
    counted = xp.where(weight > 0, values, 0.0)
    return ((counted * weight).sum(dtype=dtype) / weight.sum(dtype=dtype))[()]
