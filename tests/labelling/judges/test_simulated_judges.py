"""Simulated judges err at the stated rates, independently of each other and of the order of the questions."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_streams import MOST_EVENTS, bare, body, labelled

from prism_jax.labelling.judges.prompts import SYSTEM, digest, questions
from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.streams import Candidate, Event, Step, Stream, simulator_text
from prism_jax.streams.published.prompts import JudgePrompt
from prism_jax.streams.simulator import SimulatorConfig, simulate, subject


@pytest.fixture(scope="module")
def streams():
    return labelled(150)


@pytest.fixture
def forms():
    """The published form of a question, with made-up headings."""
    return JudgePrompt("official x", "s", {"Seen": None, "Task": None, "Do": "Decide."}, ("Seen", "Task"))


def said_of(judge, form, stream, event, offer, *, constant=False, most=MOST_EVENTS):
    """Whether a judge accepts an offer in words (None is silence) at an event, by the form of the question."""
    candidate = Candidate() if constant else Candidate(proposal=offer)
    asked = dataclasses.replace(stream, steps=(Step(event=event, candidates=(candidate,)),))
    silence, ours = (json.loads(judge(body(question.text)))["accepted"] for question in questions(asked, most))
    if constant:
        return {"ours": ours}
    seen = [{"time": str(shown.time), "event": shown.text} for shown in stream.events[: event + 1]]
    theirs = json.loads(judge(body(form.user(seen, offer))))
    assert list(theirs) == ["thought", "judgement"] and theirs["thought"]
    return {
        "ours": silence if offer is None else ours,
        "official": {"accepted": True, "rejected": False}[theirs["judgement"]],
    }


def verdicts(judge, streams):
    """Each question's verdict, in the order of the questions."""
    asked = [question for stream in bare(streams) for question in questions(stream, MOST_EVENTS)]
    return np.array([json.loads(judge(body(question.text)))["accepted"] for question in asked])


def test_error_rates_are_those_stated_and_judges_err_apart(streams):
    truth = verdicts(SimulatedJudge(streams), streams)
    texts = [question.text for stream in bare(streams) for question in questions(stream, MOST_EVENTS)]
    steps = [step for stream in streams for step in stream.steps]
    labels = [label for step in steps for label in (step.y_need == 0, step.candidates[0].y_accept == 1)]
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
    again = {"messages": [*asked["messages"], {"role": "assistant", "content": "Hm"}, {"role": "user", "content": "?"}]}
    assert judge(again) == judge(asked)


def test_an_offer_in_words_is_judged_by_its_step_if_it_names_what_the_step_is_about(streams, forms):
    judge = SimulatedJudge(streams)
    for stream in streams[:20]:
        for number, step in enumerate(stream.steps):
            about = subject(stream, step.event)
            wanted = said_of(judge, forms, stream, step.event, None, constant=True)["ours"]  # of the first such user
            for offer in (f"Sort out {about}.", f"please look at {about.upper()}, will you"):
                assert set(said_of(judge, forms, stream, step.event, offer).values()) == {wanted}, (number, offer)


def test_garbage_is_rejected_in_both_forms(streams, forms):
    judge = SimulatedJudge(streams)
    for stream in streams[:20]:
        for step in stream.steps:
            about = subject(stream, step.event)
            others = [item for item in simulator_text.ITEMS[stream.domain] if item != about]
            everything = ", ".join([about, *others])
            for offer in ("asdf", "I can help.", ".", f"Sort out {others[0]}", everything, f"{about}x"):
                assert set(said_of(judge, forms, stream, step.event, offer).values()) == {False}, offer


def test_silence_and_proposals_have_the_same_truth_in_both_forms_and_before_the_first_step_nothing_is_wanted(forms):
    streams = [simulate(SimulatorConfig(population="switches", seed=3), index, "always") for index in range(30)]
    judge = SimulatedJudge(streams, most_events=3)  # ours shows the last three events, theirs all
    needed = 0
    for stream in streams:
        for step in stream.steps:
            found = said_of(judge, forms, stream, step.event, None, most=3)
            assert len(set(found.values())) == 1
            needed += not found["official"]
            found = said_of(judge, forms, stream, step.event, f"Mend {subject(stream, step.event)}", most=3)
            assert len(set(found.values())) == 1
        assert set(said_of(judge, forms, stream, 0, None, most=3).values()) == {True}
        assert set(said_of(judge, forms, stream, 0, f"Mend {subject(stream, 0)}", most=3).values()) == {False}
    assert 0.3 < needed / sum(len(stream.steps) for stream in streams) < 0.9


def test_judges_err_at_the_stated_rates_about_proposals_in_the_published_form(streams, forms):
    judges = SimulatedJudge(streams), SimulatedJudge(streams, sensitivity=0.8, specificity=0.6, seed=7)
    places = [(stream, step.event) for stream in streams for step in stream.steps]
    asked = [(*place, text) for place in places for text in (None, f"Sort out {subject(*place)}")]
    truth, found = (np.array([said_of(judge, forms, *one)["official"] for one in asked]) for judge in judges)
    assert found[truth].mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / truth.sum()))
    assert found[~truth].mean() == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / (~truth).sum()))


def test_proposals_that_the_known_streams_hold_are_judged_by_their_labels():
    offers = (Candidate(text="Mend it", y_accept=0.0), Candidate(text="Run it", y_accept=1.0))
    step = Step(event=0, candidates=offers, y_need=1.0)
    known = Stream(id="s", domain="law", events=(Event(time=0.0, text="Types."),), steps=(step,))
    judge, asked = SimulatedJudge([known]), [question.text for question in questions(known, MOST_EVENTS)]
    assert [json.loads(judge(body(text)))["accepted"] for text in asked] == [False, False, True]
    other = dataclasses.replace(known, steps=(Step(event=0, candidates=(Candidate(text="Types."),)),))
    *_, text = questions(other, MOST_EVENTS)
    assert not json.loads(judge(body(text.text)))["accepted"], "nobody knows what another offer has to be about"


def test_what_a_simulated_judge_cannot_know_is_an_error(streams):
    with pytest.raises(ValueError, match="found neither label nor true probability of need"):
        SimulatedJudge(bare(streams)[:1])
    with pytest.raises(ValueError, match=r"sensitivity: found 1.5, expected a probability"):
        SimulatedJudge(streams[:1], sensitivity=1.5)
    with pytest.raises(ValueError, match="found no question about the known streams"):
        SimulatedJudge(streams[:1])(body("Hello"))
    for content in ('{"a": [{"time": "1", "event": "x"}], "b": 3}', '{"a": [1], "b": null}', '{"a": []}', "[1, 2]"):
        with pytest.raises(ValueError, match="found no question about the known streams"):
            SimulatedJudge(streams[:1])(body(content))


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
