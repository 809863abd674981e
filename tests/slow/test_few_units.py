"""Intervals of 5, 13 and 40 streams hold the truth at least 92 % of the time, and reject a true null at most 7 %."""

import pytest

from prism_jax.experiments.few_units import POPULATIONS, UNITS, coverage

pytestmark = pytest.mark.study


@pytest.mark.parametrize("name", POPULATIONS)
def test_intervals_of_few_streams_cover(name):
    for units in UNITS:
        held = coverage(POPULATIONS[name], units, replications=2000)
        assert held >= (0.93 if name.startswith("difference") else 0.92), units


def test_percentile_intervals_of_few_streams_do_not():
    assert coverage(POPULATIONS["cost, C_FN = 2"], 5, "percentile", replications=2000) < 0.88
