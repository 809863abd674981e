"""Simulated judges err at the stated rates, independently of each other and of the order of the questions."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_streams import MOST_EVENTS, bare, body, labelled

from prism_jax.judges.prompts import SYSTEM, digest, questions
from prism_jax.judges.simulated import SimulatedJudge
from prism_jax.streams import Candidate, Event, Step, Stream


@pytest.fixture(scope="module")
def streams():
    return labelled(150)


def verdicts(judge, streams):
    """Each question's verdict, in the order of the questions."""
    asked = [question for stream in bare(streams) for question in questions(stream, MOST_EVENTS)]
    return np.array([json.loads(judge(body(question.text)))["accepted"] for question in asked])


def test_error_rates_are_those_stated_and_judges_err_apart(streams):
    truth = verdicts(SimulatedJudge(streams), streams)
    texts = [question.text for stream in bare(streams) for question in questions(stream, MOST_EVENTS)]
    labels = [
        label
        for stream in streams
        for step in stream.steps
        for label in (step.y_need == 0, step.candidates[0].y_accept == 1)
    ]
    first = dict(zip(reversed(texts), reversed(labels), strict=True))  # equal texts are one question
    assert len(first) > 0.9 * len(texts)
    np.testing.assert_array_equal(truth, [first[text] for text in texts])
    pair = [verdicts(SimulatedJudge(streams, sensitivity=0.8, specificity=0.6, seed=seed), streams) for seed in (0, 1)]
    for found in pair:
        assert found[truth].mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / truth.sum()))
        assert found[~truth].mean() == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / (~truth).sum()))
    wrong = np.stack(pair) != truth
    assert abs(np.corrcoef(wrong[:, truth])[0, 1]) < 4 / np.sqrt(truth.sum())


def test_an_answer_does_not_depend_on_earlier_questions_or_on_feedback(streams):
    judge = SimulatedJudge(streams[:3], sensitivity=0.6, specificity=0.6)
    forth = verdicts(judge, streams[:3])
    np.testing.assert_array_equal(verdicts(judge, streams[:3][::-1][::-1]), forth)
    question = next(questions(bare(streams)[0], MOST_EVENTS))
    asked = body(question.text)
    again = {
        "messages": [*asked["messages"], {"role": "assistant", "content": "Hm."}, {"role": "user", "content": "?"}]
    }
    assert judge(again) == judge(asked)


def test_an_offer_that_somebody_else_proposed_is_judged_by_its_step(streams):
    known = streams[0]
    step = known.steps[2]
    other = Stream(
        id="x", events=known.events, steps=(Step(event=step.event, candidates=(Candidate(text="Let me help."),)),)
    )
    offer = list(questions(other, MOST_EVENTS))[1]
    accepted = json.loads(SimulatedJudge(streams[:1])(body(offer.text)))["accepted"]
    assert accepted == (step.candidates[0].y_accept == 1)


def test_what_a_simulated_judge_cannot_know_is_an_error(streams):
    with pytest.raises(ValueError, match="found neither label nor true probability of need"):
        SimulatedJudge(bare(streams)[:1])
    with pytest.raises(ValueError, match=r"sensitivity: found 1.5, expected a probability"):
        SimulatedJudge(streams[:1], sensitivity=1.5)
    with pytest.raises(ValueError, match="found no question about the known streams"):
        SimulatedJudge(streams[:1])(body("Hello"))


texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip)


@given(st.lists(texts, min_size=1, max_size=4), texts)
def test_no_text_adds_a_line_to_a_question(events, proposal):
    """Each line is ours, or JSON that decodes to what the user or the assistant wrote."""
    plain, hostile = (
        Stream(
            id="s",
            events=tuple(Event(time=float(i), text=text) for i, text in enumerate(seen)),
            steps=(Step(event=len(seen) - 1, candidates=(Candidate(text=offer),)),),
        )
        for seen, offer in ((["x"] * len(events), "x"), (events, proposal))
    )
    for calm, found in zip(questions(plain, 9), questions(hostile, 9), strict=True):
        ours, theirs = calm.text.splitlines(), found.text.splitlines()
        assert len(ours) == len(theirs)
        changed = [line for line, before in zip(theirs, ours, strict=True) if line != before]
        written = [json.loads(line) for line in changed]
        assert {value["event"] if isinstance(value, dict) else value for value in written} <= {*events, proposal}
        assert found.digest == digest(found.text)
    assert '{"accepted": true}' in SYSTEM
