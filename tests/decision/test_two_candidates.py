"""A slow pass that picks its own candidate: its offers count with that candidate's labels, silence with the best's."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from prism_jax.decision import audbc, surface
from prism_jax.decision.passes import BothPasses, Pass


def steps(seed, n=60, levels=8):
    """Signals on a coarse grid, so that ties occur, and hard labels of both passes' candidates."""
    rng = np.random.default_rng(seed)
    need, accept, *slow = rng.integers(0, levels + 1, (4, n)) / levels
    y_need, y_accept, y_accept_slow = rng.integers(0, 2, (3, n))
    return BothPasses(Pass(need, accept), Pass(*slow)), y_need, y_accept, y_accept_slow, rng


@pytest.mark.parametrize("margin", [0.0, 0.125, 1.0])
def test_the_area_is_divided_by_that_of_the_best_candidates(margin):
    signals, need, accept, accept_slow, rng = steps(4, n=200)
    gold, gold_slow = need * accept, need * accept_slow
    slow = {"slow": signals.slow, "margin": margin, "y_slow": gold_slow}
    slow = slow if margin else {}
    best = np.maximum(np.maximum(gold, gold_slow), rng.integers(0, 2, 200))
    curve = audbc.burden_benefit_curve(signals.fast, gold, **slow)
    pi = best.mean()
    value = audbc.audbc_value(signals.fast, gold, **slow, y_best=best)
    assert value == pytest.approx(np.trapezoid(curve.benefit, curve.burden) / (pi - pi**2 / 2), rel=1e-12)
    streams = np.arange(200) // 5
    found = audbc.audbc(signals.fast, gold, **slow, y_best=best, streams=streams, resamples=200)
    assert found.value == pytest.approx(float(value), rel=1e-12) and found.low < found.value < found.high
    assert found.chance == pytest.approx(curve.benefit[-1] / (2 * pi - pi**2), rel=1e-12)


@pytest.mark.parametrize("margin", [0.125, 0.4, 1.0])
def test_equal_labels_give_the_area_and_the_interval_of_one_label(margin):
    signals, need, accept, _, _ = steps(3, n=400, levels=50)
    gold = need * accept
    slow = {"slow": signals.slow, "margin": margin}
    streams = np.arange(len(gold)) // 8
    one = audbc.audbc(signals.fast, gold, **slow, streams=streams)
    two = audbc.audbc(signals.fast, gold, **slow, streams=streams, y_slow=gold)
    np.testing.assert_allclose(two, one, rtol=1e-9)


def test_labels_of_a_slow_pass_that_does_not_run_are_refused():
    signals, need, accept, accept_slow, _ = steps(0)
    y, y_slow = need * accept, need * accept_slow
    with pytest.raises(ValueError, match=r"^y_slow: found labels at margin 0, expected none"):
        audbc.audbc_value(signals.fast, y, y_slow=y_slow)
    with pytest.raises(ValueError, match=r"^y_accept_slow: found labels at margin 0, expected none"):
        audbc.expected_cost(signals.fast, need, accept, y_accept_slow=accept_slow)
    with pytest.raises(ValueError, match=r"^y_slow, y_accept_slow: found one of them beside y_accept"):
        surface.control_surface(*signals, y, y_need=need, y_accept=accept, y_slow=y_slow)
    with pytest.raises(ValueError, match=r"^y_best: found 0 at index \d+, expected at least y = 1, a label of the"):
        surface.control_surface(*signals, y, y_best=0 * y)
    with pytest.raises(ValueError, match=r"^y_accept_best: found 0 at index \d+, expected at least y_accept = 1"):
        audbc.expected_cost(signals.fast, need, accept, y_accept_best=0 * accept)
    both = {"slow": signals.slow, "margin": 0.1, "y_accept_slow": accept_slow}
    with pytest.raises(ValueError, match=r"^y_accept_slow: found it with y_both, expected one of them"):
        audbc.expected_cost(signals.fast, need, accept, y_both=y, **both)
    with pytest.raises((ValueError, TypeCheckError)):
        audbc.audbc_value(signals.fast, y, slow=signals.slow, margin=0.1, y_slow=y_slow[:-1])
