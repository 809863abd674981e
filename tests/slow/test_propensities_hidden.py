"""The propensities matter: checks the study of `prism_jax.experiments.propensities` at full size."""

import pytest

from prism_jax.experiments.propensities import SEEDS, Gain

pytestmark = pytest.mark.slow


def test_snips_is_closer_to_the_truth_than_ignoring_the_propensities(propensity_gains):
    assert len(SEEDS) >= 5
    assert Gain.of(propensity_gains(1.0)).low > 0
