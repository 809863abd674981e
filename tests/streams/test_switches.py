"""The population of switches: its truth and its fields can be worked out from the visible texts, event by event."""

import collections
import dataclasses

import numpy as np
import pytest
from scipy import stats
from simulated_steps import draw, patterns

from prism_jax.streams import simulator_text, switches
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.types import SLOW_FIELDS

CONFIG = SimulatorConfig(population="switches", min_events=14, max_events=18)


def read(stream, count=2):
    """Persona, newest kind, stuck and the chain of results at each step, derived from the texts alone.

    With two settings, results alternate. With three, the setting that differs from the others follows from the one
    before and the one that is switched: equal ones cancel, different ones give the third. The switched one comes first.
    """
    (persona,) = (name for name, texts in simulator_text.ARRIVALS.items() if stream.events[0].text in texts)
    settings = set(switches.SETTINGS[stream.domain][:count])
    apart, chain = None, []
    for event in stream.events[1:]:
        ((match, kind),) = (
            (m, kind) for p, kind in patterns(switches, stream.domain) if (m := p.fullmatch(event.text))
        )
        if kind == "switch":
            switched = match["setting"] if count == 3 else "breaks"
            if apart in (None, switched):
                apart = switched if apart is None else None
            else:
                (apart,) = settings - {apart, switched}
            chain.append(" ".join([switched] * (count == 3) + [apart or "mends"]))
        yield persona, kind, apart is not None, tuple(chain)


@pytest.mark.slow
def test_shape_of_the_population():
    streams = draw(2000, config=CONFIG)
    for names in ([s.domain for s in streams], [s.persona for s in streams], [len(s.events) for s in streams]):
        assert stats.chisquare(np.unique(names, return_counts=True)[1]).pvalue > 1e-3
    assert {len(s.events) for s in streams} == set(range(14, 19))
    for stream in streams[:300]:
        assert [step.event for step in stream.steps] == list(range(1, len(stream.events)))
    kinds = collections.Counter(kind for stream in streams for _, kind, _, _ in read(stream))
    expected = [share * kinds.total() for share in switches.NEXT.values()]
    assert stats.chisquare([kinds[kind] for kind in switches.NEXT], expected).pvalue > 1e-3


def test_where_the_gate_decides_otherwise_than_the_joint_probability():
    stuck = np.linspace(0, 1, 2001)

    def mixed(pair):
        return (1 - stuck) * pair[0] + stuck * pair[1]

    need, accept = switches.NEED["try"], switches.ACCEPT["newcomer", "try"]
    p_accept, joint = mixed(accept), mixed([n * a for n, a in zip(need, accept, strict=True)])
    product = mixed(need) * p_accept
    assert 0.06 < (joint - product).max() < 0.065
    differs = stuck[(1 - p_accept <= 2 * joint) != (1 - p_accept <= 2 * product)]
    assert (differs.min(), differs.max()) == pytest.approx((0.32, 0.36), abs=0.005)


def test_tables_are_complete():
    assert sum(switches.NEXT.values()) == pytest.approx(1, abs=1e-12)
    personas, kinds = set(simulator_text.ARRIVALS), set(switches.NEXT)
    assert set(switches.NEED) == kinds
    assert set(switches.ACCEPT) == {(persona, kind) for persona in personas for kind in kinds}
    domains = set(switches.PHRASES)
    assert domains == set(switches.SETTINGS) == set(simulator_text.OFFERS) == set(simulator_text.PURPOSES)
    assert all(set(phrases) == kinds for phrases in switches.PHRASES.values())
    assert all(len(set(names)) == 3 for names in switches.SETTINGS.values())


@pytest.mark.parametrize("count", [2, 3])
def test_the_truth_can_be_read_off_the_texts(count):
    for stream in draw(100, config=dataclasses.replace(CONFIG, switches=count)):
        for step, (persona, kind, stuck, _) in zip(stream.steps, read(stream, count), strict=True):
            p_need, p_accept = switches.NEED[kind][stuck], switches.ACCEPT[persona, kind][stuck]
            offer = step.candidates[0]
            assert (step.p_need_true, offer.p_accept_true) == (p_need, p_accept)
            assert offer.p_both_true == pytest.approx(p_need * p_accept, abs=1e-12)


@pytest.mark.parametrize("count", [2, 3])
def test_the_fields_are_functions_of_the_visible_texts(count):
    results = set()
    for stream in draw(100, config=dataclasses.replace(CONFIG, switches=count)):
        for step, (persona, kind, stuck, chain) in zip(stream.steps, read(stream, count), strict=True):
            fields = step.rationale
            assert tuple(fields) == tuple(SLOW_FIELDS)
            assert fields["if_silent"] == (", ".join(chain) if chain else "nothing breaks")
            welcome = kind == "switch" or (kind == "try" and stuck)
            assert fields["if_offered"] == ("is welcome" if welcome else "disturbs")
            assert fields["evidence"] == f"{kind}, settings {'disagree' if stuck else 'agree'}"
            assert fields["risk"] == persona
            # The last word of the first field says whether the user is stuck.
            assert stuck == (fields["if_silent"].split()[-1] != "mends" and bool(chain))
            results |= {words.split()[-1] for words in chain} if count == 2 else set(" ".join(chain).split())
    names = {name for names in switches.SETTINGS.values() for name in names}
    assert results == {"mends"} | (names if count == 3 else {"breaks"})
