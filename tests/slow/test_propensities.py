"""The propensities matter: the study of `prism_jax.experiments.propensities` at its full size."""

import pytest

from prism_jax.experiments.propensities import CONFIG, SEEDS, Gain, paired_gain

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gains():
    return {effect: paired_gain(CONFIG, effect, SEEDS) for effect in (1.0, 0.0)}


def test_snips_is_closer_to_the_truth_than_ignoring_the_propensities(gains):
    assert len(SEEDS) >= 5
    assert Gain.of(gains[1.0]).low > 0


def test_without_the_hidden_variable_the_difference_vanishes(gains):
    off = Gain.of(gains[0.0])
    assert off.low <= 0 <= off.high
    assert abs(off.mean) < Gain.of(gains[1.0]).mean / 2
