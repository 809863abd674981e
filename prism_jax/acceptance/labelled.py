"""Labelled values of any number, which merge: the distinct ones, or of very many histograms with a bound."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from prism_jax.acceptance.score_maps import Scale, ScoreMap, maps_of_units
from prism_jax.decision.arrays import log_odds
from prism_jax.evaluation.merged.histograms import LOG_ODDS, Histogram, by_label
from prism_jax.evaluation.merged.states import merge, stored

MOST_DISTINCT = 2_000_000
"""Up to so many distinct values nothing is binned."""

stored(Scale)


@stored
@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """The weight of either label at each value: of up to `most` distinct values as they are, of more in bins."""

    scale: Scale  # where the bins lie
    most: int
    squares: float  # sum of the squared weights
    value: Float64[np.ndarray, " values"]  # the distinct values, ascending; empty of bins
    one: Float64[np.ndarray, " values"]
    zero: Float64[np.ndarray, " values"]
    bins: Histogram | None = None

    @classmethod
    def of(
        cls,
        value: Float64[np.ndarray, " rows"],
        y: Float64[np.ndarray, " rows"],
        weight: Float64[np.ndarray, " rows"],
        scale: Scale,
        most: int | None = None,
    ) -> Labelled:
        """The labels 1 and 0 of some rows, with their weights; `most` is `MOST_DISTINCT` unless it is given."""
        most = MOST_DISTINCT if most is None else most
        value, one, zero = _by_value(value, weight * y, weight * (1 - y))
        return cls(scale, most, float(weight @ weight), value, one, zero)._bounded()

    @classmethod
    def together(cls, parts: Sequence[Labelled]) -> Labelled:
        """The rows of all of some parts, at least one."""
        squares = sum(part.squares for part in parts)
        if all(part.bins is None for part in parts):
            value, one, zero = (
                np.concatenate([getattr(part, name) for part in parts]) for name in ("value", "one", "zero")
            )
            return dataclasses.replace(parts[0], squares=squares)._with(*_by_value(value, one, zero))._bounded()
        bins = functools.reduce(merge, [part._binned() for part in parts])
        return dataclasses.replace(parts[0], squares=squares, bins=bins)._with(*np.zeros((3, 0)))

    def merge(self, other: Labelled) -> Labelled:
        """The rows of both."""
        return self.together([self, other])

    def place_of(self, values: Float64[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """The place of values among the distinct ones, or their bins."""
        if self.bins is not None:
            return LOG_ODDS.bin_of(self._on_grid(values))
        return np.minimum(np.searchsorted(self.value, values), len(self.value) - 1)

    def by_place(self) -> tuple[Float64[np.ndarray, " places"], Float64[np.ndarray, " places"], float]:
        """The weights of either label at each place in ascending order, and of pairs whose order is unknown."""
        if self.bins is None:
            return self.one, self.zero, 0.0
        one, zero = self.bins.sums["one"], self.bins.sums["zero"]
        return one, zero, float((one * zero)[self.bins.mixed].sum())

    def maps(self, scale: Scale, unit: float) -> Mapping[str, ScoreMap]:
        """The maps that are fitted on the scores; `unit` is the weight that counts as one answer."""
        if self.bins is None:
            value, weight = np.tile(self.value, 2), np.concatenate([self.one, self.zero])
            y = np.repeat([1.0, 0.0], len(self.one))
        elif self.scale.middle is None:
            value, y, weight = by_label(self.bins)
        else:
            sums = self.bins.sums
            weight = np.concatenate([sums["one"], sums["zero"]])
            z = np.concatenate([sums["z_one"], sums["z_zero"]]) / np.where(weight > 0, weight, 1.0)
            value, y = self.scale.middle + self.scale.width * z, np.repeat([1.0, 0.0], len(sums["one"]))
        filled, effective = weight > 0, float(weight.sum()) ** 2 / self.squares
        return maps_of_units(scale, scale.unit(value[filled]), y[filled], weight[filled] / unit, effective)

    def _with(self, value: np.ndarray, one: np.ndarray, zero: np.ndarray) -> Labelled:
        return dataclasses.replace(self, value=value, one=one, zero=zero)

    def _bounded(self) -> Labelled:
        if len(self.value) <= self.most:
            return self
        return dataclasses.replace(self, bins=self._binned())._with(*np.zeros((3, 0)))

    def _binned(self) -> Histogram:
        if self.bins is not None:
            return self.bins
        z = self._on_grid(self.value)
        finite = np.where(np.isinf(z), 0.0, z)  # of 0 and 1, whose bins say what they are
        columns = {"one": self.one, "zero": self.zero, "z_one": self.one * finite, "z_zero": self.zero * finite}
        return Histogram.of(LOG_ODDS, z, columns, self.value)

    def _on_grid(self, values: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        return log_odds(values) if self.scale.middle is None else (values - self.scale.middle) / self.scale.width


def _by_value(value: np.ndarray, one: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct values, ascending, and the sums of the other two at each."""
    distinct, place = np.unique(value, return_inverse=True)
    return distinct, np.bincount(place, one, len(distinct)), np.bincount(place, zero, len(distinct))


class Placements(NamedTuple):
    """For each place of what ranks, the share of the other label's weight that is ranked right; ties count half."""

    ranked: Labelled
    accepted: Float64[np.ndarray, "places"]  # for an accepted offer, the share of the rejected ones below
    rejected: Float64[np.ndarray, "places"]  # for a rejected offer, the share of the accepted ones above
    auroc: float  # the mean of either
    bound: float  # how far it can be from that of the values themselves

    @classmethod
    def of(cls, ranked: Labelled) -> Placements:
        """The placements of values by label; pairs in a bin with different values may be ranked in any way."""
        one, zero, unsure = ranked.by_place()
        below = (np.cumsum(zero) - zero / 2) / zero.sum()
        above = 1 - (np.cumsum(one) - one / 2) / one.sum()
        bound = unsure / 2 / float(one.sum() * zero.sum())
        return cls(ranked, below, above, float(one @ below) / float(one.sum()), bound)
