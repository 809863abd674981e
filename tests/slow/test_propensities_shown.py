"""Without a hidden variable the propensities make no difference. A separate file, so that two workers can run both."""

import pytest

from prism_jax.experiments.propensities import Gain

pytestmark = pytest.mark.slow


def test_without_the_hidden_variable_the_difference_vanishes(propensity_gains):
    off = Gain.of(propensity_gains(0.0))
    assert off.low <= 0 <= off.high
    assert abs(off.mean) < Gain.of(propensity_gains(1.0)).mean / 2
