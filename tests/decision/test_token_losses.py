import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.decision import losses
from prism_jax.student.heads import token_cross_entropy

rewards = st.lists(st.floats(-5, 5), min_size=1, max_size=20).map(np.array)


@pytest.fixture
def tokens():
    """Logits [batch, length, vocabulary], targets and a mask."""
    rng = np.random.default_rng(5)
    logits = jnp.asarray(rng.normal(size=(3, 6, 11)).astype(np.float32))
    targets = jnp.asarray(rng.integers(0, 11, (3, 6)))
    mask = jnp.asarray((rng.random((3, 6)) < 0.6).astype(np.float32))
    return logits, targets, mask


def log_prob(logits, targets):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]


def test_sft_is_masked_cross_entropy(tokens):
    logits, targets, mask = tokens
    expected = (optax.softmax_cross_entropy_with_integer_labels(logits, targets) * mask).sum() / mask.sum()
    np.testing.assert_allclose(losses.token_loss(log_prob(logits, targets), mask), expected, rtol=1e-6)


def test_dft_gradient_is_minus_the_gradient_of_pi(tokens):
    logits, targets, mask = tokens
    found = jax.grad(lambda z: losses.token_loss(log_prob(z, targets), mask, "dft"))(logits)
    expected = jax.grad(lambda z: -(mask * jnp.exp(log_prob(z, targets))).sum() / mask.sum())(logits)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
    without_stop = jax.grad(
        lambda z: -(mask * jnp.exp(log_prob(z, targets)) * log_prob(z, targets)).sum() / mask.sum()
    )(logits)
    assert not np.allclose(found, without_stop, atol=1e-3)
    value = losses.token_loss(log_prob(logits, targets), mask, "dft")
    pi = np.exp(log_prob(logits, targets))
    np.testing.assert_allclose(value, -(mask * pi * np.log(pi)).sum() / mask.sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["sft", "dft"])
@pytest.mark.parametrize("junk", [-np.inf, np.nan, 7.0])
def test_unsupervised_tokens_are_not_read(kind, junk, tokens):
    logits, targets, mask = tokens
    clean = log_prob(logits, targets)
    spoiled = jnp.where(mask > 0, clean, junk)
    value, gradient = jax.value_and_grad(lambda lp: losses.token_loss(lp, mask, kind))(spoiled)
    assert value == losses.token_loss(clean, mask, kind)
    assert np.isfinite(gradient).all()
    assert losses.token_loss(spoiled, jnp.zeros_like(mask), kind) == 0


def test_token_sums_add_up_and_take_sequence_weights(tokens):
    logits, targets, mask = tokens
    lp, weight = log_prob(logits, targets), jnp.array([0.5, 2.0, 0.5])
    parts = [losses.token_sums(lp[i : i + 1], mask[i : i + 1], weight=weight[i]) for i in range(3)]
    total = jax.tree.map(lambda *leaves: sum(leaves), *parts)
    np.testing.assert_allclose(total.mean(), losses.token_loss(lp, mask, weight=weight[:, None]), rtol=1e-6)
    np.testing.assert_allclose(total.mean(), -(weight[:, None] * mask * lp).sum() / mask.sum(), rtol=1e-6)


def test_a_batch_of_one_keeps_its_weight(tokens):
    logits, targets, mask = tokens
    lp = log_prob(logits, targets)[:1]
    single = losses.token_loss(lp, mask[:1], weight=jnp.array([[3.0]]))
    np.testing.assert_allclose(single, 3 * losses.token_loss(lp, mask[:1]), rtol=1e-6)


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


def test_bad_log_probabilities_are_refused_where_they_count():
    found = losses.token_loss(np.array([-1.0, np.nan, 0.7]), np.array([1, 0, 0]))
    assert float(found) == pytest.approx(1.0)
    for value in (np.nan, 0.3):
        with pytest.raises(ValueError, match=r"log_prob: found (nan|0\.3).*expected a log-probability, at most 0"):
            losses.token_loss(np.array([-1.0, value]), np.array([1, 1]))
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


@pytest.mark.parametrize("kind", ["sft", "dft"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_students_chunked_loss_has_the_same_value_and_gradient(kind, weighted):
    """`student.heads.token_cross_entropy` computes the same loss from hidden states without storing all logits."""
    rng = np.random.default_rng(7)
    head = jnp.asarray(rng.normal(size=(13, 4)).astype(np.float32))
    hidden = jnp.asarray(rng.normal(size=(10, 4)).astype(np.float32))
    targets = jnp.asarray(rng.integers(0, 13, 10))
    mask = jnp.asarray((rng.random(10) < 0.7).astype(np.float32))
    weight = jnp.asarray(rng.random(10).astype(np.float32)) if weighted else jnp.ones(10)

    def ours(head, hidden, weight):
        return losses.token_sums(log_prob(hidden @ head.T, targets), mask, kind, weight).numerator

    def students(head, hidden, weight):
        return token_cross_entropy(head, hidden, targets, mask * weight, chunk=4, dynamic=kind == "dft")[0]

    expected, found = (jax.value_and_grad(f, argnums=(0, 1, 2))(head, hidden, weight) for f in (ours, students))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    count = token_cross_entropy(head, hidden, targets, mask, chunk=4)[1]
    assert count == losses.token_sums(log_prob(hidden @ head.T, targets), mask, kind, weight).denominator
