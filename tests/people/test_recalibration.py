"""The population's map follows everybody's answers: one Laplace step of the joint state, and what it is good for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from prism_jax.decision.person import Belief, Population, believe, predict, update
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.people import recalibration
from studies.coverage import recalibration as experiment
from studies.coverage.drawing import SIMULATED, simulated_answers

POPULATION = Population(0.9, -0.2, 0.8, 0.01)


def newton_step(state, z, belief, y):
    """One Newton step on the log posterior of (a, b) under the layer's prediction, by matrices."""
    prior = np.array([[state.variance_scale, state.covariance], [state.covariance, state.variance_bias]])
    g, k = np.array([z, 1.0]), np.sqrt(1 + np.pi * belief.variance / 8)
    here = Population(state.scale, state.bias, 0.5, 0.0)
    p = special.expit(predict(belief, z, here))
    after = np.linalg.inv(np.linalg.inv(prior) + p * (1 - p) / k**2 * np.outer(g, g))
    return np.array([state.scale, state.bias]) + after @ g * (y - p) / k, after


def test_a_step_is_newtons_on_the_likelihood_of_the_layers_prediction():
    rng, state = np.random.default_rng(0), recalibration.start(POPULATION)
    for _ in range(50):
        z, y = rng.normal(0, 2), float(rng.random() < 0.4)
        belief = Belief(rng.normal(), rng.uniform(0.05, 1.0))
        mean, covariance = newton_step(state, z, belief, y)
        state = recalibration.update(state, z, belief, y, drift_scale=0.001, drift_bias=0.002)
        np.testing.assert_allclose((state.scale, state.bias), mean, rtol=1e-9)
        expected = covariance + np.diag([0.001, 0.002])
        found = [[state.variance_scale, state.covariance], [state.covariance, state.variance_bias]]
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_people_who_are_little_known_do_not_draw_the_map_towards_zero():
    """2,000 new people of three answers each: what the map settles at is what the answers were drawn from."""
    rng, truth = np.random.default_rng(2), Population(0.8, -1.5, 0.9, 0.0)
    state, kept = recalibration.start(Population(1.0, 0.0, 0.9, 0.0)), []
    for _ in range(2000):
        belief, own = believe(truth), rng.normal(0, truth.spread)
        for _ in range(3):
            z = rng.normal(0, 1.5)
            y = float(rng.random() < special.expit(truth.scale * z + truth.bias + own))
            before, state = state, recalibration.update(state, z, belief, y)
            belief = update(belief, z, y, recalibration.moved(truth, before))
        kept.append((state.scale, state.bias))
    np.testing.assert_allclose(np.mean(kept[1000:], axis=0), (truth.scale, truth.bias), atol=0.1)


def test_variances_stay_bounded_where_answers_tell_nothing():
    state = recalibration.start(POPULATION)
    for n in range(5000):  # always the same score: only a * z + b is seen
        state = recalibration.update(state, 2.0, Belief(0.0, 0.1), float(n % 2), drift_scale=1e-3, drift_bias=1e-3)
    assert 0 < state.variance_scale <= recalibration.MOST_VARIANCE
    assert 0 < state.variance_bias <= recalibration.MOST_VARIANCE
    assert state.covariance**2 <= state.variance_scale * state.variance_bias
    assert abs(state.scale * 2.0 + state.bias) < 0.5


def test_steps_are_elementwise_and_run_under_jit():
    rng, n = np.random.default_rng(1), 6
    z, y, mean, variance = rng.normal(size=n), (rng.random(n) < 0.5) * 1.0, rng.normal(size=n), rng.uniform(0.1, 1, n)
    start = recalibration.Recalibration(*(jnp.full(n, value) for value in recalibration.start(POPULATION)))
    together = jax.jit(recalibration.update)(start, jnp.asarray(z), Belief(jnp.asarray(mean), jnp.asarray(variance)), y)
    for i in range(n):
        alone = recalibration.update(recalibration.start(POPULATION), z[i], Belief(mean[i], variance[i]), y[i])
        np.testing.assert_allclose([float(part[i]) for part in together], alone, rtol=1e-5, atol=1e-7)


def test_an_unknown_person_moves_the_population_less():
    state = recalibration.start(POPULATION)
    moves = [recalibration.update(state, 0.5, Belief(0.0, v), 1.0).bias - state.bias for v in (0.0, 0.5, 5.0)]
    assert moves[0] > moves[1] > moves[2] > 0


@pytest.mark.parametrize(("shift", "gain"), [(0.0, -0.004), (-1.0, 0.02)])
def test_it_costs_little_without_a_change_and_helps_after_one(shift, gain):
    """Seeds that no setting was chosen on; gains in nats per answer after the change."""
    found = simulated_answers(shift, people=150, answers=12, seed=7)
    forecasts = experiment.forecast(found, SIMULATED)
    loss = {name: (np.logaddexp(0, z) - found.accepted * z)[found.counted].mean() for name, z in forecasts.items()}
    assert loss[experiment.LAYER] - loss[experiment.BOTH] > gain


def test_a_forecast_does_not_depend_on_later_answers():
    found = simulated_answers(0.0, people=20, answers=5, seed=3)
    half = len(found.person) // 2
    other = found._replace(accepted=np.where(np.arange(2 * half) < half, found.accepted, 1 - found.accepted))
    one, two = (experiment.forecast(each, SIMULATED) for each in (found, other))
    for name in one:
        np.testing.assert_array_equal(one[name][:half], two[name][:half])
    assert (one[experiment.BOTH][half + 1 :] != two[experiment.BOTH][half + 1 :]).any()


def test_the_second_half_of_a_log_fits_nothing():
    rng, rows = np.random.default_rng(0), 400
    person, accepted = rng.integers(0, 20, rows).astype(np.int32), (rng.random(rows) < 0.6).astype(float)
    other = np.where(np.arange(rows) < rows // 2, accepted, 1 - accepted)
    logs = [
        AcceptanceLog(tuple(map(str, range(20))), person, y, np.arange(rows) * 1.0, True, np.ones(rows, bool), None)
        for y in (accepted, other)
    ]
    (first, population), (second, same) = (experiment.log_sections(log)["the log as it is"] for log in logs)
    assert population == same
    np.testing.assert_array_equal(first.log_odds, second.log_odds)
    assert (first.accepted != second.accepted).any()
