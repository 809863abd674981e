"""The value of thinking: moves, deviation, expected saving and the policy."""

import inspect
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from prism_jax.decision import gate, thinking
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.thinking import Moves

probabilities = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 1.0])
costs = st.floats(1e-3, 1e3)
numbers = st.floats(-1e6, 1e6)
sizes = st.floats(0, 1e6)
moments = st.builds(
    lambda accept, need, rho: Moves(accept, need, rho * np.sqrt(accept) * np.sqrt(need)),
    st.floats(0, 9),
    st.floats(0, 9),
    st.floats(-1, 1),
)
SIGNALS = np.linspace(0.02, 0.98, 25)
NEED, ACCEPT = (grid.ravel() for grid in np.meshgrid(SIGNALS, SIGNALS))
MOVES = Moves(1.2, 0.7, 0.3)
ONES = Pass(np.ones(2), np.ones(2))


def logit(p):
    return np.log(p) - np.log1p(-p)


@pytest.mark.parametrize("correlation", [-1.0, -0.4, 0.0, 1.0])
def test_the_fit_recovers_the_moments_of_moves_that_were_drawn(correlation):
    rng = np.random.default_rng(0)
    accept, other = rng.normal(size=(2, 200_000))
    need = 0.5 * (correlation * accept + np.sqrt(1 - correlation**2) * other)
    fast = rng.normal(size=(2, 200_000))
    found = thinking.fit_moves(Pass(fast[0], fast[1]), Pass(fast[0] + need, fast[1] + accept))
    assert found == pytest.approx((1.0, 0.25, 0.5 * correlation), abs=0.01)
    thinking.check_moves(found)


def test_weights_and_groups_select_rows():
    rng = np.random.default_rng(1)
    need, accept, *others = rng.normal(size=(4, 60))
    passes = BothPasses(Pass(need, accept), Pass(*others))
    group, weight = np.arange(60) % 3, rng.random(60)
    by_group = thinking.fit_moves(*passes, weight, group)
    for k in range(3):
        alone = thinking.fit_moves(*(Pass(*(z[group == k] for z in of)) for of in passes), weight[group == k])
        assert [moment[k] for moment in by_group] == pytest.approx(alone, rel=1e-12)
        zeroed = thinking.fit_moves(*passes, np.where(group == k, weight, 0))
        assert zeroed == pytest.approx(alone, rel=1e-12)
    shifted = thinking.fit_moves(Pass(*np.zeros((2, 5))), Pass(*np.ones((2, 5))))
    assert shifted == (1.0, 1.0, 1.0)  # a common shift is movement


def net_cost(p_need, p_accept, c_fa, c_fn):
    offer, silence = gate.expected_costs(p_accept, p_accept * p_need, c_fa, c_fn)
    return offer - silence


def expected_saving(net, sigma, xp=np):
    return thinking._expected_saving(xp, net, sigma)


def test_the_deviation_is_the_norm_of_the_gradient_by_automatic_differentiation():
    def net(z):
        return net_cost(jax.nn.sigmoid(z[1]), jax.nn.sigmoid(z[0]), 1.3, 2.1)

    with jax.enable_x64(True):
        z = jnp.stack([logit(ACCEPT), logit(NEED)], axis=1)
        gradient = np.asarray(jax.vmap(jax.grad(net))(z))
    moments = np.array([[MOVES.accept, MOVES.both], [MOVES.both, MOVES.need]])
    expected = np.sqrt(np.einsum("ni,ij,nj->n", gradient, moments, gradient))
    np.testing.assert_allclose(thinking._deviation(np, NEED, ACCEPT, 1.3, 2.1, MOVES), expected, rtol=1e-12)


@pytest.mark.parametrize("t", [0.0, 1e-8, 0.3, 1.0, 4.0, 9.0, 20.0, 36.0])
def test_the_saving_is_the_integral_that_defines_it(t):
    """E[max(-D', 0)] - max(-D, 0) at sigma = 1 is the integral of Phi(-u) over u >= t."""
    scale = np.exp(stats.norm.logcdf(-t))
    tail, _ = integrate.quad(lambda u: np.exp(stats.norm.logcdf(-u) - stats.norm.logcdf(-t)), t, t + 12, epsabs=0)
    expected = scale * tail
    assert expected_saving(t, 1.0) == pytest.approx(expected, rel=1e-9)
    assert float(expected_saving(jnp.float32(t), jnp.float32(1), jnp)) == pytest.approx(expected, rel=1e-3, abs=1e-37)


@pytest.mark.parametrize("size", [0.05, 0.15])
def test_the_value_is_what_a_calibrated_slow_pass_saves(size):
    """Logit-normal moves whose mean keeps D: the saving of deciding on them, by Monte Carlo."""
    rng = np.random.default_rng(3)
    moves = Moves(size**2, 0.25 * size**2, 0.1 * size**2)
    factor = np.linalg.cholesky([[moves.accept, moves.both], [moves.both, moves.need]])
    accept, need = factor @ rng.normal(size=(2, 400_000))
    for p_need, p_accept in ((0.5, 0.5), (0.5, 0.52), (0.9, 0.36), (0.2, 0.7), (0.7, 0.45)):
        later_accept = 1 / (1 + np.exp(-(logit(p_accept) + accept)))
        later_need = 1 / (1 + np.exp(-(logit(p_need) + need)))
        later = net_cost(later_need, later_accept, 1.0, 2.0)
        now = net_cost(p_need, p_accept, 1.0, 2.0)
        later = later - later.mean() + now  # the assumption E[D' | fast] = D
        saved = np.minimum(now, 0) - np.minimum(later, 0).mean()
        found = thinking.value_of_thinking(p_need, p_accept, 1.0, 2.0, moves)
        assert found == pytest.approx(saved, rel=0.05, abs=0.02 * size)
        assert saved >= 0


@given(numbers, sizes)
def test_the_saving_is_symmetric_at_least_zero_and_largest_at_the_boundary(net, sigma):
    found = expected_saving(net, sigma)
    assert found == expected_saving(-net, sigma)
    assert 0 <= found <= expected_saving(0.0, sigma)
    assert expected_saving(net, 2 * sigma) >= found
    assert expected_saving(2 * net, sigma) <= found
    assert expected_saving(0.0, sigma) == pytest.approx(sigma / np.sqrt(2 * np.pi))


@pytest.mark.parametrize(
    ("net", "sigma"), [(0.0, 0.0), (1.0, 0.0), (1e-300, 1e-310), (1e300, 1e-300), (1e-300, 1e300), (1e300, 1e300)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_ratios_give_numbers(net, sigma, sign):
    found = expected_saving(sign * net, sigma)
    assert np.isfinite(found) and found >= 0
    assert expected_saving(sign * net, 0.0) == 0


@given(probabilities, probabilities, costs, costs, moments)
def test_the_value_is_at_most_what_can_be_saved(p_need, p_accept, c_fa, c_fn, moves):
    value = thinking.value_of_thinking(p_need, p_accept, c_fa, c_fn, moves)
    offer, silence = gate.expected_costs(p_accept, p_accept * p_need, c_fa, c_fn)
    assert 0 <= value <= min(offer, silence)
    assert thinking.value_of_thinking(p_need, p_accept, c_fa, c_fn, Moves(0.0, 0.0, 0.0)) == 0


def test_the_cap_binds_where_moves_are_large():
    wild = Moves(100.0, 100.0, 0.0)
    value = thinking.value_of_thinking(NEED, ACCEPT, 1.0, 2.0, wild)
    offer, silence = gate.expected_costs(ACCEPT, ACCEPT * NEED, 1.0, 2.0)
    assert (value == np.minimum(offer, silence)).mean() > 0.3


@given(probabilities, probabilities, costs, costs, moments, st.floats(0, 1), st.integers(-20, 20))
def test_scaling_costs_and_price_together_changes_nothing(p_need, p_accept, c_fa, c_fn, moves, price, power):
    scale = 2.0**power
    before = thinking.value_of_thinking(p_need, p_accept, c_fa, c_fn, moves)
    after = thinking.value_of_thinking(p_need, p_accept, scale * c_fa, scale * c_fn, moves)
    assert after == scale * before or max(before, after) < 1e-290
    if before > 1e-290:
        assert (after >= scale * price * 120) == (before >= price * 120)


def test_the_trigger_is_everywhere_at_price_0_and_nested_in_the_price():
    def runs(price, tokens=50.0):
        return thinking.decide_by_value(Pass(NEED, ACCEPT), Pass(ACCEPT, NEED), 1.0, 2.0, MOVES, price, tokens)[1]

    found = [runs(price) for price in (0.0, 1e-4, 1e-3, 1e-2, 1.0)]
    assert found[0].all() and not found[-1].any()
    assert all((after <= before).all() for before, after in itertools.pairwise(found))
    np.testing.assert_array_equal(found[2], runs(1e-3 / 4, 200.0))


def test_slow_signals_decide_exactly_where_the_trigger_says():
    rng = np.random.default_rng(4)
    slow = Pass(*rng.random((2, len(NEED))))
    value = thinking.value_of_thinking(NEED, ACCEPT, 1.0, 2.0, MOVES)
    for price in (0.0, 5e-4, 1e3):
        found, runs = thinking.decide_by_value(Pass(NEED, ACCEPT), slow, 1.0, 2.0, MOVES, price, 100.0)
        np.testing.assert_array_equal(runs, value >= price * 100)
        expected = np.where(runs, gate.decide(*slow, 1.0, 2.0), gate.decide(NEED, ACCEPT, 1.0, 2.0))
        np.testing.assert_array_equal(found, expected)


def test_moves_may_differ_between_steps():
    by_group = Moves(np.array([0.1, 2.0]), np.array([0.2, 1.0]), np.array([0.0, 0.5]))
    group = np.arange(len(NEED)) % 2
    found = thinking.value_of_thinking(NEED, ACCEPT, 1.0, 2.0, Moves(*(moment[group] for moment in by_group)))
    for k in range(2):
        alone = Moves(*(float(moment[k]) for moment in by_group))
        expected = thinking.value_of_thinking(NEED, ACCEPT, 1.0, 2.0, alone)
        np.testing.assert_array_equal(found[group == k], expected[group == k])


class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_jax_values_are_numpys(self):
        single = np.float32(NEED), np.float32(ACCEPT)
        found = self.variant(thinking.value_of_thinking)(*map(jnp.asarray, single), 1.0, 2.0, MOVES)
        expected = thinking.value_of_thinking(*map(np.float64, single), 1.0, 2.0, MOVES)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-7)

    @chex.variants(with_jit=True, without_jit=True)
    def test_jax_decides_as_numpy_does(self):
        single, rest = (np.float32(NEED), np.float32(ACCEPT)), (1.0, 2.0, MOVES, 1e-3, 100.0)
        passes = BothPasses(Pass(*single), Pass(*single[::-1]))
        found = self.variant(thinking.decide_by_value)(*jax.tree.map(jnp.asarray, passes), *rest)
        expected = thinking.decide_by_value(*jax.tree.map(np.float64, passes), *rest)
        assert all((np.asarray(a) != b).mean() < 0.01 for a, b in zip(found, expected, strict=True))  # near ties


def test_mapped_over_steps_and_costs():
    def one(p_need, p_accept, c_fn):
        return thinking.value_of_thinking(p_need, p_accept, 1.0, c_fn, MOVES)

    signals, ratios, alone = (np.float32(NEED), np.float32(ACCEPT)), np.float32([0.5, 2.0]), jax.jit(one)
    table = jax.jit(jax.vmap(jax.vmap(one, (0, 0, None)), (None, None, 0)))(*signals, ratios)
    for row, ratio in zip(table, ratios, strict=True):
        np.testing.assert_allclose(row, alone(*signals, ratio), rtol=1e-5, atol=1e-8)


def test_gradients_are_finite_everywhere():
    corners = np.meshgrid(*2 * [np.float32([0.0, 0.3, 0.5, 1.0])])
    gradients = jax.jit(jax.grad(lambda p, moves: thinking.value_of_thinking(*p, 1.0, 2.0, moves).sum()))
    for moves in (MOVES, Moves(0.0, 0.0, 0.0)):
        assert np.isfinite(gradients(tuple(corners), moves)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f["fit_moves"](ONES, ONES, groups=np.array([0, 2])), "groups: found no step of the group 1"),
        (lambda f: f["fit_moves"](ONES, ONES, groups=np.array([0.0, 1.0])), "groups: found dtype float64"),
        (lambda f: f["check_moves"](Moves(-1.0, 1.0, 0.0)), r"moves.accept: found -1.0"),
        (lambda f: f["check_moves"](Moves(1.0, np.nan, 0.0)), "moves.need: found nan"),
        (lambda f: f["check_moves"](Moves(1.0, 1.0, 1.1)), r"moves.both: found 1.1, expected at most .* = 1 in size"),
        (lambda f: f["value_of_thinking"](0.5, 0.5, 1.0, 2.0, Moves(1.0, 0.0, 0.5)), "moves.both: found 0.5"),
        (lambda f: f["value_of_thinking"](0.5, 0.5, 0.0, 2.0, MOVES), "c_fa: found 0.0"),
        (lambda f: f["decide_by_value"](ONES, ONES, 1.0, 2.0, MOVES, -1.0, 10), "price: found -1.0"),
        (lambda f: f["decide_by_value"](ONES, ONES, 1.0, 2.0, MOVES, 1.0, 0), "tokens: found 0"),
        (lambda f: f["decide_by_value"](ONES, ONES, 1.0, 2.0, MOVES, np.ones(3), 1), "do not broadcast"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    plain = {name: inspect.unwrap(getattr(thinking, name)) for name in dir(thinking) if name.islower()}
    with pytest.raises(ValueError, match=message):
        call(plain)
