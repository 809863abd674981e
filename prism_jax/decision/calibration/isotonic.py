"""Isotonic calibration: the best non-decreasing map of a score (docs/maths.md, section 7)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Reals, Vector


@dataclasses.dataclass(frozen=True, eq=False)
class Isotonic:
    """A non-decreasing map, linear between its knots and constant beyond them.

    Attributes:
      x: Knots, increasing.
      y: Values at the knots, non-decreasing.
    """

    x: Float[np.ndarray, " knots"]
    y: Float[np.ndarray, " knots"]

    def __call__(self, p: Reals) -> Floats:
        """Calibrated probabilities.

        Raises:
          ValueError: for a probability outside [0, 1].
        """
        arrays.check_probability("p", p)
        xp, prob = arrays.as_floats(p)
        return xp.interp(prob, self.x, self.y)


def fit_isotonic(p: Vector, y: Vector, weight: Vector | None = None) -> Isotonic:
    """The non-decreasing map of p that minimises the weighted squared error (pool adjacent violators).

    Rows of equal p are pooled first, so the map is a function of p. It keeps the weighted mean of y. Knots are the ends
    of each pooled block.

    Raises:
      ValueError: for unequal lengths, empty input, or a value outside its range.
    """
    arrays.check_scored_rows(p, y, weight)
    blocks = _blocks(arrays.as_float(np.asarray(p)), np.asarray(y), None if weight is None else arrays.host(weight))
    level = scipy.optimize.isotonic_regression(blocks.mean, weights=blocks.mass).x
    step = np.flatnonzero(level[1:] != level[:-1])
    first, last = np.append(0, step + 1), np.append(step, level.size - 1)
    x = np.stack([blocks.low[first], blocks.high[last]], axis=1).reshape(-1).astype(np.float64)
    distinct = np.append(True, x[1:] > x[:-1])
    return Isotonic(x[distinct], np.repeat(level[first], 2)[distinct])


class _Blocks(NamedTuple):
    """Runs of rows in the order of p that share one fitted value; no value of p occurs in two of them."""

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    mass: np.ndarray


def _blocks(p: np.ndarray, y: np.ndarray, w: np.ndarray | None) -> _Blocks:
    """Blocks that SciPy pools further: runs of hard labels where possible, otherwise rows of equal p.

    Rows of weight 0 are dropped.
    """
    word = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}.get(p.dtype)
    if w is None and word is not None and (y.dtype == np.bool_ or bool(np.all((y == 0) | (y == 1)))):
        return _label_runs(p, y, word)
    if w is not None:
        weighted = w > 0
        p, y, w = p[weighted], y[weighted], w[weighted]
    order = np.argsort(p)
    p, y = p[order], y[order].astype(np.float64)
    first = np.flatnonzero(np.append(True, p[1:] != p[:-1]))
    if w is None:
        mass = np.diff(first, append=p.size).astype(np.float64)
        total = np.add.reduceat(y, first)
    else:
        mass = np.add.reduceat(w[order], first)
        total = np.add.reduceat(w[order] * y, first)
    return _Blocks(p[first], p[first], total / mass, mass)


def _label_runs(p: np.ndarray, y: np.ndarray, word: Any) -> _Blocks:
    """Blocks in which hard labels fall from 1 to 0 as p grows; each block has one value in every isotonic fit.

    The bits of non-negative floats sort like the floats themselves, and numbers up to 1 leave the two highest bits
    free. The label is therefore stored in the lowest bit of a sort key, and one plain sort orders both, which is
    several times faster than sorting indices (`benchmarks/decision.py isotonic`). The label is stored inverted: among
    equal p, ones come first, so no block ends inside a tie.
    """
    one = word(1)
    bits = (p + p.dtype.type(0)).view(word)  # + 0 turns -0.0 into 0.0
    keys = (bits << one) | (y.astype(word) ^ one)
    keys.sort()
    zero = (keys & one).astype(bool)
    start = np.flatnonzero(zero[:-1] & ~zero[1:]) + 1
    first, last = np.append(0, start), np.append(start - 1, p.size - 1)
    mass = np.diff(first, append=p.size)
    zeros = np.diff(np.cumsum(zero, dtype=np.int64)[last], prepend=0)
    return _Blocks(
        low=(keys[first] >> one).view(p.dtype),
        high=(keys[last] >> one).view(p.dtype),
        mean=1 - zeros / mass,
        mass=mass.astype(np.float64),
    )
