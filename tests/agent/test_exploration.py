"""Exploration: recorded propensities are the frequencies, the loss of a flip is bounded, and every draw repeats."""

import functools

import numpy as np
import pytest
from fake_reader import FakeReader, exported
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from prism_jax.agent.agent import Agent
from prism_jax.agent.gating import draw, flip_loss, propensity
from prism_jax.agent.settings import AgentSettings, Exploration, Terms
from prism_jax.agent.steps import Observation
from prism_jax.decision import metrics
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams import Event

PROBABILITY = st.floats(0.0, 1.0)
COST = st.floats(1e-3, 1e3)


@functools.cache
def decisions(exploration, count=4000, streams=40):
    """Decisions of many streams whose texts, and therefore signals, repeat: only the draws differ."""
    terms = Terms(OperatingPoint(margin=0.0), exploration=exploration)
    deciding = Agent(FakeReader(), exported(), AgentSettings(terms))
    events = (Event(time=float(i), text=f"{i}") for i in range(count))
    return deciding.observe_many([Observation(f"s{i % streams}", event) for i, event in enumerate(events)])


def loss_of(decision):
    offer = (1 - decision.p_accept) * decision.terms.point.c_fa
    return abs(offer - decision.p_accept * decision.p_need * decision.terms.point.c_fn)


def test_off_by_default_and_then_the_propensity_is_the_decision():
    found = decisions(None)
    assert {(d.spoke, d.propensity, d.explored) for d in found} == {(True, 1.0, False), (False, 0.0, False)}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.5])
def test_frequencies_match_the_recorded_propensities(epsilon):
    found = decisions(Exploration(epsilon, loss=0.5))
    levels = {d.propensity for d in found}
    assert levels == {0.0, epsilon, 1 - epsilon, 1.0}
    for level in levels - {0.0, 1.0}:
        offers = [d.spoke for d in found if d.propensity == level]
        assert len(offers) > 200
        assert binomtest(sum(offers), len(offers), level).pvalue > 1e-3
    assert all(d.spoke == bool(d.propensity) for d in found if d.propensity in (0.0, 1.0))


@pytest.mark.parametrize("loss", [0.02, 0.2, 1.0])
def test_only_decisions_whose_flip_costs_little_are_left_to_chance(loss):
    plain, found = decisions(None), decisions(Exploration(0.4, loss))
    assert [d.p_accept for d in plain] == [d.p_accept for d in found]
    for before, after in zip(plain, found, strict=True):
        assert (0 < after.propensity < 1) == (loss_of(after) <= loss)
        assert after.explored == (before.spoke != after.spoke)
        assert after.reason.endswith("by chance, propensity 0.4") == (after.explored and after.spoke)
    flips = [loss_of(d) for d in found if d.explored]
    assert flips and max(flips) <= loss


def test_the_expected_cost_rises_by_at_most_epsilon_times_the_bound():
    """Realised costs of the same labels, drawn from the agent's own calibrated probabilities."""
    epsilon, bound, rng = 0.5, 0.3, np.random.default_rng(0)
    plain, found = decisions(None), decisions(Exploration(epsilon, bound))
    need, accept = (np.array([getattr(d, name) for d in plain]) for name in ("p_need", "p_accept"))
    costs = []
    for _ in range(50):
        y_need, y_accept = ((rng.random(len(p)) < p).astype(float) for p in (need, accept))
        spoken = [np.array([d.spoke for d in ds]) for ds in (plain, found)]
        costs.append([metrics.realised_cost(offers, y_need, y_accept, 1.0, 2.0) for offers in spoken])
    rise = np.diff(costs, axis=1)[:, 0]
    assert 0 < rise.mean() < epsilon * bound


def test_inverse_propensities_recover_what_always_offering_would_have_brought():
    """Where every propensity is inside (0, 1), a weighted mean over the offers is the mean over all events."""
    found = decisions(Exploration(0.2, loss=1e6), count=8000)
    accept = np.array([d.p_accept for d in found])
    spoke, e = np.array([d.spoke for d in found]), np.array([d.propensity for d in found])
    assert ((e > 0) & (e < 1)).all()
    weighted = np.where(spoke, accept / e, 0.0)
    error = weighted.std() / np.sqrt(len(found))
    assert abs(weighted.mean() - accept.mean()) < 4 * error
    assert abs(accept[spoke].mean() - accept.mean()) > 10 * error  # unweighted, the offers are a selection


def test_draws_are_uniform_and_depend_on_seed_stream_and_event_alone():
    setting = Exploration(0.1, seed=7)
    drawn = [draw(setting, f"s{i % 20}", i // 20) for i in range(4000)]
    assert kstest(drawn, "uniform").pvalue > 1e-3
    assert min(drawn) >= 0 and max(drawn) < 1
    assert drawn == [draw(Exploration(0.4, 9.0, seed=7), f"s{i % 20}", i // 20) for i in range(4000)]
    others = {draw(setting, "a", 11), draw(setting, "a1", 1), draw(setting, "a", 1), draw(Exploration(0.1), "a", 1)}
    assert len(others) == 4


def test_a_restart_explores_alike():
    first, again, other = (decisions.__wrapped__(Exploration(0.3, seed=seed), count=400) for seed in (3, 3, 4))
    assert [d.spoke for d in first] == [d.spoke for d in again]
    assert [d.spoke for d in first] != [d.spoke for d in other]


@given(PROBABILITY, PROBABILITY, COST, COST, st.floats(0.01, 0.5), st.booleans())
def test_a_propensity_is_a_probability_and_an_offer_that_nobody_needs_is_never_tried(need, accept, fa, fn, eps, offers):
    loss = float(flip_loss(*(np.array([x]) for x in (need, accept, fa, fn)))[0])
    e = propensity(Exploration(eps, loss=1e9), offers, loss)
    assert 0 <= e <= 1
    assert np.isinf(loss) == (need * accept == 0)
    if need * accept == 0:
        assert e == offers
    else:
        np.testing.assert_allclose(loss, abs((1 - accept) * fa - accept * need * fn), rtol=1e-9, atol=1e-9)
