import cProfile
import dataclasses
import pickle

import numpy as np
import pytest
from offers import make_stream
from scipy import special

from prism_jax.agent.live import LiveConfig, LiveStates
from prism_jax.agent.probe_reader import ProbeReader
from prism_jax.agent.reader import Reader
from prism_jax.probe import states
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.ngrams import ngrams
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.window import WINDOW
from prism_jax.probe.words import ACCEPT_COLUMNS, describe
from prism_jax.streams import Candidate, Event, Step, Stream

STREAMS = [make_stream(20, steps=3), make_stream(21, steps=3)]


@pytest.fixture(scope="module")
def probe():
    return fit_probe([StreamInputs(describe(make_stream(n))) for n in range(4)], FitConfig(inner=2), StatesConfig())


def read_live(reader):
    """The log-odds of need and of acceptance of each stream."""
    found = {stream.id: ([], []) for stream in STREAMS}
    for number in range(3):
        items = [(one.id, one.events[number], one.steps[number].candidates) for one in STREAMS]
        for (name, _, _), reading in zip(items, reader.observe(items), strict=True):
            found[name][0].append(reading.z_need)
            found[name][1].extend(reading.z_accept)
    return found


def long_stream(count):
    """One to sixty offers at every event; some texts are longer than what is read of them; words come and go."""
    rng = np.random.default_rng(0)
    events, steps = [], []
    for index in range(count):
        words = " ".join(f"w{rng.integers(index, index + 9)}" for _ in range(5))
        text = f"The user opens {words}" + (f" {'x' * 3000} y{index} {'z' * 3000}" if index % 11 == 5 else "")
        offers = tuple(
            Candidate(text=f"Offer {number} {words[: 4 + number]} {'long ' * (1200 * (index % 13 == 3))}")
            for number in range(1 + index % 4 if index % 20 else 60)
        )
        events.append(Event(time=float(index), text=text))
        steps.append(Step(event=index, candidates=offers))
    return Stream(id="long", events=tuple(events), steps=tuple(steps))


def test_a_long_stream_is_read_live_as_whole_and_sees_its_window_only(probe):
    stream = long_stream(2 * WINDOW.events + 30)
    reader, z = ProbeReader(probe), ([], [])
    for event, step in zip(stream.events, stream.steps, strict=True):
        (reading,) = reader.observe([("long", event, step.candidates)])
        z[0].append(reading.z_need)
        z[1].extend(reading.z_accept)
    described = describe(stream)
    for own, whole in zip(z, probe.predict(StreamInputs(described)), strict=True):
        np.testing.assert_allclose(special.expit(own), whole, atol=1e-12)
    # What lies before the window is in no column but the number of events.
    sight, table = described.sights[-1], described.accept_columns(probe.acceptance.idf)
    assert 0 < len(stream.events) - sight.event <= WINDOW.events and sight.first - sight.earlier <= WINDOW.offers
    since = next(n for n, one in enumerate(described.sights) if one.first == sight.earlier)
    start = min(sight.event, since)
    tail = Stream(
        id="tail",
        events=stream.events[start:],
        steps=tuple(dataclasses.replace(step, event=step.event - start) for step in stream.steps[since:]),
    )
    last = describe(tail).accept_columns(probe.acceptance.idf)[-1]
    different = [name for name, a, b in zip(ACCEPT_COLUMNS, table[-1], last, strict=True) if not np.isclose(a, b)]
    assert different == ["events"]


def work_and_memory(reader, turns):
    """At each event the bytes of the stream's state, and, at every tenth, the number of calls of functions."""
    found = []
    for i, turn in enumerate(turns):
        calls = 0
        if i % 10 == 9:
            profile = cProfile.Profile()
            profile.runcall(reader.observe, [turn])
            calls = sum(entry.callcount for entry in profile.getstats())
        else:
            reader.observe([turn])
        found.append((calls, len(pickle.dumps(reader._streams[turn[0]]))))
    return np.array(found)


@pytest.mark.slow
def test_work_and_memory_per_event_do_not_grow_with_the_stream(probe):
    offer = (Candidate(text="Offer help"), Candidate(text="Suggest a break"))
    turns = [("a", Event(time=float(i), text=f"The user does thing {i}"), offer) for i in range(700)]
    found = work_and_memory(ProbeReader(probe), turns)
    assert np.all(found[-200:].max(0) <= 1.1 * found[150:350].max(0))


def test_long_texts_are_read_to_a_bound(probe):
    """Work and memory for texts of a million characters are those for texts of the window's size."""

    def turns(size):
        body = " ".join(f"word{i}" for i in range(size // 5))[: size - 9]
        return [("a", Event(time=float(i), text=f"{i:3} {body}"), (Candidate(text=body),)) for i in range(20)]

    million, bounded = (work_and_memory(ProbeReader(probe), turns(size)) for size in (1_000_000, 2 * WINDOW.text))
    assert np.all(million <= 1.05 * bounded + 100)
    assert len(ngrams("x" * 5000)) > 14_000 and ngrams("x" * 5000) is not ngrams("x" * 5000)  # not remembered


@pytest.mark.study
def test_a_hundred_thousand_events_of_one_stream(probe):
    """About a minute of processor time; memory stays where it was after a thousand events."""
    reader, offer = ProbeReader(probe), (Candidate(text="Offer help"),)
    size = {}
    for i in range(100_000):
        reader.observe([("a", Event(time=float(i), text=f"The user does thing {i}"), offer)])
        if i in (1_000, 99_999):
            size[i] = len(pickle.dumps(reader._streams["a"]))
    assert size[99_999] < 1.1 * size[1_000] < 10**6


def test_a_refused_event_changes_no_stream(probe):
    reader = ProbeReader(probe)
    offer = (Candidate(text="Offer help"),)
    reader.observe([("a", Event(time=5.0, text="The user waits"), offer), ("b", Event(time=5.0, text="x"), offer)])
    before = reader.history("a"), reader.history("b")
    late = ("b", Event(time=1.0, text="The user is late"), offer)
    with pytest.raises(ValueError, match=r"stream 'b': events\[1\].time: found 1.0"):
        reader.observe([("a", Event(time=6.0, text="The user goes"), offer), late])
    assert (reader.history("a"), reader.history("b")) == before
    for stream in ("b", "never read"):
        reader.forget(stream)
    (reading,) = reader.observe([late])
    assert reading.tokens == 0


@pytest.fixture(scope="module")
def frozen(model, template, draw_params):
    """A tiny language model, read after both of its blocks."""
    return states.Reader(model, draw_params(model), template, (1, 2), 4096)


@pytest.fixture(scope="module")
def on_states(frozen):
    """A probe on words and states, and the states of the test streams, read whole."""
    train = [make_stream(number) for number in range(4)]
    *read, first, second = frozen.read([*train, *STREAMS])
    seen = [StreamInputs(describe(one), own) for one, own in zip(train, read, strict=True)]
    return fit_probe(seen, FitConfig(inner=2), StatesConfig(components=4)), (first, second)


def test_live_states_are_those_of_the_whole_stream(frozen, on_states):
    probe, whole = on_states
    config = LiveConfig(context=700, memory=1 << 20, batches=(2,), longest=256)
    reader = ProbeReader(probe, LiveStates(frozen, config))
    assert isinstance(reader, Reader)
    found = read_live(reader)
    for stream, states_of_stream in zip(STREAMS, whole, strict=True):
        expected = probe.predict(StreamInputs(describe(stream), states_of_stream))
        for z, p in zip(found[stream.id], expected, strict=True):
            np.testing.assert_allclose(special.expit(z), p, atol=2e-5)


def test_a_probe_and_its_language_model_belong_together(probe, on_states):
    with pytest.raises(ValueError, match="found one on words and states without a language model"):
        ProbeReader(on_states[0])
