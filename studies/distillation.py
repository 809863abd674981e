"""What is curation worth to a distilled student, and what does the quality of its teacher cost it?

    python -m studies distillation --workdir=runs/distillation_study

The pipeline of the demo (prism_jax/experiments/distill_demo.py) without HTTP: a simulated teacher labels the streams of
simulated users, three simulated judges with seeds of their own say what these users would have accepted, rows are
curated, and the student of configs/distilled.py trains on them.

- Three seeds: a student on the curated rows, one on all rows, and one on as many rows drawn at random. All take the
  same number of optimizer steps. A seed also sets the users, the errors of teacher and judges, and the draw.
- Four teachers, from good to bad, on the users of the first seed: a student on the rows curated by each.

Users, teacher, judges and training are small, so over seeds differences of 0.02 per step are not resolved. All of it
takes about 20 minutes of processor time. Only the tables see what the held-out users would have answered.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.distill_report import COLUMNS, gap_closed, taught
from prism_jax.experiments.simulated_users import population
from prism_jax.labelling.judges.ballots import PanelConfig
from prism_jax.labelling.judges.judging import Verdict
from prism_jax.labelling.judges.labelling import Place, label_streams
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.labelling.teacher.labelling import LabellingConfig, label_stream
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.labelling.teacher.simulated import SimulatedTeacher, TeacherQuality
from prism_jax.remote.structured import Reply, parse
from prism_jax.report.table import Column, Table
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.streams import Stream
from prism_jax.streams.edit import keep_candidates, without_answers
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.sources import DataConfig
from prism_jax.training.pathways.curated import curate
from prism_jax.training.run_config import RunConfig
from prism_jax.training.students import DISTILLED, sources
from studies.runner import (
    BAYES,
    FAST,
    MARGIN,
    Comparison,
    Costs,
    Measured,
    Variant,
    costs,
    open_store,
    table,
    workdir_flag,
)

define_flags = workdir_flag
ARMS = ("curated", "all", "random")
"""The rows that a student trains on."""
TEACHERS = {
    "good": TeacherQuality(blur=0.25, bias=0.0, field_errors=0.0, response_errors=0.0),
    "fair": TeacherQuality(blur=1.0, bias=0.3, field_errors=0.05, response_errors=0.05),
    "poor": TeacherQuality(blur=2.0, bias=0.6, field_errors=0.15, response_errors=0.15),
    "bad": TeacherQuality(blur=3.0, bias=1.0, field_errors=0.3, response_errors=0.3),
}
TEACHER, TAUGHT_BY = "teacher", "fair"
"""Name of the teacher among the systems, and which of `TEACHERS` labels the rows of the comparison."""
ACCURACY, MOST_EVENTS, JUDGES = 0.9, 40, 3
"""Share of a judge's verdicts that are right, most events in a question, and number of judges."""
BASE = dataclasses.replace(
    DISTILLED,
    data=DataConfig(train_streams=400, calibration_streams=100, test_streams=200),
    training=dataclasses.replace(DISTILLED.training, steps=200, checkpoint_every=200),
)
"""The demo's student; `data` says how many streams each seed has, of which `Trained` makes files."""


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


def prepare(base: RunConfig, teacher: str, store: Store) -> epath.Path:
    """Writes the streams of the base's seed and one teacher beside the trainings, unless they are there.

    The folder is named by the settings that make them. There is a file for training on each arm (`ARMS`), and one for
    calibration, all judged. `taught` and `answers` are the held-out streams, with the teacher's probabilities and with
    what their users would answer, to measure with; `true_train` are the training streams with that, to count wrong
    labels: nothing trains on it.
    """
    data, seed = base.data, base.training.seed
    counts = {"train": data.train_streams, "calibration": data.calibration_streams, "test": data.test_streams}
    quality = dataclasses.replace(TEACHERS[teacher], seed=seed)
    settings = [dataclasses.asdict(of) for of in (base.simulator, base.pathway, quality)]
    settings += [counts, {"judges": (ACCURACY, MOST_EVENTS, JUDGES)}]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    folder = store.folder / "streams" / f"{teacher}-{seed}-{digest[:12]}"
    if (folder / "true_train.jsonl").exists():  # the last file that is written
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    users = population(counts, base.simulator)
    everyone = tuple(stream for streams in users.values() for stream in streams)
    train, calibration, held_out = (labelled(users[split], everyone, quality) for split in counts)
    rows = judged(train, everyone, seed)
    curated = curate(rows, base.pathway)
    made = {
        "all": rows,
        "curated": curated.streams,
        "random": draw(rows, curated.total("kept"), seed),
        "calibration": judged(calibration, everyone, seed),
        "taught": held_out,
        "answers": users["test"],
        "true_train": users["train"],
    }
    for name, streams in made.items():
        write_streams(folder / f"{name}.jsonl", streams)
    return folder


@dataclasses.dataclass(frozen=True)
class Trained:
    """A student on the rows of one arm, which one teacher labelled."""

    arm: str
    teacher: str = TAUGHT_BY

    def __call__(self, base: RunConfig, store: Store) -> Scores:
        """Its raw scores, without offers that it writes."""
        folder = prepare(base, self.teacher, store).resolve()
        data = sources(*(str(folder / f"{name}.jsonl") for name in (self.arm, "calibration", "answers")))
        return Variant(f"distilled-{self.arm}", signals="slow")(dataclasses.replace(base, data=data), store)


@dataclasses.dataclass(frozen=True)
class TeacherOf:
    """The teacher itself: its probabilities as a fast pass, and the judges' calibration labels."""

    teacher: str = TAUGHT_BY

    def __call__(self, base: RunConfig, store: Store) -> Scores:
        """Its raw scores, with what the held-out users would answer."""
        folder = prepare(base, self.teacher, store)
        calibration, held_out, answers = (
            read_streams(folder / f"{name}.jsonl") for name in ("calibration", "taught", "answers")
        )
        return Scores.from_rows([*taught(calibration, "calibration"), *taught(held_out, "test", answers)])


COMPARED = Comparison(BASE, {**{arm: Trained(arm) for arm in ARMS}, TEACHER: TeacherOf()})
BY_TEACHER = {
    name: Comparison(BASE, {"curated": Trained("curated", name), TEACHER: TeacherOf(name)}, seeds=(0,))
    for name in TEACHERS
}
"""The teachers of the curve, the best one first."""


FACTS = (
    Column("rows", "Mean number of rows."),
    Column("wrong need labels %", "Share of the judges' need labels that differ from the user's answer."),
    Column("wrong accept labels %", "The same of acceptance."),
)


def facts(streams: Sequence[Stream], users: Sequence[Stream]) -> np.ndarray:
    """The number of rows of an arm, and the shares of its need and acceptance labels that are wrong.

    The arm's streams are judged training streams with one candidate per step; `users` are streams with the answers of
    users, these among them.
    """
    answers = {(s.id, step.event): (step.y_need, step.candidates[0].y_accept) for s in users for step in s.steps}
    steps = [(stream.id, step) for stream in streams for step in stream.steps]
    wrong = [(s.y_need, s.candidates[0].y_accept) != np.array(answers[name, s.event]) for name, s in steps]
    return np.array([len(steps), *np.mean(wrong, axis=0)])


def rows_table(folders: Sequence[epath.Path]) -> Table:
    """The training rows of each arm, averaged over seeds."""

    def cells(arm: str) -> tuple[str, ...]:
        of_seeds = [[read_streams(folder / f"{name}.jsonl") for name in (arm, "true_train")] for folder in folders]
        rows, need, accept = np.mean([facts(*streams) for streams in of_seeds], axis=0)
        return f"{rows:,.0f}", f"{100 * need:.1f}", f"{100 * accept:.1f}"

    note = f"Means of {len(folders)} seeds."
    return table("What each student trains on", FACTS, {"": {arm: arm for arm in ARMS}}, cells, note)


SHOWN = ("realised cost", "expected cost", "gap closed %", "slow %")
PASSES = {"fast only": FAST, "slow on margin": MARGIN}
PAIRS = (("curated", "all"), ("curated", "random"), ("random", "all"))
"""The differences of the comparison: the first arm minus the second."""


class System(NamedTuple):
    """What decides: one rule of a student or of the teacher."""

    costs: Sequence[Costs]  # of each seed
    rule: str

    def of(self, kind: Literal["expected", "realised", "slow"]) -> Measured:
        """Its costs, or where it thinks."""
        return Costs.measured(self.costs, kind, self.rule)

    @property
    def gap(self) -> str:
        """The share of the gap between the better constant and Bayes that it closes, in %."""
        own, *known = (self._replace(rule=rule).of("expected").mean for rule in (self.rule, "never", "always", BAYES))
        return f"{100 * gap_closed(own, *known):.1f}"


def systems(scores: Mapping[str, Sequence[Scores]], point: OperatingPoint) -> dict[str, System]:
    """Every rule of the students and of the teacher, by name."""
    made: dict[str, System] = {}
    for name in (name for name in scores if name != TEACHER):
        student = [costs(table, point) for table in scores[name]]
        made |= {f"{name}, {words}": System(student, rule) for words, rule in PASSES.items()}
    forms: dict[str, Form] = {TEACHER: "raw", f"{TEACHER}, calibrated": "calibrated"}
    for name, form in forms.items():
        made[name] = System([costs(table, point, form) for table in scores[TEACHER]], FAST)
    return made


def note_of(system: System, point: OperatingPoint) -> str:
    """How much the held-out steps of a table are, and the costs."""
    streams, seeds = [seed.stream for seed in system.costs], len(system.costs)
    return (
        f"{sum(map(len, streams)):,} steps of {sum(len(set(names)) for names in streams):,} held-out streams, {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}; C_FA = {point.c_fa:g}, C_FN = {point.c_fn:g}. "
        "95 % intervals over streams."
    )


def student_table(named: Mapping[str, System], point: OperatingPoint) -> Table:
    """Every student and the teacher, on the steps of all seeds."""

    def cells(system: System) -> tuple[str, ...]:
        return (
            system.of("realised").over_streams(),
            f"{system.of('expected').mean:.3f}",
            system.gap,
            f"{100 * system.of('slow').mean:.1f}",
        )

    some = next(iter(named.values()))
    constants = {rule: some._replace(rule=rule) for rule in ("never", "always", BAYES)}
    columns = [column for column in COLUMNS if column.label in SHOWN]
    title = "Students on curated rows, on all rows and on rows drawn at random"
    return table(title, columns, {"": named, "for reference": constants}, cells, note_of(some, point))


DIFFERENCES = (
    Column("realised cost", "Difference on the pooled steps; its interval is over streams, not trainings."),
    Column("expected cost by seed", "Mean over seeds of the difference, with its t interval."),
    Column("each seed", "The difference in expected cost of each seed.", text=True),
)


def difference_table(named: Mapping[str, System]) -> Table:
    """The students' differences in cost, in realised cost by stream and in expected cost by seed."""

    def cells(pair: tuple[System, System]) -> tuple[str, ...]:
        expected = pair[0].of("expected") - pair[1].of("expected")
        realised = pair[0].of("realised") - pair[1].of("realised")
        return realised.over_streams(sign="+"), expected.over_seeds(sign="+"), expected.by_seed()

    sections = {
        words: {f"{one} − {other}": (named[f"{one}, {words}"], named[f"{other}, {words}"]) for one, other in PAIRS}
        for words in PASSES
    }
    note = (
        "Below 0, the first student decides better. 95 % intervals; the one by seed includes the spread of trainings."
    )
    return table("What curation changes, paired", DIFFERENCES, sections, cells, note)


CURVE = (
    Column("teacher", "Mean expected cost of the gate on the teacher's own probabilities."),
    Column("teacher, calibrated", "The same at temperatures fitted on the judges' labels."),
    Column("curated, fast only", "Mean expected cost of its student."),
    Column("curated, slow on margin", "The same with the slow pass near the threshold."),
    Column("minus the best teacher's student", "Realised cost, slow on margin, paired by stream."),
)


def curve_table(curve: Mapping[str, Mapping[str, System]], point: OperatingPoint) -> Table:
    """The student's cost beside its teacher's, by teacher, the best one first; the held-out steps are the same."""
    own = CURVE[-2].label
    best = next(iter(curve.values()))[own]

    def cells(named: Mapping[str, System]) -> tuple[str, ...]:
        change = named[own].of("realised") - best.of("realised")
        expected = (f"{named[column.label].of('expected').mean:.3f}" for column in CURVE[:-1])
        return *expected, "" if named[own] is best else change.over_streams(sign="+")

    rows = {in_words(TEACHERS[name]): named for name, named in curve.items()}
    title = "What the teacher's quality costs its student"
    return table(title, CURVE, {"": rows}, cells, note_of(best, point), "teacher's errors")


def in_words(quality: TeacherQuality) -> str:
    """How a teacher errs, as the name of a row."""
    return (
        f"blur {quality.blur:g}, bias {quality.bias:g}, {100 * quality.field_errors:g} % of fields, "
        f"{100 * quality.response_errors:g} % of responses"
    )


def tables(compared: Comparison, curve: Mapping[str, Comparison], store: Store) -> list[Table]:
    """Trains what the store lacks, and compares."""
    point = compared.base.decision
    named = systems(compared.scores(store), point)
    by_teacher = {name: systems(of.scores(store), point) for name, of in curve.items()}
    folders = [prepare(of_seed(compared.base, seed), TAUGHT_BY, store) for seed in compared.seeds]
    return [
        rows_table(folders),
        student_table(named, point),
        difference_table(named),
        curve_table(by_teacher, point),
    ]


def main() -> Iterable[Table]:
    """Trains, and compares the students."""
    with open_store() as store:
        return tables(COMPARED, BY_TEACHER, store)
