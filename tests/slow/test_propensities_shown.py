"""Without a hidden variable, propensities gain nothing. A separate file, so that two workers share the load."""

import pytest

from prism_jax.experiments.intervals import mean_over_seeds

pytestmark = pytest.mark.study


def test_without_the_hidden_variable_propensities_gain_nothing(propensity_gains):
    """Weights remove no bias then, but their variance may cost a little: the gain is not positive, and small."""
    on, off = propensity_gains(1.0), propensity_gains(0.0)
    assert mean_over_seeds(off).low <= 0
    assert abs(mean_over_seeds(off).value) < mean_over_seeds(on).value / 2
    assert mean_over_seeds(on - off).low > 0
