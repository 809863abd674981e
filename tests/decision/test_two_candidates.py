"""A slow pass that picks its own candidate: a step counts with that candidate's labels where the slow pass runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from prism_jax.decision import audbc, gate, surface


def steps(seed, n=60, levels=8):
    """Signals on a coarse grid, so that ties occur, and hard labels of both passes' candidates."""
    rng = np.random.default_rng(seed)
    signals = rng.integers(0, levels + 1, (4, n)) / levels
    y_need, y_accept, y_accept_slow = rng.integers(0, 2, (3, n))
    return signals, y_need, y_accept, y_accept_slow, rng


def decided(signals, costs, margin, fast, slow):
    """The gate's decisions, and the values of the candidate that each is about."""
    offer, thought = gate.decide_with_slow(*signals, 1.0, costs, margin)
    return offer, np.where(thought, slow, fast), thought


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("on_device", [False, True])
def test_the_surface_counts_the_candidate_decided_on(seed, on_device):
    signals, need, accept, accept_slow, rng = steps(seed)
    group = rng.integers(0, 3, len(need))
    ratios, margins = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 8.0), (0.0, 0.125, 0.3, 1.0)

    def count(*arrays):
        p, y, y_slow, need, accept, accept_slow, group = arrays
        labels = {"y_need": need, "y_accept": accept, "y_accept_slow": accept_slow, "y_slow": y_slow}
        return surface.control_surface(*p, y, ratios, margins, group, **labels, num_groups=3)

    arrays = (signals.astype(np.float32), need * accept, need * accept_slow, need, accept, accept_slow, group)
    found = jax.jit(count)(*map(jnp.asarray, arrays)) if on_device else count(*arrays)
    for i, margin in enumerate(margins):
        for j, ratio in enumerate(ratios):
            offer, taken, thought = decided(arrays[0], np.float32(ratio), np.float32(margin), accept, accept_slow)
            gold = need * taken
            for one in range(3):
                member = group == one
                expected = {
                    "tp": offer & (gold == 1),
                    "fp": offer & (gold == 0),
                    "fn": ~offer & (gold == 1),
                    "tn": ~offer & (gold == 0),
                    "slow": thought,
                    "rejected": offer & (taken == 0),
                    "missed": ~offer & (gold == 1),
                }
                for name, mask in expected.items():
                    assert getattr(found, name)[one, i, j] == (mask & member).sum(), (name, margin, ratio)


@pytest.mark.parametrize("seed", range(4))
def test_equal_labels_give_the_surface_of_one_label(seed):
    signals, need, accept, _, _ = steps(seed, n=200)
    y = need * accept
    one = surface.control_surface(*signals, y, y_need=need, y_accept=accept)
    two = surface.control_surface(*signals, y, y_need=need, y_accept=accept, y_slow=y, y_accept_slow=accept)
    for name in one._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.125, 0.2, 1.0])
def test_costs_follow_the_candidate_decided_on(seed, margin):
    signals, need, accept, accept_slow, rng = steps(seed)
    weight = rng.choice([0.5, 1.0, 3.0], len(need))
    ratios = np.geomspace(0.5, 4.0, 4001)
    slow = {"p_need_slow": signals[2], "p_accept_slow": signals[3], "margin": margin, "y_accept_slow": accept_slow}
    offer, taken, _ = decided(signals, ratios[:, None], margin, accept, accept_slow)
    cost = np.where(offer, 1 - taken, ratios[:, None] * need * taken) / (1 + ratios[:, None])
    by_hand = (weight * cost).sum(-1) / weight.sum()
    labels = (need.astype(float), accept.astype(float))
    curve = audbc.cost_curve(*signals[:2], *labels, ratios, **slow, weight=weight)
    np.testing.assert_allclose(curve.cost, by_hand, rtol=1e-12, atol=1e-14)
    mean = audbc.expected_cost(*signals[:2], *labels, **slow, weight=weight).cost
    integral = np.mean((by_hand[1:] + by_hand[:-1]) / 2)  # the ratios are log-uniform
    assert mean == pytest.approx(integral, abs=3e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.125, 0.2])
def test_the_area_follows_the_candidate_decided_on(seed, margin):
    """Burden and benefit of the gate at every ratio between and at its critical ones."""
    signals, need, accept, accept_slow, _ = steps(seed)
    gold, gold_slow = need * accept, need * accept_slow
    events = np.concatenate([[1e-9], np.geomspace(1e-3, 1e3, 40_001), [1e12]])
    offer, taken, _ = decided(signals, events[:, None], margin, gold, gold_slow)
    burden, benefit = offer.mean(-1), (offer * taken).mean(-1)
    slow = {"p_need_slow": signals[2], "p_accept_slow": signals[3], "margin": margin, "y_slow": gold_slow}
    curve = audbc.burden_benefit_curve(*signals[:2], gold, **slow)
    shown = {tuple(np.round(point, 9)) for point in zip(curve.burden, curve.benefit, strict=True)}
    seen = {tuple(np.round(point, 9)) for point in zip(burden, benefit, strict=True)}
    assert len(seen & shown) >= 10
    assert len(seen - shown) <= 2  # a grid of ratios meets ties at a single ratio by chance only
    either = np.maximum(gold, gold_slow).mean()
    area = np.trapezoid(curve.benefit, curve.burden) / (either - either**2 / 2)
    value = audbc.audbc_value(*signals[:2], gold, **slow)
    assert area == pytest.approx(float(value), rel=1e-12)
    found = audbc.audbc(*signals[:2], gold, **slow, streams=np.arange(len(gold)) // 4, resamples=200)
    assert found.value == pytest.approx(float(value), rel=1e-12)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("margin", [0.125, 0.4, 1.0])
def test_equal_labels_give_the_area_and_the_interval_of_one_label(margin):
    signals, need, accept, _, _ = steps(3, n=400, levels=50)
    gold = need * accept
    slow = {"p_need_slow": signals[2], "p_accept_slow": signals[3], "margin": margin}
    streams = np.arange(len(gold)) // 8
    one = audbc.audbc(*signals[:2], gold, **slow, streams=streams)
    two = audbc.audbc(*signals[:2], gold, **slow, streams=streams, y_slow=gold)
    np.testing.assert_allclose(two, one, rtol=1e-9)


def test_labels_of_a_slow_pass_that_does_not_run_are_refused():
    signals, need, accept, accept_slow, _ = steps(0)
    y, y_slow = need * accept, need * accept_slow
    with pytest.raises(ValueError, match=r"^y_slow: found labels at margin 0, expected none"):
        audbc.audbc_value(*signals[:2], y, y_slow=y_slow)
    with pytest.raises(ValueError, match=r"^y_accept_slow: found labels at margin 0, expected none"):
        audbc.expected_cost(*signals[:2], need, accept, y_accept_slow=accept_slow)
    with pytest.raises(ValueError, match=r"^y_slow, y_accept_slow: found one of them beside y_accept"):
        surface.control_surface(*signals, y, y_need=need, y_accept=accept, y_slow=y_slow)
    both = {"p_need_slow": signals[2], "p_accept_slow": signals[3], "margin": 0.1, "y_accept_slow": accept_slow}
    with pytest.raises(ValueError, match=r"^y_accept_slow: found it with y_both, expected one of them"):
        audbc.expected_cost(*signals[:2], need, accept, y_both=y, **both)
    with pytest.raises((ValueError, TypeCheckError)):
        audbc.audbc_value(
            *signals[:2], y, p_need_slow=signals[2], p_accept_slow=signals[3], margin=0.1, y_slow=y_slow[:-1]
        )
