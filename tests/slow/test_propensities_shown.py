"""Without a hidden variable, propensities make no difference. A separate file, so that two workers share the load."""

import pytest

from prism_jax.experiments.intervals import MeanInterval

pytestmark = pytest.mark.slow


def test_without_the_hidden_variable_the_difference_vanishes(propensity_gains):
    off = MeanInterval.of(propensity_gains(0.0))
    assert off.low <= 0 <= off.high
    assert abs(off.mean) < MeanInterval.of(propensity_gains(1.0)).mean / 2
