"""A person's own rate: single steps against numerical oracles."""

import numpy as np
import pytest
from scipy import special

from prism_jax.decision.person import Belief, Population, anchored, believe, predict, update

POPULATION = Population(0.8, -0.3, 0.9, 0.02)


def test_an_update_is_one_newton_step_on_the_log_posterior():
    """Derivatives of the log posterior by finite differences, at the old mean."""
    belief, z, y, step = Belief(0.4, 0.7), 0.5, 1.0, 1e-4

    def log_posterior(u):
        own = POPULATION.scale * z + POPULATION.bias + u
        return y * own - np.logaddexp(0, own) - (u - belief.mean) ** 2 / (2 * belief.variance)

    low, here, high = (log_posterior(belief.mean + d) for d in (-step, 0.0, step))
    slope, curvature = (high - low) / (2 * step), (high - 2 * here + low) / step**2
    after = update(belief, z, y, POPULATION)
    np.testing.assert_allclose(after.variance, -1 / curvature + POPULATION.drift, rtol=1e-6)
    np.testing.assert_allclose(after.mean, belief.mean - slope / curvature, rtol=1e-6)


def test_a_prediction_averages_over_the_doubt():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for mean, variance in ((0.0, 0.5), (1.0, 1.0), (-2.0, 0.3)):
        exact = (weights @ special.expit(0.8 * 0.5 - 0.3 + mean + variance**0.5 * nodes)) / weights.sum()
        assert special.expit(predict(Belief(mean, variance), 0.5, POPULATION)) == pytest.approx(exact, abs=0.01)


def test_a_person_who_never_answered_gets_the_calibrated_score_itself():
    z = np.linspace(-5, 5, 11)
    for spread in (0.1, 0.9, 3.0):
        population = anchored(spread, 0.01)
        np.testing.assert_allclose(predict(believe(population), z, population), z, rtol=1e-14)
