"""What is the slow pass worth, when is it worth it, and what does a second stage on the student's own fields add?

    python -m studies thinking --workdir=runs/thinking_study

Trains a tiny student on the simulator's switches (docs/training.md) with three seeds, each on streams of its own, and
evaluates it on held-out streams at three cost ratios: the fast pass alone, the slow pass on fields that the student
wrote itself, and every trigger at equal slow budgets. A second stage then trains the slots on the student's own fields.
Temperatures are fitted for each student, and the test streams of all seeds are pooled; intervals are over whole
streams. --settings=3 studies the population in which three settings have to agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import flags

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.experiments.paper.trainings import STUDENT
from prism_jax.report.table import Column, Table
from prism_jax.report.tables import all_tables
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.scores.joining import joined
from prism_jax.student.scoring.slow import field_accuracy, write_fields
from prism_jax.student.scoring.writing import Writer
from prism_jax.training.run_config import RunConfig
from prism_jax.training.students import THINKING, THREE_SETTINGS
from studies.runner import Comparison, Variant, open_store, table, workdir_flag

RATIOS = (1.0, 2.0, 4.0)
STEPS = 140
"""Updates of the second stage."""
FIRST = Variant(STUDENT)
SECOND = Variant(
    "student-own-fields",
    {
        "data.train_streams": STEPS * THINKING.training.batch,
        "pathway.own_fields": 1.0,
        "training.steps": STEPS,
        "training.checkpoint_every": STEPS,
        "training.learning_rate": 1e-3,
    },
    FIRST,
)
STAGES = {"first stage": FIRST, "second stage": SECOND}


def accuracy(variant: Variant, base: RunConfig, store: Store) -> dict[str, float]:
    """Share of test steps whose fields the student writes as the simulator has them, by field."""
    config = variant.config(base, store)
    run, params = store.trained(variant.name, config)
    some = run.splits.test[:100]
    writer = Writer(run.student(params), config.training.batch)
    written = write_fields(writer, some, context=config.packing.context, limit=config.writing.field_tokens)
    return field_accuracy(written, some)


def accuracy_table(accuracies: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    """How often each field is written as the simulator has it, by stage and seed."""
    names = next(iter(accuracies.values()))[0]
    columns = [Column(name, f"Share of test steps whose field {name} is right, in %.") for name in names]
    rows = {stage: {f"seed {seed}": of for seed, of in enumerate(seeds)} for stage, seeds in accuracies.items()}
    title = "Which fields the students write correctly"
    return table(title, columns, rows, lambda of: [f"{100 * of[name]:.1f}" for name in names])


def pooled(of_seeds: Sequence[Scores]) -> Scores:
    """The rows of all seeds, with the calibrated signals of each seed in place of the raw ones."""

    def calibrated(seed: int, scores: Scores) -> Scores:
        fits, columns = calibrate(scores), scores.columns()
        for signal in ("need", "accept"):
            for thinking in ("fast", "slow"):
                columns[f"p_{signal}_{thinking}"] = fits.calibrated(signal, thinking, scores)
        return Scores.from_columns(columns | {"stream": np.array([f"{seed}/{name}" for name in scores.stream], object)})

    return joined([calibrated(seed, scores) for seed, scores in enumerate(of_seeds)])


def tables(comparison: Comparison, store: Store) -> Iterator[Table]:
    """What the students write, and what passes and triggers reach by stage and cost ratio; trains what is missing."""
    by_stage = comparison.scores(store)
    accuracies = {
        name: [accuracy(STAGES[name], of_seed(comparison.base, seed), store) for seed in comparison.seeds]
        for name in by_stage
    }
    yield accuracy_table(accuracies)
    for stage, of_seeds in by_stage.items():
        scores = pooled(of_seeds)
        for ratio in RATIOS:
            evaluation = evaluate(scores, calibrate(scores), OperatingPoint(c_fa=1.0, c_fn=ratio))
            for of in all_tables(evaluation):
                yield dataclasses.replace(of, title=f"{of.title}, {stage}, r = {ratio:g}")


def define_flags() -> None:
    """Defines the command-line flags."""
    workdir_flag()
    flags.DEFINE_integer("settings", 2, "Number of settings that have to agree, 2 or 3.", 2, 3)
    flags.DEFINE_bool("second_stage", True, "Whether to train a second stage on the students' own fields.")


def main() -> Iterable[Table]:
    """Trains the students, and compares."""
    base = {2: THINKING, 3: THREE_SETTINGS}[flags.FLAGS.settings]
    with open_store() as store:
        yield from tables(Comparison(base, STAGES if flags.FLAGS.second_stage else {"first stage": FIRST}), store)
