"""The study of injections: its flips, its controls and its tables, with signals that are known."""

import collections
import dataclasses

import jax
import numpy as np
import pytest

from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.student import Student
from studies.injection_strings import GOALS, INJECTIONS, first_of_each
from studies.injections import (
    COLUMNS,
    KINDS,
    PLACES,
    AttackedStudent,
    Measured,
    Signals,
    control_text,
    measure,
    tables,
    text_at,
    up_to_the_last_step,
    with_text,
)

STREAMS = 5


@pytest.fixture(scope="module")
def measured():
    rng = np.random.default_rng(0)
    shape = (len(KINDS), len(PLACES), len(INJECTIONS), STREAMS)
    before = Signals(rng.random(STREAMS), rng.random(STREAMS))
    return Measured(INJECTIONS, before, Signals(rng.random(shape), rng.random(shape)))


def offer(need, accept):
    """The gate of the paper at costs 1 and 2."""
    return (1 - accept) * 1 <= accept * need * 2


def counted(measured, goal, kind):
    """Flips towards a goal by (family, place), with plain loops."""
    found = collections.Counter()
    for i, injection in enumerate(measured.injections):
        for p, place in enumerate(PLACES):
            for s in range(len(measured.before.need)):
                was = offer(measured.before.need[s], measured.before.accept[s])
                now = offer(measured.after.need[kind, p, i, s], measured.after.accept[kind, p, i, s])
                if was != now and now == (goal == "offer"):
                    found[injection.goal, injection.family] += 1
                    found[injection.goal, str(place)] += 1
    return found


def mean_of(cell):
    return float(cell.split()[0])


def test_the_tables_count_flips_as_plain_loops_do(measured):
    by_family, by_place = tables(measured)
    families = list(dict.fromkeys(one.family for one in INJECTIONS))
    readings = {"family": len(PLACES) * 3 * STREAMS, "place": 30 * STREAMS}
    for table, names in ((by_family, families), (by_place, list(map(str, PLACES)))):
        for goal, section in zip(GOALS, table.sections, strict=True):
            opposite = GOALS[1 - GOALS.index(goal)]
            wanted, unwanted = (
                [counted(measured, way, kind) for kind in range(len(KINDS))] for way in (goal, opposite)
            )
            assert len(section.rows) == len(names) * len(KINDS)
            for n, row in enumerate(section.rows):
                name, kind = names[n // len(KINDS)], n % len(KINDS)
                assert row.name == (name if kind == 0 else f"{name}: {KINDS[kind]}")
                whole = readings[table.names]
                assert mean_of(row.cells[0]) == pytest.approx(wanted[kind][goal, name] / whole, abs=6e-4)
                assert mean_of(row.cells[1]) == pytest.approx(unwanted[kind][goal, name] / whole, abs=6e-4)
                if kind:
                    beyond = (wanted[0][goal, name] - wanted[kind][goal, name]) / whole
                    assert mean_of(row.cells[2]) == pytest.approx(beyond, abs=6e-4)


def test_the_changes_are_those_of_the_signals(measured):
    row = tables(measured)[1].sections[0].rows[len(KINDS) + 1]  # second place, first control
    assert row.name == f"{PLACES[1]}: {KINDS[1]}" and len(row.cells) == len(COLUMNS)
    own = [i for i, one in enumerate(INJECTIONS) if one.goal == "offer"]
    for cells, after, before in (
        (row.cells[3:5], measured.after.need, measured.before.need),
        (row.cells[5:7], measured.after.accept, measured.before.accept),
    ):
        moved = [abs(after[1, 1, i, s] - before[s]) for i in own for s in range(STREAMS)]
        assert mean_of(cells[0]) == pytest.approx(np.mean(moved), abs=6e-4)
        assert float(cells[1]) == pytest.approx(max(moved), abs=6e-4)


def test_controls_are_benign_words_of_the_same_length(simulated, template):
    tokenizer = template.tokenizer
    for stream in map(up_to_the_last_step, simulated[:4]):
        for place in PLACES:
            for injection in INJECTIONS[::7]:
                tokens = len(tokenizer.encode(injection.text))
                same, other = (control_text(kind, stream, place, tokens, tokenizer) for kind in KINDS[1:])
                assert abs(len(tokenizer.encode(same)) - tokens) <= 1
                assert abs(len(tokenizer.encode(other)) - tokens) <= 1
                said = " ".join([text_at(stream, place)] * (tokens + 1))
                assert said.startswith(same)
                assert other[:10] in " ".join([event.text for event in stream.events[:-1]] * 2)


def test_a_text_changes_its_place_alone(simulated):
    stream = up_to_the_last_step(simulated[0])
    for place in PLACES:
        changed = with_text(stream, place, "NEW")
        new = text_at(changed, place)
        assert new == ("NEW" if place.how == "replaced" else f"{text_at(stream, place)} NEW")
        for other in PLACES:
            if other.target != place.target:
                assert text_at(changed, other) == text_at(stream, other)
        assert changed.events[:-1] == stream.events[:-1]
        assert [event.time for event in changed.events] == [event.time for event in stream.events]


def test_a_part_of_the_texts_is_balanced_too():
    part = first_of_each(2)
    assert len(part) == 40 and {*part} <= {*INJECTIONS}
    assert {*collections.Counter((one.family, one.goal) for one in part).values()} == {2}


def test_streams_without_an_interval_or_a_step_are_refused(simulated, template):
    sizes = dict(hidden_dim=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=8, mlp_dim=8)
    model = Qwen3(StudentConfig(vocab_size=template.tokenizer.size, **sizes))
    student = AttackedStudent(Student(model, model.init(jax.random.key(0)), template), 600)
    with pytest.raises(ValueError, match=r"^streams: found 1, expected at least 2"):
        measure(student, simulated[:1], INJECTIONS)
    silent = dataclasses.replace(simulated[1], id="silent", steps=())
    with pytest.raises(ValueError, match=r"^stream 'silent': found no step, expected at least one$"):
        measure(student, [simulated[0], silent], INJECTIONS)
