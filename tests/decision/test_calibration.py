import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import foldnorm
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from prism_jax.decision import calibration

SCHEMES = ["equal_width", "equal_mass"]
rows = st.lists(st.tuples(st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.booleans()), min_size=1)


def columns(data):
    p, y = np.array(data, dtype=np.float64).T
    return p, y


def sample(size=2000, seed=0, sharpness=1.6):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=size)
    return 1 / (1 + np.exp(-sharpness * z)), (rng.random(size) < 1 / (1 + np.exp(-z))).astype(float)


def brute_force(p, y, weight, edges):
    """Masses and gaps of the bins, computed from the definition."""
    bins = len(edges) - 1
    masses, gaps = [], []
    for k in range(bins):
        inside = (p >= edges[k]) & ((p < edges[k + 1]) | (k == bins - 1))
        if weight[inside].sum() > 0:
            masses.append(weight[inside].sum())
            gaps.append(abs(np.average(p[inside] - y[inside], weights=weight[inside])))
    return np.array(masses), np.array(gaps)


@given(rows, st.integers(1, 20))
def test_errors_equal_their_definitions(data, bins):
    p, y = columns(data)
    weight = np.arange(p.size) % 4 + 0.5
    masses, gaps = brute_force(p, y, weight, np.arange(bins + 1) / bins)
    found = calibration.expected_calibration_error(p, y, weight, bins=bins)
    assert found == pytest.approx((masses * gaps).sum() / masses.sum(), abs=1e-12)
    squared = calibration.expected_calibration_error(p, y, weight, bins=bins, norm=2)
    assert squared**2 == pytest.approx((masses * gaps**2).sum() / masses.sum(), abs=1e-12)


@pytest.mark.parametrize(("scheme", "strategy"), [("equal_width", "uniform"), ("equal_mass", "quantile")])
def test_bins_against_scikit_learn(scheme, strategy):
    p, y = sample(size=1500)  # 100 rows for each of 15 bins
    mean_y, mean_p = calibration_curve(y, p, n_bins=15, strategy=strategy)
    curve = calibration.reliability_curve(p, y, scheme=scheme)
    np.testing.assert_allclose(curve.mean_p, mean_p, atol=0.002 if scheme == "equal_mass" else 1e-12)
    np.testing.assert_allclose(curve.mean_y, mean_y, atol=0.02 if scheme == "equal_mass" else 1e-12)
    expected = np.average(np.abs(curve.mean_p - curve.mean_y), weights=curve.count)
    assert calibration.expected_calibration_error(p, y, scheme=scheme) == pytest.approx(expected)


@given(rows)
def test_proper_scores_against_scikit_learn(data):
    p, y = columns(data)
    weight = np.arange(p.size) % 3 + 0.5
    expected = brier_score_loss(y, p, sample_weight=weight, pos_label=1, labels=[0, 1])
    assert calibration.brier_score(p, y, weight) == pytest.approx(expected, abs=1e-12)
    inside = np.clip(p, 1e-6, 1 - 1e-6)
    expected = log_loss(y, inside, sample_weight=weight, labels=[0, 1])
    assert calibration.negative_log_likelihood(inside, y, weight) == pytest.approx(expected, rel=1e-9)


def test_log_likelihood_at_certainty():
    ends, y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    assert calibration.negative_log_likelihood(ends, y) == 0
    assert calibration.negative_log_likelihood(ends, 1 - y) == np.inf
    assert calibration.negative_log_likelihood(ends, np.array([0.0, 0.0]), np.array([1.0, 0.0])) == 0
    assert jax.jit(calibration.negative_log_likelihood)(jnp.asarray(ends), jnp.asarray(1 - y)) == np.inf


@given(st.floats(0, 1), st.lists(st.booleans(), min_size=1), st.integers(1, 20), st.sampled_from(SCHEMES))
def test_constant_probabilities_err_by_their_distance_from_the_base_rate(p, labels, bins, scheme):
    y = np.array(labels, float)
    constant = np.full(y.size, p)
    error = calibration.expected_calibration_error(constant, y, bins=bins, scheme=scheme)
    assert error == pytest.approx(abs(p - y.mean()), abs=1e-12)


@given(rows, st.integers(1, 20), st.sampled_from(SCHEMES), st.integers(2, 4))
def test_order_and_duplication_change_nothing_and_weights_are_repetitions(data, bins, scheme, times):
    p, y = columns(data)
    repeats = np.arange(p.size) % 3 + 1
    options = dict(bins=bins, scheme=scheme)
    for measure in (lambda *args: calibration.expected_calibration_error(*args, **options), calibration.brier_score):
        expected = pytest.approx(measure(p, y), abs=1e-12)
        assert measure(p[::-1], y[::-1]) == expected
        assert measure(np.tile(p, times), np.tile(y, times)) == expected
        weighted = measure(p, y, repeats.astype(float))
        assert weighted == pytest.approx(measure(np.repeat(p, repeats), np.repeat(y, repeats)), abs=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_debiased_squared_error_is_unbiased_by_exact_enumeration(rate):
    """At p = 0 the estimate is never negative, so clipping does not change its mean, which must be rate^2."""
    mean = 0.0
    for labels in itertools.product([0.0, 1.0], repeat=5):
        y = np.array(labels)
        root = calibration.expected_calibration_error(np.zeros(5), y, norm=2, debiased=True)
        mean += np.prod(np.where(y > 0, rate, 1 - rate)) * root**2
    assert mean == pytest.approx(rate**2, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_debiased_absolute_error_subtracts_the_folded_normals_bias(weighted):
    p, y = sample(size=300)
    weight = np.arange(p.size) % 3 + 0.5 if weighted else np.ones(p.size)
    expected = 0.0
    for k in np.unique(np.minimum((p * 15).astype(int), 14)):
        rows = np.minimum((p * 15).astype(int), 14) == k
        difference, w = p[rows] - y[rows], weight[rows]
        gap = np.average(difference, weights=w)
        variance = np.average((difference - gap) ** 2, weights=w)
        spread = np.sqrt(variance * (w**2).sum()) / w.sum()
        normal = foldnorm.mean(abs(gap) / spread, scale=spread) if spread > 1e-9 else abs(gap)
        expected += w.sum() / weight.sum() * (2 * abs(gap) - normal)
    found = calibration.expected_calibration_error(p, y, weight if weighted else None, debiased=True)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("norm", [1, 2])
def test_soft_labels_lose_their_own_noise_and_no_more(norm):
    """Labels within 0.02 of p: an error of 0.003, which the variance of hard labels would turn to -0.09."""
    rng, found = np.random.default_rng(3), []
    for _ in range(50):
        p = rng.random(150)
        y = np.clip(p + rng.normal(0, 0.02, 150), 0, 1)
        found.append(calibration.expected_calibration_error(p, y, norm=norm, debiased=True))
    assert 0 <= np.mean(found) < 0.005


def test_debiasing_takes_off_part_of_the_bias_only():
    """At n = 2,000 and a truth of 0 the mean error falls by 35 to 45 %: so it is called partly debiased."""
    rng, plain, debiased = np.random.default_rng(4), [], []
    for _ in range(100):
        p = rng.random(2000)
        y = (rng.random(2000) < p).astype(float)
        plain.append(calibration.expected_calibration_error(p, y))
        debiased.append(calibration.expected_calibration_error(p, y, debiased=True))
    assert 0.55 < np.mean(debiased) / np.mean(plain) < 0.65


@given(rows)
def test_corp_sums_up(data):
    p, y = columns(data)
    weight = np.arange(p.size) % 3 + 0.5
    parts = calibration.brier_decomposition(p, y, weight)
    assert parts.score == pytest.approx(calibration.brier_score(p, y, weight), abs=1e-12)
    assert parts.score == pytest.approx(parts.miscalibration - parts.discrimination + parts.uncertainty, abs=1e-12)
    assert parts.miscalibration >= -1e-12
    assert parts.discrimination >= -1e-12
    rate = np.average(y, weights=weight)
    assert parts.uncertainty == pytest.approx(rate * (1 - rate), abs=1e-12)
    recalibrated = calibration.fit_isotonic(p, y, weight)(p)
    assert calibration.brier_decomposition(recalibrated, y, weight).miscalibration == pytest.approx(0, abs=1e-12)
    constant = calibration.brier_decomposition(np.full_like(p, p[0]), y, weight)
    assert constant.discrimination == pytest.approx(0, abs=1e-12)
    assert constant.miscalibration == pytest.approx((p[0] - rate) ** 2, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=14), st.sampled_from([0.5, 0.9, 0.95]))
def test_consistency_band_covers_a_calibrated_bin(p, level):
    """The exact distribution of the bin's label sum, a Poisson binomial, lies in the band with at least `level`."""
    p = np.array(p)
    curve = calibration.reliability_curve(p, np.zeros_like(p), bins=1, level=level)
    mass = np.ones(1)
    for q in p:
        mass = np.convolve(mass, [1 - q, q])
    means = np.arange(p.size + 1) / p.size
    inside = (means >= curve.low[0] - 1e-12) & (means <= curve.high[0] + 1e-12)
    assert mass[inside].sum() >= level - 1e-9
    assert curve.low[0] <= p.mean() + 1 / p.size
    assert curve.high[0] >= p.mean() - 1 / p.size


def test_reliability_curve_counts_every_row_once_and_leaves_empty_bins_undefined():
    p = np.array([0.0, 0.2, 0.2, 0.39, 0.8, 1.0])
    y = np.array([0, 0, 1, 1, 1, 1])
    curve = calibration.reliability_curve(p, y, bins=5)
    assert curve.count.tolist() == [1, 3, 0, 0, 2]
    np.testing.assert_allclose(curve.mean_p, [0, 0.79 / 3, np.nan, np.nan, 0.9])
    np.testing.assert_allclose(curve.mean_y, [0, 2 / 3, np.nan, np.nan, 1])
    assert np.isnan(curve.low[2:4]).all()
    assert curve.low[0] == curve.high[0] == 0, "labels of certain scores cannot vary"
    weighted = calibration.reliability_curve(p, y, np.array([1.0, 2, 1, 1, 0, 3]), bins=5)
    np.testing.assert_allclose(weighted.weight, [1, 4, 0, 0, 3])
    np.testing.assert_allclose(weighted.mean_y, [0, 0.5, np.nan, np.nan, 1])
    assert weighted.count.tolist() == curve.count.tolist()


def test_band_of_weighted_rows_uses_the_effective_sample_size():
    p, y = np.full(100, 0.5), np.zeros(100)
    equal = calibration.reliability_curve(p, y, bins=1)
    scaled = calibration.reliability_curve(p, y, np.full(100, 0.1), bins=1)
    assert (scaled.low, scaled.high) == (equal.low, equal.high)
    half = calibration.reliability_curve(p, y, np.repeat([1.0, 0.0], 50), bins=1)
    fifty = calibration.reliability_curve(p[:50], y[:50], bins=1)
    assert (half.low, half.high) == (fifty.low, fifty.high)


MEASURES = {
    "ece": calibration.expected_calibration_error,
    "mass": lambda *args: calibration.expected_calibration_error(*args, scheme="equal_mass"),
    "debiased": lambda *args: calibration.expected_calibration_error(*args, debiased=True),
    "debiased squared": lambda *args: calibration.expected_calibration_error(*args, norm=2, debiased=True),
    "brier": calibration.brier_score,
    "nll": calibration.negative_log_likelihood,
}


@pytest.mark.parametrize("weighted", [False, True])
def test_jax_measures_are_numpys_and_no_error_exceeds_the_root_of_brier(weighted):
    p, y = (column.astype(np.float32) for column in sample())
    weight = [np.random.default_rng(2).integers(0, 3, p.size).astype(np.float32)] if weighted else []
    columns = [jnp.asarray(column) for column in (p, y, *weight)]
    found = jax.jit(lambda *columns: {name: measure(*columns) for name, measure in MEASURES.items()})(*columns)
    for name, measure in MEASURES.items():
        np.testing.assert_allclose(found[name], measure(p, y, *weight), rtol=2e-4, err_msg=name)
        assert name == "nll" or found[name] ** 2 <= found["brier"], name
    for name in ("ece", "brier"):
        eager = MEASURES[name](*columns)
        assert isinstance(eager, jax.Array)
        np.testing.assert_allclose(eager, found[name], rtol=2e-4)


@pytest.mark.slow
def test_jax_sums_of_more_rows_than_float32_can_count_are_exact():
    """Beyond 2^24 a plain float32 sum stops growing. Here p is constant, so the error is exactly |p - mean y|."""
    rows = (1 << 24) + (1 << 22)
    p, y = jnp.full(rows, 0.25, jnp.float32), jnp.ones(rows, bool)
    weight = jnp.ones(rows, jnp.float32)
    assert float(jax.jit(calibration.expected_calibration_error)(p, y, weight)) == pytest.approx(0.75, rel=1e-6)
    mixed = jnp.arange(rows) % 4 < 2
    assert float(calibration.expected_calibration_error(p + 0.05, mixed)) == pytest.approx(0.2, rel=2e-5)


def test_float32_rows_are_summed_in_float64():
    p = np.full(1 << 18, 0.1, np.float32)
    y = np.zeros(p.size, np.float32)
    assert calibration.expected_calibration_error(p, y) == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert calibration.brier_score(p, y).dtype == np.float64


def test_bad_options_are_refused_by_name():
    p, y = sample(20)
    with pytest.raises(ValueError, match="bins: found 0"):
        calibration.expected_calibration_error(p, y, bins=0)
    with pytest.raises(ValueError, match="level: found 1"):
        calibration.reliability_curve(p, y, level=1.0)
