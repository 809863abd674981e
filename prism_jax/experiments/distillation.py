"""What is curation worth to a distilled student, and what does the quality of its teacher cost it?

    python -m prism_jax experiments distillation --workdir=runs/distillation_study

The pipeline of the demo (prism_jax/experiments/distill_demo.py) without HTTP: a simulated teacher labels the streams of
simulated users, three simulated judges with seeds of their own say what these users would have accepted, rows are
curated, and the student of configs/distilled.py trains on them.

- Three seeds: a student on the curated rows, one on all rows, and one on as many rows drawn at random. All take the
  same number of optimizer steps. Each seed sets the users, the errors of teacher and judges, the draw, the initial
  parameters and the order of the data.
- Four teachers, from good to bad, on the users of the first seed: a student on the rows curated by each.

Users, teacher, judges and training are small (`SIZES`), so over seeds differences of 0.02 per step are not resolved.
All of it takes about 20 minutes of processor time.
Data, trainings and scores are kept in the workdir; a second call repeats none of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.splits import evaluated_rows
from prism_jax.experiments import distill_report
from prism_jax.experiments.distill_report import Decisions, Truth
from prism_jax.experiments.distillation_tables import (
    FAST,
    MARGIN,
    Measured,
    Taught,
    curve_table,
    difference_table,
    rows_table,
    student_table,
    trained_on,
)
from prism_jax.experiments.simulated_users import population
from prism_jax.experiments.students import DISTILLED, sources
from prism_jax.labelling.judges.judging import Verdict
from prism_jax.labelling.judges.labelling import Place, label_streams
from prism_jax.labelling.judges.panels import PanelConfig
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.labelling.teacher.labelling import LabellingConfig, label_stream
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.labelling.teacher.simulated import SimulatedTeacher, TeacherQuality
from prism_jax.remote.structured import Reply, parse
from prism_jax.report.table import Table
from prism_jax.runs.pipeline import score_run, train_run
from prism_jax.runtime.files import read_object, write_json
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.streams import Stream
from prism_jax.streams.edit import keep_candidates, without_answers
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.student.scoring.passes import Passes
from prism_jax.training.pathways.curated import curate
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

ARMS = ("curated", "all", "random")
"""The rows that a student trains on."""
TEACHERS = {
    "good": TeacherQuality(blur=0.25, bias=0.0, field_errors=0.0, response_errors=0.0),
    "fair": TeacherQuality(blur=1.0, bias=0.3, field_errors=0.05, response_errors=0.05),
    "poor": TeacherQuality(blur=2.0, bias=0.6, field_errors=0.15, response_errors=0.15),
    "bad": TeacherQuality(blur=3.0, bias=1.0, field_errors=0.3, response_errors=0.3),
}
ACCURACY, MOST_EVENTS, JUDGES = 0.9, 40, 3
"""Share of a judge's verdicts that are right, most events in a question, and number of judges."""
MADE_BY = "study.json"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The size of the study."""

    train: int = 400  # training streams of each seed
    calibration: int = 100  # calibration streams
    held_out: int = 200  # held-out streams
    steps: int = 200  # optimizer steps of every student
    seeds: tuple[int, ...] = (0, 1, 2)  # seeds of the comparison; the first is that of the curve
    teacher: str = "fair"  # name of the teacher of the comparison
    curve: tuple[str, ...] = ("good", "fair", "poor", "bad")  # names of the teachers of the curve, the best one first

    def as_json(self) -> dict[str, Any]:
        """The sizes as a file has them."""
        return {**dataclasses.asdict(self), "seeds": list(self.seeds), "curve": list(self.curve)}


SIZES = Sizes()


class Files(NamedTuple):
    """The streams of one seed and teacher: for training by arm (`ARMS`), and for calibration, judged.

    `taught` and `answers` are the held-out streams, with the teacher's probabilities and with what their users would
    answer, to measure with; `true_train` are the training streams with that, to count wrong labels: nothing trains on
    it.
    """

    folder: epath.Path

    def of(self, name: str) -> epath.Path:
        """The file of an arm, or of one of the others."""
        return self.folder / f"{name}.jsonl"


def labelled(streams: Sequence[Stream], everyone: Sequence[Stream], quality: TeacherQuality) -> list[Stream]:
    """The streams as a simulated teacher labels them, without any other label; it knows the streams of `everyone`.

    It judges the constant offer, so that the rows differ in the teacher's errors and not in what is proposed.
    """
    prompt = PromptSettings(offers="given")
    brain = SimulatedTeacher(everyone, prompt, quality)

    async def ask(messages: Sequence[Any], kind: type[Any]) -> Reply[Any]:
        return Reply(parse(brain({"messages": [message._asdict() for message in messages]}), kind), None, ())

    async def all_of_them() -> list[Stream]:
        return [
            (await label_stream(without_answers(stream), ask, prompt, LabellingConfig())).stream for stream in streams
        ]

    return asyncio.run(all_of_them())


def judged(streams: Sequence[Stream], everyone: Sequence[Stream], seed: int) -> list[Stream]:
    """The streams with the labels of the majority of simulated judges, who know the streams of `everyone`.

    The seed is that of the study; each judge errs with a seed of its own.
    """
    panel = [
        SimulatedJudge(
            everyone,
            sensitivity=ACCURACY,
            specificity=ACCURACY,
            seed=1000 * (seed + 1) + number,
            most_events=MOST_EVENTS,
        )
        for number in range(JUDGES)
    ]
    verdicts = {}
    for stream in streams:
        for question in questions(stream, MOST_EVENTS):
            body = {"messages": [{"role": "user", "content": question.text}]}
            place = Place(question.digest, question.stream, question.step, question.candidate)
            verdicts[place] = tuple(parse(judge(body), Verdict).accepted for judge in panel)
    return list(label_streams(streams, verdicts, MOST_EVENTS, PanelConfig()))


def draw(streams: Sequence[Stream], count: int, seed: int) -> tuple[Stream, ...]:
    """Draws `count` rows uniformly at random, each at most once; the streams are marked as those of curation are.

    A row is one candidate of one step. ValueError for more rows than there are.
    """
    total = sum(len(step.candidates) for stream in streams for step in stream.steps)
    if count > total:
        raise ValueError(f"count: found {count}, expected at most the {total} rows of the streams")
    kept = np.zeros(total, bool)
    kept[np.random.default_rng(2000 + seed).choice(total, count, replace=False)] = True
    row = iter(kept.tolist())  # in the order in which `keep_candidates` visits the candidates
    left = [keep_candidates(stream, lambda _: next(row)) for stream in streams]
    how = f"{count:,} of {total:,} rows drawn at random"
    return tuple(dataclasses.replace(stream, curated=how) for stream in left if stream is not None)


def prepare(folder: epath.Path, config: RunConfig, sizes: Sizes, seed: int, teacher: str) -> Files:
    """Writes the streams of one seed and teacher, unless they are there."""
    files = Files(folder)
    if files.of("true_train").exists():  # the last file that is written
        return files
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"train": sizes.train, "calibration": sizes.calibration, "test": sizes.held_out}
    users = population(counts, dataclasses.replace(config.simulator, seed=seed))
    everyone = tuple(stream for streams in users.values() for stream in streams)
    quality = dataclasses.replace(TEACHERS[teacher], seed=seed)
    train, calibration, held_out = (labelled(users[split], everyone, quality) for split in counts)
    rows = judged(train, everyone, seed)
    curated = curate(rows, config.pathway)
    write_streams(files.of("all"), rows)
    write_streams(files.of("curated"), curated.streams)
    write_streams(files.of("random"), draw(rows, curated.total("kept"), seed))
    write_streams(files.of("calibration"), judged(calibration, everyone, seed))
    write_streams(files.of("taught"), held_out)
    write_streams(files.of("answers"), users["test"])
    write_streams(files.of("true_train"), users["train"])
    return files


def student(files: Files, config: RunConfig, arm: str, seed: int) -> Scores:
    """The scores of a student, which is trained on the rows of an arm unless it was before."""
    folder = files.folder / arm
    written = folder / "scores.parquet"
    if not written.exists():
        began = time.monotonic()
        of_seed = dataclasses.replace(
            config,
            data=sources(*map(str, (files.of(arm), files.of("calibration"), files.of("answers")))),
            training=dataclasses.replace(config.training, seed=seed),
        )
        run, params = train_run(of_seed, Workdir(folder), report=False)
        write_scores(written, score_run(run, params, passes=Passes(slow=True, writing=config.writing)))
        print(f"{folder}: trained and scored in {time.monotonic() - began:.0f} s", flush=True)
    return read_scores(written)


def decisions(scores: Scores, point: OperatingPoint) -> dict[str, Decisions]:
    """What a student decides on its test rows, fast only and slow on margin, at its own temperatures."""
    steps = evaluated_rows(scores)  # every step has one candidate
    data = EvaluationData(steps, calibrate(scores), point, thought=steps, has_truth=False)
    policies = {FAST: "dynamic", MARGIN: "slow_on_margin"}
    return {name: Decisions(*data.decide(policy, "calibrated")) for name, policy in policies.items()}


def measured(files: Files, students: dict[str, Scores], point: OperatingPoint) -> Measured:
    """The held-out steps of one seed and teacher with the decisions of the teacher and of some students.

    ValueError for scores of other steps, or in another order.
    """
    held_out, answers = read_streams(files.of("taught")), read_streams(files.of("answers"))
    steps = [(stream.id, number) for stream in answers for number in range(len(stream.steps))]
    for name, scores in students.items():
        rows = evaluated_rows(scores)
        if list(zip(rows.stream.tolist(), rows.step.tolist(), strict=True)) != steps:
            raise ValueError(f"{files.folder}: found other steps in the scores of {name!r}, expected those held out")
    teacher = distill_report.teachers_decisions(held_out, read_streams(files.of("calibration")), point)
    systems = {
        (name, key): decided for name, scores in students.items() for key, decided in decisions(scores, point).items()
    }
    return Measured(Truth.of(answers), {**systems, **{(name, ""): decided for name, decided in teacher.items()}})


class Found(NamedTuple):
    """What the study found."""

    seeds: list[Measured]  # the students of each seed on their held-out steps
    trained_on: list[dict[str, Taught]]  # what the rows of each arm are like, by seed
    curve: dict[str, Measured]  # the student of each teacher beside it


def study(folder: epath.Path, sizes: Sizes = SIZES, config: RunConfig = DISTILLED) -> Found:
    """Makes whatever the workdir lacks, and compares the decisions; ValueError for a workdir made with other sizes."""
    made, wanted = folder / MADE_BY, sizes.as_json()
    if made.exists() and (before := read_object(made, str(made))) != wanted:
        raise ValueError(f"--workdir: found {made}, made with {before}, expected {wanted}")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(made, wanted)
    training = dataclasses.replace(config.training, steps=sizes.steps, checkpoint_every=sizes.steps)
    config = dataclasses.replace(config, training=training)

    def of(seed: int, teacher: str) -> Files:
        return prepare(folder / f"seed-{seed}-{teacher}", config, sizes, seed, teacher)

    # First the comparison, whose students on curated rows are points of the curve too.
    seeds, facts = [], []
    for seed in sizes.seeds:
        files = of(seed, sizes.teacher)
        scores = {arm: student(files, config, arm, seed) for arm in ARMS}
        seeds.append(measured(files, scores, config.decision))
        facts.append(
            trained_on({arm: read_streams(files.of(arm)) for arm in ARMS}, read_streams(files.of("true_train")))
        )
    curve, first = {}, sizes.seeds[0]
    for teacher in sizes.curve:
        files = of(first, teacher)
        curve[teacher] = measured(files, {"curated": student(files, config, "curated", first)}, config.decision)
    return Found(seeds, facts, curve)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("workdir", None, "Folder for data, trainings and scores.", required=True)


def main() -> Iterable[Table]:
    """Trains, and compares the students."""
    results, point = study(epath.Path(flags.FLAGS.workdir)), DISTILLED.decision
    return [
        rows_table(results.trained_on),
        student_table(results.seeds, point),
        difference_table(results.seeds, point),
        curve_table(results.curve, TEACHERS, point),
    ]
