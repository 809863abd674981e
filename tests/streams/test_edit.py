import dataclasses
import json

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import keep_candidates, map_candidates, map_steps, without_answers
from prism_jax.streams.jsonl import encode_stream
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.student.prompting.supervised import SupervisedStep, supervised_step

EVENTS = (Event(time=0.0, text="opens a file"), Event(time=1.0, text="types"))
TWO = Step(event=0, y_need=1.0, candidates=(Candidate(text="a"), Candidate(text="b")))
STEPS = (TWO, Step(event=1, candidates=(Candidate(text="c", y_accept=1.0),)))
STREAM = Stream(id="s", domain="coding", events=EVENTS, steps=STEPS)


def texts(stream):
    return [[candidate.text for candidate in step.candidates] for step in stream.steps]


def test_every_step_is_replaced_and_nothing_else():
    before = dataclasses.replace(STREAM)
    changed = map_steps(STREAM, lambda step: dataclasses.replace(step, y_need=0.5))
    assert [step.y_need for step in changed.steps] == [0.5, 0.5]
    assert dataclasses.replace(changed, steps=STREAM.steps) == STREAM == before


def test_every_candidate_is_replaced_once_and_in_order():
    seen = []

    def count(candidate):
        seen.append(candidate.text)
        return dataclasses.replace(candidate, text=f"{candidate.text}{len(seen)}")

    assert texts(map_candidates(STREAM, count)) == [["a1", "b2"], ["c3"]]
    assert seen == ["a", "b", "c"]
    assert map_candidates(STREAM, lambda candidate: candidate) == STREAM


def test_a_step_keeps_its_own_class():
    step = map_candidates(supervised_step(STREAM.steps[0]), lambda candidate: Candidate(text="z"))
    assert isinstance(step, SupervisedStep)
    assert step.candidates == (Candidate(text="z"), Candidate(text="z"))
    assert step.y_need == 1.0


def test_steps_without_candidates_left_are_dropped():
    assert keep_candidates(STREAM, lambda candidate: True) == STREAM
    assert texts(keep_candidates(STREAM, lambda candidate: candidate.text != "a")) == [["b"], ["c"]]
    left = keep_candidates(STREAM, lambda candidate: candidate.y_accept is not None)
    assert left == dataclasses.replace(STREAM, steps=STREAM.steps[1:])
    assert keep_candidates(STREAM, lambda candidate: False) is None


def test_nothing_of_the_answers_is_left():
    """Whatever fields the classes get, an unlabelled stream has only what a watching agent could see."""
    bare = without_answers(simulate(SimulatorConfig(teacher=True), 0))
    written = json.loads(encode_stream(bare))
    assert {key for step in written["steps"] for key in step} == {"event"}
    assert written.keys() == {"id", "events", "steps", "domain"}
    assert without_answers(STREAM) == map_steps(
        STREAM, lambda step: Step(event=step.event, candidates=tuple(Candidate(text=o.text) for o in step.candidates))
    )
