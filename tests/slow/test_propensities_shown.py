"""Without a hidden variable the propensities make no difference.

This is a separate file so that two workers can run the two tests of the study.
"""

import pytest

from prism_jax.experiments.intervals import MeanInterval

pytestmark = pytest.mark.slow


def test_without_the_hidden_variable_the_difference_vanishes(propensity_gains):
    off = MeanInterval.of(propensity_gains(0.0))
    assert off.low <= 0 <= off.high
    assert abs(off.mean) < MeanInterval.of(propensity_gains(1.0)).mean / 2
