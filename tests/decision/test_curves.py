"""Expected costs and the paper's own areas against the decisions that they sum, and all curves inside JAX."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from step_samples import sample, slow_sample, trapezoid

from prism_jax.decision import gate
from prism_jax.decision.audbc import (
    audbc_appendix_paper,
    audbc_main_paper,
    audbc_value,
    burden_benefit_curve,
    expected_cost,
)
from prism_jax.decision.passes import Pass

seeds = st.integers(0, 2**32 - 1)


def costs(fast, y_need, y_accept, ratios, slow=None, margin=0.0, weight=None, y_accept_slow=None, y_accept_best=None):
    """The mean costs of the gate, always, never and the oracle at each ratio, with C_FA + C_FN = 1, by brute force."""
    ratio, y_slow = np.asarray(ratios)[:, None], y_accept if y_accept_slow is None else y_accept_slow
    best = np.maximum(y_accept, y_slow) if y_accept_best is None else y_accept_best
    offer, thought = gate.decide_with_slow(fast, slow or fast, 1.0, ratio, margin)
    silence = ratio * y_need * best
    found = {
        "cost": np.where(offer, 1 - np.where(thought, y_slow, y_accept), silence),
        "always": 1 - y_accept + 0 * ratio,
        "never": silence,
        "oracle": np.minimum(1 - best, silence),
    }
    return {name: np.average(of / (1 + ratio), axis=1, weights=weight) for name, of in found.items()}


@given(seeds, st.sampled_from([0.0, 0.2, 1.0]), *[st.booleans()] * 4)
@settings(max_examples=30)
def test_expected_cost_is_the_integral_of_the_costs_at_each_ratio(seed, margin, weighted, soft, two, third):
    """Offers count with the label of the candidate offered, and silence with that of the best one."""
    p_need, p_accept, y_need, y_accept = sample(seed, n=12)
    rng = np.random.default_rng(seed)
    options, y_slow = {"margin": margin, **slow_sample(seed, 12)}, rng.random(12) < 0.5
    if soft:
        y_need, y_accept, y_slow = rng.random((3, 12))
    if weighted:
        options["weight"] = rng.random(12)
    if two and margin:
        options["y_accept_slow"] = y_slow * 1.0
    if third:
        options["y_accept_best"] = np.maximum(np.maximum(y_accept, y_slow), rng.integers(0, 2, 12) * 1.0)
    found = expected_cost(Pass(p_need, p_accept), y_need, y_accept, low=0.25, high=3.0, **options)
    u = np.linspace(np.log(0.25), np.log(3.0), 20001)
    for name, of in costs(Pass(p_need, p_accept), y_need, y_accept, np.exp(u), **options).items():
        mean = integrate.trapezoid(of, u) / (u[-1] - u[0])
        assert getattr(found, name) == pytest.approx(mean, abs=2e-4), name
    constant = min(found.always, found.never)
    assert found.rescaled == pytest.approx((constant - found.cost) / (constant - found.oracle))


@given(seed=seeds)
def test_the_oracle_on_dependent_probabilities_is_bayes(seed):
    p_need, p_accept = np.random.default_rng(seed).random((2, 40))
    dependent, u = np.minimum(p_need, p_accept), np.linspace(np.log(0.5), np.log(4.0), 20001)
    bayes = expected_cost(Pass(p_need, p_accept), p_need, p_accept, y_both=dependent)
    best = np.minimum(1 - p_accept, np.exp(u)[:, None] * dependent).mean(axis=1) / (1 + np.exp(u))
    assert bayes.oracle == pytest.approx(integrate.trapezoid(best, u) / (u[-1] - u[0]), abs=2e-4)


@given(seed=seeds, form=st.sampled_from(["odds_paper", "bayes"]))
@settings(max_examples=40)
def test_appendix_area_is_bounded_and_sees_no_label(seed, form):
    p_need, p_accept, *_ = sample(seed)
    candidates = np.random.default_rng(seed).integers(0, 3, len(p_need))
    grid = np.geomspace(0.05, 20, 30)
    found = audbc_appendix_paper(Pass(p_need, p_accept), grid, form=form, candidates=candidates)
    assert 0 <= found.area <= (found.burden.max() ** 2 - found.burden.min() ** 2) / 2 + 1e-12
    points = set()
    for r in grid:
        chosen = (p_accept >= gate.threshold(p_need, 1.0, r, form)) & (candidates > 0)
        points.add((chosen.mean(), (chosen * p_accept).mean()))
    assert found.area == pytest.approx(trapezoid(sorted(points)), abs=1e-12)
    claimed = audbc_appendix_paper(Pass(p_need, np.ones_like(p_accept)), grid, form=form)
    assert claimed.burden.tolist() == claimed.benefit.tolist(), "the benefit of a step is what the model claims"


def test_appendix_odds_form_falls_with_the_cost_of_a_miss():
    p_need, p_accept, *_ = sample(0)
    found = audbc_appendix_paper(Pass(p_need, p_accept), [0.5, 1.0, 4.0])
    assert np.all(np.diff(found.cost_ratio) < 0) and np.all(np.diff(found.burden) >= 0)


@given(seed=seeds, c_fa=st.sampled_from([0.5, 1.0]))
def test_main_paper_area_by_brute_force(seed, c_fa):
    p_need, p_accept, y_need, y_accept = sample(seed)
    y = y_need & y_accept
    grid = np.array([4.0, 2.0, 1.0, 1 / 1.2, 0.1, 0.01])
    points = []
    for r in grid:
        c_fn, chosen = r * c_fa, gate.decide(p_need, p_accept, 1.0, r)
        tp, fp, fn = (chosen & y).sum(), (chosen & ~y).sum(), (~chosen & y).sum()
        points.append((fp / (tp + fp) if tp + fp else 0.0, (tp - c_fa * fp - c_fn * fn) / ((1 + c_fn) * y.sum())))
    points.sort(key=lambda point: point[0])
    found = audbc_main_paper(Pass(p_need, p_accept), y, grid, c_fa=c_fa)
    np.testing.assert_allclose(found.burden, [b for b, _ in points], atol=1e-12)
    assert found.area == pytest.approx(trapezoid(points), abs=1e-12)
    silent = audbc_main_paper(Pass(np.zeros(len(y)), p_accept), y, [1.0, 3.0])
    np.testing.assert_allclose(silent.benefit, [-1 / 2, -3 / 4])  # Eq. deltaU charges silence, as printed


def test_jax_gives_numpys_areas_and_curves():
    p_need, p_accept, y_need, y_accept = sample(3, n=200)
    slow = slow_sample(3, 200)
    y = y_need & y_accept

    def everything(p_need, p_accept, y, y_need, y_accept, slow):
        options = {"margin": 0.125, **slow}
        return (
            audbc_value(Pass(p_need, p_accept), y, **options),
            burden_benefit_curve(Pass(p_need, p_accept), y, **options),
            expected_cost(Pass(p_need, p_accept), y_need, y_accept, **options),
            audbc_main_paper(Pass(p_need, p_accept), y),
            audbc_appendix_paper(Pass(p_need, p_accept)),
        )

    # In eighths, float32 and float64 agree on every comparison and tie.
    p_need, p_accept, slow = jax.tree.map(lambda x: np.round(x * 8) / 8, (p_need, p_accept, slow))
    arguments = (p_need, p_accept, y, y_need, y_accept, slow)
    in_jax, expected = jax.tree.map(jnp.asarray, arguments), everything(*arguments)
    found = jax.jit(everything)(*in_jax)
    chex.assert_trees_all_equal_structs(found, expected)
    chex.assert_trees_all_close(jax.tree.map(np.float64, found), jax.tree.map(np.float64, expected), rtol=2e-6)
    eager = audbc_main_paper(Pass(*in_jax[:2]), in_jax[2])
    assert all(isinstance(leaf, jax.Array) for leaf in eager)
    chex.assert_trees_all_close(jax.tree.map(np.float64, eager), jax.tree.map(np.float64, expected[3]), rtol=2e-6)


def test_expected_cost_has_gradients_towards_the_oracle():
    p_need, p_accept = jnp.array([0.8, 0.7]), jnp.array([0.4, 0.6])
    cost = jax.jit(jax.grad(lambda a: expected_cost(Pass(p_need, a), np.array([1, 1]), np.array([1, 0])).cost))
    gradient = cost(p_accept)
    assert gradient[0] < 0 < gradient[1], "raise the accepted offer, lower the refused one"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, y: audbc_main_paper(Pass(p, p), np.zeros(3)), "y: found only 0s"),
        (lambda p, y: audbc_main_paper(Pass(p, p), y, c_fa=0.0), "c_fa: found 0.0"),
        (lambda p, y: audbc_main_paper(Pass(p, p), y, [-1.0]), "cost_ratios: found -1.0"),
        (lambda p, y: expected_cost(Pass(p, p), y, p * 0, y_both=p), "y_both: found 0.25 at index 0, above y_accept"),
        (lambda p, y: expected_cost(Pass(p, p), y, y, low=2.0, high=1.0), "low, high: found 2.0 and 1.0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.array([0.25, 0.5, 0.75]), np.array([False, True, False]))
