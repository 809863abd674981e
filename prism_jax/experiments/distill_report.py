"""The demo's report: the student's decisions on held-out streams beside those of its teacher.

This is the only part of the demo that reads what the users would have answered (`answers.jsonl`). It compares decisions
that were made without it: the agent's records, and the gate on the teacher's probabilities. The teacher's temperatures
are fitted like the student's, on the calibration streams and the judges' labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Bool, Float64, Shaped

from prism_jax.decision import gate, metrics
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.intervals import show_interval
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runtime.files import parse_json, read_lines
from prism_jax.scores import Scores
from prism_jax.streams import Stream
from prism_jax.streams.stream_columns import offer_rows

RESAMPLES, SEED = 2000, 0

COLUMNS = (
    Column("realised cost", "Mean cost of the decisions under the users' answers, with a 95 % interval."),
    Column("minus the teacher's", "The difference to the calibrated teacher, paired by stream, with its interval."),
    Column("expected cost", "The expectation of the cost under the simulator's true probabilities."),
    Column("gap closed %", "Share of the expected-cost gap between the better constant and Bayes that is closed."),
    Column("gold F1", "F1 against need and acceptance together."),
    Column("offers %", "Share of the steps with an offer."),
    Column("slow %", "Share of the steps that the slow pass thought about."),
)
TEACHER = "teacher, calibrated"


class Truth(NamedTuple):
    """What held-out users would have answered to an offer at every step, and with which probabilities."""

    stream: Shaped[np.ndarray, "steps"]
    need: Float64[np.ndarray, "steps"]
    accept: Float64[np.ndarray, "steps"]
    p_accept: Float64[np.ndarray, "steps"]
    p_both: Float64[np.ndarray, "steps"]

    @classmethod
    def of(cls, streams: Sequence[Stream]) -> Truth:
        """Reads simulated streams on which every step has one candidate, which was offered."""
        columns = zip(
            *(
                (stream.id, step.y_need, offer.y_accept, offer.p_accept_true, offer.p_both_true)
                for stream in streams
                for step in stream.steps
                for offer in step.candidates[:1]
            ),
            strict=True,
        )
        names, *numbers = columns
        return cls(np.array(names, str), *(np.array(column, np.float64) for column in numbers))


class Decisions(NamedTuple):
    """Whether a system offered at each held-out step, and where it thought; None for a system that cannot."""

    offer: Bool[np.ndarray, "steps"]
    slow: Bool[np.ndarray, "steps"] | None = None


def read_records(path: epath.PathLike) -> Iterator[dict[str, Any]]:
    """Yields the decision records of a file."""
    for number, line in read_lines(path):
        record = parse_json(line, f"{path}:{number}")
        if record["kind"] == "decision":
            yield record


def decided(records: epath.PathLike, streams: Sequence[Stream]) -> Decisions:
    """The agent's decisions at the steps of some streams; it also decided on events that are no step.

    ValueError names the stream and the event of a step without a record.
    """
    by_step = {(record["stream"], record["event"]): record for record in read_records(records)}
    steps = [(stream.id, step.event) for stream in streams for step in stream.steps]
    for stream, event in steps:
        if (stream, event) not in by_step:
            raise ValueError(f"{records}: found no decision on event {event} of {stream!r}, expected one")
    offers, thoughts = ([by_step[step][key] for step in steps] for key in ("spoke", "thought"))
    return Decisions(np.array(offers, bool), np.array(thoughts, bool))


def taught(streams: Sequence[Stream], split: str, answers: Sequence[Stream] | None = None) -> Iterator[dict[str, Any]]:
    """Yields a teacher's probabilities as rows of a scores table, with whatever labels the streams have.

    `answers` are the same streams with other labels, to take those. ValueError names the stream and the event of a step
    without the teacher's probabilities.
    """
    for stream, labelled in zip(streams, answers or streams, strict=True):
        for step in stream.steps:
            if step.teacher_need is None or step.candidates[0].teacher_accept is None:
                raise ValueError(f"stream {stream.id!r}, event {step.event}: found no probabilities of the teacher")
        need = [step.teacher_need for step in stream.steps]
        accept = [offer.teacher_accept for step in stream.steps for offer in step.candidates]
        yield from offer_rows(labelled, need, accept, split=split, fold=0)


def teachers_decisions(
    held_out: Sequence[Stream], calibration: Sequence[Stream], point: OperatingPoint
) -> dict[str, Decisions]:
    """The gate on the teacher's probabilities: as the teacher gave them, and at its temperatures.

    The labels of the held-out streams are not read; those of the calibration streams are the judges'.
    """
    fits = calibrate(Scores.from_rows(taught(calibration, "calibration")))
    data = EvaluationData(Scores.from_rows(taught(held_out, "test")), fits, point, thought=None, has_truth=False)
    forms: dict[str, Form] = {"teacher": "raw", TEACHER: "calibrated"}
    return {name: Decisions(data.decide("dynamic", form).offer) for name, form in forms.items()}


def references(truth: Truth, point: OperatingPoint) -> dict[str, Decisions]:
    """Constant decisions, and those of an agent that knows the true probabilities."""
    count = len(truth.need)
    return {
        "never": Decisions(np.zeros(count, bool)),
        "always": Decisions(np.ones(count, bool)),
        "Bayes, on the true probabilities": Decisions(
            np.asarray(gate.intervene(truth.p_accept, truth.p_both, point.c_fa, point.c_fn))
        ),
    }


def report(truth: Truth, systems: Mapping[str, Decisions], point: OperatingPoint) -> Table:
    """One row per system by name, in their order; `TEACHER` must be among them."""
    reference_decisions = references(truth, point)
    rows = [
        _row(name, system, systems[TEACHER], reference_decisions, truth, point)
        for name, system in {**systems, **reference_decisions}.items()
    ]
    sections = (Section("", tuple(rows[: len(systems)])), Section("for reference", tuple(rows[len(systems) :])))
    streams = len(set(truth.stream.tolist()))
    note = (
        f"{len(truth.need):,} steps of {streams:,} held-out streams; C_FA = {point.c_fa:g}, C_FN = {point.c_fn:g}. "
        "95 % intervals over streams. Only this table has seen what these users would have answered."
    )
    return Table("The student beside its teacher, on held-out streams", "", COLUMNS, sections, note)


def _row(
    name: str,
    system: Decisions,
    teacher: Decisions,
    reference_decisions: Mapping[str, Decisions],
    truth: Truth,
    point: OperatingPoint,
) -> Row:
    own_costs = costs(system, truth, point)
    change = "" if system is teacher else show_mean(own_costs - costs(teacher, truth, point), truth, "+")
    expected = {
        name: expected_cost(decisions, truth, point) for name, decisions in {**reference_decisions, "": system}.items()
    }
    never, always, bayes, own = expected.values()
    rates = metrics.rates(metrics.confusion(system.offer, truth.need * truth.accept))
    return Row(
        name,
        (
            show_mean(own_costs, truth),
            change,
            f"{own:.3f}",
            f"{100 * gap_closed(own, never, always, bayes):.1f}",
            "" if np.isnan(rates.f1) else f"{float(rates.f1):.3f}",
            f"{100 * system.offer.mean():.1f}",
            "" if system.slow is None else f"{100 * system.slow.mean():.1f}",
        ),
    )


def gap_closed(own: float, never: float, always: float, bayes: float) -> float:
    """Share of the gap in expected cost between the better constant decision and Bayes that a system closes."""
    better = min(never, always)
    return (better - own) / (better - bayes)


def costs(system: Decisions, truth: Truth, point: OperatingPoint) -> Float64[np.ndarray, "steps"]:
    """The cost of each decision under the answer."""
    return metrics.step_costs(system.offer, truth.accept, truth.need * truth.accept, point.c_fa, point.c_fn)


def expected_cost(system: Decisions, truth: Truth, point: OperatingPoint) -> float:
    """The mean expected cost of the decisions under the true probabilities."""
    return float(metrics.expected_realised_cost(system.offer, truth.p_accept, truth.p_both, point.c_fa, point.c_fn))


def show_mean(values: Float64[np.ndarray, "steps"], truth: Truth, sign: str = "") -> str:
    """The mean over steps with its interval over streams."""
    return show_interval(mean_interval(values, truth.stream, resamples=RESAMPLES, seed=SEED), sign=sign)
