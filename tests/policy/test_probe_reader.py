import numpy as np
import pytest
from offers import make_stream
from scipy import special

from prism_jax.policy.live import LiveConfig
from prism_jax.policy.live_states import LiveStates
from prism_jax.policy.probe_reader import ProbeReader
from prism_jax.policy.reader import Reader
from prism_jax.probe import states
from prism_jax.probe.config import FitConfig, StatesConfig
from prism_jax.probe.fitting import Seen, fit_probe
from prism_jax.probe.words import describe
from prism_jax.streams import Candidate, Event

pytestmark = pytest.mark.usefixtures("compile_quickly")

STREAMS = [make_stream(20, steps=3), make_stream(21, steps=3)]


@pytest.fixture(scope="module")
def probe():
    return fit_probe([Seen(describe(make_stream(number))) for number in range(4)], FitConfig(inner=2), StatesConfig())


def read_live(reader):
    """The log-odds of need and of acceptance of each stream."""
    found = {stream.id: ([], []) for stream in STREAMS}
    for number in range(3):
        items = [(one.id, one.events[number], one.steps[number].candidates) for one in STREAMS]
        for (name, _, _), reading in zip(items, reader.observe(items), strict=True):
            found[name][0].append(reading.z_need)
            found[name][1].extend(reading.z_accept)
    return found


def test_live_signals_are_those_of_the_whole_stream(probe):
    """Two streams side by side, event by event, against one prediction of each."""
    reader = ProbeReader(probe)
    assert isinstance(reader, Reader)
    found = read_live(reader)
    for stream in STREAMS:
        for z, p in zip(found[stream.id], probe.predict(Seen(describe(stream))), strict=True):
            np.testing.assert_allclose(special.expit(z), p, atol=1e-12)


def test_a_refused_event_changes_no_stream(probe):
    reader = ProbeReader(probe)
    offer = (Candidate(text="Offer help"),)
    reader.observe([("a", Event(time=5.0, text="The user waits"), offer), ("b", Event(time=5.0, text="x"), offer)])
    before = reader.history("a"), reader.history("b")
    late = ("b", Event(time=1.0, text="The user is late"), offer)
    with pytest.raises(ValueError, match=r"stream 'b': events\[1\].time: found 1.0"):
        reader.observe([("a", Event(time=6.0, text="The user goes"), offer), late])
    assert (reader.history("a"), reader.history("b")) == before
    reader.forget("b")
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
    seen = [Seen(describe(one), own) for one, own in zip(train, read, strict=True)]
    return fit_probe(seen, FitConfig(inner=2), StatesConfig(components=4)), (first, second)


def test_live_states_are_those_of_the_whole_stream(frozen, on_states):
    probe, whole = on_states
    config = LiveConfig(context=700, memory=1 << 20, batches=(2,), longest=256)
    reader = ProbeReader(probe, LiveStates(frozen, config))
    assert isinstance(reader, Reader)
    found = read_live(reader)
    for stream, states_of_stream in zip(STREAMS, whole, strict=True):
        expected = probe.predict(Seen(describe(stream), states_of_stream))
        for z, p in zip(found[stream.id], expected, strict=True):
            np.testing.assert_allclose(special.expit(z), p, atol=2e-5)


def test_a_probe_and_its_language_model_belong_together(probe, on_states):
    with pytest.raises(ValueError, match="found one on words and states without a language model"):
        ProbeReader(on_states[0])
