"""Live streams decide as evaluation does: the same signals, fields and responses for the same events."""

import concurrent.futures
import functools
import json
import resource
import subprocess
import sys

import jax
import numpy as np
import pytest
from fake_reader import exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.live import Live, LiveConfig
from prism_jax.agent.reader import Reader, ThinkRequest
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.streams import Candidate, Event
from prism_jax.student.prompting.template import Template, WritingConfig
from prism_jax.student.scoring.fast import score_streams
from prism_jax.student.scoring.responses import write_responses
from prism_jax.student.scoring.slow import read_slow, write_fields
from prism_jax.student.scoring.student import Student
from prism_jax.student.scoring.writing import Writer

SMALL = LiveConfig(context=400, memory=1 << 20, batches=(1,), longest=128)
WRITING = WritingConfig(field_tokens=4, response_tokens=4)


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(4))


@pytest.fixture(scope="module")
def streams(with_two_offers):
    return with_two_offers[:3]


def live(model, params, template, has_slow_pass=True, writes_responses=True, **settings):
    config = LiveConfig(**{"context": 600, "memory": 1 << 20, "batches": (4,), "longest": 128} | settings)
    does = {"has_slow_pass": has_slow_pass, "writes_responses": writes_responses}
    return Live(Student(model, params, template), **does, writing=WRITING, config=config)


def expected(model, params, template, streams, context):
    """What evaluation reads and writes at every candidate."""
    student = Student(model, params, template)
    writer = Writer(student, batch=2)
    rows = score_streams(student, streams, split="test", fold=0, context=context, batch=2)
    fast = {(row["stream"], row["step"], row["candidate"]): row for row in rows}
    thought = write_fields(writer, streams, context=context, limit=WRITING.field_tokens)
    slow = dict(read_slow(student, thought, context=context, batch=2))
    responses = write_responses(writer, streams, context=context, limit=WRITING.response_tokens)
    return fast, {stream.id: stream for stream in thought}, slow, responses


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def test_live_streams_decide_as_evaluation_does(model, params, template, streams):
    reader = live(model, params, template)
    assert isinstance(reader, Reader)
    fast, thought, slow, responses = expected(model, params, template, streams, 600)
    for place in range(5):
        turn = [stream for stream in streams if place < len(stream.events)]
        steps = {stream.id: {step.event: (n, step) for n, step in enumerate(stream.steps)} for stream in turn}
        offers = [steps[s.id][place][1].candidates if place in steps[s.id] else (Candidate(),) for s in turn]
        readings = reader.observe([(s.id, s.events[place], own) for s, own in zip(turn, offers, strict=True)])
        thoughts = reader.think([ThinkRequest(s.id, own) for s, own in zip(turn, offers, strict=True)])
        said = reader.respond([(s.id, own[-1], None) for s, own in zip(turn, offers, strict=True)])
        for stream, own, reading, thinks, says in zip(turn, offers, readings, thoughts, said, strict=True):
            if place not in steps[stream.id]:
                continue
            number, _ = steps[stream.id][place]
            assert thinks.fields == thought[stream.id].steps[number].rationale
            assert json.loads(says.text) == json.loads(responses[stream.id, number, len(own) - 1])
            for index in range(len(own)):
                row, signals = fast[stream.id, number, index], slow[stream.id, number, index]
                np.testing.assert_allclose(sigmoid(reading.z_need), row["p_need_fast"], atol=2e-5)
                np.testing.assert_allclose(sigmoid(reading.z_accept[index]), row["p_accept_fast"], atol=2e-5)
                np.testing.assert_allclose(sigmoid(thinks.z_need), signals.p_need, atol=2e-5)
                np.testing.assert_allclose(sigmoid(thinks.z_accept[index]), signals.p_accept, atol=2e-5)
                assert thinks.tokens == signals.tokens


def test_a_response_after_thinking_follows_the_fields(model, params, template, streams):
    """The fields are part of the branch: other fields lead to another response somewhere."""
    reader, offer, differs = live(model, params, template), Candidate(text="Tea?"), False
    for stream in streams:
        reader.observe([(stream.id, stream.events[0], (offer,))])
        [thought] = reader.think([ThinkRequest(stream.id, (offer,))])
        [fast], [slow] = (reader.respond([(stream.id, offer, fields)]) for fields in (None, thought.fields))
        differs |= fast.text != slow.text
        assert [*json.loads(slow.text)] == ["Purpose", "Thoughts", "Proactive Task", "Response"]
    assert differs


def test_a_forgotten_stream_begins_again(model, params, template):
    reader, event = live(model, params, template), Event(time=0.0, text="Opens the file.")
    [first] = reader.observe([("a", event, (Candidate(),))])
    history = reader.history("a")
    [second] = reader.observe([("a", event, (Candidate(),))])
    assert second.z_need != first.z_need and reader.history("a") != history
    reader.forget("a")
    [again] = reader.observe([("a", event, (Candidate(),))])
    assert again == first and reader.history("a") == history
    reader.forget("a")
    for name in ("a", "b"):  # neither of which has an event before this one
        reader.observe([(name, Event(time=7200.0, text="Opens the file."), (Candidate(),))])
    assert reader.history("a") == reader.history("b")


def test_the_time_since_the_event_before_is_read(model, params, template):
    """A stream's own last event counts, whatever other streams do in between."""
    reader, other = live(model, params, template), Event(time=9e5, text="Starts.")
    for name, later in (("soon", 10.0), ("late", 7200.0)):
        reader.observe([(name, Event(time=0.0, text="Starts."), (Candidate(),))])
        reader.observe([(f"{name} other", other, (Candidate(),))])
        reader.observe([(name, Event(time=later, text="Stops."), (Candidate(),))])
    assert reader.history("soon") != reader.history("late")


def test_an_event_that_does_not_fit_changes_nothing(model, params, template):
    reader, offers = live(model, params, template), (Candidate(),)
    reader.observe([("a", Event(time=0.0, text="Starts."), offers)])
    before = reader.history("a")
    long = Event(time=1.0, text="word " * 600)
    with pytest.raises(ValueError, match=r"stream 'a': found an event of .* tokens, expected at most"):
        reader.observe([("b", Event(time=0.0, text="Starts."), offers), ("a", long, offers)])
    assert reader.history("a") == before
    with pytest.raises(ValueError, match="stream: found 'b'"):
        reader.history("b")


def test_texts_that_are_too_long_are_not_held_together(model, params, template, monkeypatch):
    """Of a batch of them the first is refused before the next is tokenised, and the message says what is too long."""
    tokenised, event = [], Template.event

    def counting(self, *given):
        tokenised.append(given)
        return event(self, *given)

    monkeypatch.setattr(Template, "event", counting)
    reader, long = live(model, params, template), "word " * 600
    for text, offers, most in ((long, (Candidate(),), "[1-9][0-9]*"), ("Starts.", (Candidate(text=long),), "0")):
        tokenised.clear()
        items = [(stream, Event(time=0.0, text=text), offers) for stream in "abc"]
        with pytest.raises(ValueError, match=rf"stream 'a': found an event of \d+ tokens, expected at most {most}: "):
            reader.observe(items)
        assert len(tokenised) == 1


@pytest.mark.slow
def test_a_warm_reader_compiles_nothing(model, params, template, streams, all_compilations):
    reader = live(model, params, template, context=250, longest=64)
    reader.compile_all()
    assert reader.programs == 4 * 2  # one number of rows, one of pages, two of tokens
    before = len(all_compilations)
    for stream in streams:
        for event in stream.events[:3]:
            reader.observe([(stream.id, event, (Candidate(), Candidate(text="Tea?")))])
            reader.think([ThinkRequest(stream.id, (Candidate(),))])
            reader.respond([(stream.id, Candidate(text="Tea?"), None)])
    assert len(all_compilations) == before


@pytest.mark.slow
def test_a_reader_that_writes_nothing_has_fewer_programs_and_the_same_slots(model, params, template, streams):
    settings = {"context": 250, "longest": 64}
    both = [live(model, params, template, writes, writes, **settings) for writes in (False, True)]
    for reader in both:
        reader.compile_all()
    assert 0 < both[0].programs < both[1].programs
    for event in streams[0].events[:3]:
        z = [reader.observe([("a", event, (Candidate(text="Tea?"),))])[0] for reader in both]
        np.testing.assert_allclose((z[0].z_need, *z[0].z_accept), (z[1].z_need, *z[1].z_accept), atol=1e-5)


@pytest.mark.slow
def test_a_start_loads_neither_the_kernels_of_a_gpu_nor_special_functions():
    """Each takes a tenth of a second of the two until a first decision."""
    code = "import prism_jax.agent.serving, prism_jax.agent.live, prism_jax.student.weights, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "flax.nnx" in loaded and not {"jax.experimental.pallas", "scipy.special"} & set(loaded)


def test_a_context_without_room_to_write_is_refused(model, params, template):
    with pytest.raises(ValueError, match="context: found 40, expected more than the"):
        live(model, params, template, context=40)


def test_threads_share_an_agent_and_its_people(model, params, template, tmp_path):
    """Four threads decide on streams of their own, and find what one thread finds."""

    def decide(deciding, stream):
        found = []
        for i in range(6):
            event = Event(time=float(i), text=f"Opens file {i} of {stream}")
            decision = deciding.observe(stream, event, costs={"policy": "always"}, person=stream)
            found.append((decision.fast, decision.history))
            deciding.outcome(stream, decision.offer, "accepted", time=float(i))
        return found

    found, streams = [], [f"s{i}" for i in range(4)]
    for run in (map, None):
        reader = live(model, params, template, has_slow_pass=False, writes_responses=False)
        with store_of_one(tmp_path / f"state{len(found)}") as store:
            deciding = KeptAgent(reader, exported(slow=False), store)
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                found.append(list((run or threads.map)(functools.partial(decide, deciding), streams)))
            assert len(list(store.partition(0).people)) == 4
    assert found[0] == found[1]


@pytest.mark.study
def test_a_hundred_thousand_events_of_one_stream(model, params, template):
    """About three minutes of processor time; the agent's memory stays where it was after ten thousand events."""
    reader = Live(Student(model, params, template), has_slow_pass=False, writes_responses=False, config=SMALL)
    deciding, peak = Agent(reader, exported(slow=False)), {}
    for i in range(100_000):
        deciding.observe("s", Event(time=float(i), text=f"Opens file {i}"))
        if i in (9_999, 99_999):
            peak[i] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak[99_999] - peak[9_999] < 20 * 2**10  # KiB
