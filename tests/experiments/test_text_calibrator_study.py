"""The study of texts pairs answers with the right steps, and predicts without the labels that it is measured on."""

import dataclasses

import numpy as np
import pytest

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments.text_calibrator import cost_table, hold_out, match
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.streams.published.recorded import ModelAnswer, Recording

MODELS = ("a", "b", "c", "d")


def judged(number):
    """A judged stream whose offers say whether they are accepted; the third event's text occurs twice."""
    rng = np.random.default_rng(number)
    events = tuple(Event(time=float(i), text=f"s{number} event {i if i != 2 else 1}") for i in range(10))
    steps = tuple(
        Step(
            event=i,
            y_need=float(rng.random() < 0.5),
            candidates=tuple(
                Candidate(text=f"{word} s{number} {i}", y_accept=float(word == "good")) for word in ("bad", "good")
            ),
        )
        for i in range(10)
    )
    return Stream(id=f"s{number}", events=events, steps=steps)


def recorded(stream):
    """Every model's purpose tells the need, except that of `d`, which is silent."""
    answers = []
    for step in stream.steps:
        for model in MODELS:
            words = {"Purpose": "stuck" if step.y_need else "fluent", "Thoughts": None, "Response": None}
            offer = None if model == "d" else "Help."
            answers.append(ModelAnswer(model, step.event, {**words, "Proactive Task": offer}))
    return Recording(dataclasses.replace(stream, steps=()), tuple(answers))


STREAMS = [judged(number) for number in range(10)]
RECORDINGS = [recorded(stream) for stream in STREAMS]


def test_answers_are_paired_by_an_event_that_occurs_once_in_both_versions():
    other = dataclasses.replace(RECORDINGS[0].stream, events=RECORDINGS[0].stream.events[:-1])
    shorter = Recording(other, tuple(answer for answer in RECORDINGS[0].answers if answer.event < 9))
    unknown = Recording(dataclasses.replace(other, id="another"), shorter.answers)
    found = match(STREAMS, [shorter, unknown])
    expected = {(model, i) for model in MODELS for i in range(9) if i not in (1, 2)}
    assert {(row.model, row.step.event) for row in found} == expected
    assert all(row.example.label == row.step.y_need and row.example.stream == "s0" for row in found)
    assert {row.model for row in found if not row.spoke} == {"d"}


@pytest.mark.slow
def test_every_probability_is_held_out():
    """Turning all labels of one stream changes the predictions of all other streams, and none of its own."""
    before = hold_out(match(STREAMS, RECORDINGS), STREAMS)
    turned = [
        map_steps(
            STREAMS[0],
            lambda step: dataclasses.replace(
                step,
                y_need=1 - step.y_need,
                candidates=tuple(dataclasses.replace(c, y_accept=1 - c.y_accept) for c in step.candidates),
            ),
        ),
        *STREAMS[1:],
    ]
    after = hold_out(match(turned, RECORDINGS), turned)
    own = np.array([row.example.stream == "s0" for row in before.rows])
    np.testing.assert_array_equal(after.need[own], before.need[own])
    own_offers = np.array([offer.stream == "s0" for offer in before.offers])
    np.testing.assert_array_equal(after.accept[own_offers], before.accept[own_offers])
    shares_a_fold = np.array([row.example.stream in ("s0", "s5") for row in before.rows])
    assert (after.need[~shares_a_fold] != before.need[~shares_a_fold]).all()
    assert not np.isnan([*before.need, *before.need_base, *before.accept, *before.accept_base]).any()


@pytest.mark.slow
def test_texts_that_tell_the_labels_cost_nothing():
    found = hold_out(match(STREAMS, RECORDINGS), STREAMS)
    y = np.array([row.example.label for row in found.rows])
    assert found.need[y == 1].min() > found.need[y == 0].max()
    best, some = cost_table(found, OperatingPoint()).sections
    costs = {row.name: float(row.cells[0].split()[0]) for row in best.rows}
    assert costs["text calibrator"] == costs["always"] == 0  # every best offer is accepted
    need = np.mean(y)
    assert abs(costs["never"] - 2 * need) < 1e-3
    # The first offer is never accepted, but silence misses the best one.
    assert {row.name: float(row.cells[0].split()[0]) for row in some.rows}["never"] == costs["never"]
