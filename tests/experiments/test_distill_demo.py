"""The pure parts of the distillation demo: the agent's input, the decisions that are compared, and the report."""

import json

import numpy as np
import pytest

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments import distill_report
from prism_jax.experiments.distill_demo import event_lines
from prism_jax.experiments.distill_report import TEACHER, Decisions, Truth, decided, report, teachers_decisions
from prism_jax.experiments.simulated_users import population
from prism_jax.streams.edit import map_candidates, map_steps, without_answers
from prism_jax.streams.simulator_config import SimulatorConfig

POINT = OperatingPoint(c_fa=1.0, c_fn=2.0)


@pytest.fixture(scope="module")
def users():
    config = SimulatorConfig(population="switches", min_events=8, max_events=10, responses=0, teacher=True)
    return population({"calibration": 20, "test": 20}, config)


def test_the_agent_reads_every_event_in_order_and_nothing_else(users):
    bare = [without_answers(stream) for stream in users["test"]]
    lines = [json.loads(line) for line in event_lines(bare).splitlines()]
    assert {key for line in lines for key in line} == {"stream", "time", "text", "domain", "candidates"}
    for stream in bare:
        own = [line for line in lines if line["stream"] == stream.id]
        assert [line["text"] for line in own] == [event.text for event in stream.events]
        assert [number for number, line in enumerate(own) if "candidates" in line] == [s.event for s in stream.steps]
    assert len({line["stream"] for line in lines[: len(bare)]}) == len(bare), "the streams run side by side"


def test_records_become_decisions_at_the_steps(users, tmp_path):
    streams = users["test"][:2]
    rows = [
        {"kind": "decision", "stream": stream.id, "event": n, "spoke": n % 2 == 0, "thought": n % 3 == 0}
        for stream in streams
        for n in range(len(stream.events))
    ]
    records = tmp_path / "records.jsonl"
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = decided(records, streams)
    events = np.array([step.event for stream in streams for step in stream.steps])
    np.testing.assert_array_equal(found.offer, events % 2 == 0)
    np.testing.assert_array_equal(found.slow, events % 3 == 0)
    records.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    with pytest.raises(ValueError, match="found no decision on event"):
        decided(records, streams)


def test_the_teachers_decisions_do_not_read_the_labels_of_held_out_streams(users):
    held_out, calibration = users["test"], users["calibration"]
    bare = [
        map_steps(
            map_candidates(stream, lambda one: type(one)(teacher_accept=one.teacher_accept)),
            lambda step: type(step)(event=step.event, candidates=step.candidates, teacher_need=step.teacher_need),
        )
        for stream in held_out
    ]
    found, again = (teachers_decisions(streams, calibration, POINT) for streams in (held_out, bare))
    for name in ("teacher", TEACHER):
        np.testing.assert_array_equal(found[name].offer, again[name].offer)
    need, accept = (
        np.array([value(step) for stream in held_out for step in stream.steps])
        for value in (lambda step: step.teacher_need, lambda step: step.candidates[0].teacher_accept)
    )
    np.testing.assert_array_equal(found["teacher"].offer, 1 - accept <= 2 * need * accept)
    with pytest.raises(ValueError, match="no probabilities of the teacher"):
        teachers_decisions([without_answers(stream) for stream in held_out], calibration, POINT)


def test_the_report_states_the_costs_of_the_decisions(users):
    truth = Truth.of(users["test"])
    systems = {
        "silent": Decisions(np.zeros(len(truth.need), bool)),
        **teachers_decisions(users["test"], users["calibration"], POINT),
    }
    table = report(truth, systems, POINT)
    rows = {
        row.name: dict(zip((c.label for c in table.columns), row.cells, strict=True))
        for s in table.sections
        for row in s.rows
    }
    missed = float(np.mean(2 * truth.need * truth.accept))
    assert rows["silent"]["realised cost"].startswith(f"{missed:.3f} [")
    assert rows["silent"] == rows["never"]
    always = float(np.mean(1 - truth.accept))
    assert rows["always"]["realised cost"].startswith(f"{always:.3f} [")
    assert rows["always"]["gap closed %"] == "0.0"
    bayes = rows["Bayes, on the true probabilities"]
    assert bayes["gap closed %"] == "100.0"
    assert all(float(bayes["expected cost"]) <= float(row["expected cost"]) for row in rows.values())
    assert rows[TEACHER]["minus the teacher's"] == ""
    assert all(row["slow %"] == "" for row in rows.values())
    assert table.columns == distill_report.COLUMNS
