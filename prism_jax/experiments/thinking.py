"""What is the slow pass worth, when is it worth it, and what does a second stage on the student's own fields add?

    python -m prism_jax experiments thinking --workdir=runs/thinking_study

Trains a tiny student on the simulator's switches (docs/training.md) with three seeds, each on streams of its own, and
evaluates it on held-out streams: the fast pass alone, the slow pass on fields that the student wrote itself, and every
trigger at equal slow budgets. A second stage then trains the slots on the student's own fields. Temperatures are fitted
for each student, and the test streams of all seeds are pooled; intervals are over whole streams. Trainings are kept in
the workdir's folder `trainings`, which `python -m prism_jax experiments` shares; a second call repeats none. The pooled
scores are written as scores.parquet, calibrated. --settings=3 studies the population in which three settings have to
agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.evaluation.results import Evaluation
from prism_jax.evaluation.rows import SignalRow
from prism_jax.experiments.students import THINKING, THREE_SETTINGS
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import trigger_tables
from prism_jax.runs.store import Store, of_seed
from prism_jax.runtime.files import write_files
from prism_jax.scores import Scores, encode_scores
from prism_jax.scores.joining import joined
from prism_jax.student.scoring.slow import field_accuracy, write_fields
from prism_jax.student.scoring.writing import Writer
from prism_jax.training.run_config import RunConfig

SEEDS = (0, 1, 2)
FIRST = "student"
"""Name of the first stage in the store; the paper's tables are computed on the same student."""
RATIOS = (1.0, 2.0, 4.0)
SECOND_STEPS, SECOND_RATE = 140, 1e-3
"""Number of steps and peak learning rate of the second stage."""


class ScoredStudent(NamedTuple):
    """One trained student on its held-out streams."""

    scores: Scores  # its scores, calibrated, of the splits calibration and test
    accuracy: dict[str, float]  # share of test steps whose fields are those of the simulator, by field


def student(store: Store, name: str, config: RunConfig) -> ScoredStudent:
    """A student of the store, which is trained and scored unless it was before."""
    scores = store.scores(name, config)
    run, params = store.trained(name, config)
    writer = Writer(run.student(params), config.training.batch)
    context, limit = config.packing.context, config.writing.field_tokens
    some = run.splits.test[:100]
    written = write_fields(writer, some, context=context, limit=limit)
    return ScoredStudent(_calibrated(scores, f"{config.training.seed}/"), field_accuracy(written, some))


def _calibrated(scores: Scores, prefix: str) -> Scores:
    """The scores with calibrated signals in place of raw ones, and a prefix to the names of streams."""
    fits = calibrate(scores)
    columns = scores.columns() | {
        f"p_{signal}_{thinking}": fits.calibrated(signal, thinking, scores)
        for signal in ("need", "accept")
        for thinking in ("fast", "slow")
    }
    columns["stream"] = np.array([prefix + name for name in scores.stream], object)
    return Scores.from_columns(columns)


def second_stage(config: RunConfig, start: epath.Path) -> RunConfig:
    """The config of the second stage on the student's own fields, from the student in a folder."""
    training = dataclasses.replace(
        config.training, start=str(start), steps=SECOND_STEPS, learning_rate=SECOND_RATE, checkpoint_every=SECOND_STEPS
    )
    streams = SECOND_STEPS * config.training.batch
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, train_streams=streams),
        pathway=dataclasses.replace(config.pathway, own_fields=1.0),
        training=training,
    )


def study(
    config: RunConfig, seeds: Sequence[int], store: Store, *, second: bool = True
) -> dict[str, list[ScoredStudent]]:
    """Trains and scores every student of both stages, or of the first alone."""
    students: dict[str, list[ScoredStudent]] = {stage: [] for stage in ("first stage", "second stage")[: 1 + second]}
    for seed in seeds:
        first = of_seed(config, seed)
        students["first stage"].append(student(store, FIRST, first))
        if second:
            start = store.finished(FIRST, first).resolve()
            students["second stage"].append(student(store, "student-own-fields", second_stage(first, start)))
    return students


def tables(students_by_name: dict[str, list[ScoredStudent]]) -> list[Table]:
    """What the students write, and for each stage what the passes and the triggers reach."""
    shown = [accuracy_table(students_by_name)]
    for name, students in students_by_name.items():
        evaluated = evaluations(students)
        shown += [
            pass_table(name, evaluated),
            *(table for evaluation in evaluated for table in trigger_tables(evaluation)),
        ]
    return shown


def evaluations(students: Sequence[ScoredStudent], ratios: Sequence[float] = RATIOS) -> list[Evaluation]:
    """The pooled scores of some students, evaluated at every cost ratio."""
    scores = joined([trained.scores for trained in students])
    fits = calibrate(scores)
    return [evaluate(scores, fits, OperatingPoint(c_fa=1.0, c_fn=ratio)) for ratio in ratios]


PASSES = (
    Column("realised cost", "Mean realised cost per step, with its 95 % interval."),
    Column("expected cost", "Mean cost under the simulator's truth."),
    Column("gap closed %", "Share of the expected-cost gap between the better constant policy and the Bayes oracle."),
    Column("gold F1", "F1 against need and acceptance together."),
    Column("AUDBC", "Area under the curve of benefit against burden, divided by the oracle's."),
    Column("ECE need", "Partly debiased calibration error of p_need, after its temperature."),
    Column("ECE accept", "The same of p_accept."),
)


def pass_table(name: str, evaluations: Sequence[Evaluation]) -> Table:
    """The fast pass alone against the slow pass alone at every cost ratio."""
    sections = []
    for evaluation in evaluations:
        rows = [
            Row(label, _pass_cells(evaluation, policy, thinking))
            for label, policy, thinking in (("fast only", "dynamic", "fast"), ("slow only", "slow_only", "slow"))
        ]
        sections.append(Section(f"r = {evaluation.point.cost_ratio:g}", tuple(rows)))
    note = "Slow: on fields that the student wrote. Intervals are over the streams of all seeds."
    return Table(f"What each pass reaches, {name}", "", PASSES, tuple(sections), note)


def _pass_cells(evaluation: Evaluation, policy: str, thinking: str) -> tuple[str, ...]:
    costs = evaluation.policy(policy, "calibrated")
    ratio = next(row for row in evaluation.ratios.rows if (row.policy, row.form) == (policy, "calibrated"))
    signals: dict[str, SignalRow] = {
        row.signal: row for row in evaluation.signals if (row.thinking, row.form) == (thinking, "calibrated")
    }
    return (
        f"{costs.realised_cost:.4f} [{costs.realised_low:.4f}, {costs.realised_high:.4f}]",
        f"{costs.expected_cost:.4f}",
        f"{100 * (costs.gap_closed or 0):.1f}",
        f"{costs.f1:.3f}",
        f"{ratio.audbc:.4f}",
        *(f"{signals[name].ece_debiased:.4f}" for name in ("need", "accept")),
    )


def accuracy_table(students_by_name: dict[str, list[ScoredStudent]]) -> Table:
    """How often each field is written as the simulator has it, by stage and seed."""
    names = tuple(next(iter(students_by_name.values()))[0].accuracy)
    columns = tuple(Column(name, f"Share of test steps whose field {name} is right, in %.") for name in names)
    sections = tuple(
        Section(
            stage,
            tuple(
                Row(f"seed {seed}", tuple(f"{100 * trained.accuracy[name]:.1f}" for name in names))
                for seed, trained in enumerate(students)
            ),
        )
        for stage, students in students_by_name.items()
    )
    return Table("Which fields the students write correctly", "", columns, sections)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("workdir", None, "Folder for the trainings and the pooled scores.", required=True)
    flags.DEFINE_integer("settings", 2, "Number of settings that have to agree, 2 or 3.", 2, 3)
    flags.DEFINE_bool("second_stage", True, "Whether to train a second stage on the students' own fields.")


def main() -> Iterable[Table]:
    """Trains the students, and writes their scores as one file."""
    folder = epath.Path(flags.FLAGS.workdir)
    config = {2: THINKING, 3: THREE_SETTINGS}[flags.FLAGS.settings]
    store = Store(folder / "trainings")
    with store.claimed():
        students = study(config, SEEDS, store, second=flags.FLAGS.second_stage)
    scores = joined([trained.scores for trained in students["first stage"]])
    write_files({folder / "scores.parquet": encode_scores("scores.parquet", scores)})
    return tables(students)
