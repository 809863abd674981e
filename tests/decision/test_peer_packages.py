"""Comparisons with other packages; each test is skipped if its package is not installed."""

import numpy as np
import pytest

from prism_jax.decision import calibration, losses


@pytest.fixture
def scored():
    rng = np.random.default_rng(0)
    p = rng.random(5000).astype(np.float32)
    return p, (rng.random(p.size) < p**1.5).astype(np.int64)


@pytest.mark.parametrize("bins", [5, 10, 15])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_calibration_errors_against_torchmetrics(scored, norm, bins):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    torch = pytest.importorskip("torch")
    p, y = scored
    expected = functional.binary_calibration_error(torch.tensor(p), torch.tensor(y), n_bins=bins, norm=norm)
    found = calibration.expected_calibration_error(p, y, bins=bins, norm=int(norm[1]))
    assert found == pytest.approx(float(expected), rel=1e-4)


@pytest.fixture
def bandit():
    """A log of offers (action 1) and silences, and the policy that always offers, in Open Bandit Pipeline's format."""
    rng = np.random.default_rng(1)
    propensity = rng.uniform(0.1, 0.9, 400)
    logged = (rng.random(400) < propensity).astype(int)
    always = np.zeros((400, 2, 1))
    always[:, 1] = 1.0
    pscore = np.where(logged == 1, propensity, 1 - propensity)
    return propensity, logged, dict(action=logged, pscore=pscore, action_dist=always, position=np.zeros(400, int))


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_weighted_losses_against_open_bandit_pipeline(bandit, estimator):
    ope = pytest.importorskip("obp.ope")
    propensity, logged, log = bandit
    rng = np.random.default_rng(2)
    z, y = rng.normal(size=400), rng.integers(0, 2, 400).astype(float)
    reward = np.logaddexp(0, z) - y * z
    peer = {"ips": ope.InverseProbabilityWeighting, "snips": ope.SelfNormalizedInverseProbabilityWeighting}[estimator]
    expected = peer().estimate_policy_value(reward=reward, **log)
    found, _ = losses.accept_loss(z, y, logged, propensity, estimator=estimator, e_min=0.01, w_max=100.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_doubly_robust_labels_against_open_bandit_pipeline(bandit):
    ope = pytest.importorskip("obp.ope")
    propensity, logged, log = bandit
    rng = np.random.default_rng(3)
    y, mu = rng.integers(0, 2, 400).astype(float), rng.random(400)
    rewards = np.stack([np.zeros(400), mu], axis=1)[:, :, None]
    expected = ope.DoublyRobust().estimate_policy_value(reward=y, estimated_rewards_by_reg_model=rewards, **log)
    weights = losses.propensity_weight(logged, propensity, e_min=0.01, w_max=100.0)
    found = losses.doubly_robust_label(y, weights, mu).mean()
    assert found == pytest.approx(expected, rel=1e-12)
