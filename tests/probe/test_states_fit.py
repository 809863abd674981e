import numpy as np
import pytest

from prism_jax.probe.logistic import fit, fit_states
from prism_jax.probe.probe_config import StatesConfig


@pytest.mark.parametrize("shape", [(60, 8), (30, 50)])  # more rows than columns, and fewer
def test_it_is_a_regression_on_the_singular_vectors(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) @ rng.normal(size=(shape[1], shape[1])) + 5
    y, weight, stream = (rng.random(shape[0]) < 0.4).astype(float), rng.uniform(1, 2, shape[0]), np.full(shape[0], "a")
    found = fit_states(x.astype(np.float32), y, weight, stream, StatesConfig(components=3, ridge=2.0)).log_odds(x)
    z = (x - x.mean(0)) / x.std(0)
    components = z @ np.linalg.svd(z, full_matrices=False)[2][:3].T
    expected = fit(components, y, weight, stream, 2.0).log_odds(components)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_it_takes_no_more_components_than_there_are():
    x = np.repeat(np.arange(20.0)[:, None], 6, axis=1)  # rank one
    y = (np.arange(20) > 9).astype(float)
    fitted = fit_states(x, y, np.ones(20), np.full(20, "a"), StatesConfig(components=4))
    assert np.isfinite(fitted.weight).all()
    assert (np.diff(fitted.log_odds(x)) > 0).all()
