"""The alarm: an exact martingale over all sequences of answers, one by one, over a log, pooled and jitted."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.decision import alarm


def all_sequences(length=10):
    """Every sequence of answers, with probabilities that follow the past answers, and its probability."""
    y = np.array(list(itertools.product((0.0, 1.0), repeat=length)))
    before = np.concatenate([np.zeros((len(y), 1)), np.cumsum(y, axis=1)[:, :-1]], axis=1)
    p = (before + 0.3) / (np.arange(length) + 1)
    return p, y, np.where(y == 1, p, 1 - p).prod(axis=1)


def run(p, y, threshold=0.5):
    """log M after each answer, one update at a time."""
    state, found = alarm.start(len(p)), []
    for t in range(p.shape[1]):
        state = alarm.update(state, p[:, t], y[:, t], threshold)
        found.append(alarm.log_martingale(state))
    return np.stack(found, axis=1)


def check_no_level_is_exceeded(probability, log_m):
    highest = log_m.max(axis=1)
    for level in np.unique(highest):
        assert probability[highest >= level].sum() <= np.exp(-level) * (1 + 1e-9)


def test_over_all_sequences_the_mean_is_one_and_no_level_is_exceeded_at_any_time():
    p, y, probability = all_sequences()
    log_m = run(p, y, threshold=0.4)
    np.testing.assert_allclose(probability @ np.exp(log_m), 1.0, rtol=1e-12)
    check_no_level_is_exceeded(probability, log_m)


def test_every_bet_alone_is_a_martingale_and_keeps_at_least_half():
    p, y, probability = all_sequences(6)
    factors = alarm.log_factors(p, y, 0.4)
    assert factors.shape == (*p.shape, alarm.COMPONENTS)
    np.testing.assert_allclose(probability @ np.exp(factors.sum(axis=1)), 1.0, rtol=1e-12)
    assert factors.min() >= np.log(0.5)


def test_offers_that_are_withdrawn_for_their_answers_raise_no_capital():
    """Over all sequences in which a refusal is withdrawn, or an acceptance is, once the capital has reached a level."""
    p, y, probability = all_sequences(8)
    for lost in (0.0, 1.0):
        for last in (-np.inf, 0.0, 0.2):
            state, found = alarm.start(len(p)), []
            for t in range(p.shape[1]):
                gone = (y[:, t] == lost) & (alarm.log_martingale(state) >= last)
                answered = alarm.update(state, p[:, t], y[:, t], 0.4)
                state = np.where(gone[:, None], alarm.withdraw(state, p[:, t], 0.4), answered)
                found.append(alarm.log_martingale(state))
            log_m = np.stack(found, axis=1)
            assert (probability @ np.exp(log_m) <= 1 + 1e-9).all()
            check_no_level_is_exceeded(probability, log_m)


def pooled(people, independent=False):
    """Log of the martingale of people in the order in which they joined."""
    if independent:
        return people.sum()
    n = np.arange(1, len(people) + 1)
    return np.log((np.exp(people) / (n * (n + 1))).sum() + 1 / (len(people) + 1))


def test_a_withdrawn_offer_costs_each_bet_the_worse_answer():
    state = alarm.withdraw(alarm.start(), 0.7, 0.4)
    both = [alarm.update(alarm.start(), 0.7, y, 0.4) for y in (0.0, 1.0)]
    np.testing.assert_allclose(state, np.minimum(*both), atol=1e-15)
    assert (state <= 0).all()


def test_a_whole_log_at_once_equals_one_answer_at_a_time():
    rng = np.random.default_rng(0)
    person = rng.integers(0, 4, 60)
    p, y = rng.random(60), (rng.random(60) < 0.5).astype(float)
    state, joined, expected = alarm.start(4), list(dict.fromkeys(person)), []
    averages, products = [], []
    for one, prob, answer in zip(person, p, y, strict=True):
        state[one] = alarm.update(state[one], prob, answer, 0.3)
        people = alarm.log_martingale(state[joined])
        expected.append(people[joined.index(one)])
        averages.append(pooled(people))
        products.append(pooled(people, independent=True))
    log_m = alarm.along(p, y, person, 0.3)
    np.testing.assert_allclose(log_m, expected, atol=1e-12)
    np.testing.assert_allclose(alarm.pooled_along(log_m, person), averages, atol=1e-12)
    np.testing.assert_allclose(alarm.pooled_along(log_m, person, independent=True), products, atol=1e-12)


def test_pooled_evidence_of_people_is_a_martingale_too():
    """Two independent people answer in turns."""
    p, y, probability = all_sequences(5)
    last = run(p, y)[:, -1]
    pairs = list(itertools.product(range(len(p)), repeat=2))
    for independent in (False, True):
        means = [
            probability[a] * probability[b] * np.exp(pooled(last[[a, b]], independent=independent)) for a, b in pairs
        ]
        np.testing.assert_allclose(sum(means), 1.0, rtol=1e-9)


def test_people_who_join_when_the_others_have_lost_raise_no_alarm():
    """Person after person joins until the mean is above 1: the mean at the end is that of a martingale, 1."""
    p, y, probability = all_sequences(4)
    last, expected = run(p, y)[:, -1], 0.0
    for one in itertools.product(range(len(p)), repeat=3):
        present = next((n for n in (1, 2) if pooled(last[list(one[:n])]) > 0), 3)
        expected += np.prod(probability[list(one)]) * np.exp(pooled(last[list(one[:present])]))
    assert expected == pytest.approx(1.0, abs=1e-9)


def test_under_jit_it_gives_the_same():
    rng = np.random.default_rng(1)
    p, y = rng.random(8), (rng.random(8) < 0.5).astype(float)
    state = rng.normal(size=(8, alarm.COMPONENTS))
    step = jax.jit(lambda *given: alarm.log_martingale(alarm.update(*given, 0.4)))
    found = step(*map(jnp.asarray, (state, p, y)))
    np.testing.assert_allclose(found, alarm.log_martingale(alarm.update(state, p, y, 0.4)), rtol=1e-5)


def test_the_first_alarm_counts_answers():
    log_m = np.log([[1, 5, 30, 2], [1, 2, 3, 4], [25, 1, 1, 1]])
    assert alarm.first_alarm(log_m, 0.05).tolist() == [3, -1, 1]
    assert alarm.first_alarm(log_m, 0.05, family=2).tolist() == [-1, -1, -1]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"p: found 1.5, expected a probability"):
        alarm.update(alarm.start(), 1.5, 1.0)
    with pytest.raises(ValueError, match=r"threshold: found 0.0, expected a threshold above 0"):
        alarm.update(alarm.start(), 0.5, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"alpha, family: found 1.0 and 1"):
        alarm.first_alarm(np.zeros((1, 2)), 1.0)
