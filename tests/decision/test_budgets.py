"""Which steps to think about within a budget."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from prism_jax.decision import budgets, gate, thinking
from prism_jax.decision.thinking import Moves

RNG = np.random.default_rng(0)
NEED, ACCEPT = RNG.random((2, 997))
MOVES = Moves(1.0, 0.6, -0.2)
COSTS = (1.0, 2.0)


@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.integers(-3, 3).map(float)), st.floats(0, 1))
def test_the_threshold_takes_as_many_steps_as_the_budget_allows_and_splits_no_tie(urgency, rate):
    threshold = budgets.threshold_at_rate(urgency, rate)
    inside = urgency >= threshold
    assert inside.sum() <= rate * len(urgency) + 1e-9
    outside = urgency[~inside]
    if len(outside):  # one more level of equal urgencies would exceed the budget
        assert (urgency >= outside.max()).sum() > rate * len(urgency) - 1e-9


@pytest.mark.parametrize("n", [7, 10, 1000])
@pytest.mark.parametrize("tenths", range(11))
def test_without_ties_the_rate_is_met_to_the_step(n, tenths):
    urgency = np.random.default_rng(n).permutation(n).astype(float)
    inside = urgency >= budgets.threshold_at_rate(urgency, tenths / 10)
    assert inside.sum() == tenths * n // 10


@given(st.floats(1e-300, 1e300), st.integers(1, 99))
def test_neighbouring_urgencies_stay_within_the_budget(lower, inside):
    urgency = np.repeat([np.nextafter(lower, np.inf), lower], [inside, 100 - inside])
    assert (urgency >= budgets.threshold_at_rate(urgency, inside / 100)).sum() == inside


def test_each_trigger_ranks_by_its_own_rule():
    tau = gate.threshold(NEED, *COSTS)
    np.testing.assert_array_equal(budgets.urgency("margin", NEED, ACCEPT, *COSTS), -abs(ACCEPT - tau))
    value = thinking.value_of_thinking(NEED, ACCEPT, *COSTS, MOVES)
    np.testing.assert_array_equal(budgets.urgency("value", NEED, ACCEPT, *COSTS, MOVES), value)
    entropy = stats.bernoulli(NEED * ACCEPT).entropy()
    np.testing.assert_allclose(budgets.urgency("entropy", NEED, ACCEPT, *COSTS), entropy, rtol=1e-12)
    assert budgets.urgency("entropy", np.array([0.0, 1.0, 1.0]), np.array([0.5, 1.0, 0.5]), *COSTS).tolist() == [
        0,
        0,
        pytest.approx(np.log(2)),
    ]
    first, again, other = (budgets.urgency("random", NEED, ACCEPT, *COSTS, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert stats.kstest(first, "uniform").pvalue > 0.01
    assert abs(stats.spearmanr(first, value).statistic) < 0.1


@pytest.mark.parametrize("trigger", budgets.TRIGGERS)
def test_jax_agrees_with_numpy(trigger):
    single = NEED.astype(np.float32), ACCEPT.astype(np.float32)
    found = jax.jit(lambda n, a: budgets.urgency(trigger, n, a, *COSTS, MOVES, seed=1))(*map(jnp.asarray, single))
    expected = budgets.urgency(trigger, *(p.astype(np.float64) for p in single), *COSTS, MOVES, seed=1)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=3e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f["urgency"]("guess", NEED, ACCEPT, *COSTS), "trigger: found 'guess', expected one of 'margin'"),
        (lambda f: f["urgency"]("value", NEED, ACCEPT, *COSTS), "moves: found None"),
        (lambda f: f["urgency"]("random", NEED, ACCEPT, *COSTS), "seed: found None"),
        (lambda f: f["threshold_at_rate"](NEED, 1.5), "rate: found 1.5"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    plain = {name: inspect.unwrap(getattr(budgets, name)) for name in budgets.__all__ if name.islower()}
    with pytest.raises(ValueError, match=message):
        call(plain)
