"""The simulated teacher."""

import dataclasses
import json

import numpy as np
import pytest

from prism_jax.labelling.teacher.labelling import Fast, Slow, answer_to
from prism_jax.labelling.teacher.prompts import PromptSettings, instructions, question
from prism_jax.labelling.teacher.simulated import AgentQuality, SimulatedAgent, SimulatedTeacher, TeacherQuality
from prism_jax.streams import RESPONSE_KEYS, Candidate
from prism_jax.streams.edit import map_steps
from prism_jax.streams.simulator import SimulatorConfig, names, simulate, subject
from prism_jax.streams.types import SLOW_FIELDS

GIVEN = PromptSettings(offers="given")
STREAMS = [simulate(SimulatorConfig(), index) for index in range(60)]


def asked(teacher, prompt, which):
    """(step, validated answer) for every step."""
    found = []
    for stream in STREAMS:
        for step in stream.steps:
            content = question(stream.events[: step.event + 1], step.candidates, prompt)
            messages = [{"content": instructions(which, prompt)}, {"content": content}]
            listed = None if prompt.offers == "own" else len(step.candidates)
            kind = answer_to({"fast": Fast, "slow": Slow}[which], listed)
            text = teacher({"model": "teacher", "messages": messages})
            assert text == teacher({"model": "teacher", "messages": messages}), "the same question, the same answer"
            found.append((step, kind.model_validate_json(text)))
    return found


def offers_of(which, **quality):
    """(step, what it is about, offer, answer) of a teacher that proposes, for every step."""
    answers = asked(teacher(**quality), PromptSettings(), which)
    topics = [subject(stream, step.event) for stream in STREAMS for step in stream.steps]
    for (step, answer), topic in zip(answers, topics, strict=True):
        yield step, topic, answer.response.task if which == "slow" else answer.offer, answer


def teacher(**quality):
    return SimulatedTeacher(STREAMS, PromptSettings(), TeacherQuality(**quality))


def log_odds(p):
    return np.log(p) - np.log1p(-np.asarray(p))


@pytest.mark.parametrize("which", ["fast", "slow"])
def test_a_perfect_teacher_tells_the_truth(which):
    perfect = teacher(blur=0.0, field_errors=0.0, response_errors=0.0)
    for step, answer in asked(perfect, GIVEN, which):
        assert answer.p_need == pytest.approx(step.p_need_true, abs=6e-5)
        assert answer.p_accept == pytest.approx([step.candidates[0].p_accept_true], abs=6e-5)
        if which == "slow":
            assert answer.fields() == step.rationale
            assert (answer.response is not None) == (answer.p_accept[0] >= 0.5)


def test_its_errors_are_as_large_as_stated():
    found = asked(teacher(blur=0.5, bias=0.3, field_errors=0.2), GIVEN, "slow")
    errors = np.array([log_odds(answer.p_need) - log_odds(step.p_need_true) for step, answer in found])
    spread = 4 * 0.5 / np.sqrt(len(errors))
    assert errors.mean() == pytest.approx(0.3, abs=spread) and errors.std() == pytest.approx(0.5, abs=spread)
    wrong = np.mean([answer.fields()[name] != step.rationale[name] for step, answer in found for name in SLOW_FIELDS])
    assert 0.05 < wrong <= 0.25, "a text from another step may be the same"


def test_teachers_with_other_seeds_err_independently():
    one, other = (
        np.array([log_odds(a.p_accept[0]) - log_odds(s.candidates[0].p_accept_true) for s, a in found])
        for found in (asked(teacher(seed=seed), GIVEN, "fast") for seed in (0, 1))
    )
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))


@pytest.mark.parametrize("which", ["fast", "slow"])
def test_it_proposes_what_the_step_is_about_and_says_apart_from_that_whether_it_would(which):
    perfect = {"blur": 0.0, "field_errors": 0.0, "response_errors": 0.0, "threshold": 0.6}
    for step, topic, offer, answer in offers_of(which, **perfect):
        assert names(offer, topic)
        assert answer.p_accept == pytest.approx(step.candidates[0].p_accept_true, abs=6e-5)
        if which == "slow":
            assert answer.speak == (answer.p_accept >= 0.6)


def test_where_it_errs_it_mostly_proposes_something_else():
    wrong = [not names(offer, topic) for _, topic, offer, _ in offers_of("slow", response_errors=0.3)]
    assert 0.2 < np.mean(wrong) <= 0.3 + 4 * np.sqrt(0.21 / len(wrong)), "another step may be about the same"


def test_it_knows_a_stream_that_has_just_begun():
    stream = STREAMS[0]
    for prompt, listed in ((PromptSettings(), None), (GIVEN, 1)):
        content = question(stream.events[:1], (Candidate(),), prompt)
        body = {"messages": [{"content": instructions("slow", prompt)}, {"content": content}]}
        answer = answer_to(Slow, listed).model_validate_json(teacher(blur=0.0)(body))
        assert answer.p_need < 0.1 and np.max(answer.p_accept) < 0.1


def test_unknown_truth_and_questions_are_refused():
    blind = map_steps(STREAMS[0], lambda step: dataclasses.replace(step, p_need_true=None))
    with pytest.raises(ValueError, match="stream 'sim-0-0', event 1: found no truth"):
        SimulatedTeacher([blind], PromptSettings(), TeacherQuality())
    with pytest.raises(KeyError):
        teacher()({"messages": [{"content": "x"}, {"content": "y"}]})


def agent_answers(agent, step_form="Now: [] {}"):
    """(step or None, answer) at every event, in a conversation whose newest turn has instructions."""
    found = []
    for stream in STREAMS[:30]:
        steps = {step.event: step for step in stream.steps}
        messages = [{"role": "system", "content": "x"}]
        for number, event in enumerate(stream.events):
            shown = json.dumps({"Time": str(event.time), "Event": event.text})
            asked = [*messages, {"role": "user", "content": step_form.format(shown)}]
            text = agent({"messages": asked})
            assert text == agent({"messages": [*messages, {"role": "user", "content": shown}]})
            messages += [{"role": "user", "content": shown}, {"role": "assistant", "content": text}]
            found.append((steps.get(number), json.loads(text)))
    return found


def test_an_agent_speaks_where_acceptance_is_likely_enough():
    for step, answer in agent_answers(SimulatedAgent(STREAMS, AgentQuality(errors=0.0, eagerness=0.3))):
        assert list(answer) == list(RESPONSE_KEYS)
        likely = step is not None and max(offer.p_accept_true for offer in step.candidates) >= 0.7
        assert (answer["Proactive Task"] is not None) == likely


def test_an_agent_errs_as_often_as_stated():
    right, wrong = (
        [answer for _, answer in agent_answers(SimulatedAgent(STREAMS, AgentQuality(errors=errors, eagerness=1.0)))]
        for errors in (0.0, 0.3)
    )
    share = np.mean([one != other for one, other in zip(right, wrong, strict=True)])
    assert 0.2 < share < 0.4
    with pytest.raises(ValueError, match="eagerness: found 2"):
        AgentQuality(eagerness=2)
