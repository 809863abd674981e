"""Runs experiments: prints and writes each as soon as it is made, and skips by name what cannot run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.experiments.paper import drawing, outputs
from prism_jax.experiments.paper.over_seeds import merged
from prism_jax.experiments.paper.registry import EXPERIMENTS, function
from prism_jax.experiments.paper.study import Outcome, Settings, SkippedError, Study, Subject
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.report.table import print_all
from prism_jax.report.tables import ALONE
from prism_jax.runtime.digests import sha256
from prism_jax.runtime.provenance import provenance
from prism_jax.scores import ScoresError, located, read_scores


@dataclasses.dataclass(frozen=True)
class Given:
    """What a call gives to its experiments: the scores of a file, or trainings."""

    scores: str | None = None  # scores file, .parquet or .jsonl (docs/scores.md); None to train
    trainings: tuple[Trainings, ...] = ()  # the trainings of each seed
    # costs and margin of tables that do not vary them
    point: OperatingPoint = dataclasses.field(default_factory=OperatingPoint)
    settings: Settings = dataclasses.field(default_factory=Settings)

    @functools.cached_property
    def studies(self) -> tuple[Study, ...]:
        """The study of the file, or that of each seed's student, who is trained unless that was done before.

        Raises:
          ValueError: naming the place, for a file that is no scores table, or that cannot be calibrated or evaluated.
          OSError, RuntimeError: if it cannot be read, or a training fails.
        """
        if self.scores is not None:
            return (self._of_file(self.scores),)
        return tuple(self._of_student(trainings) for trainings in self.trainings)

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The trainings of each seed."""
        return tuple(Subject(trainings, self.point, self.settings) for trainings in self.trainings)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What the numbers come from, for the file beside each table."""
        settings = {**dataclasses.asdict(self.settings), "point": dataclasses.asdict(self.point)}
        if self.scores is not None:
            return {"scores": self.scores, "sha256": sha256(self.scores), "settings": settings}
        return {"students": [trainings.workdir for trainings in self.trainings], "settings": settings}

    def _of_file(self, path: str) -> Study:
        scores = read_scores(path, extra=False)  # no table reads columns without a meaning
        try:
            fits = protocol.calibrate(scores)
            steps = protocol.evaluated_rows(scores).steps()
            study = Study(
                scores, fits, f"{len(steps)} test steps of {epath.Path(path).name}", self.point, self.settings
            )
            study.at()
        except ScoresError as error:
            raise located(error, path) from None
        return study

    def _of_student(self, trainings: Trainings) -> Study:
        scores = trainings.scores()
        steps = f"{len(protocol.evaluated_rows(scores).steps())} test steps of simulated streams"
        source = f"{steps}, seed {trainings.seed}" if len(self.trainings) == 1 else f"{steps} in the first seed"
        return Study(scores, protocol.calibrate(scores), source, self.point, self.settings, trainings)


def run(names: Sequence[str], given: Given, folder: epath.Path) -> list[str]:
    """Makes experiments, prints their tables, writes their files, and returns the names of those that were made.

    An experiment that cannot run is skipped, with one line that says why; the others are unaffected. Several are also
    written together, as one page (`outputs.PAGE`).

    Raises:
      SkippedError: if the only experiment was skipped.
      ValueError, OSError, RuntimeError: as `Given.studies`.
    """
    made: dict[str, Outcome] = {}
    for name in names:
        try:
            outcome = _make(name, given)
        except SkippedError as error:
            if len(names) == 1:
                raise SkippedError(f"{name}: {error}") from None
            print(f"skipped {name}: {error}")
            continue
        files = outputs.write(folder, name, outcome, {**given.facts, "made": provenance()})
        print_all(list(outcome.tables.values()))
        print(f"{name}: {len(files)} files in {folder}\n", flush=True)
        made[name] = outcome
    if len(made) > 1:
        outputs.write_page(folder, made)
    if made and not drawing.can_draw():
        print(drawing.MISSING)
    return list(made)


def _make(name: str, given: Given) -> Outcome:
    """One experiment over all seeds."""
    experiment = EXPERIMENTS[name]
    if experiment.of != "scores" and given.scores is not None:
        raise SkippedError("it needs trainings, which a call with --scores does not make")
    subjects = given.subjects if experiment.of == "trainings" else given.studies
    chosen = subjects[:1] if experiment.one_seed else subjects
    outcome = merged([function(name)(subject) for subject in chosen])
    alone = given.scores is not None and not given.studies[0].scores.has_need
    return _titled(outcome) if alone else outcome


def _titled(outcome: Outcome) -> Outcome:
    """The outcome with titles that say that p_accept alone was evaluated."""
    sheets = tuple(dataclasses.replace(sheet, title=f"{sheet.title}, {ALONE}") for sheet in outcome.sheets)
    return dataclasses.replace(outcome, sheets=sheets)
