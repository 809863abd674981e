"""The paper's tables of scores that need not fit into memory.

The functions `make` of the tables run twice over every part, and gather the sums of their numbers instead of computing
them: first histograms, of which areas are made, then everything else. Then they run once more and compute the numbers
from the sums of all parts, with the rows of a single stream at hand: that of the case study.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.merged import histograms
from prism_jax.evaluation.merged.histograms import Area
from prism_jax.evaluation.merged.parts import test_data
from prism_jax.evaluation.merged.planning import Plan
from prism_jax.evaluation.merged.ranks import curve_of
from prism_jax.evaluation.merged.running import Runner, planned
from prism_jax.evaluation.merged.states import Beginning, Keys, State, Statistic, UnitSums, merge
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.ratios import Sweep
from prism_jax.experiments.paper.case_study import Case
from prism_jax.experiments.paper.registry import function
from prism_jax.experiments.paper.sheet import Number
from prism_jax.experiments.paper.study import IntervalSettings, SkippedError, Study
from prism_jax.experiments.paper.tallies import NO_UNITS, Gathered, Tally, Units, area_columns, area_names
from prism_jax.scores import Scores
from prism_jax.training.pathway_config import Method


class _Curves(Tally):
    """Gathers the histograms of areas."""

    def __init__(self, resampling: Mapping[str, Any], exact: bool):
        super().__init__(resampling)
        self.exact = exact

    def number(self, name: str, data: EvaluationData, gather: Callable[[], Gathered], compute: Any) -> None:
        """Nothing."""

    def area(self, name: str, data: EvaluationData, sweep: Callable[[], Sweep]) -> Number:
        """Keeps the histogram."""
        if name not in self.kept and not data.whole.soft and data.whole.has_gold and len(data.weight):
            self.kept[name] = curve_of(sweep().events(data.weight), exact=self.exact)
        return Number()


class _Sums(Tally):
    """Gathers the sums of all numbers."""

    def __init__(self, resampling: Mapping[str, Any], areas: Mapping[str, Area]):
        super().__init__(resampling)
        self.areas, self.columns = areas, dict[str, Float64[np.ndarray, "units"]]()

    def number(self, name: str, data: EvaluationData, gather: Callable[[], Gathered], compute: Any) -> None:
        """Keeps the sums, and the names of their columns."""
        self.check_steps(data)
        if name not in self.kept:
            columns, totals = gather()
            self.columns |= columns
            self.kept[name] = {"columns": dict.fromkeys(columns, 0), "totals": dict(totals)}

    def area(self, name: str, data: EvaluationData, sweep: Callable[[], Sweep]) -> Number:
        """Keeps the part of each unit in the area."""
        if name in self.areas and area_names(name)[0] not in self.columns and len(data.weight):
            self.columns |= area_columns(name, data, self.areas[name], sweep().events(data.weight))
        return Number()


class _Merged(Tally):
    """Computes numbers from the sums of all parts."""

    def __init__(self, resampling: Mapping[str, Any], areas: Mapping[str, Area], sums: State, kept: dict[str, Any]):
        super().__init__(resampling, kept)
        self.areas, self.sums = areas, sums

    def _gathered(self, name: str, gather: Any) -> tuple[Units, Mapping[str, Any]]:
        of = self.sums["numbers"][name]
        return self.sums["units"].cells(list(of["columns"])) if of["columns"] else NO_UNITS, of["totals"]

    def _curve(self, name: str, data: EvaluationData, sweep: Any) -> tuple[Area, Units]:
        return self.areas[name], self.sums["units"].cells(area_names(name))


@dataclasses.dataclass(frozen=True)
class _Tables(Statistic):
    """What both statistics of tables have in common."""

    plan: Plan
    names: tuple[str, ...]
    point: OperatingPoint
    settings: IntervalSettings
    method: Method

    def _gather(self, data: EvaluationData, rows: Scores, tally: Tally) -> None:
        """Runs the functions of the tables on the steps of some rows."""
        _ = data.named_units, data.weight, data.signals("fast", "calibrated")  # for all operating points
        study = self._study(data, rows, tally)
        for name in self.names:
            if name == "case_study":  # has no sums, but a stream
                continue
            try:
                function(name)(study)
            except SkippedError:  # for a reason that holds for every part
                continue

    def _study(self, data: EvaluationData, rows: Scores, tally: Tally, source: str = "") -> Study:
        prepared = data, self.plan.off
        of = self.plan.calibration, source, self.point, self.settings, self.method
        return Study(rows, *of, prepared=prepared, of_parts=tally)


class Curves(_Tables):
    """The statistic before `Sums`: histograms, the units with judged steps, and the stream of the case study."""

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        if (data := test_data(rows, self.plan)) is None:
            return state
        tally = _Curves(self.settings.keywords(), self.plan.exact)
        self._gather(data, rows, tally)
        return merge(state, {"curves": tally.kept, "units": Keys.of(data.named_units[0]), "case": Case.of(data)})


@dataclasses.dataclass(frozen=True)
class Sums(_Tables):
    """The last statistic: the sums of all numbers, and the rows of the stream of the case study."""

    areas: dict[str, Area]
    stream: str

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole."""
        if (data := test_data(rows, self.plan)) is None:
            return state
        tally = _Sums(self.settings.keywords(), self.areas)
        self._gather(data, rows, tally)
        more: dict[str, Any] = {"numbers": tally.kept}
        if tally.columns and len(data.weight):
            resampling: dict[str, Any] = {"resamples": self.settings.resamples, "seed": self.settings.seed}
            resampling["most"] = sys.maxsize if self.plan.exact else None
            more["units"] = UnitSums.of(data.named_units[0], tally.columns, **resampling)
        if (of_stream := rows.stream == self.stream).any():
            columns = {name: column for name, column in rows.take(of_stream).columns().items() if name != "votes"}
            more["stream"] = Beginning(columns, np.iinfo(np.int64).max)
        return merge(state, more)

    def study(self, sums: State, kept: dict[str, Any], source: str) -> Study:
        """What the tables are computed on: the sums of all rows."""
        rows = Scores.from_columns(dict(sums["stream"].columns))
        data = test_data(rows, self.plan)
        assert data is not None, "the stream of a test step"
        return self._study(data, rows, _Merged(self.settings.keywords(), self.areas, sums, kept), source)


@dataclasses.dataclass(frozen=True)
class TableSums:
    """The sums of all rows."""

    statistic: Sums
    sums: State
    steps: int  # number of test steps
    kept: dict[str, Any] = dataclasses.field(default_factory=dict)  # numbers that were computed already

    def study(self, source: str) -> Study:
        """What one table is computed on, so that its note knows the bounds of its own numbers."""
        return self.statistic.study(self.sums, self.kept, f"{self.steps} test steps of {source}")


def sum_tables(
    run: Runner,
    names: tuple[str, ...],
    point: OperatingPoint,
    settings: IntervalSettings,
    method: Method = "corrected",
    *,
    exact: bool = False,
) -> TableSums:
    """The sums of some tables of scores, over all rows; every number is `exact` where these fit into memory.

    Raises:
      OutOfOrderError: where the rows of a stream are not together; they must be put together first.
      ScoresError: for scores that cannot be calibrated or evaluated.
    """
    scan, _, plan = planned(run, point, exact=exact)
    curves = run("curves", Curves(plan, names, point, settings, method))
    plan = dataclasses.replace(plan, whole=plan.whole._replace(units=len(curves["units"])))
    areas = {name: histograms.area(histogram) for name, histogram in curves["curves"].items()}
    statistic = Sums(plan, names, point, settings, method, areas, curves["case"].stream)
    return TableSums(statistic, run("sums", statistic), scan["test"]["facts"].steps)
