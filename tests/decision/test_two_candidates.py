"""A slow pass that picks its own candidate: its offers count with that candidate's labels, silence with the best's."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from prism_jax.decision import audbc, gate, surface
from prism_jax.decision.passes import BothPasses, Pass


def steps(seed, n=60, levels=8):
    """Signals on a coarse grid, so that ties occur, and hard labels of both passes' candidates."""
    rng = np.random.default_rng(seed)
    need, accept, *slow = rng.integers(0, levels + 1, (4, n)) / levels
    y_need, y_accept, y_accept_slow = rng.integers(0, 2, (3, n))
    return BothPasses(Pass(need, accept), Pass(*slow)), y_need, y_accept, y_accept_slow, rng


def decided(signals, costs, margin, fast, slow):
    """The gate's decisions, and the values of the candidate that each is about."""
    offer, thought = gate.decide_with_slow(*signals, 1.0, costs, margin)
    return offer, np.where(thought, slow, fast), thought


@pytest.mark.parametrize(("on_device", "third", "groups"), [(False, False, 3), (True, False, 3), (False, True, 1)])
def test_the_surface_counts_the_candidate_offered_and_one_silence(on_device, third, groups):
    ratios, margins = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 8.0), (0.0, 0.125, 0.3, 1.0)

    def count(p, y, y_slow, need, accept, accept_slow, group, missed):
        labels = {"y_need": need, "y_accept": accept, "y_accept_slow": accept_slow, "y_slow": y_slow}
        labels |= {"y_best": missed} if third else {}
        labels |= {"groups": group, "num_groups": groups} if groups > 1 else {}
        return surface.control_surface(*p, y, ratios, margins, **labels)

    compiled = jax.jit(count)
    for seed in range(8):
        signals, need, accept, accept_slow, rng = steps(seed)
        missed = need * np.maximum(accept, accept_slow)
        missed = np.maximum(missed, rng.integers(0, 2, len(need))) if third else missed
        group, signals = rng.integers(0, groups, len(need)), jax.tree.map(np.float32, signals)
        arrays = (signals, need * accept, need * accept_slow, need, accept, accept_slow, group, missed)
        found = compiled(*jax.tree.map(jnp.asarray, arrays)) if on_device else count(*arrays)
        for (i, margin), (j, ratio) in itertools.product(enumerate(margins), enumerate(ratios)):
            offer, taken, thought = decided(signals, np.float32(ratio), np.float32(margin), accept, accept_slow)
            gold = need * taken
            expected = {
                "tp": offer & (gold == 1),
                "fp": offer & (gold == 0),
                "fn": ~offer & (missed == 1),
                "tn": ~offer & (missed == 0),
                "slow": thought,
                "rejected": offer & (taken == 0),
                "missed": ~offer & (missed == 1),
            }
            for name, mask in expected.items():
                counts = np.bincount(group, mask, minlength=groups)
                np.testing.assert_array_equal(
                    getattr(found, name)[..., i, j], counts if groups > 1 else counts[0], name
                )


@pytest.mark.parametrize("labelled", [False, True])
def test_without_a_slow_pass_the_surface_counts_silence_with_the_best_candidate(labelled):
    signals, need, accept, other, _ = steps(2)
    best, ratios = need * np.maximum(accept, other), (0.5, 1.0, 3.0)
    labels = {"y_need": need, "y_accept": accept} if labelled else {}
    found = surface.control_surface(*signals, need * accept, ratios, [0.0], y_best=best, **labels)
    for j, ratio in enumerate(ratios):
        offer = np.asarray(gate.decide(*signals.fast, 1.0, ratio))
        counts = [int(getattr(found, name)[0, j]) for name in ("tp", "fp", "fn", "tn")]
        gold = need * accept == 1
        assert counts == [
            (offer & gold).sum(),
            (offer & ~gold).sum(),
            (~offer & best).sum(),
            (~offer & (1 - best)).sum(),
        ]
        if labelled:
            cost = np.where(offer, 1 - accept, ratio * best).mean()
            assert found.realised_cost()[0, j] == pytest.approx(cost, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.0, 0.125, 0.2, 1.0])
@pytest.mark.parametrize("third", [False, True])
def test_costs_follow_the_candidate_offered_and_charge_one_silence(seed, margin, third):
    """At margin 0, labels are soft and those of the other candidate count for silence alone."""
    signals, need, accept, accept_slow, rng = steps(seed)
    weight = rng.choice([0.5, 1.0, 3.0], len(need))
    if margin == 0:
        need, accept, accept_slow = rng.random((3, len(need)))
    ratios = np.geomspace(0.5, 4.0, 4001)
    slow = {"slow": signals.slow, "margin": margin, "y_accept_slow": accept_slow} if margin else {}
    best = np.maximum(accept, accept_slow)
    if third or margin == 0:
        best = slow["y_accept_best"] = np.maximum(best, third * rng.integers(0, 2, len(need)))
    offer, taken, _ = decided(signals, ratios[:, None], margin, accept, accept_slow)
    silence = ratios[:, None] * need * best
    labels = (need.astype(float), accept.astype(float))

    def by_hand(costs):
        return (weight * costs / (1 + ratios[:, None])).sum(-1) / weight.sum()

    costs = {
        "cost": by_hand(np.where(offer, 1 - taken, silence)),
        "always": by_hand(1 - accept + 0 * silence),
        "never": by_hand(silence),
        "oracle": by_hand(np.minimum(1 - best, silence)),
    }
    mean = audbc.expected_cost(signals.fast, *labels, **slow, weight=weight)
    for name, expected in costs.items():
        integral = np.mean((expected[1:] + expected[:-1]) / 2)  # the ratios are log-uniform
        assert getattr(mean, name) == pytest.approx(integral, abs=3e-4), name


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.125, 0.2])
def test_the_area_follows_the_candidate_decided_on(seed, margin):
    """Burden and benefit of the gate at every ratio between and at its critical ones."""
    signals, need, accept, accept_slow, _ = steps(seed)
    gold, gold_slow = need * accept, need * accept_slow
    events = np.concatenate([[1e-9], np.geomspace(1e-3, 1e3, 4_001), [1e12]])
    offer, taken, _ = decided(signals, events[:, None], margin, gold, gold_slow)
    burden, benefit = offer.mean(-1), (offer * taken).mean(-1)
    slow = {"slow": signals.slow, "margin": margin, "y_slow": gold_slow}
    curve = audbc.burden_benefit_curve(signals.fast, gold, **slow)
    shown = {tuple(np.round(point, 9)) for point in zip(curve.burden, curve.benefit, strict=True)}
    seen = {tuple(np.round(point, 9)) for point in zip(burden, benefit, strict=True)}
    assert len(seen & shown) >= 10
    assert len(seen - shown) <= 2  # a grid of ratios meets ties at a single ratio by chance only
    either = np.maximum(gold, gold_slow).mean()
    area = np.trapezoid(curve.benefit, curve.burden) / (either - either**2 / 2)
    value = audbc.audbc_value(signals.fast, gold, **slow)
    assert area == pytest.approx(float(value), rel=1e-12)
    found = audbc.audbc(signals.fast, gold, **slow, streams=np.arange(len(gold)) // 4, resamples=200)
    assert found.value == pytest.approx(float(value), rel=1e-12)
    assert found.low < found.value < found.high


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
