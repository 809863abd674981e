"""The tables of the study of distillation: rows, students, paired differences, and the curve over teachers.

Everything here compares decisions that were made before, with what the users of the held-out streams would have
answered. Steps of several seeds are pooled; intervals resample whole streams, and differences are paired by stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments.distill_report import (
    COLUMNS,
    TEACHER,
    Decisions,
    Truth,
    costs,
    expected_cost,
    gap_closed,
    references,
    show_mean,
)
from prism_jax.experiments.intervals import mean_over_seeds, show_interval
from prism_jax.labelling.teacher.simulated import TeacherQuality
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.streams import Stream

FAST, MARGIN = "fast only", "slow on margin"
PAIRS = (("curated", "all"), ("curated", "random"), ("random", "all"))
"""The differences of the comparison: the first arm minus the second."""

System = tuple[str, str]
"""An arm and a pass; the teacher has no pass."""


class Measured(NamedTuple):
    """Held-out steps, and what each system decides there."""

    truth: Truth
    systems: dict[System, Decisions]


class Taught(NamedTuple):
    """What the training rows of an arm are like."""

    rows: int
    wrong_need: float  # share of the need labels that are not what the user would have answered
    wrong_accept: float  # the same of the acceptance labels
    need: float  # share of the rows whose need label is 1
    accept: float  # share of the rows whose acceptance label is 1


def trained_on(arms: Mapping[str, Sequence[Stream]], users: Sequence[Stream]) -> dict[str, Taught]:
    """Compares the labels of each arm with what the users would have answered.

    The arms are judged training streams with one candidate per step; `users` are the same streams with the users'
    answers.
    """
    answers = {(s.id, step.event): (step.y_need, step.candidates[0].y_accept) for s in users for step in s.steps}
    facts = {}
    for arm, streams in arms.items():
        steps = [(stream.id, step) for stream in streams for step in stream.steps]
        labels = np.array([(step.y_need, step.candidates[0].y_accept) for _, step in steps], float)
        wrong = labels != np.array([answers[name, step.event] for name, step in steps], float)
        facts[arm] = Taught(len(steps), *wrong.mean(0).tolist(), *labels.mean(0).tolist())
    return facts


def rows_table(taught_by_seed: Sequence[Mapping[str, Taught]]) -> Table:
    """The training rows of each arm, averaged over seeds."""
    columns = (
        Column("rows", "Mean number of rows."),
        Column("wrong need labels %", "Share of the judges' need labels that differ from the user's answer."),
        Column("wrong accept labels %", "The same of acceptance."),
        Column("need %", "Share of the rows labelled as need."),
        Column("accept %", "Share of the rows labelled as accepted."),
    )
    rows = []
    for arm in taught_by_seed[0]:
        mean = np.mean([seed[arm] for seed in taught_by_seed], axis=0)
        rows.append(Row(arm, (f"{mean[0]:,.0f}", *(f"{100 * share:.1f}" for share in mean[1:]))))
    return Table(
        "What each student trains on",
        "",
        columns,
        (Section("", tuple(rows)),),
        f"Means of {len(taught_by_seed)} seeds.",
    )


def pool(seeds: Sequence[Measured]) -> Measured:
    """The steps of several seeds, one after another; streams of different seeds stay different streams."""
    truths = [seed.truth._replace(stream=np.char.add(f"{n}/", seed.truth.stream)) for n, seed in enumerate(seeds)]
    truth = Truth(*(np.concatenate(columns) for columns in zip(*truths, strict=True)))
    systems = {}
    for name, system in seeds[0].systems.items():
        offers = np.concatenate([seed.systems[name].offer for seed in seeds])
        thoughts = [seed.systems[name].slow for seed in seeds]
        slow = None if system.slow is None else np.concatenate([t for t in thoughts if t is not None])
        systems[name] = Decisions(offers, slow)
    return Measured(truth, systems)


_SHOWN = ("realised cost", "expected cost", "gap closed %", "slow %")
SYSTEMS = tuple(column for column in COLUMNS if column.label in _SHOWN)


def student_table(seeds: Sequence[Measured], point: OperatingPoint) -> Table:
    """Every student and the teacher, on the steps of all seeds."""
    pooled = pool(seeds)
    rows = [Row(_name(system), _cells(decided, pooled.truth, point)) for system, decided in pooled.systems.items()]
    constant_decisions = references(pooled.truth, point).items()
    constants = [Row(name, _cells(decided, pooled.truth, point)) for name, decided in constant_decisions]
    sections = (Section("", tuple(rows)), Section("for reference", tuple(constants)))
    title = "Students on curated rows, on all rows and on rows drawn at random"
    return Table(title, "", SYSTEMS, sections, _note(pooled.truth, len(seeds), point))


def _name(system: System) -> str:
    return ", ".join(part for part in system if part)


def _note(truth: Truth, seeds: int, point: OperatingPoint) -> str:
    return (
        f"{len(truth.need):,} steps of {len(set(truth.stream.tolist())):,} held-out streams, {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}; C_FA = {point.c_fa:g}, C_FN = {point.c_fn:g}. "
        "95 % intervals over streams."
    )


def _cells(system: Decisions, truth: Truth, point: OperatingPoint) -> tuple[str, ...]:
    own = expected_cost(system, truth, point)
    return (
        show_mean(costs(system, truth, point), truth),
        f"{own:.3f}",
        f"{100 * _gap(own, truth, point):.1f}",
        "" if system.slow is None else f"{100 * system.slow.mean():.1f}",
    )


def _gap(own: float, truth: Truth, point: OperatingPoint) -> float:
    return gap_closed(own, *(expected_cost(decided, truth, point) for decided in references(truth, point).values()))


def difference_table(seeds: Sequence[Measured], point: OperatingPoint) -> Table:
    """The students' differences in cost, in realised cost by stream and in expected cost by seed."""
    columns = (
        Column("realised cost", "Difference on the pooled steps; its interval is over streams, not trainings."),
        Column("expected cost by seed", "Mean over seeds of the difference, with its t interval."),
        Column("each seed", "The difference in expected cost of each seed.", text=True),
    )
    pooled, sections = pool(seeds), []
    for thinking in (FAST, MARGIN):
        rows = []
        for first, second in PAIRS:
            minuend, subtrahend = (pooled.systems[name, thinking] for name in (first, second))
            change = costs(minuend, pooled.truth, point) - costs(subtrahend, pooled.truth, point)
            of_seeds = np.array([_expected_change(seed, (first, second), thinking, point) for seed in seeds])
            cells = show_mean(change, pooled.truth, "+"), _over_seeds(of_seeds)
            rows.append(Row(f"{first} − {second}", (*cells, ", ".join(f"{value:+.3f}" for value in of_seeds))))
        sections.append(Section(thinking, tuple(rows)))
    note = (
        "Below 0, the first student decides better. 95 % intervals; the one by seed includes the spread of trainings."
    )
    return Table("What curation changes, paired", "", columns, tuple(sections), note)


def _expected_change(seed: Measured, pair: tuple[str, str], thinking: str, point: OperatingPoint) -> float:
    first, second = (expected_cost(seed.systems[name, thinking], seed.truth, point) for name in pair)
    return first - second


def _over_seeds(values: np.ndarray) -> str:
    """The mean with its t interval, which a single seed does not have."""
    if len(values) == 1:
        return f"{values[0]:+.3f}"
    return show_interval(mean_over_seeds(values), sign="+")


CURVE = (
    Column("teacher", "Mean expected cost of the gate on the teacher's own probabilities."),
    Column("teacher, calibrated", "The same at temperatures fitted on the judges' labels."),
    Column("student, fast only", "Mean expected cost of its student."),
    Column("student, slow on margin", "The same with the slow pass near the threshold."),
    Column("gap closed %", "By the student that is slow on margin."),
    Column(
        "minus the best teacher's student", "Realised cost, slow on margin, paired by stream, with a 95 % interval."
    ),
)


def curve_table(curve: Mapping[str, Measured], teachers: Mapping[str, TeacherQuality], point: OperatingPoint) -> Table:
    """The student's cost beside its teacher's, by the teacher's name, the best one first.

    The held-out steps are the same everywhere; `teachers` says how each teacher errs.
    """
    best = next(iter(curve.values()))
    student = best.systems["curated", MARGIN]
    rows = tuple(Row(in_words(teachers[name]), _point(measured, student, point)) for name, measured in curve.items())
    title = "What the teacher's quality costs its student"
    return Table(title, "teacher's errors", CURVE, (Section("", rows),), _note(best.truth, 1, point))


def in_words(quality: TeacherQuality) -> str:
    """How a teacher errs, as the name of a row."""
    return (
        f"blur {quality.blur:g}, bias {quality.bias:g}, {100 * quality.field_errors:g} % of fields, "
        f"{100 * quality.response_errors:g} % of responses"
    )


def _point(measured: Measured, best: Decisions, point: OperatingPoint) -> tuple[str, ...]:
    names = (("teacher", ""), (TEACHER, ""), ("curated", FAST), ("curated", MARGIN))
    expected = [expected_cost(measured.systems[name], measured.truth, point) for name in names]
    own = measured.systems["curated", MARGIN]
    change = costs(own, measured.truth, point) - costs(best, measured.truth, point)
    return (
        *(f"{value:.3f}" for value in expected),
        f"{100 * _gap(expected[-1], measured.truth, point):.1f}",
        "" if own is best else show_mean(change, measured.truth, "+"),
    )
