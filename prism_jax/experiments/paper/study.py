"""What the tables of one call are computed on: scores, their calibration, and settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.experiments.paper.sheet import Sheet
from prism_jax.experiments.paper.system_options import RESAMPLES
from prism_jax.experiments.paper.tallies import Tally
from prism_jax.experiments.paper.timing import Timing, timing
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.report.table import Table
from prism_jax.report.tables import UNEQUAL, over_units
from prism_jax.scores import Scores
from prism_jax.training.pathway_config import Method

PAPER = OperatingPoint(trigger="margin")
"""The paper's operating point."""


class SkippedError(ValueError):
    """An experiment that cannot run on what is there; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class IntervalSettings:
    """How all intervals are computed."""

    # number of bootstrap resamples of whole streams, or of whole people (`EvaluationData.unit`)
    resamples: int = RESAMPLES
    seed: int = 0  # seed of the resamples
    level: float = 0.95  # nominal coverage
    seeds: int = 1  # number of seeds that the tables average over; above 1, intervals are over seeds (`over_seeds`)

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise ValueError(f"resamples: found {self.resamples}, expected at least 1")

    def in_words(self, data: Collection[EvaluationData]) -> str:
        """The settings as the end of a table's note, with the number of units behind its intervals."""
        if self.seeds > 1:
            return ""
        units = {steps.whole.units for steps in data}
        unit = " or ".join(sorted({steps.whole.unit for steps in data}))
        if len(units) == 1:
            return f"{over_units(max(units), unit, self.level)}."
        return f"{100 * self.level:g} % intervals over {min(units)} to {max(units)} {unit}, by row."

    @property
    def resampling(self) -> dict[str, Any]:
        """Number and seed of the resamples, as arguments."""
        return {"resamples": self.resamples, "seed": self.seed}

    def keywords(self) -> dict[str, Any]:
        """The settings as arguments of the intervals."""
        return {**self.resampling, "level": self.level}


@dataclasses.dataclass(frozen=True)
class Subject:
    """What an experiment with trainings of its own is made of."""

    trainings: Trainings  # of one seed
    point: OperatingPoint = PAPER
    settings: IntervalSettings = dataclasses.field(default_factory=IntervalSettings)
    method: Method = "corrected"  # the same, and whether pathways are curated as printed

    def note(self, *sentences: str, data: Collection[EvaluationData]) -> str:
        """The note of a table: its own sentences, the source and the intervals."""
        return " ".join([*sentences, "On simulated streams.", self.settings.in_words(data)]).rstrip()


@dataclasses.dataclass(frozen=True)
class Study:
    """Scores with everything that the tables need."""

    scores: Scores  # raw
    fits: Calibration
    source: str  # words for where the scores come from
    point: OperatingPoint = PAPER  # costs and margin of tables that do not vary them
    settings: IntervalSettings = dataclasses.field(default_factory=IntervalSettings)
    method: Method = "corrected"  # whether tables also show AUDBC as the paper prints it
    trainings: Trainings | None = None  # those that the scores are of; None for scores of a file
    # the test steps, and what is switched off with its reason, where they are known already
    prepared: tuple[EvaluationData, Mapping[str, str]] | None = None
    timed: Callable[[], Timing] | None = None  # the seconds of an exported student; None without one
    of_parts: Tally | None = None  # what computes the numbers where these scores are a part; None where they are all
    of_paper: Study | None = None  # scores of a student that was curated as printed, for the table `methods`

    def at(self, point: OperatingPoint | None = None) -> EvaluationData:
        """The test steps at an operating point, by default that of the study."""
        return self._prepared(self.point if point is None else point)[0]

    def with_need(self) -> EvaluationData:
        """The same at the study's own point, for a table about the signal of need; SkippedError if there is none."""
        if not self.scores.has_need:
            raise SkippedError("need: there is no column p_need_fast")
        return self.at()

    def with_slow(self, point: OperatingPoint | None = None) -> EvaluationData:
        """The same, for a table that needs the slow pass; SkippedError says why there is none."""
        data, off = self._prepared(self.point if point is None else point)
        if not data.slow:
            raise SkippedError(off["slow pass"])
        return data

    @functools.cached_property
    def _prepared(self) -> Callable[[OperatingPoint], tuple[EvaluationData, Mapping[str, str]]]:
        # Once: at another point, the steps are these.
        data, off = self.prepared or protocol.prepare(self.scores, self.fits, self.point)
        own = data.at(self.point)  # not `self` below, which would keep the steps of a part in memory for long
        return functools.cache(lambda point: (own if point == own.point else own.at(point), off))

    def timing(self) -> Timing:
        """The seconds of the passes of the student, which was trained here or exported."""
        if self.timed is not None:
            return self.timed()
        assert self.trainings is not None, "the runner calls this with a student"
        return timing(self.trainings)

    @functools.cached_property
    def tally(self) -> Tally:
        """What computes the numbers of the tables."""
        return self.of_parts or Tally(self.settings.keywords())

    def note(self, *sentences: str, of: Collection[EvaluationData] = ()) -> str:
        """The note of a table: its own sentences, the source and the intervals, `of` its rows if not of all steps."""
        data = self.at()
        recalls = [UNEQUAL] * (data.whole.several_candidates or data.whole.two_candidates)
        words = [
            *sentences,
            *recalls,
            f"On {self.source}.",
            self.settings.in_words(of or [data]),
            self.tally.in_words(),
        ]
        return " ".join(filter(None, words))


@dataclasses.dataclass(frozen=True)
class ExperimentResult:
    """What an experiment made."""

    sheets: tuple[Sheet, ...] = ()  # its tables; the name of each is the stem of its files
    # draws its figure on an empty `matplotlib.figure.Figure`; None without a figure
    draw: Callable[[Any], None] | None = None
    # tables of a study that makes its own, by the stem of their files
    study_tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    with_paper: bool = True  # whether tables and figure show the paper's numbers, too

    def without_paper(self) -> ExperimentResult:
        """The result without the paper's numbers."""
        return dataclasses.replace(self, sheets=tuple(sheet.without_paper() for sheet in self.sheets), with_paper=False)

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by the stem of their files."""
        return {**{sheet.name: sheet.table() for sheet in self.sheets}, **self.study_tables}
