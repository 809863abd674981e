import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from prism_jax.decision import calibration
from prism_jax.decision.calibration.calibrators import BETA_RANGE, CalibrationWarning

probabilities = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
temperatures = st.floats(0.05, 20)


class Logit(ClassifierMixin, BaseEstimator):
    """A classifier whose decision function is its only feature, so that scikit-learn calibrates our scores."""

    def fit(self, x, y):
        self.classes_ = np.array([0, 1])
        self.n_features_in_ = 1
        return self

    def decision_function(self, x):
        return np.asarray(x)[:, 0]

    def predict(self, x):
        return (self.decision_function(x) > 0).astype(int)


def scikit_learn(method, z, y, weight=None):
    base = FrozenEstimator(Logit().fit(None, None))
    model = CalibratedClassifierCV(base, method=method).fit(z[:, None], y, sample_weight=weight)
    return lambda scores: model.predict_proba(scores[:, None])[:, 1]


def sample(size=3000, true_temperature=1.7, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=2, size=size)
    return expit(z), (rng.random(size) < expit(z / true_temperature)).astype(float)


@given(probabilities, temperatures, temperatures)
def test_temperature_identities(p, first, second):
    assert calibration.apply_temperature(p, 1.0) == p
    scaled = calibration.apply_temperature(p, first)
    assert (p < 0.5) >= (scaled < 0.5)
    assert calibration.apply_temperature(0.5, first) == 0.5
    assert (calibration.apply_temperature(0.0, first), calibration.apply_temperature(1.0, first)) == (0, 1)
    exact = round(p * 1024) / 1024  # so that 1 - p loses no digit
    mirrored = calibration.apply_temperature(1 - exact, first)
    np.testing.assert_allclose(mirrored, 1 - calibration.apply_temperature(exact, first), atol=1e-12)
    assume(1e-9 < p < 1 - 1e-9 and 1e-9 < scaled < 1 - 1e-9)
    np.testing.assert_allclose(
        calibration.apply_temperature(scaled, second), calibration.apply_temperature(p, first * second), rtol=1e-6
    )


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.4, 4), st.integers(30, 400))
def test_fitted_temperature_solves_its_score_equation_and_minimises_the_likelihood(seed, truth, size):
    p, y = sample(size, truth, seed)
    weight = np.random.default_rng(seed + 1).random(size)
    assume(0 < y.mean() < 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        t = calibration.fit_temperature(p, y, weight)
    assume(1 / t not in BETA_RANGE)
    z = logit(p)
    assert abs(np.sum(weight * z * (expit(z / t) - y))) <= 1e-9 * np.sum(weight * np.abs(z))

    def likelihood(beta):
        return np.sum(weight * (np.logaddexp(0, beta * z) - y * beta * z))

    found = minimize_scalar(likelihood, bounds=BETA_RANGE, method="bounded", options={"xatol": 1e-12})
    assert likelihood(1 / t) <= found.fun + 1e-9
    assert 1 / t == pytest.approx(found.x, rel=1e-5)


@pytest.mark.filterwarnings("ignore:Since FrozenEstimator")
def test_temperature_against_scikit_learn():
    p, y = sample()
    weight = np.random.default_rng(1).random(p.size)
    t = calibration.fit_temperature(p, y, weight)
    theirs = scikit_learn("temperature", logit(p), y.astype(int), weight)
    np.testing.assert_allclose(calibration.apply_temperature(p, t), theirs(logit(p)), atol=1e-5)


def test_temperature_recovers_the_truth_on_many_rows():
    """Enough rows that the fit starts from a subsample."""
    p, y = sample(200_000)
    assert calibration.fit_temperature(p, y) == pytest.approx(1.7, abs=0.03)
    assert calibration.fit_temperature(p.astype(np.float32), y) == pytest.approx(
        calibration.fit_temperature(p, y), rel=1e-5
    )
    assert calibration.fit_temperature(jnp.asarray(p), jnp.asarray(y)) == pytest.approx(
        calibration.fit_temperature(p, y), rel=1e-5
    )


def test_soft_labels_that_agree_need_no_temperature():
    p, _ = sample(100)
    assert calibration.fit_temperature(p, p) == pytest.approx(1, rel=1e-9)
    assert calibration.fit_temperature(p, calibration.apply_temperature(p, 3.0)) == pytest.approx(3, rel=1e-9)


def test_temperature_at_its_bounds_warns_with_the_reason():
    p, y = np.array([0.2, 0.4, 0.6, 0.8]), np.array([0, 0, 1, 1])
    with pytest.warns(CalibrationWarning, match=r"found T = 0\.05.*separable data"):
        assert calibration.fit_temperature(p, y) == 0.05
    with pytest.warns(CalibrationWarning, match=r"found T = 20.*do not agree"):
        assert calibration.fit_temperature(p, 1 - y) == 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calibration.fit_temperature(np.full(4, 0.5), y) == 1


def test_certain_probabilities_do_not_break_the_fit():
    p, y = sample(300)
    with_ends = np.append(p, [0.0, 1.0]), np.append(y, [0.0, 1.0])
    assert calibration.fit_temperature(*with_ends) == pytest.approx(calibration.fit_temperature(p, y), rel=1e-6)
    wrong = np.append(p, [0.0, 1.0]), np.append(y, [1.0, 0.0])  # no temperature moves them, so they say nothing of it
    assert calibration.fit_temperature(*wrong) == pytest.approx(calibration.fit_temperature(p, y), rel=1e-6)


@pytest.mark.filterwarnings("ignore:Since FrozenEstimator")
@pytest.mark.parametrize("weighted", [False, True])
def test_platt_against_scikit_learn(weighted):
    p, y = sample()
    weight = np.random.default_rng(1).integers(1, 4, p.size).astype(float) if weighted else None
    plain = calibration.fit_penalised(p, y, weight, identity_rows=1e-9)
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(logit(p)[:, None], y, sample_weight=weight)
    assert plain.scale == pytest.approx(model.coef_[0, 0], rel=1e-4)
    assert plain.bias == pytest.approx(model.intercept_[0], abs=1e-4)
    smooth = calibration.fit_platt(p, y, weight)
    theirs = scikit_learn("sigmoid", logit(p), y.astype(int), weight)
    np.testing.assert_allclose(smooth(p), theirs(logit(p)), atol=1e-5)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(5, 200))
def test_platt_solves_its_score_equations(seed, size):
    p, y = sample(size, seed=seed)
    assume(0 < y.sum() < size)
    fitted = calibration.fit_platt(p, y)
    targets = np.where(y > 0, (y.sum() + 1) / (y.sum() + 2), 1 / (size - y.sum() + 2))
    residual = fitted(p) - targets
    assert abs(residual.sum()) <= 1e-7 * size
    assert abs((residual * logit(p)).sum()) <= 1e-7 * size


def test_bold_certainties_do_not_turn_the_map_of_many_labels():
    p, y = sample(20_000)
    p, wrong = np.clip(p, 0.03, 0.97), np.arange(4000) // 2 % 5 == 0
    stated = np.arange(4000) % 2.0
    fitted = calibration.fit_penalised(np.append(p, stated), np.append(y, np.where(wrong, 1 - stated, stated)))
    assert fitted.bound == pytest.approx(logit(0.97))
    assert fitted.scale == pytest.approx(calibration.fit_penalised(p, y).scale, rel=0.25)


def test_middling_labels_cut_off_no_clear_probability():
    fitted = calibration.fit_penalised(np.array([0.45, 0.55, 0.6]), np.array([0.0, 1.0, 1.0]))
    assert fitted(0.95) > fitted(0.9) > fitted(0.6)


def test_platt_with_smooth_targets_survives_separable_data():
    p, y = np.array([0.2, 0.4, 0.6, 0.8]), np.array([0.0, 0.0, 1.0, 1.0])
    assert np.isfinite(calibration.fit_platt(p, y)(p)).all()


def test_platt_of_constant_scores_is_the_base_rate():
    y = np.array([0.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(calibration.fit_penalised(np.full(4, 0.7), y, identity_rows=1e-9)(0.7), 0.25, rtol=1e-8)


def test_a_scale_at_its_bound_has_the_best_bias():
    p, y = sample(300)
    z, rows = logit(p), 1e-3
    with pytest.warns(CalibrationWarning, match=r"scale: found 0\.05, a bound of its range, as for scores that do not"):
        fitted = calibration.fit_penalised(1 - p, y, identity_rows=rows)
    residual = fitted(1 - p) - y
    shift = (0.05 - 1) * -z.mean() + fitted.bias
    assert fitted.scale == 0.05 and abs(residual.sum() + rows * shift / 20) <= 1e-5


class Variants(chex.TestCase):
    """Fitted maps with jit and without: their formulas in NumPy, in the order of the scores."""

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters("temperature", "platt", "isotonic")
    def test_a_fitted_map_is_its_formula_and_keeps_the_order(self, name):
        p, y = sample(2000)
        temperature, platt, isotonic = (fit(p, y) for fit in list(FITS.values())[:3])
        grid = np.sort(np.append(p[:200], [0.0, 0.5, 1.0]).astype(np.float32)).astype(np.float64)
        fitted, expected, atol = {
            "temperature": (
                lambda p: calibration.apply_temperature(p, temperature),
                expit(logit(grid) / temperature),
                0,
            ),
            "platt": (platt, expit(platt.scale * logit(grid) + platt.bias), 0),
            "isotonic": (isotonic, np.interp(grid, isotonic.x, isotonic.y), 2e-4),
        }[name]
        found = np.asarray(self.variant(lambda p: fitted(p))(jnp.asarray(grid, jnp.float32)))
        inside = (grid > 0) & (grid < 1)
        np.testing.assert_allclose(fitted(grid)[inside], expected[inside], rtol=1e-9)
        np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-4, atol=atol)
        assert np.all(np.diff(found) >= 0)
        assert np.all((found[[0, -1]] == [0, 1]) == (name != "platt")), "a bias ends certainty"


def test_a_temperature_has_gradients_at_certainty():
    slope = jax.jit(jax.grad(lambda t: calibration.apply_temperature(jnp.array([0.0, 0.3, 1.0]), t).sum()))
    assert np.isfinite(slope(2.0))


labelled = st.lists(st.tuples(st.sampled_from(np.linspace(0, 1, 9).tolist()), st.floats(0, 1)), min_size=1)


@given(labelled, st.booleans())
def test_isotonic_against_scikit_learn(data, weighted):
    p, y = np.array(data).T
    weight = np.arange(p.size) % 3 + 0.5 if weighted else None
    fitted = calibration.fit_isotonic(p, y, weight)
    model = IsotonicRegression(out_of_bounds="clip").fit(p, y, sample_weight=weight)
    grid = np.linspace(0, 1, 50)
    np.testing.assert_allclose(fitted(grid), model.predict(grid), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("labels", [bool, np.int64, np.float32])
def test_isotonic_of_hard_labels_is_the_same_in_every_type(dtype, labels):
    """Hard labels use the faster sort on bits; the data contain -0.0, ties and both ends."""
    rng = np.random.default_rng(3)
    p = np.concatenate([rng.random(500), rng.integers(0, 5, 100) / 4, [-0.0, 0.0, 1.0]]).astype(dtype)
    y = rng.random(p.size) < p
    expected = calibration.fit_isotonic(p, np.where(y, 1.0, 0.0), np.ones(p.size))
    fitted = calibration.fit_isotonic(p, y.astype(labels))
    np.testing.assert_allclose(fitted.x, expected.x, rtol=1e-15)
    np.testing.assert_allclose(fitted.y, expected.y, rtol=1e-12)


@pytest.fixture
def grouped():
    p, y = sample(3000)
    group = np.random.default_rng(5).choice(["code", "life", "writing"], p.size, p=[0.6, 0.38, 0.02])
    p = np.where(group == "code", calibration.apply_temperature(p, 0.5), p)
    return p, y, group


def test_groups_without_prior_stand_alone(grouped):
    p, y, group = grouped
    fitted = calibration.fit_grouped(p, y, group, prior_rows=0.0)
    assert fitted.pooled == pytest.approx(calibration.fit_temperature(p, y), rel=1e-9)
    for name, temperature in fitted.temperatures.items():
        inside = group == name
        assert temperature == pytest.approx(calibration.fit_temperature(p[inside], y[inside]), rel=1e-6)
        np.testing.assert_allclose(fitted(p, group)[inside], calibration.apply_temperature(p[inside], temperature))


def test_groups_shrink_to_the_pooled_temperature(grouped):
    p, y, group = grouped
    alone = calibration.fit_grouped(p, y, group, prior_rows=0.0)
    for name in alone.temperatures:
        betas = [
            1 / calibration.fit_grouped(p, y, group, prior_rows=rows).temperatures[name]
            for rows in (0.0, 10.0, 100.0, 1e4, 1e9)
        ]
        distances = np.abs(np.array(betas) - 1 / alone.pooled)
        assert np.all(np.diff(distances) <= 1e-9)
        assert distances[-1] < 1e-5
    shrunk = calibration.fit_grouped(p, y, group)
    for name, least in (("code", 0.8), ("writing", 0.0)):  # many rows determine their own temperature, few do not
        ratio = (1 / shrunk.temperatures[name] - 1 / shrunk.pooled) / (1 / alone.temperatures[name] - 1 / alone.pooled)
        assert least < ratio < 0.999 if name == "code" else 0 <= ratio < 0.6


def test_unseen_groups_take_the_pooled_temperature(grouped):
    p, y, group = grouped
    fitted = calibration.fit_grouped(p, y, group)
    elsewhere = fitted(p[:5], np.full(5, "mail"))
    np.testing.assert_allclose(elsewhere, calibration.apply_temperature(p[:5], fitted.pooled))


def test_a_group_of_one_class_leans_on_the_prior_or_is_refused():
    p, y = sample(400)
    group = np.where(y > 0, np.arange(400) % 2, 0)  # group 1 has positive labels only
    assert set(calibration.fit_grouped(p, y, group).temperatures) == {0, 1}
    with pytest.raises(ValueError, match="y of group 1: found only the label 1"):
        calibration.fit_grouped(p, y, group, prior_rows=0.0)


FITS = {
    "temperature": calibration.fit_temperature,
    "platt": calibration.fit_platt,
    "isotonic": calibration.fit_isotonic,
    "grouped": lambda p, y, *weight: calibration.fit_grouped(p, y, np.zeros(p.size), *weight),
}


@pytest.mark.parametrize("name", ["temperature", "platt", "grouped"])
def test_fits_that_need_two_classes_say_so(name):
    p = np.array([0.2, 0.8, 0.5])
    for label in (0, 1):
        with pytest.raises(ValueError, match=f"y: found only the label {label} on rows of positive weight"):
            FITS[name](p, np.full(3, label))
    with pytest.raises(ValueError, match="y: found only the label 1"):
        FITS[name](p, np.array([0, 1, 1]), np.array([0.0, 1.0, 1.0]))


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
def test_apply_temperature_refuses_a_bad_temperature(bad):
    with pytest.raises(ValueError, match="temperature: found"):
        calibration.apply_temperature(0.5, bad)
