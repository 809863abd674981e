"""Streams for the tests of packing, and an independent construction of their decisions' token ids."""

import itertools

import numpy as np
from full_pass import trunk
from hypothesis import strategies as st

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.prompting.supervised import SupervisedStep, supervised_step

odd = st.sampled_from(["<|im_end|>", "\n", "  x ", "ﬁ", "é", "日本", "yes", "Needed:", "🙂", "0"])
text = (odd | st.text(max_size=2)).map(lambda words: f"a{words}")
label = st.none() | st.sampled_from([0.0, 0.25, 1.0])


@st.composite
def candidates(draw):
    logged = draw(st.none() | st.booleans())
    return Candidate(
        text=draw(st.none() | text),
        y_accept=None if logged is False else draw(label),
        logged=logged,
        propensity=draw(st.none() | st.sampled_from([0.1, 0.5])),
        response=draw(st.none() | text),
    )


@st.composite
def streams(draw):
    """Streams with a step at some of their events, one to three candidates per step, and arbitrary texts."""
    gaps = draw(st.lists(st.sampled_from([0.0, 5.0, 100.0, 1e5]), min_size=1, max_size=3))
    events = tuple(Event(time=time, text=draw(text)) for time in np.cumsum(gaps).tolist())
    where = draw(st.sets(st.integers(0, len(events) - 1), min_size=1))
    steps = tuple(
        Step(event=i, candidates=tuple(draw(st.lists(candidates(), min_size=1, max_size=3))), y_need=draw(label))
        for i in sorted(where)
    )
    return Stream(id="s", events=events, steps=steps)


@st.composite
def supervised_streams(draw):
    """Streams of supervised steps, some of them slow, with arbitrary texts in the fields."""
    stream = draw(streams())
    rationale = st.fixed_dictionaries(dict.fromkeys(SLOW_FIELDS, text))
    slow = [draw(st.booleans()) for _ in stream.steps]
    steps = tuple(
        SupervisedStep(
            event=step.event, candidates=step.candidates, y_need=step.y_need, rationale=draw(rationale), slow=one
        )
        for step, one in zip(stream.steps, slow, strict=True)
    )
    return Stream(id="s", events=stream.events, steps=steps)


def make_bushy():
    """A stream of three steps with one to three candidates, one response, and a last event after all steps."""
    events = tuple(
        Event(time=90.0 * i, text=text) for i, text in enumerate(("Logs in.", "It crashes.", "Waits.", "Ok."))
    )
    steps = (
        Step(event=0),
        Step(event=1, candidates=(Candidate(text="A"), Candidate(text="B", response="Yes?"), Candidate())),
        Step(event=2, candidates=(Candidate(text="C"), Candidate(text="D"))),
    )
    return Stream(id="bushy", events=events, steps=steps)


def event_lengths(stream, template):
    befores = zip((None, *stream.events), stream.events, strict=False)
    return [len(template.event(event, before)) for before, event in befores]


def written_response(candidate, template):
    """The tokens after the accept slot, including the end of the turn; none without a response."""
    return [] if candidate.response is None else list(itertools.chain(*template.response(candidate.response)))


def head(step, template):
    """The tokens of a branch up to its need slot."""
    if not supervised_step(step).slow:
        return template.head()
    fields = [ids for field in template.slow(step.rationale) for ids in field]
    return [*template.opening(), *itertools.chain(*fields), *template.need()]


def sequence(stream, template):
    """Ids of one decision: up to the need slot, up to the accept slot, and all of them with the response if any."""
    (step,) = stream.steps
    need = [*trunk(template, stream.events[: step.event + 1]), *head(step, template)]
    accept = [*need, *template.leaf(step.candidates[0])]
    return need, accept, [*accept, *written_response(step.candidates[0], template)]
