import dataclasses

import numpy as np
import pytest
from offers import make_stream
from scipy import special

from prism_jax.policy.reader import Reader
from prism_jax.policy.words_reader import WordsReader
from prism_jax.probe.config import FitConfig, StatesConfig
from prism_jax.probe.fitting import Seen, fit_probe
from prism_jax.probe.words import describe
from prism_jax.streams import Candidate, Event

STREAMS = [make_stream(20, steps=3), make_stream(21, steps=3)]


@pytest.fixture(scope="module")
def probe():
    return fit_probe([Seen(describe(make_stream(number))) for number in range(4)], FitConfig(inner=2), StatesConfig())


def test_live_signals_are_those_of_the_whole_stream(probe):
    """Two streams side by side, event by event, against one prediction of each."""
    reader = WordsReader(probe)
    assert isinstance(reader, Reader)
    found = {stream.id: ([], []) for stream in STREAMS}
    for number in range(3):
        items = [(one.id, one.events[number], one.steps[number].candidates) for one in STREAMS]
        for (name, _, _), reading in zip(items, reader.observe(items), strict=True):
            found[name][0].append(reading.z_need)
            found[name][1].extend(reading.z_accept)
    for stream in STREAMS:
        for z, p in zip(found[stream.id], probe.predict(Seen(describe(stream))), strict=True):
            np.testing.assert_allclose(special.expit(z), p, atol=1e-12)


def test_a_refused_event_changes_no_stream(probe):
    reader = WordsReader(probe)
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


def test_a_probe_on_states_is_refused(probe):
    with_states = dataclasses.replace(probe, acceptance=dataclasses.replace(probe.acceptance, states=probe.words))
    with pytest.raises(ValueError, match="found one on words and states, expected one on words alone"):
        WordsReader(with_states)
