import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.decision import losses

rewards = st.lists(st.floats(-5, 5), min_size=1, max_size=20).map(np.array)


def test_total_reward_against_its_formula():
    score, logged = np.array([0.9, -0.2, -0.4]), np.array([1, 1, 0])
    y_accept, tokens = np.array([1.0, 0.0, np.nan]), np.array([100, 50, 0])
    found = losses.total_reward(score, logged, y_accept, tokens, c_fa=2.0, c_tok=1e-3)
    np.testing.assert_allclose(found, [0.9 - 0.1, -0.2 - 2 - 0.05, -0.4])
    with pytest.raises(ValueError, match=r"y_accept: found 1\.5 at index 0"):
        losses.total_reward(score, logged, np.array([1.5, 0.0, 0.0]), tokens)


@given(rewards, st.floats(0.05, 10))
def test_reward_weights_are_exponential_with_mean_one(reward, beta):
    weight, size = losses.reward_weights(reward, beta)
    assert weight.mean() == pytest.approx(1)
    np.testing.assert_allclose(weight, np.exp(reward / beta) / np.exp(reward / beta).mean(), rtol=1e-6)
    assert 1 - 1e-9 <= size <= reward.size * (1 + 1e-9)
    assert size == pytest.approx(weight.sum() ** 2 / (weight**2).sum())


@given(rewards)
def test_infinite_beta_is_plain_fine_tuning(reward):
    for weight, size in (
        losses.reward_weights(reward, np.inf),
        losses.advantage_weights(reward, np.zeros_like(reward), np.inf),
    ):
        np.testing.assert_array_equal(weight, 1.0)
        assert size == reward.size
    nearly, _ = losses.reward_weights(reward, 1e9)
    np.testing.assert_allclose(nearly, 1.0, rtol=1e-7)


def test_huge_rewards_do_not_overflow():
    weight, size = losses.reward_weights(np.array([1e6, 1e6 + 1, 0.0]), 0.5)
    assert weight[2] == 0
    np.testing.assert_allclose(weight[1] / weight[0], np.exp(2))
    assert 1 < size < 2


def test_advantages_far_below_the_baseline_keep_their_proportions():
    """Weights are proportional to exp((R - V) / beta), however small all of them are."""
    found = losses.advantage_weights(np.array([-1.0, -2.0, -1.001]), np.zeros(3), 1e-3).weight
    expected = np.exp([0.0, -1000.0, -1.0])
    np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-9)
    np.testing.assert_allclose(losses.reward_weights(np.array([1.0, 2.0]), 1e-300).weight, [0.0, 2.0])


def test_bad_rewards_are_refused_by_name():
    with pytest.raises(ValueError, match="score: found nan"):
        losses.total_reward(np.array([np.nan]), 1, 1, 5)
    with pytest.raises(ValueError, match="tokens: found -5"):
        losses.total_reward(np.array([0.5]), 1, 1, -5)


@given(rewards, st.floats(0.05, 10), st.floats(1, 30))
def test_advantage_weights_are_capped_before_normalisation(reward, beta, cap):
    value = np.full_like(reward, 0.3)
    raw = np.minimum(np.exp((reward - value) / beta), cap)
    weight, _ = losses.advantage_weights(reward, value, beta, cap)
    np.testing.assert_allclose(weight, raw / raw.mean(), rtol=1e-9)
    assert weight.mean() == pytest.approx(1)


def test_jax_weights_are_numpys():
    reward = np.random.default_rng(0).normal(size=30).astype(np.float32)
    expected, _ = losses.reward_weights(reward, 0.5)
    found = jax.jit(lambda r: losses.reward_weights(r, 0.5).weight)(reward)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.reward_weights(np.array([0.0, np.nan]), 1.0), "reward: found nan at index 1"),
        (lambda: losses.reward_weights(np.array([]), 1.0), "reward: found an empty array"),
        (lambda: losses.reward_weights(np.ones(2), 0.0), "beta: found 0.0"),
        (lambda: losses.advantage_weights(np.ones(2), np.ones(3), 1.0), "value: found 3 rows, expected 2"),
        (lambda: losses.advantage_weights(np.ones(2), np.ones(2), 1.0, cap=0.5), "cap: found 0.5"),
        (lambda: losses.advantage_weights(np.ones(2), np.array([1.0, np.inf]), 1.0), "value: found inf"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
