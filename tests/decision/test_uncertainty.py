"""Bootstrap, intervals and paired tests, against the multinomial distribution, index resampling and SciPy."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from prism_jax.decision import metrics
from prism_jax.decision.uncertainty import (
    HEADLINE,
    Cells,
    bootstrap,
    count_cells,
    interval,
    mcnemar,
    paired_p_values,
    paired_rates,
    rate_intervals,
    resample,
    tost,
)
from prism_jax.decision.uncertainty.bootstrap import leave_one_out, summarise

seeds = st.integers(0, 2**32 - 1)
quick = settings(deadline=None, max_examples=30)
decisions = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=2, max_size=60)


def sample(seed, n=300, streams=30):
    rng = np.random.default_rng(seed)
    stream = rng.integers(0, streams, n)
    habit = rng.random(streams)[stream]
    y = rng.random(n) < habit
    return rng.random(n) < 0.2 + 0.6 * y, rng.random(n) < 0.3 + 0.5 * y, y, stream


def mean_of_cells(values):
    """The mean of a variable whose value in cell c is values[c]."""
    return lambda counts: counts @ values / counts.sum(axis=-1)


# --- the resamples ---------------------------------------------------------------------------------------------------


def test_plain_resamples_have_the_multinomials_mean_and_covariance():
    counts = np.array([40, 0, 7, 53])
    draws = resample(Cells(None, counts), 40_000, seed=0)
    n, p = 100, counts / 100
    assert np.all(draws.sum(axis=1) == n) and np.all(draws[:, 1] == 0)
    covariance = n * (np.diag(p) - np.outer(p, p))
    np.testing.assert_allclose(draws.mean(axis=0), n * p, atol=4 * math.sqrt(25 / 40_000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=4 * 25 * math.sqrt(2 / 40_000))


def test_clustered_resamples_have_the_law_of_drawing_streams():
    _, decision, y, stream = sample(0, n=200, streams=12)
    cell = 2 * y + decision
    cells = count_cells(cell, 4, stream)
    assert cells.number == 12 and cells.totals().tolist() == np.bincount(cell, minlength=4).tolist()
    by_stream = np.array([np.bincount(cell[stream == s], minlength=4) for s in np.unique(stream)])
    draws = resample(cells, 40_000, seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), by_stream.sum(axis=0), rtol=0.01)
    expected = 12 * np.cov(by_stream.T, ddof=0)  # a sum of 12 independent draws of a stream
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.04 * np.abs(expected).max())


def test_both_ways_of_drawing_have_one_law(monkeypatch):
    """Few types of many units are drawn by binomials and many types by index; both give the same multinomial."""
    counts = np.array([5, 1, 3, 1])
    moments = []
    for cost in (0, 10**9):
        monkeypatch.setattr(bootstrap, "_DRAWS_PER_BINOMIAL", cost)
        draws = resample(Cells(None, counts), 20_000, seed=2)
        assert np.all(draws.sum(axis=1) == 10)
        moments.append(np.concatenate([draws.mean(axis=0), np.cov(draws.T).ravel()]))
    np.testing.assert_allclose(*moments, atol=0.05)


@given(seed=seeds)
@quick
def test_a_stream_of_one_step_each_is_plain(seed):
    _, decision, y, _ = sample(seed, n=40)
    cell = 2 * y + decision
    plain, alone = count_cells(cell, 4), count_cells(cell, 4, np.arange(40))
    assert plain.totals().tolist() == alone.totals().tolist() and plain.number == alone.number == 40
    names = np.array([f"stream {i}" for i in range(40)])
    assert count_cells(cell, 4, names).multiplicity.tolist() == alone.multiplicity.tolist()


@pytest.mark.parametrize("unit", [1, 2**22 + 1, 0.375])
def test_sparse_units_resample_exactly_beyond_single_precision_too(unit):
    dense = unit * np.random.default_rng(0).integers(0, 3, (50, 7))
    thin = Cells.of_units(sparse.csr_array(dense))
    found = resample(thin, 200, seed=1)
    assert found.dtype == np.result_type(dense)
    np.testing.assert_array_equal(found, resample(Cells.of_units(dense), 200, seed=1))


def test_sparse_units_resample_like_dense_ones():
    _, decision, y, stream = sample(3)
    dense = count_cells(2 * y + decision, 4, stream)
    thin = Cells(sparse.csr_array(dense.units), dense.multiplicity)
    statistic = mean_of_cells(np.arange(4.0))
    for left, right in zip(leave_one_out(thin, statistic), leave_one_out(dense, statistic), strict=True):
        np.testing.assert_array_equal(left, right)
    assert interval(thin, statistic, method="bca") == interval(dense, statistic, method="bca")


def test_blocks_change_nothing(monkeypatch):
    _, decision, y, stream = sample(4)
    cells = count_cells(2 * y + decision, 4, stream)
    whole = resample(cells, 300, seed=0), leave_one_out(cells, mean_of_cells(np.arange(4.0)))[0]
    monkeypatch.setattr(bootstrap, "_BLOCK", 64)
    np.testing.assert_array_equal(resample(cells, 300, seed=0), whole[0])
    np.testing.assert_array_equal(leave_one_out(cells, mean_of_cells(np.arange(4.0)))[0], whole[1])


# --- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_agree_with_index_resampling():
    decision, _, y, stream = sample(5)
    rng = np.random.default_rng(9)
    for streams in (None, stream):
        found = rate_intervals(decision, y, streams=streams, method="percentile", resamples=6_000)
        rows_of = [np.flatnonzero(stream == s) for s in np.unique(stream)]
        values = {name: [] for name in HEADLINE}
        for _ in range(1500):
            if streams is None:
                rows = rng.integers(0, len(y), len(y))
            else:
                rows = np.concatenate([rows_of[s] for s in rng.integers(0, len(rows_of), len(rows_of))])
            rates = metrics.rates(metrics.confusion(decision[rows], y[rows]))
            for name in HEADLINE:
                values[name].append(getattr(rates, name))
        for name in HEADLINE:
            spread = np.std(values[name])
            assert found[name].standard_error == pytest.approx(spread, rel=0.06), name
            tails = np.quantile(values[name], [0.025, 0.975])
            np.testing.assert_allclose([found[name].low, found[name].high], tails, atol=0.2 * spread, err_msg=name)
            assert found[name].value == getattr(metrics.rates(metrics.confusion(decision, y)), name)


@given(seed=seeds, method=st.sampled_from(["percentile", "bca"]))
@quick
def test_false_alarm_mirrors_precision_under_one_seed(seed, method):
    decision, _, y, stream = sample(seed)
    found = rate_intervals(decision, y, streams=stream, method=method, resamples=500, seed=seed % 7)
    precision, alarm = found["precision"], found["false_alarm"]
    np.testing.assert_allclose([1 - precision.high, 1 - precision.low], [alarm.low, alarm.high], atol=1e-12)
    assert alarm.standard_error == pytest.approx(precision.standard_error)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_scipy_gives_the_same_interval_from_the_same_replicates(method):
    values = np.random.default_rng(0).exponential(size=25)
    levels, inverse = np.unique(values, return_inverse=True)
    cells = count_cells(inverse, len(levels))
    found = interval(cells, mean_of_cells(levels), method=method, resamples=5000, level=0.9)
    replicates = mean_of_cells(levels)(resample(cells, 5000, seed=0))
    theirs = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=0,
        confidence_level=0.9,
        method=method,
        bootstrap_result=type("Replicates", (), {"bootstrap_distribution": replicates})(),
    )
    np.testing.assert_allclose(
        [found.low, found.high], [theirs.confidence_interval.low, theirs.confidence_interval.high], rtol=1e-9
    )
    assert found.standard_error == pytest.approx(theirs.standard_error)


def test_leave_one_out_is_the_statistic_without_each_unit():
    decision, _, y, stream = sample(7, n=50, streams=8)
    cell = 2 * y + decision
    statistic = mean_of_cells(np.array([1.0, 5.0, -2.0, 0.5]))
    for streams in (None, stream):
        values, times = leave_one_out(count_cells(cell, 4, streams), statistic)
        units = np.arange(50) if streams is None else stream
        expected = [statistic(np.bincount(cell[units != unit], minlength=4)) for unit in np.unique(units)]
        np.testing.assert_allclose(np.sort(np.repeat(values, times)), np.sort(expected), rtol=1e-12)


@pytest.mark.parametrize("clustered", [True, False])
def test_weights_are_resampled_with_their_steps(clustered):
    """Integer weights act as repetitions within a stream; the estimate is that of the weighted counts."""
    _, decision, y, stream = sample(3)
    streams = stream if clustered else np.arange(len(y))
    weight = np.random.default_rng(1).integers(1, 4, len(y))
    again = np.repeat(np.arange(len(y)), weight)
    found = rate_intervals(decision, y, streams=streams, weight=weight, resamples=300)
    repeated = rate_intervals(decision[again], y[again], streams=streams[again], resamples=300)
    for name in found:
        assert found[name].value == pytest.approx(repeated[name].value)
        assert found[name].standard_error == pytest.approx(repeated[name].standard_error, rel=0.25)
    alone = rate_intervals(decision, y, streams=None, weight=weight, resamples=300)
    assert alone["recall"].value == pytest.approx(found["recall"].value)


def test_undefined_resamples_are_counted_and_left_out():
    decision, y = np.array([True, False, False]), np.array([True, False, True])
    found = rate_intervals(decision, y, streams=None, names=["precision", "recall"], method="percentile")
    assert found["precision"].undefined == pytest.approx((2 / 3) ** 3, abs=0.02)
    assert (found["precision"].low, found["precision"].high, found["precision"].standard_error) == (1, 1, 0)
    assert 0 < found["recall"].undefined < 0.06
    with pytest.raises(ValueError, match="found NaN on the data"):
        rate_intervals(~np.ones(3, bool), y, streams=None)


def test_a_constant_statistic_has_a_point_for_an_interval():
    cells = Cells(None, np.array([4, 6]))
    for method in ("percentile", "bca"):
        found = interval(cells, lambda counts: counts.sum(axis=-1) * 1.0, method=method, resamples=100)
        assert (found.value, found.low, found.high, found.standard_error) == (10, 10, 10, 0)
    with pytest.raises(ValueError, match="expected percentile for such a statistic"):
        summarise(np.zeros(()), np.ones(50), 0.9, np.arange(3.0), np.ones(3, int))


# --- pairs -----------------------------------------------------------------------------------------------------------


@given(rows=decisions)
@quick
def test_paired_differences_are_differences(rows):
    first, second, y = np.array(rows, bool).T
    names = ("accuracy", "speak_rate")
    found = paired_rates(first, second, y, streams=None, names=names, resamples=50)
    for name in names:
        expected = getattr(metrics.rates(metrics.confusion(second, y)), name) - getattr(
            metrics.rates(metrics.confusion(first, y)), name
        )
        assert found[name].value == pytest.approx(expected, abs=1e-12)
    same = paired_rates(first, first, y, streams=None, names=names, resamples=50)
    assert all(same[name].value == 0 for name in names), "a policy does not differ from itself"
    drawn = paired_rates(first, first, y, streams=None, names=names, method="percentile", resamples=50)
    assert all(tuple(drawn[name])[:5] == (0, 0, 0, 0, 0) for name in names)


def test_decisions_that_count_with_labels_of_their_own_are_paired():
    first, second, y, stream = sample(8, n=600)
    y_second = np.where(second, np.random.default_rng(0).integers(0, 2, 600), y)
    given = {"streams": stream, "names": ["recall", "f1"], "resamples": 200}
    found = paired_rates(first, second, y, y_second=y_second, **given)
    rates = [metrics.rates(metrics.confusion(*one)) for one in ((first, y), (second, y_second))]
    for name in given["names"]:
        assert found[name].value == pytest.approx(float(getattr(rates[1], name) - getattr(rates[0], name)))
        assert found[name].low < found[name].value < found[name].high
    assert paired_rates(first, second, y, y_second=y, **given)["f1"].value == pytest.approx(
        float(paired_rates(first, second, y, **given)["f1"].value)
    )
    assert paired_p_values(first, first, y, y_second=y, **given) == {"recall": 1.0, "f1": 1.0}
    right = [np.asarray(one[0]) == (one[1] == 1) for one in ((first, y), (second, y_second))]
    counts = mcnemar(first, second, y, y_second)
    assert (counts.only_first, counts.only_second) == ((right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum())


def test_pairing_removes_what_policies_share():
    decision, _, y, stream = sample(8, n=600)
    other = decision.copy()
    other[::50] ^= True
    paired = paired_rates(decision, other, y, streams=stream, names=["accuracy"])["accuracy"]
    alone = [rate_intervals(d, y, streams=stream, names=["accuracy"])["accuracy"] for d in (decision, other)]
    assert paired.standard_error < 0.5 * math.hypot(*(one.standard_error for one in alone))
    swapped = paired_rates(other, decision, y, streams=stream, names=["accuracy"])["accuracy"]
    assert swapped.value == pytest.approx(-paired.value)


@pytest.mark.parametrize("streams", [30, 1200])
def test_p_values_agree_with_the_intervals(streams):
    decision, _, y, stream = sample(8, n=600 if streams == 30 else 2400, streams=streams)
    for flipped in (4, 9, 30):
        other = decision.copy()
        other[:: len(y) // flipped] ^= True
        given = {"streams": stream, "names": ["accuracy", "speak_rate"], "resamples": 999}
        p_values, found = paired_p_values(decision, other, y, **given), paired_rates(decision, other, y, **given)
        for name, p in p_values.items():
            outside = found[name].low > 0 or found[name].high < 0
            assert outside == (p < 0.05) or (streams > 1000 and abs(p - 0.05) < 0.01)
            swapped = paired_p_values(other, decision, y, **given)[name]
            assert swapped == pytest.approx(p, abs=0.0 if streams == 30 else 0.05), "two-sided"
    assert paired_p_values(decision, decision, y, **given) == {"accuracy": 1.0, "speak_rate": 1.0}
    never = paired_p_values(decision & False, other & False, y, streams=stream, names=["precision"], resamples=9)
    assert math.isnan(never["precision"]), "a precision without offers is undefined"


@given(rows=decisions)
@quick
def test_mcnemar_is_the_exact_binomial(rows):
    first, second, y = np.array(rows, bool).T
    found = mcnemar(first, second, y)
    b, c = np.sum((first == y) & (second != y)), np.sum((second == y) & (first != y))
    assert (found.only_first, found.only_second) == (b, c)
    n = int(b + c)
    chances = [Fraction(math.comb(n, k), 2**n) for k in range(n + 1)]
    exact = sum(
        chance for chance in chances if chance <= chances[int(b)]
    )  # outcomes at most as likely as the observed one
    assert found.p_value == pytest.approx(float(exact), rel=1e-12)
    assert mcnemar(second, first, y).p_value == pytest.approx(found.p_value, rel=1e-12)


# --- equivalence -----------------------------------------------------------------------------------------------------


@given(seed=seeds)
@quick
def test_tost_is_two_one_sided_t_tests(seed):
    values = np.random.default_rng(seed).normal(0.02, 0.1, 20)
    found = tost(values.mean(), values.std(ddof=1) / math.sqrt(20), -0.05, 0.05, degrees_of_freedom=19)
    above = stats.ttest_1samp(values, -0.05, alternative="greater").pvalue
    below = stats.ttest_1samp(values, 0.05, alternative="less").pvalue
    np.testing.assert_allclose(found, (above, below, max(above, below)), rtol=1e-9)


@given(estimate=st.floats(-1, 1), error=st.floats(0.01, 1), alpha=st.floats(0.01, 0.3))
@quick
def test_tost_rejects_exactly_if_the_interval_lies_within(estimate, error, alpha):
    z = stats.norm.ppf(1 - alpha)
    inside = min(estimate - z * error + 0.4, 0.4 - (estimate + z * error))
    found = tost(estimate, error, -0.4, 0.4)
    if abs(inside) > 1e-9:
        assert (found.p_value < alpha) == (inside > 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d, y: rate_intervals(d, y * 0.5, streams=None), "y: found 0.5 at index 0, expected 0 or 1"),
        (lambda d, y: rate_intervals(y * 0.7, y, streams=None), "decision: found 0.7 at index 0, expected 0 or 1"),
        (lambda d, y: paired_rates(d, y * 0.7, y, streams=None), "second: found 0.7 at index 0, expected 0 or 1"),
        (lambda d, y: mcnemar(y * 0.7, d, y), "first: found 0.7 at index 0, expected 0 or 1"),
        (lambda d, y: rate_intervals(d, y, streams=[1, 2]), "streams: found 2 rows"),
        (lambda d, y: rate_intervals(d, y, streams=None, names=["gain"]), "names: found 'gain', expected one of"),
        (lambda d, y: rate_intervals(d, y, streams=None, level=0.0), "level: found 0.0"),
        (lambda d, y: rate_intervals(d, y, streams=None, resamples=0), "resamples: found 0"),
        (lambda d, y: count_cells(np.array([0, 4]), 4), r"cell: found 4 at index 1, expected a cell in \[0, 3\]"),
        (lambda d, y: tost(0.0, 0.0, -1.0, 1.0), "standard_error: found 0.0"),
        (lambda d, y: tost(0.0, 1.0, -1.0, 1.0, 0), "degrees_of_freedom: found 0, expected a number above 0"),
        (lambda d, y: tost(0.0, 1.0, -1.0, 1.0, math.nan), "degrees_of_freedom: found nan"),
        (lambda d, y: tost(0.0, 1.0, 1.0, 1.0), "low, high: found 1.0 and 1.0"),
        (lambda d, y: tost(math.nan, 1.0, -1.0, 1.0), "estimate: found nan"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.array([True, False, True]), np.array([1, 1, 0]))


def test_all_resamples_of_a_small_sample_are_possible():
    """Resampling three steps gives each of the ten count vectors with its multinomial probability."""
    draws = resample(Cells(None, np.array([1, 1, 1])), 20_000, seed=0)
    for counts in itertools.product(range(4), repeat=3):
        if sum(counts) == 3:
            chance = math.factorial(3) / math.prod(map(math.factorial, counts)) / 27
            assert np.mean((draws == counts).all(axis=1)) == pytest.approx(chance, abs=0.01)


def test_a_difference_that_is_as_often_above_0_as_below_has_a_p_value_near_1():
    y, first, second = (np.tile(pattern, 300) for pattern in ([0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 1]))
    streams = np.arange(len(y))  # more units than the jackknife takes
    p_value = paired_p_values(first, second, y, streams=streams, names=["accuracy"], resamples=2000)["accuracy"]
    assert 0.9 < p_value <= 1
