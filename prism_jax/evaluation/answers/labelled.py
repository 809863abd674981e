"""Labelled values of any number, which merge: the distinct ones, or of very many histograms with a bound."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from prism_jax.decision.arrays import log_odds
from prism_jax.decision.score_maps import Scale, ScoreMap, maps_of_units
from prism_jax.evaluation.merged.histograms import LOG_ODDS, Histogram, by_label
from prism_jax.evaluation.merged.states import merge, stored

MOST_DISTINCT = 2_000_000
"""Up to so many distinct values nothing is binned."""

stored(Scale)


@stored
@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """The weight of either label at each value: of up to `MOST_DISTINCT` values as they are, of more in bins."""

    scale: Scale  # where the bins lie
    squares: float  # sum of the squared weights
    histogram: Histogram  # with the columns `one` and `zero`

    @classmethod
    def of(
        cls,
        value: Float64[np.ndarray, " rows"],
        y: Float64[np.ndarray, " rows"],
        weight: Float64[np.ndarray, " rows"],
        scale: Scale,
    ) -> Labelled:
        """The labels 1 and 0 of some rows, with their weights."""
        columns = {"one": weight * y, "zero": weight * (1 - y)}
        return cls(scale, float(weight @ weight), Histogram.of(None, value, columns))._bounded()

    @classmethod
    def together(cls, parts: Sequence[Labelled]) -> Labelled:
        """The rows of all of some parts, at least one."""
        squares, found = sum(part.squares for part in parts), [part.histogram for part in parts]
        if all(each.grid is None for each in found):
            columns = {name: np.concatenate([each.sums[name] for each in found]) for name in ("one", "zero")}
            merged = Histogram.of(None, np.concatenate([each.value for each in found]), columns)
        else:
            merged = functools.reduce(merge, [part._binned() for part in parts])
        return dataclasses.replace(parts[0], squares=squares, histogram=merged)._bounded()

    def merge(self, other: Labelled) -> Labelled:
        """The rows of both."""
        return self.together([self, other])

    def place_of(self, values: Float64[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """The bins of values."""
        if self.histogram.grid is not None:
            return self.histogram.grid.bin_of(self._on_grid(values))
        return np.minimum(np.searchsorted(self.histogram.value, values), len(self.histogram) - 1)

    def maps(self, scale: Scale, unit: float) -> Mapping[str, ScoreMap]:
        """The maps that are fitted on the scores; `unit` is the weight that counts as one answer."""
        sums = self.histogram.sums
        weight = np.concatenate([sums["one"], sums["zero"]])
        filled = weight > 0
        y = np.repeat([1.0, 0.0], len(self.histogram))[filled]
        if self.histogram.grid is None:
            value = np.tile(self.histogram.value, 2)[filled]
        elif self.scale.middle is None:
            value = by_label(self.histogram).p
        else:
            z = np.concatenate([sums["z_one"], sums["z_zero"]])[filled] / weight[filled]
            value = self.scale.middle + self.scale.width * z
        return maps_of_units(scale, scale.unit(value), y, weight[filled] / unit)

    def _bounded(self) -> Labelled:
        few = self.histogram.grid is not None or len(self.histogram) <= MOST_DISTINCT
        return self if few else dataclasses.replace(self, histogram=self._binned())

    def _binned(self) -> Histogram:
        if self.histogram.grid is not None:
            return self.histogram
        value, one, zero = self.histogram.value, self.histogram.sums["one"], self.histogram.sums["zero"]
        z = self._on_grid(value)
        finite = np.where(np.isinf(z), 0.0, z)  # of 0 and 1, whose bins say what they are
        columns = {"one": one, "zero": zero, "z_one": one * finite, "z_zero": zero * finite}
        return Histogram.of(LOG_ODDS, value, columns, lambda _: z)

    def _on_grid(self, values: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        return log_odds(values) if self.scale.middle is None else (values - self.scale.middle) / self.scale.width


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
        one, zero = ranked.histogram.sums["one"], ranked.histogram.sums["zero"]
        below = (np.cumsum(zero) - zero / 2) / zero.sum()
        above = 1 - (np.cumsum(one) - one / 2) / one.sum()
        bound = float((one * zero)[ranked.histogram.mixed].sum()) / 2 / float(one.sum() * zero.sum())
        return cls(ranked, below, above, float(one @ below) / float(one.sum()), bound)
