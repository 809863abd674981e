import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef, precision_score, recall_score

from prism_jax.decision import metrics

decisions = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1)
counts = st.integers(0, 1000)


def sample(size=500, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random(size) < 0.5, rng.random(size) < 0.6


@given(decisions)
def test_confusion_against_scikit_learn(rows):
    decision, y = np.array(rows).T
    (tn, fp), (fn, tp) = confusion_matrix(y, decision, labels=[False, True])
    weight = np.arange(y.size) % 3 + 0.5
    weighted = confusion_matrix(y, decision, labels=[False, True], sample_weight=weight)
    for labels in (y, y.astype(int), y.astype(float)):
        assert metrics.confusion(decision, labels) == (tp, fp, fn, tn)
        found = metrics.confusion(decision, labels, weight)
        np.testing.assert_allclose(found, [weighted[1, 1], weighted[0, 1], weighted[1, 0], weighted[0, 0]])


def test_soft_labels_split_a_row():
    found = metrics.confusion(np.array([True, False]), np.array([0.75, 0.25]))
    np.testing.assert_allclose(found, [0.75, 0.25, 0.25, 0.75])


def test_decisions_may_be_ones_and_zeros():
    decision, y = np.array([True, False, True]), np.array([1, 1, 0])
    assert metrics.confusion(decision.astype(int), y) == metrics.confusion(decision, y)
    costs = [metrics.realised_cost(of, y, y, 1.0, 2.0) for of in (decision.astype(float), decision)]
    assert costs[0] == costs[1]


def test_hard_labels_are_counted_in_integers():
    decision, y = sample()
    for convert in (np.asarray, jnp.asarray):
        for count in metrics.confusion(convert(decision), convert(y)):
            assert np.issubdtype(count.dtype, np.integer)


def test_rates_against_scikit_learn():
    decision, y = sample()
    rates = metrics.rates(metrics.confusion(decision, y))
    for name, oracle in (
        ("recall", recall_score),
        ("precision", precision_score),
        ("accuracy", accuracy_score),
        ("matthews", matthews_corrcoef),
    ):
        assert getattr(rates, name) == pytest.approx(oracle(y, decision), rel=1e-12)
    assert rates.f1 == pytest.approx(f1_score(y, decision), rel=1e-7)
    assert rates.speak_rate == decision.mean()
    assert rates.prevalence == y.mean()


@given(counts, counts, counts, counts)
def test_rates_obey_their_identities(tp, fp, fn, tn):
    rates = metrics.rates(metrics.Confusion(tp, fp, fn, tn))
    n = tp + fp + fn + tn
    assert rates.steps == n
    if tp + fp:
        assert rates.false_alarm == pytest.approx(1 - rates.precision, abs=1e-12), "the paper's False-Alarm"
    if fp + tn:
        assert rates.false_positive_rate == pytest.approx(1 - rates.specificity, abs=1e-12)
    if tp + fn:
        assert rates.missed_need == pytest.approx(1 - rates.recall, abs=1e-12)
    if n:
        assert rates.speak_rate == (tp + fp) / n
        assert rates.false_alarms_per_step == fp / n
    if tp:
        product, total = rates.precision * rates.recall, rates.precision + rates.recall
        assert rates.f1 == pytest.approx(2 * product / (total + 1e-8), rel=1e-12)
        assert rates.f1 == pytest.approx(2 * tp / (2 * tp + fp + fn), rel=1e-4)
    if (tp + fp) and (fn + tn) and (tp + fn) and (fp + tn):
        assert -1 - 1e-12 <= rates.matthews <= 1 + 1e-12
    else:
        assert np.isnan(rates.matthews)


def test_undefined_ratios_are_nan_or_follow_the_official_scorer():
    silent = metrics.Confusion(0, 0, 3, 7)
    rates = metrics.rates(silent)
    assert np.isnan([rates.precision, rates.false_alarm, rates.f1, rates.matthews]).all()
    assert (rates.recall, rates.accuracy, rates.speak_rate) == (0, 0.7, 0)
    official = metrics.rates(silent, compat="official")
    assert (official.precision, official.false_alarm, official.f1, official.recall) == (0, 0, 0, 0)


@given(counts, counts, counts, counts)
def test_official_rates_add_epsilon_to_every_denominator(tp, fp, fn, tn):
    found = metrics.rates(metrics.Confusion(tp, fp, fn, tn), compat="official")
    eps = 1e-8
    recall, precision = tp / (tp + fn + eps), tp / (tp + fp + eps)
    expected = {
        "recall": recall,
        "precision": precision,
        "accuracy": (tp + tn) / (tp + fp + fn + tn + eps),
        "false_alarm": fp / (tp + fp + eps),
        "f1": 2 * precision * recall / (precision + recall + eps),
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-15)


def test_rates_of_a_surface_are_rates_of_its_cells():
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 5, (4, 3, 7))
    surface = metrics.rates(metrics.Confusion(*cells))
    for place in np.ndindex(3, 7):
        cell = metrics.rates(metrics.Confusion(*(int(count[place]) for count in cells)))
        for field in dataclasses.fields(cell):
            np.testing.assert_array_equal(getattr(surface, field.name)[place], getattr(cell, field.name))


def test_matthews_of_huge_counts_does_not_overflow():
    rates = metrics.rates(metrics.Confusion(*(np.array(10**9 * k) for k in (3, 1, 1, 3))))
    assert rates.matthews == pytest.approx(0.5)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1), st.floats(0.1, 5), st.floats(0, 5))
def test_costs_are_sums_of_counts(rows, c_fa, c_fn):
    decision, need, accept = np.array(rows).T
    n = len(rows)
    both = need & accept
    expected = (c_fa * np.sum(decision & ~accept) + c_fn * np.sum(~decision & both)) / n
    assert metrics.realised_cost(decision, need, accept, c_fa, c_fn) == pytest.approx(expected, rel=1e-12)
    found = metrics.confusion(decision, both)
    expected = (c_fa * found.fp + c_fn * found.fn) / n
    assert metrics.realised_cost(decision, np.ones(n), both, c_fa, c_fn) == pytest.approx(expected, rel=1e-12)
    # An accepted offer that was not needed is a false alarm against gold, but not in the realised cost.
    assert metrics.realised_cost(decision, need, accept, c_fa, c_fn) <= expected + 1e-12


def test_expected_cost_is_the_mean_realised_cost_over_labels():
    rng = np.random.default_rng(3)
    decision, p_accept = rng.random(4) < 0.5, rng.random(4)
    p_both = p_accept * rng.random(4)  # need and acceptance may depend on each other
    mean = 0.0
    for index in range(3**4):  # joint outcomes of each row: rejected, accepted without need, accepted and needed
        outcome = np.array([index // 3**row % 3 for row in range(4)])
        chance = np.choose(outcome, [1 - p_accept, p_accept - p_both, p_both]).prod()
        mean += chance * metrics.realised_cost(decision, outcome == 2, outcome >= 1, 1.0, 2.0)
    assert metrics.expected_realised_cost(decision, p_accept, p_both, 1.0, 2.0) == pytest.approx(mean, rel=1e-12)


def test_weights_are_repetitions_and_costs_may_differ_by_row():
    rng = np.random.default_rng(4)
    decision, need, accept = rng.random((3, 50)) < 0.5
    times = rng.integers(0, 4, 50)
    repeated = [np.repeat(column, times) for column in (decision, need, accept)]
    weighted = metrics.realised_cost(decision, need, accept, 1.0, 2.0, times.astype(float))
    assert weighted == pytest.approx(metrics.realised_cost(*repeated, 1.0, 2.0))
    c_fa, c_fn = rng.uniform(0.5, 2, (2, 50))
    single = [
        metrics.realised_cost(*(c[i : i + 1] for c in (decision, need, accept)), c_fa[i], c_fn[i]) for i in range(50)
    ]
    assert metrics.realised_cost(decision, need, accept, c_fa, c_fn) == pytest.approx(np.mean(single))


class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_jax_results_are_numpys_and_rates_keep_their_identities(self):
        decision, y = sample()
        need, accept = np.random.default_rng(5).random((2, y.size)).astype(np.float32)

        def everything(decision, y, need, accept):
            return (
                dataclasses.asdict(metrics.rates(metrics.confusion(decision, y))),
                metrics.confusion(decision, need),
                metrics.realised_cost(decision, need, accept, 1.0, 2.0),
                metrics.realised_cost(decision, y, y, 1.0, 2.0, need),
            )

        found = jax.tree.map(np.asarray, self.variant(everything)(*map(jnp.asarray, (decision, y, need, accept))))
        chex.assert_trees_all_close(found, everything(decision, y, need, accept), rtol=1e-5)
        assert found[0]["f1"] == pytest.approx(f1_score(y, decision), rel=1e-5)
        assert found[0]["false_alarm"] == pytest.approx(1 - found[0]["precision"], rel=1e-5)


def test_costs_are_differentiable_in_the_costs():
    decision, y = sample()
    found = jax.grad(lambda c: metrics.realised_cost(*map(jnp.asarray, (decision, y, y)), c[0], c[1]))(jnp.ones(2))
    cells = metrics.confusion(decision, y)
    np.testing.assert_allclose(found, [cells.fp / y.size, cells.fn / y.size], rtol=1e-6)


D, Y = np.array([True, False]), np.array([1.0, 0.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.confusion(np.array([0.3, 1.0]), Y), "decision: found 0.3 at index 0, expected 0 or 1"),
        (lambda: metrics.realised_cost(np.array([1.0, 0.7]), Y, Y, 1.0, 2.0), "decision: found 0.7 at index 1"),
        (lambda: metrics.rates(metrics.Confusion(1, 2, -3, 4)), "fn: found -3"),
        (lambda: metrics.rates(metrics.Confusion(1, float("nan"), 3, 4)), "fp: found nan"),
        (lambda: metrics.realised_cost(D, Y, Y, 0.0, 2.0), "c_fa: found 0.0"),
        (lambda: metrics.realised_cost(D, Y, Y, 1.0, -2.0), "c_fn: found -2.0"),
        (lambda: metrics.realised_cost(D, Y, Y, np.ones(3), 2.0), "c_fa: found 3 rows, expected 2 as in decision"),
        (
            lambda: metrics.expected_realised_cost(D, 0.5 * Y, 0.75 * Y, 1.0, 2.0),
            r"^p_both: found 0\.75 at index \d, above p_accept = 0\.5; expected a probability of need AND acceptance$",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
