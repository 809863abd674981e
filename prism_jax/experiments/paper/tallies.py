"""The numbers of tables, each under a name, and the sums of steps that they are computed from.

A number is computed from sums alone: over the steps of each unit (stream or person), and over all steps. Here all steps
are at hand, as one part; `in_parts` adds up the sums of parts of a table first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy
from jaxtyping import Float64, Int

from prism_jax.decision.audbc import Events
from prism_jax.decision.uncertainty import Cells, Resampled
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.merged import histograms
from prism_jax.evaluation.merged.assembling import area_of
from prism_jax.evaluation.merged.histograms import Area
from prism_jax.evaluation.merged.ranks import curve_of, shares_of
from prism_jax.evaluation.merged.sums import AREA
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.ratios import Sweep
from prism_jax.experiments.paper.sheet import Number
from prism_jax.scores import Scores

T = TypeVar("T")
Units = Cells | Resampled
"""Units with their sums, in the order of the columns."""

NO_UNITS = Cells(None, np.zeros(0, np.int64))
"""Those of a number without columns."""


class Gathered(NamedTuple):
    """What a number is computed from."""

    columns: Mapping[str, Float64[np.ndarray, "units"]]  # sums over the judged steps of each unit, by name
    totals: Mapping[str, Any] = {}  # sums over all steps: what `evaluation.merged.states.merge` adds up


class Tally:
    """The numbers of steps at hand. Each is computed once, so that all tables show what the first one computed.

    Other steps, or the same with other maps, need a tally of their own.
    """

    def __init__(self, resampling: Mapping[str, Any], kept: dict[str, Any] | None = None):
        self.resampling = resampling  # `IntervalSettings.keywords`
        self.kept: dict[str, Any] = {} if kept is None else kept  # the numbers that were computed already
        self.bound = 0.0  # how far an area can be off
        self._of: tuple[Scores, Calibration] | None = None

    def check_steps(self, data: EvaluationData) -> None:
        """ValueError for other steps or maps than before, whose numbers have the same names."""
        self._of = self._of or (data.steps, data.fits)
        if self._of[0] is not data.steps or self._of[1] is not data.fits:
            raise ValueError(
                f"tally: found numbers of other steps or maps ({len(data.steps)} steps, {len(self._of[0])} before), "
                "expected those of the first number; make a tally of their own, Tally(study.settings.keywords())"
            )

    def number(
        self,
        name: str,
        data: EvaluationData,
        gather: Callable[[], Gathered],
        compute: Callable[[Units, Mapping[str, Any]], T],
    ) -> T | None:
        """The number of this name, from the columns and totals of all steps; None while these are gathered."""
        self.check_steps(data)
        if name not in self.kept:
            self.kept[name] = compute(*self._gathered(name, gather))
        return self.kept[name]

    def area(self, name: str, data: EvaluationData, sweep: Callable[[], Sweep]) -> Number:
        """AUDBC of a sweep of the judged steps; NaN where the labels have none, and while sums are gathered."""
        self.check_steps(data)
        if data.whole.soft or not data.whole.has_gold:
            return Number()
        if (key := f"area.{name}") not in self.kept:
            self.kept[key] = area_of(*self._curve(name, data, sweep), **self.resampling)
        found, bound = self.kept[key]
        self.bound = max(self.bound, bound)
        return Number(found.value, found.low, found.high)

    def in_words(self) -> str:
        """How far the numbers of a table can be off, rounded up, for its note."""
        if not self.bound:
            return ""
        unit = 10.0 ** math.floor(math.log10(100 * self.bound))
        return f"AUDBC is within {unit * math.ceil(100 * self.bound / unit):.1g} points of the rows' own."

    def _gathered(self, name: str, gather: Callable[[], Gathered]) -> tuple[Units, Mapping[str, Any]]:
        """What a number is computed from."""
        columns, totals = gather()
        return _cells(columns), totals

    def _curve(self, name: str, data: EvaluationData, sweep: Callable[[], Sweep]) -> tuple[Area, Units]:
        """What an area and its interval are computed from."""
        events = sweep().events(data.weight)
        area = histograms.area(curve_of(events, exact=True))
        return area, _cells(area_columns(name, data, area, events))


def _cells(columns: Mapping[str, Float64[np.ndarray, "units"]]) -> Units:
    return Cells.of_units(np.stack(list(columns.values()), axis=1)) if columns else NO_UNITS


def area_names(name: str) -> list[str]:
    """The columns that an area and its interval are computed from."""
    return [*(f"{part}.{name}" for part in AREA), "best", "weight"]


def area_columns(
    name: str, data: EvaluationData, area: Area, events: Events
) -> dict[str, Float64[np.ndarray, "units"]]:
    """The sums of `area_names` over the judged steps of each unit."""
    parts = shares_of(area, events, data.judged_units)
    of_steps = (*parts, data.weight * data.missed[data.judged], data.weight)
    return {column: data.by_unit(values) for column, values in zip(area_names(name), of_steps, strict=True)}


def counts_by_unit(
    data: EvaluationData, name: str, cell: Int[np.ndarray, "judged"], number: int
) -> dict[str, Float64[np.ndarray, "units"]]:
    """The weight of the judged steps of each unit in each of so many cells, as columns for `as_counts`."""
    size = len(data.named_units[0]) * number
    table = np.bincount(data.judged_units * number + cell, data.weight, minlength=size).reshape(-1, number)
    return {f"{name}.{i}": table[:, i] for i in range(number)}


def totals_of(units: Units) -> Float64[np.ndarray, "columns"]:
    """The sums of columns over all units."""
    if isinstance(units, Resampled):
        return units.sums
    assert units.units is not None, "made from columns"
    return np.ascontiguousarray(units.units.T).sum(axis=1)  # in pairs, which is precise


def as_counts(units: Units, weighted: bool) -> Units:
    """The units of `counts_by_unit` as `uncertainty.count_cells` gives them: whole counts are grouped into types."""
    if isinstance(units, Resampled):
        return units
    if weighted:
        return Cells.of_units(scipy.sparse.csr_array(units.units))
    types, multiplicity = np.unique(np.asarray(units.units, np.int64), axis=0, return_counts=True)
    return Cells(types, multiplicity)
