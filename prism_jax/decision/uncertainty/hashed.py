"""Bootstrap resamples whose weights follow from a unit's key, so that sums of parts of the data can be merged.

In the Poisson bootstrap each unit occurs in a resample as often as a Poisson variable of mean 1 says (Hanley and
MacGibbon 2006; Chamandy et al. 2012, for data that are spread over machines). Here that number is a function of the
unit's key, the resample and the seed. A unit therefore has the same weights wherever its rows are, nothing but the sums
of every resample is kept, and the order in which parts are merged changes nothing but rounding.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64, UInt8, UInt64

_STEP = np.uint64(0x9E3779B97F4A7C15)
_BITS = 16
_BLOCK = 1 << 21
"""Weights that are held at once."""


class Resampled(NamedTuple):
    """Sums over cells on the data and on each resample; takes the place of `Cells` where there are too many units."""

    sums: Float64[np.ndarray, "cells"]  # those of the data
    replicates: Float64[np.ndarray, "resamples cells"]  # those of each resample
    number: int  # number of units

    def totals(self) -> Float64[np.ndarray, "cells"]:
        """The sums of the data, without resampling."""
        return self.sums


def unit_keys(names: Iterable[str]) -> UInt64[np.ndarray, "units"]:
    """A key of 64 bits for each name, the same on every machine."""
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def poisson_weights(
    keys: UInt64[np.ndarray, "units"], resamples: int, seed: int = 0, start: int = 0
) -> UInt8[np.ndarray, "units resamples"]:
    """How often each unit occurs in each resample, from number `start` on: Poisson of mean 1, cut at 8.

    The weights of two units, and of one unit in two resamples, are as good as independent.
    """
    numbers = np.arange(start, start + resamples, dtype=np.uint64) + np.uint64(seed) * np.uint64(1 << 32)
    with np.errstate(over="ignore"):
        mixed = keys[:, None] + _STEP * (numbers + np.uint64(1))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64 (Steele et al. 2014)
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return _quantiles()[(mixed >> np.uint64(64 - _BITS)).astype(np.intp)]


def resampled_sums(
    keys: UInt64[np.ndarray, "units"], sums: Float64[np.ndarray, "units cells"], resamples: int, seed: int = 0
) -> Float64[np.ndarray, "resamples cells"]:
    """The sums of each resample, over these units."""
    total = np.zeros((resamples, sums.shape[1]))
    size = max(1, _BLOCK // resamples)
    for first in range(0, len(keys), size):
        rows = slice(first, first + size)
        total += poisson_weights(keys[rows], resamples, seed).T.astype(np.float64) @ sums[rows]
    return total


@functools.cache
def _quantiles() -> UInt8[np.ndarray, "values"]:
    """The Poisson number at the middle of each of 2^16 equal shares."""
    middle = (np.arange(1 << _BITS) + 0.5) / (1 << _BITS)
    at_most = scipy.special.gammaincc(np.arange(8) + 1.0, 1.0)  # Pr(number <= k) for k below 8
    return np.searchsorted(at_most, middle).astype(np.uint8)
