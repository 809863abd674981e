import numpy as np
import pytest
from scipy import special

from prism_jax.probe.logistic import STREAM_RIDGE, fit, fit_platt_with_ridge


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)) * [1, 5, 0.1, 2] + [0, 3, 1, -1]
    stream = rng.integers(0, 5, n).astype(str)
    y = rng.integers(0, 4, n) / 3
    y[x[:, 0] > 0.5] = 1
    return x, y, rng.uniform(0.5, 2, n), stream


def test_it_is_scikit_learns_logistic_regression_with_a_ridge_of_each_column():
    """A column divided by the root of its ridge has a ridge of 1 there; a soft label is two weighted rows."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y, weight, stream = rows()
    ridge = 20.0
    ours = fit(x, y, weight, stream, ridge)
    one_hot = (stream[:, None] == np.unique(stream)[None]) / np.sqrt(STREAM_RIDGE)
    design = np.concatenate([(x - x.mean(0)) / x.std(0) / np.sqrt(ridge), one_hot], axis=1)
    theirs = linear_model.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(
        np.concatenate([design, design]), np.repeat([1, 0], len(y)), np.concatenate([weight * y, weight * (1 - y)])
    )
    np.testing.assert_allclose(ours.weight, theirs.coef_[0, :4] / np.sqrt(ridge), atol=1e-5)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_[0], atol=1e-4)


def test_a_missing_value_is_the_mean_of_the_known_ones():
    x, y, weight, stream = rows()
    x[::3, 1] = np.nan
    fitted = fit(x, y, weight, stream, 1.0)
    np.testing.assert_allclose(fitted.mean[1], np.nanmean(x[:, 1]))
    filled = np.where(np.isnan(x), fitted.mean, x)
    np.testing.assert_array_equal(fitted.log_odds(x), fitted.log_odds(filled))


def test_a_streams_level_does_not_go_into_the_weights():
    """Acceptance differs between streams only, and so does a column: the intercepts of the streams explain it."""
    stream = np.repeat(["a", "b", "c", "d"], 100)
    rng = np.random.default_rng(1)
    level = np.repeat([0.1, 0.9, 0.2, 0.8], 100)
    y, x = (rng.random(400) < level).astype(float), level[:, None] + rng.normal(size=(400, 1)) * 0.01
    ones = np.ones(400)
    assert abs(fit(x, y, ones, stream, 100.0).weight[0]) < 0.5 * abs(
        fit(x, y, ones, np.full(400, "a"), 100.0).weight[0]
    )


@pytest.mark.parametrize(
    ("y", "found"), [([1.0, 1.0], "all of them 1"), ([0.0, 0.0], "all of them 0"), ([], "no label")]
)
def test_labels_of_one_kind_are_refused(y, found):
    n = len(y)
    with pytest.raises(ValueError, match=found):
        fit(np.zeros((n, 1)), np.array(y), np.ones(n), np.full(n, "a"), 1.0)


def test_platt_recovers_the_map():
    z = np.random.default_rng(0).normal(size=20_000) * 2
    fitted = fit_platt_with_ridge(z, special.expit(0.3 + 0.7 * z), np.ones(len(z)))
    np.testing.assert_allclose([fitted.bias, fitted.scale], [0.3, 0.7], atol=1e-4)
    np.testing.assert_allclose(fitted.of_log_odds(z), 0.3 + 0.7 * z, atol=1e-3)
