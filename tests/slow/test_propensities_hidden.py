"""The experiment `prism_jax.experiments.propensities` at full size: with a hidden variable, propensities matter."""

import pytest

from prism_jax.experiments.intervals import mean_over_seeds
from prism_jax.experiments.propensities import SEEDS

pytestmark = pytest.mark.study


def test_snips_is_closer_to_the_truth_than_ignoring_the_propensities(propensity_gains):
    assert len(SEEDS) >= 5
    assert mean_over_seeds(propensity_gains(1.0)).low > 0
