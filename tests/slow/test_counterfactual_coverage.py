"""Redrawn logs: unbiased estimates, honest intervals from 100 people on, refusals where the log cannot tell."""

import numpy as np
import pytest

from prism_jax.experiments.replications import FullLog, Policies, replicate

pytestmark = pytest.mark.study
REPLICATIONS = 400


@pytest.fixture(scope="module")
def full():
    """40 people of very different numbers of rows and habits."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(40), rng.geometric(1 / 40, 40))
    habit, score = rng.normal(size=40), rng.normal(size=len(person))
    accepted = rng.random(len(person)) < 1 / (1 + np.exp(-habit[person] - score))
    return FullLog.of(person, accepted.astype(float), score)


@pytest.mark.parametrize("least", [0.0, 0.6])
def test_intervals_cover_the_truth_of_the_full_log(full, least):
    policies = Policies(0.1 + 0.8 * full.rank, (full.rank >= least).astype(float))
    for found in replicate(full, policies, 100, REPLICATIONS, c_fa=1.0, c_fn=2.0):
        bias, error = found.bias
        assert abs(bias) < 4 * error
        # Within two points of 95 %, and 2.5 standard errors of 400 replications around that.
        assert abs(found.covered.mean() - 0.95) < 0.02 + 2.5 * np.sqrt(0.95 * 0.05 / REPLICATIONS)
        assert found.refused == 0


def test_refusals_come_where_the_log_cannot_tell(full):
    everything = np.ones(len(full.rank))
    blind = Policies(np.where(full.rank < 0.3, 0.0, 0.5), everything)
    for found in replicate(full, blind, 50, 20, c_fa=1.0, c_fn=2.0):
        assert found.refused == 1 and np.isnan(found.bias[0])
    rare = Policies(0.005 * everything, everything)
    assert replicate(full, rare, 50, 20, c_fa=1.0, c_fn=2.0)[0].refused > 0.9
    seen = Policies(blind.logging, (full.rank > 0.5).astype(float))
    assert replicate(full, seen, 50, 20, c_fa=1.0, c_fn=2.0)[0].refused == 0
