import chex
import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit, logit

from prism_jax.decision import drift, gate

probabilities = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
costs = st.floats(0.1, 10)
temperatures = st.floats(0.1, 10)


@given(probabilities, probabilities, costs, costs)
def test_no_drift_is_the_gate(p_need, p_accept, c_fa, c_fn):
    assert drift.decide(p_need, p_accept, c_fa, c_fn) == gate.decide(p_need, p_accept, c_fa, c_fn)


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999), costs, costs, temperatures, st.floats(-0.5, 0.5))
def test_drift_against_its_definition(p_need, p_accept, c_fa, c_fn, temperature, epsilon):
    need, accept = (expit(logit(p) / temperature) for p in (p_need, p_accept))
    limit = c_fa / (c_fa + need * c_fn) - epsilon
    assume(abs(accept - limit) > 1e-9)
    assert drift.decide(p_need, p_accept, c_fa, c_fn, temperature, epsilon) == (accept >= limit)


@given(probabilities, probabilities, costs, costs, temperatures, st.floats(-1, 1), st.floats(-1, 1))
def test_decisions_are_nested_in_epsilon(p_need, p_accept, c_fa, c_fn, temperature, first, second):
    low, high = sorted([first, second])
    args = (p_need, p_accept, c_fa, c_fn, temperature)
    assert drift.decide(*args, low) <= drift.decide(*args, high)


def test_impossible_offers_stay_silent_under_any_drift():
    silent = drift.decide(np.array([0.0, 0.5]), np.array([0.9, 0.0]), 1.0, 2.0, 0.5, 1.0)
    assert not silent.any()


@pytest.mark.parametrize(("temperature", "epsilon"), drift.PAPER_GRID)
def test_flip_rate_is_the_share_of_changed_decisions(temperature, epsilon):
    rng = np.random.default_rng(0)
    p_need, p_accept, weight = rng.random((3, 400))
    base = gate.decide(p_need, p_accept, 1.0, 2.0)
    drifted = drift.decide(p_need, p_accept, 1.0, 2.0, temperature, epsilon)
    found = drift.flip_rate(p_need, p_accept, 1.0, 2.0, temperature, epsilon)
    assert found == np.mean(base != drifted)
    weighted = drift.flip_rate(p_need, p_accept, 1.0, 2.0, temperature, epsilon, weight)
    assert weighted == pytest.approx(np.average(base != drifted, weights=weight))
    assert (found == 0) == ((temperature, epsilon) == (1.0, 0.0))


def test_one_trace_decides_as_numpy_does_on_the_whole_grid():
    p_need, p_accept = np.random.default_rng(1).random((2, 300), np.float32)
    flips = jax.jit(chex.assert_max_traces(drift.flip_rate, n=1))
    for temperature, epsilon in drift.PAPER_GRID:
        found = flips(p_need, p_accept, 1.0, 2.0, temperature, epsilon)
        expected = drift.flip_rate(p_need, p_accept, 1.0, 2.0, temperature, epsilon)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature: found 0.0"),
        ({"epsilon": float("nan")}, "epsilon: found nan"),
        ({"epsilon": float("inf")}, "epsilon: found inf"),
        ({"c_fa": 0.0}, "c_fa: found 0.0"),
    ],
)
def test_bad_input_is_refused_by_name(changes, message):
    good = dict(p_need=np.array([0.5]), p_accept=np.array([0.5]), c_fa=1.0, c_fn=2.0, temperature=1.0, epsilon=0.0)
    with pytest.raises(ValueError, match=message):
        drift.flip_rate(**{**good, **changes})
