import itertools
import operator

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.metrics import log_loss

from prism_jax.decision import gate, losses, metrics

ROWS, HALF = 64, 32  # few shapes, since JAX compiles each operation for each


def make_log():
    """A logged batch in float32: logits, labels, interventions and their propensities."""
    rng = np.random.default_rng(7)
    z_need, z_accept = rng.normal(scale=2, size=(2, ROWS)).astype(np.float32)
    y_need, y_accept = (rng.random((2, ROWS)) < 0.5).astype(np.float32)
    propensity = rng.uniform(0.02, 0.98, ROWS).astype(np.float32)
    logged = (rng.random(ROWS) < propensity).astype(np.float32)
    mu = rng.random(ROWS).astype(np.float32)
    return dict(
        z_need=z_need, z_accept=z_accept, y_need=y_need, y_accept=y_accept, propensity=propensity, logged=logged, mu=mu
    )


@pytest.fixture
def log():
    return make_log()


def compiled(name):
    """A loss and its gradient in the logits, of rows and their weights."""

    def loss(logits, rows, weight):
        return ALL_LOSSES[name]({**rows, **logits}, weight)

    return jax.jit(jax.value_and_grad(loss))


def logits_of(rows):
    return {key: jnp.asarray(rows[key]) for key in ("z_need", "z_accept")}


def accept(log, **options):
    columns = {name: log[name] for name in ("z_accept", "y_accept", "logged", "propensity", "mu")}
    return losses.accept_loss(**{**columns, **options})


def cross_entropy(z, y):
    """An independent form of binary cross-entropy, in float64."""
    z = np.asarray(z, np.float64)
    return -(y * np.log(expit(z)) + (1 - y) * np.log(expit(-z)))


BURDEN = dict(c_fa=1.0, c_fn=2.0, width=0.25)


def burden(log, **options):
    columns = {name: log[name] for name in ("z_need", "z_accept", "y_need", "y_accept")}
    return losses.burden_loss(**{**columns, **BURDEN, **options})


ALL_LOSSES = {
    "need": lambda log, weight: losses.need_loss(log["z_need"], log["y_need"], weight),
    "ips": lambda log, weight: accept(log, estimator="ips", weight=weight)[0],
    "snips": lambda log, weight: accept(log, estimator="snips", weight=weight)[0],
    "dr": lambda log, weight: accept(log, estimator="dr", weight=weight)[0],
    "burden": lambda log, weight: burden(log, weight=weight, margin=0.1, slow_weight=0.3, observed=log["logged"]),
}


def all_logs(propensity):
    """Every possible sequence of the logging policy's actions, with its probability."""
    for chosen in itertools.product([0.0, 1.0], repeat=len(propensity)):
        logged = np.array(chosen)
        yield logged, float(np.prod(np.where(logged > 0, propensity, 1 - propensity)))


class Variants(chex.TestCase):
    """Each loss with jit and without: NumPy's number, and the property for which it is used."""

    @chex.variants(with_jit=True, without_jit=True)
    def test_the_need_loss_is_scikit_learns_and_least_at_the_labels_mean(self):
        log, weight = make_log(), np.random.default_rng(0).random(ROWS).astype(np.float32)
        z, y, loss = log["z_need"], log["y_need"], self.variant(losses.need_loss)
        expected = log_loss(y, expit(z.astype(np.float64)), sample_weight=weight)
        np.testing.assert_allclose(loss(z, y, weight), expected, rtol=1e-6)
        best = logit(np.average(y, weights=weight))
        below, least, above = (loss(np.full(ROWS, best + step, np.float32), y, weight) for step in (-0.1, 0.0, 0.1))
        assert least < min(below, above)

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters("ips", "snips", "dr")
    def test_acceptance_losses_are_their_formulas(self, estimator):
        log = make_log()
        w = np.minimum(log["logged"] / np.maximum(log["propensity"], 0.1), 5.0)
        ell = cross_entropy(log["z_accept"], log["y_accept"])
        label = log["mu"] + w * (log["y_accept"] - log["mu"])
        z = log["z_accept"].astype(np.float64)
        expected = {
            "ips": np.mean(w * ell),
            "snips": np.sum(w * ell) / np.sum(w),
            "dr": np.mean(np.logaddexp(0, z) - label * z),
        }
        loss, diagnostics = self.variant(lambda log: accept(log, estimator=estimator, e_min=0.1, w_max=5.0))(log)
        np.testing.assert_allclose(loss, expected[estimator], rtol=1e-5)
        np.testing.assert_allclose(diagnostics.effective_sample_size, w.sum() ** 2 / (w**2).sum(), rtol=1e-5)
        unclipped = log["logged"] / log["propensity"]
        np.testing.assert_allclose(diagnostics.clipped_mass, 1 - w.sum() / unclipped.sum(), rtol=1e-4)
        np.testing.assert_allclose(diagnostics.mean_a_over_e, unclipped.mean(), rtol=1e-5)
        error = unclipped.std() / np.sqrt(ROWS)
        np.testing.assert_allclose(diagnostics.standard_error, error, rtol=1e-4)
        np.testing.assert_allclose(diagnostics.high - diagnostics.low, 2 * 1.959964 * error, rtol=1e-4)
        outside = np.mean((label < 0) | (label > 1)) if estimator == "dr" else 0.0
        np.testing.assert_allclose(diagnostics.outside_share, outside, rtol=1e-6)

    @chex.variants(with_jit=True, without_jit=True)
    def test_the_burden_is_the_soft_gates_cost(self):
        """Under jit the width is a tracer, as of a schedule."""
        log, find = make_log(), self.variant(lambda z, width: burden({**log, "z_accept": z}, width=width))
        z_need, z = (log[name].astype(np.float64) for name in ("z_need", "z_accept"))
        for width in (0.25, 0.05):
            g = expit((z + np.log(expit(z_need)) - np.log(1 / 2)) / width)
            missed = (1 - g) * log["y_need"] * log["y_accept"]
            expected = np.mean(g * (1 - log["y_accept"])) + 2 * np.mean(missed)
            np.testing.assert_allclose(find(log["z_accept"], width), expected, rtol=1e-5)


def test_each_term_of_the_burden_moves_with_p_accept(log):
    for alone, sign in (("fa_weight", -1), ("missed_weight", 1)):  # without it the other term is left
        of_term = jax.jit(jax.grad(lambda z, alone=alone: burden({**log, "z_accept": z}, **{alone: 0.0})))
        gradient = sign * np.asarray(of_term(log["z_accept"]))
        assert np.all(gradient >= 0) and np.any(gradient > 0)


@pytest.mark.parametrize("estimator", ["ips", "dr"])
def test_known_propensities_leave_no_bias(estimator):
    """By exact enumeration of all logs, with an arbitrary baseline."""
    propensity, mu = np.array([0.3, 0.5, 0.8, 0.25]), np.array([0.9, 0.2, 0.5, 0.6])
    z, y = np.array([1.0, -2.0, 0.5, 3.0]), np.array([1.0, 1.0, 0.0, 0.0])
    with jax.enable_x64(True):
        loss = jax.jit(
            lambda logged: losses.accept_loss(z, y, logged, propensity, estimator=estimator, mu=mu, e_min=0.01)
        )
        of_logs = [(loss(logged), chance) for logged, chance in all_logs(propensity)]
        means = [(chance * of[0], chance * of[1].mean_a_over_e) for of, chance in of_logs]
    np.testing.assert_allclose(np.sum(means, axis=0), [np.mean(cross_entropy(z, y)), 1], rtol=1e-12)


def test_soft_labels_and_slot_targets(log):
    y, teacher = log["y_need"], log["mu"]
    target = losses.slot_target(y, teacher, alpha=0.25)
    np.testing.assert_allclose(target, 0.75 * y + 0.25 * teacher, rtol=1e-6)
    np.testing.assert_array_equal(losses.slot_target(y), y)
    mixed = losses.need_loss(log["z_need"], target)
    parts = [losses.need_loss(log["z_need"], labels) for labels in (y, teacher)]
    np.testing.assert_allclose(mixed, 0.75 * parts[0] + 0.25 * parts[1], rtol=1e-5)


def test_propensities_of_one_collapse_all_estimators_to_the_mean(log):
    ones = np.ones(ROWS, np.float32)
    weight = np.random.default_rng(1).random(ROWS).astype(np.float32)
    expected = losses.need_loss(log["z_accept"], log["y_accept"], weight)
    for estimator in ("ips", "snips", "dr"):
        loss, diagnostics = accept(log, estimator=estimator, logged=ones, propensity=ones, weight=weight)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        assert diagnostics.clipped_mass == diagnostics.outside_share == diagnostics.standard_error == 0
        assert diagnostics.mean_a_over_e == diagnostics.low == diagnostics.high == 1


def test_dr_label_is_unbiased_if_either_part_is_right():
    propensity, y = np.array([0.3, 0.5, 0.8]), np.array([1.0, 0.0, 0.7])
    wrong_e, wrong_mu = np.array([0.6, 0.6, 0.6]), np.array([0.1, 0.9, 0.5])
    for e, mu in ((propensity, wrong_mu), (wrong_e, y)):
        mean = sum(
            probability * losses.doubly_robust_label(y, losses.propensity_weight(logged, e, e_min=0.01), mu)
            for logged, probability in all_logs(propensity)
        )
        np.testing.assert_allclose(mean, y, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(*[st.floats(-40, 40)] * 2, st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 1), st.sampled_from([0.0, 1.0]))
def test_dr_loss_is_convex_in_the_logit(first, second, y, mu, e, logged):
    logged = logged if e < 1 else 1.0

    def loss(z):
        with jax.enable_x64(True):
            columns = [np.array([value], np.float64) for value in (z, y, logged, e)]
            return float(losses.accept_loss(*columns, estimator="dr", mu=np.array([mu]))[0])

    middle, ends = loss((first + second) / 2), (loss(first) + loss(second)) / 2
    assert middle <= ends + 1e-12 * (1 + abs(ends))


def test_dr_loss_is_bounded_below_where_its_label_leaves_the_unit_interval():
    """The label is 20 or -19 here, so without the penalty the loss would be unbounded below."""

    @jax.jit
    @jax.grad
    def slope(z, y, mu):
        columns = [jnp.array([value]) for value in (z, y, 1.0, 0.05)]
        return losses.accept_loss(*columns, estimator="dr", mu=jnp.array([mu]))[0]

    for y, direction in ((1.0, 1.0), (0.0, -1.0)):
        assert direction * slope(direction * 9.0, y, 1 - y) < 0, "inside the bound the label pulls outwards"
        assert direction * slope(direction * 30.0, y, 1 - y) > 0, "far beyond it, inwards"


JUNK = dict(z_need=1e30, z_accept=-1e30, y_need=-7.0, y_accept=9.0, propensity=0.0, logged=5.0, mu=3.0)


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_padding_rows_may_hold_anything_and_a_batch_of_them_counts_nothing(name, log):
    weight, value_and_gradient = (np.arange(ROWS) < HALF).astype(np.float32), compiled(name)
    expected = ALL_LOSSES[name]({key: values[:HALF] for key, values in log.items()}, None)
    for junk in (JUNK, dict.fromkeys(JUNK, np.nan), dict.fromkeys(JUNK, np.inf)):
        spoiled = {key: np.where(weight > 0, values, junk[key]).astype(np.float32) for key, values in log.items()}
        np.testing.assert_allclose(ALL_LOSSES[name](spoiled, weight), expected, rtol=1e-6)
        _, gradient = value_and_gradient(logits_of(spoiled), spoiled, weight)
        for values in gradient.values():
            assert np.isfinite(values).all()
            assert not np.any(values[HALF:])
    value, gradient = value_and_gradient(logits_of(log), log, 0 * weight)
    assert value == ALL_LOSSES[name](log, 0 * weight) == 0
    assert not any(np.any(values) for values in gradient.values())


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_weights_act_like_repeated_rows(name, log):
    times = np.random.default_rng(3).permutation(np.repeat([0, 0, 1, 3], ROWS // 4))
    repeated = {key: np.repeat(values, times) for key, values in log.items()}
    weighted = ALL_LOSSES[name](log, times.astype(np.float32))
    np.testing.assert_allclose(weighted, ALL_LOSSES[name](repeated, None), rtol=1e-5)


def split(log):
    return [{key: values[start::2] for key, values in log.items()} for start in range(2)]


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_sums_add_up_over_microbatches(estimator, log):
    def sums(rows):
        names = ("z_accept", "y_accept", "logged", "propensity")
        return losses.accept_sums(*(rows[name] for name in names), estimator=estimator, mu=rows["mu"])

    total = jax.tree.map(operator.add, *map(sums, split(log)))
    whole, diagnostics = accept(log, estimator=estimator)
    np.testing.assert_allclose(total.mean(), whole, rtol=1e-5)
    for found, expected in zip(total.diagnostics(), diagnostics, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_burden_and_need_sums_add_up_over_microbatches(log):
    def sums(rows):
        columns = [rows[name] for name in ("z_need", "z_accept", "y_need", "y_accept")]
        both = losses.burden_sums(*columns, **BURDEN, margin=0.1, observed=rows["logged"])
        return losses.need_sums(rows["z_need"], rows["y_need"]), both

    need, both = jax.tree.map(operator.add, *map(sums, split(log)))
    np.testing.assert_allclose(need.mean(), losses.need_loss(log["z_need"], log["y_need"]), rtol=1e-6)
    total = both.false_alarm.mean() + both.missed.mean() + 0.3 * both.slow.mean()
    np.testing.assert_allclose(total, ALL_LOSSES["burden"](log, None), rtol=1e-6)


def test_denominators_carry_no_gradient(log):
    def denominators(z):
        rows = {**log, **z}
        columns = [rows[name] for name in ("z_need", "z_accept", "y_need", "y_accept")]
        names = ("z_accept", "y_accept", "logged", "propensity")
        return (
            losses.need_sums(rows["z_need"], rows["y_need"]).denominator
            + losses.accept_sums(*(rows[name] for name in names)).denominator
            + sum(part.denominator for part in losses.burden_sums(*columns, **BURDEN, margin=0.1))
        )

    gradient = jax.jit(jax.grad(denominators))(logits_of(log))
    assert not any(np.any(values) for values in jax.tree.leaves(gradient))


def test_unseen_acceptances_are_not_read(log):
    hidden = np.where(log["logged"] > 0, log["y_accept"], np.nan).astype(np.float32)
    for estimator in ("ips", "snips", "dr"):
        expected, _ = accept(log, estimator=estimator)
        assert accept(log, estimator=estimator, y_accept=hidden)[0] == expected
    assert burden(log, y_accept=hidden, observed=log["logged"]) == burden(log, observed=log["logged"])


def test_an_offer_without_an_answer_costs_neither_a_false_alarm_nor_missed_help(log):
    answered = np.random.default_rng(4).permutation(np.arange(ROWS) < HALF)
    observed = {name: column[answered] for name, column in log.items()}
    found = burden(log, observed=answered.astype(np.float32), slow_weight=0.0)
    np.testing.assert_allclose(found, burden(observed, slow_weight=0.0), rtol=1e-6)


@pytest.mark.parametrize("c_fn", [0.5, 2.0])
def test_burden_becomes_the_hard_gates_realised_cost(c_fn, log):
    p_need, p_accept = expit(log["z_need"].astype(np.float64)), expit(log["z_accept"].astype(np.float64))
    decision = gate.decide(p_need, p_accept, 1.0, c_fn)
    expected = metrics.realised_cost(decision, log["y_need"], log["y_accept"], 1.0, c_fn)
    np.testing.assert_allclose(burden(log, c_fn=c_fn, width=1e-6), expected, rtol=1e-5)
    slow = gate.slow_band(p_need, p_accept, 1.0, c_fn, 0.1)
    tokens = np.arange(ROWS, dtype=np.float32)
    only_slow = dict(fa_weight=0.0, missed_weight=0.0, slow_weight=0.01, margin=0.1, slow_width=1e-6)
    found = burden(log, c_fn=c_fn, slow_tokens=tokens, **only_slow)
    np.testing.assert_allclose(found, 0.01 * np.mean(slow * tokens), rtol=1e-5)
    np.testing.assert_allclose(burden(log, c_fn=c_fn, **only_slow), 0.01 * np.mean(slow), rtol=1e-5)


def test_low_precision_logits_are_weighted_and_summed_in_float32(log):
    low, weight = jnp.asarray(log["z_need"], jnp.bfloat16), np.linspace(0.1, 0.9, ROWS)
    loss = losses.need_loss(low, log["y_need"], weight)
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, losses.need_loss(low.astype(jnp.float32), log["y_need"], weight), rtol=1e-6)


ONES, SECOND = np.ones(ROWS), np.arange(ROWS) == 1
Z = np.where(SECOND, np.nan, 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: losses.need_loss(Z, ONES, w), "z_need: found nan"),
        (lambda w: losses.accept_loss(Z, ONES, ONES, ONES, weight=w)[0], "z_accept: found nan"),
        (lambda w: losses.burden_loss(Z, ONES, ONES, ONES, c_fa=1.0, c_fn=2.0, width=0.1, weight=w), "z_need: found"),
        (lambda w: losses.burden_loss(ONES, Z, ONES, ONES, c_fa=1.0, c_fn=2.0, width=0.1, weight=w), "z_accept: found"),
    ],
)
def test_a_logit_that_is_no_number_is_refused_where_it_counts(call, message):
    assert np.isfinite(call(np.where(SECOND, 0.0, 1.0)))
    with pytest.raises(ValueError, match=message):
        call(ONES)


@pytest.mark.parametrize(
    ("logged", "propensity", "message"),
    [
        ([1.0, 0.0], [0.5, 0.0], r"propensity: found e = 0.0 with A = 0.0 at index 1"),
        ([1.0, 0.0], [0.5, 1.0], r"propensity: found e = 1.0 with A = 0.0 at index 1"),
        ([1.0, 1.0], [1.2, 0.5], r"propensity: found e = 1.2\d* with A = 1.0 at index 0"),
        ([1.0, 1.0], [0.5, np.nan], r"propensity: found e = nan with A = 1.0 at index 1"),
        ([0.5, 1.0], [0.5, 0.5], r"propensity: found e = 0.5 with A = 0.5 at index 0"),
    ],
)
def test_broken_positivity_is_refused_on_rows_that_count(logged, propensity, message):
    columns = [np.zeros(2, np.float32), np.ones(2), np.array(logged), np.array(propensity)]
    with pytest.raises(ValueError, match=message):
        losses.accept_loss(*columns)
    good = 1 - int(message[-1])
    weight = np.eye(2, dtype=np.float32)[good]
    assert np.isfinite(losses.accept_loss(*columns, weight=weight)[0])


def test_bad_input_is_refused_by_name(log):
    bad = {
        "y_need: found 2.0 at index 0": lambda: losses.need_loss(log["z_need"], np.full(ROWS, 2.0)),
        "y_need: found 3 rows, expected 64 as in z_need": lambda: losses.need_loss(log["z_need"], np.ones(3)),
        "z_need: found an empty array": lambda: losses.need_loss(np.ones(0, np.float32), np.ones(0)),
        "weight: found -1.0": lambda: losses.need_loss(log["z_need"], log["y_need"], np.full(ROWS, -1.0)),
        "weight: found nan": lambda: losses.need_loss(log["z_need"], log["y_need"], np.full(ROWS, np.nan)),
        "e_min: found 2.0": lambda: accept(log, e_min=2.0),
        "w_max: found 0.0": lambda: accept(log, w_max=0.0),
        "mu: found None": lambda: accept(log, estimator="dr", mu=None),
        "mu: found 2.0": lambda: accept(log, estimator="dr", mu=np.full(ROWS, 2.0)),
        "y_accept: found -1.0": lambda: accept(log, y_accept=np.full(ROWS, -1.0)),
        "c_fa: found 0.0": lambda: burden(log, c_fa=0.0),
        "c_fn: found -1.0": lambda: burden(log, c_fn=-1.0),
        "width: found 0.0": lambda: burden(log, width=0.0),
        "margin: found -0.1": lambda: burden(log, margin=-0.1),
        "observed: found 3 rows": lambda: burden(log, observed=np.ones(3)),
        "observed: found -1.0": lambda: burden(log, observed=np.full(ROWS, -1.0)),
        "slow_tokens: found nan": lambda: burden(log, slow_tokens=np.full(ROWS, np.nan)),
        r"propensity: found e = -0\.3 with A = 1\.0 at index 1": lambda: losses.propensity_weight(
            np.ones(3), np.array([0.5, -0.3, 0.1])
        ),
        "propensity: found 3 rows, expected 2 as in logged": lambda: losses.check_positivity(
            np.ones(2), np.full(3, 0.5)
        ),
        "z_need: found nan at index 1": lambda: gate.score_from_logits(Z, ONES),
        r"teacher: found None with alpha = 0\.5": lambda: losses.slot_target(log["y_need"], alpha=0.5),
    }
    for message, call in bad.items():
        with pytest.raises(ValueError, match=message):
            call()
