"""The propensities experiment: its table holds every seed's gain and the mean with its t interval."""

import numpy as np
import pytest
from scipy import stats

from prism_jax.experiments.intervals import mean_over_seeds, show_interval
from prism_jax.experiments.propensities import table


def test_the_table_holds_every_gain_and_the_mean_with_its_interval():
    gains = {"on": np.array([0.01, 0.02, 0.03]), "off": np.array([-0.001, 0.0, 0.001])}
    shown = table(gains, (4, 7, 9))
    assert shown.headings == ("", "seed 4", "seed 7", "seed 9", "mean gain")
    on, off = shown.sections[0].rows
    assert on.cells == ("+0.0100", "+0.0200", "+0.0300", "+0.0200 [-0.0048, +0.0448]")
    assert off.cells == ("-0.0010", "+0.0000", "+0.0010", "+0.0000 [-0.0025, +0.0025]")


def test_the_interval_is_students():
    values = np.array([0.3, 0.1, 0.25, 0.2])
    found = mean_over_seeds(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), expected.low, expected.high))
    assert show_interval(found) == f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
