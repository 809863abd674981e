"""Intervals and p-values of few units: the jackknife by hand, exact intervals where units agree, and coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_uncertainty import quick, sample, seeds

from prism_jax.decision.uncertainty import MOST_UNITS, SHARE, Bounds, Cells, interval, paired_p_values, rate_intervals
from studies.coverage.drawing import POPULATIONS
from studies.coverage.intervals import intervals


def shares(seed, units, mean=0.5):
    rng = np.random.default_rng(seed)
    steps = rng.integers(1, 30, units)
    return np.stack([rng.binomial(steps, rng.beta(5 * mean, 5 * (1 - mean), units)), steps], axis=1).astype(float)


def ratio(totals):
    return totals[..., 0] / totals[..., 1]


def of_units(sums, **given):
    return interval(Cells(np.asarray(sums, float), np.ones(len(sums), np.int64)), ratio, **given)


def test_the_interval_is_that_of_leaving_out_one_unit_at_a_time():
    sums = shares(0, 13)
    left_out = np.array([ratio(sums.sum(0) - one) for one in sums])
    value, change = ratio(sums.sum(0)), left_out - ratio(sums.sum(0))
    error = math.sqrt(12 / 13 * (change**2).sum())
    reach = stats.t.ppf(0.975, 2 * (change**2).sum() ** 2 / (change**4).sum()) * error
    free, bounded = of_units(sums), of_units(sums, bounds=SHARE)
    assert (free.low, free.high) == pytest.approx((value - reach, value + reach), rel=1e-12)
    odds, slope = math.log(value / (1 - value)), value * (1 - value)
    ends = [1 / (1 + math.exp(-odds - sign * reach / slope)) for sign in (-1, 1)]
    assert (bounded.low, bounded.high) == pytest.approx(tuple(ends), rel=1e-12)
    above = of_units(sums, bounds=Bounds(0.0, np.inf))
    assert (above.low, above.high) == pytest.approx([value * math.exp(sign * reach / value) for sign in (-1, 1)])
    assert free.standard_error == bounded.standard_error == pytest.approx(error) and free.units == 13


@pytest.mark.parametrize("units", [1, 2, 4])
def test_fewer_than_five_units_have_neither_interval_nor_p_value(units):
    found = of_units(shares(1, units), bounds=SHARE)
    assert 0 < found.value < 1 and np.isnan([found.low, found.high, found.standard_error]).all()
    decision, other, y, stream = sample(1)
    p = paired_p_values(decision, other, y, streams=stream % units, names=["accuracy"])["accuracy"]
    assert math.isnan(p)


@pytest.mark.parametrize("units", [5, 13, 40])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_statistic_on_its_bound_has_the_exact_interval_of_as_many_trials(units, share):
    sums = np.tile([10 * share, 10.0], (units, 1))
    found = of_units(sums, bounds=SHARE)
    miss = 0.025 ** (1 / units)  # all of n trials alike
    assert (found.low, found.high) == pytest.approx((0.0, 1 - miss) if share == 0 else (miss, 1.0))
    assert (found.low, found.high) == pytest.approx(tuple(stats.binomtest(int(share * units), units).proportion_ci()))
    free = of_units(sums)
    assert np.isnan([free.low, free.high]).all(), "without bounds, nothing tells how much units may differ"


@pytest.mark.parametrize("bounds", [SHARE, Bounds(0.0, np.inf)])
def test_an_error_beyond_the_way_to_a_bound_does_not_carry_an_end_everywhere(bounds):
    """A calibration error of the pooled steps is near 0 where errors of streams cancel, which tells little of it."""
    gaps = np.array([3.0, -2.9] * 20)
    sums = np.stack([gaps, np.full(40, 10.0)], axis=1)
    found = interval(Cells(sums, np.ones(40, np.int64)), lambda totals: np.abs(ratio(totals)), bounds=bounds)
    error = found.standard_error
    assert found.value == pytest.approx(0.005) and error > 5 * found.value
    assert 3 * error < found.high <= found.value + 7 * error and found.low < found.value


def test_units_that_agree_between_the_bounds_have_no_interval():
    """The Brier score of a constant 0.5 is 0.25 in every stream, whatever the labels are."""
    found = of_units(np.tile([2.5, 10.0], (13, 1)), bounds=SHARE)
    assert found.value == 0.25 and np.isnan([found.low, found.high]).all()


def test_a_stream_without_an_offer_does_not_count_for_precision():
    stream = np.repeat(np.arange(8), 5)
    decision, y = stream < 6, np.ones(40, bool)
    found = rate_intervals(decision, y, streams=stream, names=["precision", "speak_rate"])
    assert (found["precision"].units, found["speak_rate"].units) == (6, 8)
    assert found["precision"].low == pytest.approx(0.025 ** (1 / 6)) and found["precision"].high == 1
    alone = rate_intervals(stream < 1, y, streams=stream, names=["precision"])["precision"]
    assert alone.value == 1 and math.isnan(alone.low), "what one stream alone tells has no interval"


@given(seed=seeds, mean=st.floats(0.02, 0.98), units=st.integers(5, 60))
@quick
def test_an_interval_stays_between_its_bounds_and_holds_the_estimate(seed, mean, units):
    found = of_units(shares(seed, units, mean), bounds=SHARE)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low
    mirrored = shares(seed, units, mean)
    mirrored[:, 0] = mirrored[:, 1] - mirrored[:, 0]
    other = of_units(mirrored, bounds=SHARE)
    np.testing.assert_allclose([1 - other.high, 1 - other.low], [found.low, found.high], atol=1e-9)


def test_more_units_than_the_jackknife_takes_are_resampled():
    decision, _, y, stream = sample(2, n=3000, streams=MOST_UNITS)
    few = rate_intervals(decision, y, streams=stream % MOST_UNITS)["precision"]
    assert few == rate_intervals(decision, y, streams=stream, method="jackknife")["precision"]
    many = rate_intervals(decision, y, streams=None)["precision"]
    assert many == rate_intervals(decision, y, streams=None, method="percentile")["precision"]
    assert many.units == 3000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rate of 0.97", "F1", "cost, C_FN = 2", "difference, skewed"])
@pytest.mark.parametrize("units", [5, 13])
def test_intervals_of_few_streams_cover(name, units):
    """The percentile interval covers 63 to 90 % here; `studies coverage --of=few_units` has the whole table."""
    found = intervals(POPULATIONS[name], units, 600)
    assert found[0].coverage >= 0.92 - 2 * math.sqrt(0.92 * 0.08 / 600)
