"""Runs experiments: prints and writes each as soon as it is made, and skips by name what cannot run."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import Calibration
from prism_jax.experiments.intervals import mean_over_seeds
from prism_jax.experiments.paper import drawing, outputs
from prism_jax.experiments.paper.exported import Model
from prism_jax.experiments.paper.in_parts import TableSums, sum_tables
from prism_jax.experiments.paper.registry import EXPERIMENTS, function
from prism_jax.experiments.paper.sheet import Line, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, IntervalSettings, SkippedError, Study, Subject
from prism_jax.experiments.paper.system_options import SystemOptions
from prism_jax.experiments.paper.systems import Systems, read_systems
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.report.table import print_all
from prism_jax.report.tables import ALONE
from prism_jax.runs.running import Running
from prism_jax.runs.scores_files import left_out_fact, refuse_records, say_left_out
from prism_jax.runs.sharded import Sharded, held_in_memory, open_sharded
from prism_jax.runtime.digests import sha256
from prism_jax.runtime.provenance import provenance
from prism_jax.scores import ScoresError, located
from prism_jax.scores.joining import find_files, read_files
from prism_jax.training.pathway_config import Method


def merged(results: Sequence[ExperimentResult]) -> ExperimentResult:
    """The result of an experiment over its seeds; that of one seed stays as it is.

    Rows that a seed lacks are left out, and so are measures without a mean, such as p-values. A number that is
    undefined in one seed is undefined. The figure is that of the first seed.
    """
    first = results[0]
    if len(results) == 1:
        return first
    by_name = [{sheet.name: sheet for sheet in result.sheets} for result in results]
    sheets = (_sheet([of_seed[sheet.name] for of_seed in by_name]) for sheet in first.sheets)
    return dataclasses.replace(first, sheets=tuple(sheets))


def _sheet(sheets: Sequence[Sheet]) -> Sheet:
    first = sheets[0]
    measures = {key: measure for key, measure in first.measures.items() if measure.averaged}
    rows = [{(line.section, line.name): line for line in sheet.lines} for sheet in sheets]
    lines = tuple(
        _line([of_seed[key] for of_seed in rows]) for key in rows[0] if all(key in of_seed for of_seed in rows)
    )
    note = f"{first.note} Means over {len(sheets)} seeds with 95 % t intervals over seeds; a figure shows the first."
    return dataclasses.replace(first, measures=measures, lines=lines, note=note)


def _line(lines: Sequence[Line]) -> Line:
    keys = lines[0].cells
    return dataclasses.replace(
        lines[0], cells={key: _cell([line.cells.get(key, Number()) for line in lines]) for key in keys}
    )


def _cell(cells: Iterable[Number | str]) -> Number | str:
    """The mean of numbers with its interval, or the texts that occur."""
    contents = list(cells)
    texts = [cell if isinstance(cell, str) else "" for cell in contents]
    if any(texts):
        return " / ".join(dict.fromkeys(texts))
    numbers = [cell for cell in contents if isinstance(cell, Number)]
    values, paper = np.array([number.value for number in numbers]), numbers[0].paper
    if np.isnan(values).any():
        return Number(paper=paper)
    if np.ptp(values) == 0:  # nothing tells how much seeds may differ
        return Number(float(values[0]), paper=paper)
    return Number.of(mean_over_seeds(values), paper)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a call gives to its experiments: the scores of a file, systems and an exported model, or trainings."""

    scores: str | None = None  # scores file, folder or glob (docs/scores.md); None to train
    systems: SystemOptions = dataclasses.field(default_factory=SystemOptions)  # the systems of --system
    model: Model | None = None  # the student of --model
    held_out: str | None = None  # the domain that the student of the scores was trained without
    trainings: tuple[Trainings, ...] = ()  # the trainings of each seed
    # costs and margin of tables that do not vary them
    point: OperatingPoint = dataclasses.field(default_factory=OperatingPoint)
    settings: IntervalSettings = dataclasses.field(default_factory=IntervalSettings)
    running: Running = dataclasses.field(default_factory=Running)  # how scores files are read
    method: Method = "corrected"  # whether the formulas that the paper prints are used too
    paper_numbers: bool = False  # whether tables and figures show the paper's numbers, too
    scores_paper: str | None = None  # scores of a student that was curated as printed, for the table `methods`
    sums: TableSums | None = None  # the sums of scores that are read part by part; None before they are
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # files left out so far, with the reason of each

    @functools.cached_property
    def files(self) -> list[str]:
        """The scores files."""
        return [] if self.scores is None else find_files(self.scores)

    @property
    def in_parts(self) -> bool:
        """Whether the scores are read part by part."""
        return self.scores is not None and not held_in_memory(self.files, self.running)

    @property
    def studies(self) -> tuple[Study, ...]:
        """What a table is computed on: a study of the scores in parts for each table, else the `studies_in_memory`."""
        if self.sums is None:
            return self.studies_in_memory
        return (self.sums.study(_source(self.scores or "", self.sums.statistic.plan.calibration)),)

    @functools.cached_property
    def studies_in_memory(self) -> tuple[Study, ...]:
        """The study of the file, or that of each seed's student, who is trained unless that was done before.

        Raises:
          ValueError: naming the place, for a file that is no scores table, or that cannot be calibrated or evaluated.
          OSError, RuntimeError: if it cannot be read, or a training fails.
        """
        if self.scores is not None:
            return (self._of_file(self.scores),)
        return tuple(self._of_student(trainings) for trainings in self.trainings)

    def by_parts(self, name: str) -> bool:
        """Whether an experiment is made of scores part by part, where scores are read so."""
        experiment = EXPERIMENTS[name]
        return experiment.of == "scores" and not (experiment.own == "system" and self.systems.system)

    @functools.cached_property
    def read_systems(self) -> Systems:
        """The systems with their verdicts."""
        return read_systems(self.systems, self.point, self.settings, self.method)

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The trainings of each seed."""
        return tuple(Subject(trainings, self.point, self.settings, self.method) for trainings in self.trainings)

    @property
    def beside_paper(self) -> Study:
        """The study of the file, with that of `scores_paper`; SkippedError for files that are read part by part."""
        if self.in_parts or not held_in_memory(find_files(paper := self.scores_paper or ""), self.running):
            raise SkippedError("--scores_paper: two files are compared in memory only, of fewer rows")
        return dataclasses.replace(self.studies[0], of_paper=self._of_file(paper))

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What the numbers come from, for the file beside each table."""
        settings = {**dataclasses.asdict(self.settings), "point": dataclasses.asdict(self.point)}
        if self.systems.system:
            files = list(itertools.chain.from_iterable(system.files for system in self.read_systems.systems))
            said = {key: value for key, value in dataclasses.asdict(self.systems).items() if value}
            settings |= {"systems": {**said, "sha256": sha256(*files, *self.systems.votes)}}
        if self.model is not None:
            settings |= {"model": self.model.facts}
        settings |= {} if self.method == "corrected" else {"method": self.method}
        if self.scores is not None:
            parts = {} if self.sums is None else {"read": "part by part"}
            facts = {"scores": self.scores, "sha256": sha256(*self.files), "settings": settings}
            if (paper := self.scores_paper) is not None:
                facts |= {"scores_paper": paper, "sha256_paper": sha256(*find_files(paper))}
            return facts | parts | left_out_fact(self.left_out, len(self.files))
        return {"students": [trainings.workdir for trainings in self.trainings], "settings": settings}

    def _of_file(self, path: str) -> Study:
        # No table reads columns without a meaning.
        scores = read_files(find_files(path), extra=False, left_out=self.left_out if self.running.skip_bad else None)
        try:
            fits = protocol.calibrate(scores)
            steps = splits.evaluated_rows(scores).steps()
            source = f"{len(steps)} test steps of {_source(path, fits)}"
            study = Study(scores, fits, source, self.point, self.settings, self.method)
            study.at()
        except ScoresError as error:
            raise located(error, path) from None
        return study

    def _of_student(self, trainings: Trainings) -> Study:
        scores = trainings.scores()
        steps = f"{len(splits.evaluated_rows(scores).steps())} test steps of simulated streams"
        source = f"{steps}, seed {trainings.seed}" if len(self.trainings) == 1 else f"{steps} in the first seed"
        return Study(scores, protocol.calibrate(scores), source, self.point, self.settings, self.method, trainings)


def _source(path: str, fits: Calibration) -> str:
    """What a file is called in the notes of tables, and how its probabilities are calibrated, if that is done here."""
    return epath.Path(path).name + ("" if fits.identity else ", by one temperature per signal")


def run_experiments(names: Sequence[str], inputs: Inputs, folder: epath.Path) -> list[str]:
    """Makes experiments, prints their tables, writes their files, and returns the names of those that were made.

    An experiment that cannot run is skipped, with one line that says why; the others are unaffected. Several are also
    written together, as one page (`outputs.PAGE`).

    Scores that are read part by part are read for all experiments together, by what resumes after an end of any kind.

    Raises:
      SkippedError: if the only experiment was skipped.
      ValueError, OSError, RuntimeError: as `Inputs.studies`.
    """
    of_scores = tuple(name for name in names if inputs.by_parts(name))
    if not (of_scores and inputs.in_parts):
        return _run(names, inputs, folder)
    sharded = _sharded(of_scores, inputs, folder)
    try:
        tables = sharded.all_of(
            lambda run: sum_tables(
                run,
                of_scores,
                inputs.point,
                inputs.settings,
                inputs.method,
                exact=inputs.running.are_few(sharded.rows),
            )
        )
    except ScoresError as error:
        raise located(error, inputs.scores or "") from None
    try:
        made = _run(names, dataclasses.replace(inputs, sums=tables, left_out=sharded.left_out), folder)
    except SkippedError:
        sharded.finish()  # the same call would skip it again
        raise
    sharded.finish()
    return made


def _sharded(names: Sequence[str], inputs: Inputs, folder: epath.Path) -> Sharded:
    """What runs statistics over the parts of the scores files."""
    refuse_records(inputs.files)
    return open_sharded(
        inputs.files,
        folder,
        inputs.running,
        settings=str([names, inputs.point, inputs.settings, inputs.method]),
    )


def _run(names: Sequence[str], inputs: Inputs, folder: epath.Path) -> list[str]:
    """Makes experiments as `run_experiments`, once scores that are read part by part are read."""
    made: dict[str, ExperimentResult] = {}
    for name in names:
        try:
            result = _make(name, inputs) if inputs.paper_numbers else _make(name, inputs).without_paper()
        except SkippedError as error:
            if len(names) == 1:
                raise SkippedError(f"{name}: {error}") from None
            print(f"skipped {name}: {error}")
            continue
        files = outputs.write(folder, name, result, {**inputs.facts, "made": provenance()})
        print_all(list(result.tables.values()))
        print(f"{name}: {len(files)} files in {folder}\n", flush=True)
        made[name] = result
    if len(made) > 1:
        outputs.write_page(folder, made)
    if made and not drawing.can_draw():
        print(drawing.MISSING)
    say_left_out(inputs.left_out, len(inputs.files))
    return list(made)


def _make(name: str, inputs: Inputs) -> ExperimentResult:
    """One experiment, whose titles say where its scores know nothing of need."""
    experiment = EXPERIMENTS[name]
    if experiment.own == "system" and inputs.systems.system:
        return function(name, "of_systems")(inputs.read_systems)
    if experiment.own == "model" and inputs.model is not None:
        return function(name)(inputs.model.study(inputs.scores, inputs.settings, inputs.method))
    if experiment.own == "held_out" and inputs.scores is not None and inputs.held_out is not None:
        result = function(name, "of_scores")(inputs.studies_in_memory[0], inputs.held_out, inputs.scores)
    else:
        result = _over_seeds(name, inputs)
    if inputs.scores is None or inputs.studies[0].scores.has_need:
        return result
    sheets = tuple(dataclasses.replace(sheet, title=f"{sheet.title}, {ALONE}") for sheet in result.sheets)
    return dataclasses.replace(result, sheets=sheets)


def _over_seeds(name: str, inputs: Inputs) -> ExperimentResult:
    """One experiment over all seeds; SkippedError where it is not made of what the call gives."""
    experiment = EXPERIMENTS[name]
    own = f"; --{experiment.own} makes it" if experiment.own else ""
    if experiment.of != "scores" and inputs.scores is not None:
        raise SkippedError(f"it needs trainings, which a call with --scores does not make{own}")
    if inputs.scores is None and not inputs.trainings:
        raise SkippedError(f"it is not made of this call's --system or --model{own or '; --scores makes it'}")
    subjects = inputs.subjects if experiment.of == "trainings" else inputs.studies
    if name == "methods" and inputs.scores_paper is not None:
        subjects = (inputs.beside_paper,)
    chosen = subjects[:1] if experiment.one_seed else subjects
    return merged([function(name)(subject) for subject in chosen])
