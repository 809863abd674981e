import itertools
from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from prism_jax.decision import audbc, drift, gate, metrics, surface
from prism_jax.decision.passes import Pass
from prism_jax.decision.policies import POLICIES, Policy

probabilities = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 1.0])
costs = st.floats(1e-3, 1e3)
logits = st.floats(-20, 20)
EXACT = [Fraction(k, 8) for k in range(9)]
EXACT_COSTS = [(Fraction(a), Fraction(b)) for a, b in ((1, 0), (1, 1), (1, 2), (3, 1), (2, 5))]


def exact_grid(*axes):
    """All combinations, as exact rationals and as the same numbers in floating point."""
    rows = list(itertools.product(*axes))
    return rows, [np.array([float(row[i]) for row in rows]) for i in range(len(axes))]


def tau(p_need, c_fa, c_fn):
    return c_fa / (c_fa + p_need * c_fn)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("c_fa", "c_fn"), EXACT_COSTS)
def test_decide_equals_eq1_in_exact_rationals_ties_included(c_fa, c_fn, dtype):
    rows, (p_need, p_accept) = exact_grid(EXACT, EXACT)
    expected = [a >= tau(n, c_fa, c_fn) and n * a > 0 for n, a in rows]
    assert any(a == tau(n, c_fa, c_fn) for n, a in rows), "the grid must contain ties"
    for convert in (np.asarray, jnp.asarray):
        signals = convert(p_need.astype(dtype)), convert(p_accept.astype(dtype))
        assert gate.decide(*signals, float(c_fa), float(c_fn)).tolist() == expected


@pytest.mark.parametrize(("c_fa", "c_fn"), EXACT_COSTS)
def test_other_policies_in_exact_rationals(c_fa, c_fn):
    rows, (p_need, p_accept) = exact_grid(EXACT, EXACT)
    static = tau(1, c_fa, c_fn)
    expected = {
        "fixed": [a >= Fraction(3, 8) for n, a in rows],
        "static": [a >= static and a > 0 for n, a in rows],
        "product": [a * n >= static and a * n > 0 for n, a in rows],
        "need_only": [c_fn > 0 and n > 0 and n >= c_fa * Fraction(3, 4) / (c_fn * Fraction(1, 4)) for n, a in rows],
        "always": [True] * len(rows),
        "never": [False] * len(rows),
        "need_only_paper": [True] * len(rows),
    }
    for policy, decisions in expected.items():
        found = gate.decide(p_need, p_accept, float(c_fa), float(c_fn), policy, fixed_threshold=0.375, base_rate=0.25)
        assert found.tolist() == decisions, policy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("c_fa", "c_fn"), EXACT_COSTS)
def test_slow_band_equals_its_definition_in_exact_rationals(c_fa, c_fn, dtype):
    rows, (p_need, p_accept, margin) = exact_grid(EXACT, EXACT, [*EXACT, Fraction(3, 2)])
    expected = [d > 0 and abs(a - tau(n, c_fa, c_fn)) <= d for n, a, d in rows]
    assert any(d > 0 and abs(a - tau(n, c_fa, c_fn)) == d for n, a, d in rows), "the grid must contain ties"
    for convert in (np.asarray, jnp.asarray):
        signals = [convert(values.astype(dtype)) for values in (p_need, p_accept, margin)]
        assert gate.slow_band(*signals[:2], float(c_fa), float(c_fn), signals[2]).tolist() == expected


@given(probabilities, probabilities, costs, costs)
def test_gate_is_one_scalar_off_ties(p_need, p_accept, c_fa, c_fn):
    decision = bool(gate.decide(p_need, p_accept, c_fa, c_fn))
    s, boundary = gate.score(p_need, p_accept), np.log(c_fa / c_fn)
    assume(abs(s - boundary) > 1e-9)
    assert decision == (s >= boundary)
    assert decision == (c_fn / c_fa >= gate.critical_ratio(p_need, p_accept))
    if p_need * p_accept > 0 and abs(p_accept - gate.threshold(p_need, c_fa, c_fn)) > 1e-12:
        assert decision == (p_accept >= gate.threshold(p_need, c_fa, c_fn))


@given(probabilities, probabilities)
def test_critical_ratio_is_exp_of_minus_score(p_need, p_accept):
    s = gate.score(p_need, p_accept)
    assume(not 0 < p_accept < 1e-290 and not 0 < p_need * p_accept < 1e-290)
    np.testing.assert_allclose(gate.critical_ratio(p_need, p_accept), np.exp(-s), rtol=1e-9)


def test_ends_of_score_and_critical_ratio():
    p_need = np.array([0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1e-200])
    p_accept = np.array([0.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0, 1e-200])
    inf = np.inf
    np.testing.assert_array_equal(gate.score(p_need, p_accept), [-inf, -inf, -inf, -inf, inf, -inf, inf, -inf])
    np.testing.assert_array_equal(gate.critical_ratio(p_need, p_accept), [inf, inf, inf, inf, 0, inf, 0, inf])
    assert gate.decide(p_need, p_accept, 1.0, 1e12).tolist() == [s > 0 for s in gate.score(p_need, p_accept)]


@given(probabilities, probabilities, costs, costs, st.integers(-20, 20), st.floats(1e-3, 1e3))
def test_only_the_cost_ratio_matters(p_need, p_accept, c_fa, c_fn, power, factor):
    decision = gate.decide(p_need, p_accept, c_fa, c_fn)
    assert decision == gate.decide(p_need, p_accept, c_fa * 2.0**power, c_fn * 2.0**power)
    assume(abs((1 - p_accept) * c_fa - p_accept * p_need * c_fn) > 1e-9 * c_fa)
    assert decision == gate.decide(p_need, p_accept, c_fa * factor, c_fn * factor)


@given(probabilities, costs, st.floats(0, 1e3))
def test_threshold_bounds_and_odds_form(p_need, c_fa, c_fn):
    t = gate.threshold(p_need, c_fa, c_fn)
    assert gate.threshold(1.0, c_fa, c_fn) <= t <= 1
    assert t + gate.threshold(p_need, c_fa, c_fn, form="odds_paper") == pytest.approx(1, abs=1e-15)


threshold_derivatives = jax.jit(jax.grad(gate.threshold, argnums=(0, 1, 2)))


@given(st.floats(0.01, 1), st.floats(0.1, 10), st.floats(0.1, 10))
def test_threshold_derivatives_have_the_papers_signs_and_values(p_need, c_fa, c_fn):
    with jax.enable_x64(True):
        by_need, by_fa, by_fn = map(float, threshold_derivatives(p_need, c_fa, c_fn))
    # Differentiation subtracts numbers of which up to four leading digits agree.
    squared = (c_fa + p_need * c_fn) ** 2
    np.testing.assert_allclose(by_need, -c_fa * c_fn / squared, rtol=1e-10)
    np.testing.assert_allclose(by_fa, p_need * c_fn / squared, rtol=1e-10)
    np.testing.assert_allclose(by_fn, -p_need * c_fa / squared, rtol=1e-10)
    assert by_need < 0 < by_fa
    assert by_fn < 0


@given(probabilities, probabilities, st.floats(0, 1), st.lists(costs, min_size=2, max_size=2))
def test_decisions_are_nested_in_cost_need_and_acceptance(p_need, p_accept, better, pair):
    low, high = sorted(pair)
    assert gate.decide(p_need, p_accept, 1.0, low) <= gate.decide(p_need, p_accept, 1.0, high)
    assert gate.decide(p_need, p_accept, high, 1.0) <= gate.decide(p_need, p_accept, low, 1.0)
    decision = gate.decide(p_need, p_accept, low, high)
    assert decision <= gate.decide(max(p_need, better), p_accept, low, high)
    assert decision <= gate.decide(p_need, max(p_accept, better), low, high)


signals = st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), min_size=1, max_size=10)


@settings(deadline=None, max_examples=20)
@given(signals, st.sampled_from([(1.0, 1.0), (1.0, 2.0), (3.0, 1.0), (1.0, 0.0)]))
def test_eq1_minimises_realised_cost_and_product_gold_cost_over_all_policies(rows, pair):
    """In multiples of 1/16 and with these costs, every cost below is exact."""
    p_need, p_accept = np.array(rows).T / 16.0
    both = p_need * p_accept
    every = np.array(list(itertools.product([False, True], repeat=len(rows))))

    def realised(decision):
        return metrics.expected_realised_cost(decision, p_accept, both, *pair) * len(rows)

    def gold(decision):  # the cost is linear in the label, so a soft label gives its expectation
        return metrics.realised_cost(decision, np.ones(len(rows)), both, *pair) * len(rows)

    assert realised(gate.decide(p_need, p_accept, *pair)) == pytest.approx(min(map(realised, every)), rel=1e-14)
    best_gold = min(map(gold, every))
    assert gold(gate.decide(p_need, p_accept, *pair, "product")) == pytest.approx(best_gold, rel=1e-14)


@given(probabilities, probabilities, probabilities, probabilities, costs, costs, st.floats(0, 1.5), st.floats(0, 1.5))
def test_slow_margin_limits_and_nesting(need_fast, accept_fast, need_slow, accept_slow, c_fa, c_fn, first, second):
    def run(margin):
        return gate.decide_with_slow(Pass(need_fast, accept_fast), Pass(need_slow, accept_slow), c_fa, c_fn, margin)

    fast, slow = gate.decide(need_fast, accept_fast, c_fa, c_fn), gate.decide(need_slow, accept_slow, c_fa, c_fn)
    assert run(0.0) == (fast, False)
    assert run(1.0) == run(7.0) == (slow, True)
    low, high = sorted([first, second])
    assert run(low)[1] <= run(high)[1]
    decision, ran = run(low)
    assert decision == (slow if ran else fast)
    unchanged, _ = gate.decide_with_slow(Pass(need_fast, accept_fast), Pass(need_fast, accept_fast), c_fa, c_fn, low)
    assert unchanged == fast


@given(logits, logits)
def test_score_from_logits_agrees_with_score(z_need, z_accept):
    np.testing.assert_allclose(
        gate.score_from_logits(z_need, z_accept), gate.score(expit(z_need), expit(z_accept)), atol=1e-6, rtol=1e-6
    )


def test_score_from_logits_is_exact_far_out():
    s = gate.score_from_logits(np.array([-800.0, 800.0, -np.inf, 0.0]), np.array([3.0, 800.0, np.inf, -np.inf]))
    np.testing.assert_array_equal(s, [-797.0, 800.0, -np.inf, -np.inf])


@given(logits, logits, costs, costs)
def test_soft_gate_becomes_the_hard_gate(z_need, z_accept, c_fa, c_fn):
    distance = gate.score_from_logits(z_need, z_accept) - np.log(c_fa / c_fn)
    assert 0 <= gate.soft_gate(z_need, z_accept, c_fa, c_fn, 0.25) <= 1
    assume(abs(distance) > 1e-6)
    hard = distance >= 0
    assert gate.soft_gate(z_need, z_accept, c_fa, c_fn, 1e-9) == pytest.approx(float(hard), abs=1e-12)
    wide, narrow = (gate.soft_gate(z_need, z_accept, c_fa, c_fn, h) for h in (1.0, 0.1))
    assert abs(narrow - hard) <= abs(wide - hard)


def test_soft_gate_is_one_half_on_the_boundary_and_shut_without_missed_help():
    z_accept = np.log(0.5) - gate.score_from_logits(0.3, 0.0)
    assert gate.soft_gate(0.3, z_accept, 1.0, 2.0, 0.25) == pytest.approx(0.5, abs=1e-12)
    assert gate.soft_gate(0.3, 50.0, 1.0, 0.0, 0.25) == 0
    assert jax.jit(jax.grad(lambda z: gate.soft_gate(0.3, z, 1.0, 0.0, 0.25)))(1.0) == 0


@given(logits, logits, costs, costs, st.floats(0, 1))
def test_soft_slow_becomes_the_slow_band(z_need, z_accept, c_fa, c_fn, margin):
    p_need, p_accept = expit(z_need), expit(z_accept)
    assume(abs(abs(p_accept - gate.threshold(p_need, c_fa, c_fn)) - margin) > 1e-6)
    soft = gate.soft_slow(z_need, z_accept, c_fa, c_fn, margin, 1e-9)
    assert soft == pytest.approx(float(gate.slow_band(p_need, p_accept, c_fa, c_fn, margin)), abs=1e-12)
    assert gate.soft_slow(z_need, z_accept, c_fa, c_fn, 0.0, 0.02) == 0


def test_gradients_of_the_score_are_finite_at_the_ends():
    ends = np.float32(list(itertools.product([0.0, 0.3, 1.0], repeat=2))).T
    assert np.isfinite(jax.jit(jax.grad(lambda p: gate.score(p[0], p[1]).sum()))(ends)).all()


class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(*POLICIES)
    def test_jax_decides_as_numpy_does(self, policy):
        rng = np.random.default_rng(0)
        p_need, p_accept = rng.random((2, 500), np.float32)
        decide = self.variant(lambda n, a: gate.decide(n, a, 1.0, 2.0, policy, base_rate=0.3))
        expected = gate.decide(p_need, p_accept, 1.0, 2.0, policy, base_rate=0.3)
        np.testing.assert_array_equal(decide(jnp.asarray(p_need), jnp.asarray(p_accept)), expected)

    @chex.variants(with_jit=True, without_jit=True)
    def test_jax_numbers_are_numpys(self):
        rng = np.random.default_rng(1)
        p_need, p_accept, z_need, z_accept = rng.random((4, 200), np.float32)
        for function, inputs in (
            (lambda n, a: gate.threshold(n, 1.0, 2.0) + 0 * a, (p_need, p_accept)),
            (gate.score, (p_need, p_accept)),
            (gate.critical_ratio, (p_need, p_accept)),
            (gate.score_from_logits, (z_need, z_accept)),
            (lambda n, a: gate.soft_gate(n, a, 1.0, 2.0, 0.25), (z_need, z_accept)),
            (lambda n, a: gate.soft_slow(n, a, 1.0, 2.0, 0.1, 0.02), (z_need, z_accept)),
        ):
            found = self.variant(function)(*map(jnp.asarray, inputs))
            np.testing.assert_allclose(found, function(*inputs), rtol=2e-4, atol=1e-6)

    def test_one_trace_serves_every_cost(self):
        decide = jax.jit(chex.assert_max_traces(gate.decide, n=1), static_argnums=4)
        p = jnp.linspace(0, 1, 11)
        shares = [float(decide(p, p, 1.0, c_fn, "dynamic").mean()) for c_fn in (0.5, 1.0, 2.0, 4.0)]
        assert shares == sorted(shares)
        assert shares[0] < shares[-1]


def test_results_follow_the_inputs_kind():
    p32 = np.linspace(0, 1, 5, dtype=np.float32)
    assert gate.threshold(p32, 1, 2).dtype == np.float32
    assert gate.score(p32.astype(np.float64), 0.5).dtype == np.float64
    assert isinstance(gate.score(jnp.asarray(p32), 0.5), jax.Array)
    assert isinstance(gate.score(0.5, 0.5), float)
    assert gate.decide(0.5, 0.9, 1, 2)
    assert gate.decide(p32[:, None], p32, 1, 2).shape == (5, 5)
    for policy in POLICIES:
        found = gate.decide(p32, 0.5, np.ones((2, 1)), 2, policy, base_rate=0.5)
        assert found.shape == (2, 5), policy
        assert found.dtype == bool


@pytest.mark.parametrize("compiled", [lambda function: function, jax.jit], ids=["numpy", "jit"])
def test_where_p_both_is_0_every_path_is_silent(compiled):
    """At p_accept = 1 and p_need = 0 the two expected costs tie at 0, and only the clause decides."""

    def offers_and_ratios(need, accept):
        fast = Pass(need, accept)
        table = surface.control_surface(fast, fast, np.zeros(3, int), [0.0, 1.0, 1e6], [0.0, 0.1, 1.0])
        offers = {
            "intervene": gate.intervene(accept, accept * need, 1.0, 2.0),
            "decide": gate.decide(need, accept, 1.0, 2.0),
            "product": gate.decide(need, accept, 1.0, 2.0, "product"),
            "slow": [gate.decide_with_slow(fast, fast, 1.0, 2.0, margin)[0] for margin in (0.0, 0.1, 1.0)],
            "drift": drift.decide(need, accept, 1.0, 2.0),
            "drifted": drift.decide(need, accept, 1.0, 2.0, temperature=0.5, epsilon=0.3),
            "surface": table.tp + table.fp,
        }
        return offers, audbc.burden_benefit_curve(fast, np.ones(3, int)).cost_ratio

    offers, ratios = compiled(offers_and_ratios)(*np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    assert not any(np.any(found) for found in offers.values()), offers
    assert np.isinf(ratios[1:]).all(), "no cost ratio makes it intervene"


def test_intervene_is_the_dynamic_decision_and_takes_dependent_signals():
    rng = np.random.default_rng(3)
    need, accept = rng.random((2, 500))
    np.testing.assert_array_equal(gate.intervene(accept, accept * need, 1, 2), gate.decide(need, accept, 1, 2))
    assert not gate.intervene(0.6, 0.1, 1.0, 2.0)
    assert gate.intervene(0.6, 0.2, 1.0, 2.0)
    with pytest.raises(ValueError, match=r"c_fa: found 0\.0"):
        gate.intervene(0.5, 0.5, 0.0, 2.0)


GOOD = {"p_need": 0.5, "p_accept": 0.5, "c_fa": 1.0, "c_fn": 2.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"c_fa": 0.0}, "c_fa: found 0.0"),
        ({"c_fa": -1.0}, "c_fa: found -1.0"),
        ({"c_fn": -0.5}, "c_fn: found -0.5"),
        ({"c_fn": np.inf}, "c_fn: found inf"),
        ({"policy": "need_only"}, "base_rate: found None"),
        ({"policy": "need_only", "base_rate": 2.0}, "base_rate: found 2.0"),
        ({"fixed_threshold": -0.1}, "fixed_threshold: found -0.1"),
        ({"policy": "fixed", "p_need": np.ones(3), "fixed_threshold": np.ones(2)}, r"fixed_threshold \(2,\): found"),
        ({"policy": "need_only", "p_need": np.ones(3), "base_rate": np.ones(2)}, r"base_rate \(2,\): found shapes"),
    ],
)
def test_decide_refuses_bad_input_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        gate.decide(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gate.slow_band(0.5, 0.5, 1.0, 2.0, -0.1), "margin: found -0.1"),
        (lambda: gate.soft_gate(0.5, 0.5, 1.0, 2.0, 0.0), "width: found 0.0"),
        (lambda: gate.soft_slow(0.5, 0.5, 1.0, 2.0, 0.1, np.nan), "width: found nan"),
        (lambda: gate.soft_gate(0.5, 0.5, 0.0, 2.0, 0.1), "c_fa: found 0.0"),
        (lambda: gate.score_from_logits(np.ones(2), np.ones(3)), "do not broadcast"),
    ],
)
def test_the_others_refuse_bad_input_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("policy", "ruler"), [("fixed", "fixed_threshold"), ("need_only", "base_rate")], ids=lambda word: word
)
@pytest.mark.parametrize("xp", [np, jnp])
def test_a_rules_own_array_takes_part_in_the_shape(policy, ruler, xp):
    values = np.array([0.1, 0.5, 0.9])
    found = gate.decide(0.6, 0.5, 1.0, 2.0, policy, **{ruler: xp.asarray(values)})
    assert isinstance(found, jax.Array) == (xp is jnp)
    assert found.tolist() == [bool(gate.decide(0.6, 0.5, 1.0, 2.0, policy, **{ruler: float(v)})) for v in values]
    assert gate.decide(np.ones(2), 0.5, 1.0, 2.0, "dynamic", **{ruler: values}).shape == (
        2,
    )  # the argument of another policy is ignored


def test_unknown_names_are_refused():
    with pytest.raises(Exception, match=r"policy|guess"):
        gate.decide(0.5, 0.5, 1.0, 2.0, "guess")
    with pytest.raises(Exception, match=r"form|odds"):
        gate.threshold(0.5, 1.0, 2.0, form="odds")


def test_a_policy_that_says_nothing_to_decide_on_is_refused(monkeypatch):
    """An entry with a threshold alone must not be decided as some other policy."""
    monkeypatch.setitem(POLICIES, "unfinished", Policy("unfinished", "", threshold=lambda p, *_: p))
    with pytest.raises(ValueError, match=r"^policy: found 'unfinished' with neither signals nor a constant decision"):
        gate.decide(0.5, 0.5, 1.0, 2.0, "unfinished")
