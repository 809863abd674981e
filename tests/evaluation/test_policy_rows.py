import dataclasses
import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from synthetic_scores import POINT, changed, evaluate, make_columns, make_scores

from prism_jax.decision import gate
from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import policy_rows, protocol, splits
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.scores import Scores

FIT = SignalFit(Temperature(1.0), base_rate=0.5, count=1, effective_count=1.0)
CALIBRATION = Calibration(FIT, FIT)
POLICIES = ["fixed", "static", "dynamic", "product", "always", "never"]


def by_hand(rows, offers, point):
    """Costs and counts of decisions, one row at a time: (y_need, y_accept, weight)."""
    total = realised = gold = 0.0
    cells = dict.fromkeys(("tp", "fp", "fn", "tn"), 0.0)
    for (y_need, y_accept, weight), offer in zip(rows, offers, strict=True):
        total += weight
        wanted = y_need == 1 and y_accept == 1
        if offer:
            realised += weight * point.c_fa * (y_accept == 0)
            gold += weight * point.c_fa * (not wanted)
        else:
            realised += weight * point.c_fn * wanted
            gold += weight * point.c_fn * wanted
        cells[("t" if offer == wanted else "f") + ("p" if offer else "n")] += weight
    return realised / total, gold / total, cells


@pytest.mark.parametrize("logging", [False, True])
@pytest.mark.parametrize("point", [POINT, OperatingPoint(c_fa=2.0, c_fn=0.7, margin=0.05, fixed_threshold=0.3)])
def test_every_row_agrees_with_a_count_by_hand(logging, point):
    columns = make_columns(seed=7, logging=logging)
    rng = np.random.default_rng(8)
    columns["y_need"] = np.where(rng.random(960) < 0.2, np.nan, columns["y_need"])
    scores = Scores.from_columns(columns)
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, fits, point)
    steps = splits.rows_of(scores, "test").steps()
    judged = [i for i in range(len(steps)) if not math.isnan(steps.y_need[i]) and not math.isnan(steps.y_accept[i])]
    weight = [min(1 / max(steps.propensity[i], 0.05), 20) if logging else 1.0 for i in judged]
    rows = [(steps.y_need[i], steps.y_accept[i], w) for i, w in zip(judged, weight, strict=True)]
    assert evaluation.counts.judged == len(judged) < evaluation.counts.steps == 480
    assert evaluation.counts.need_unknown == np.isnan(steps.y_need).sum()
    assert evaluation.counts.accept_unknown == np.isnan(steps.y_accept).sum()
    for row in evaluation.policies:
        offers = [bool(offer_by_hand(row, steps, fits, point, i)) for i in judged]
        realised, gold, cells = by_hand(rows, offers, point)
        assert row.realised_cost == pytest.approx(realised, rel=1e-12), row.policy
        assert row.gold_cost == pytest.approx(gold, rel=1e-12)
        assert {name: getattr(row, name) for name in cells} == pytest.approx(cells, rel=1e-12)
        if row.policy != "clairvoyant":
            everywhere = [bool(offer_by_hand(row, steps, fits, point, i)) for i in range(len(steps))]
            assert row.speak_rate == pytest.approx(np.mean(everywhere), rel=1e-12)
            expected = [
                point.c_fa * (1 - steps.p_accept_true[i]) if offer else point.c_fn * steps.p_both_true[i]
                for i, offer in enumerate(everywhere)
            ]
            assert row.expected_cost == pytest.approx(math.fsum(expected) / len(expected), rel=1e-12)


def offer_by_hand(row, steps, fits, point, i):
    """The decision of one step, from the threshold form of each policy."""

    def p(name):
        raw = getattr(steps, f"p_{name}")[i]
        t = getattr(fits, name).temperature if row.form == "calibrated" else 1.0
        return 1 / (1 + math.exp(-(math.log(raw) - math.log1p(-raw)) / t))

    def tau(p_need):
        return point.c_fa / (point.c_fa + p_need * point.c_fn)

    share = point.c_fa / (point.c_fa + point.c_fn)
    near = row.policy == "slow_on_margin" and abs(p("accept_fast") - tau(p("need_fast"))) <= point.margin
    slow = near or row.policy == "slow_only"
    return {
        "always": lambda: True,
        "never": lambda: False,
        "bayes": lambda: (1 - steps.p_accept_true[i]) * point.c_fa <= steps.p_both_true[i] * point.c_fn,
        "clairvoyant": lambda: steps.y_need[i] == 1 and steps.y_accept[i] == 1,
        "fixed": lambda: p("accept_fast") >= point.fixed_threshold,
        "static": lambda: p("accept_fast") >= share,
        "dynamic": lambda: p("accept_fast") >= tau(p("need_fast")),
        "product": lambda: p("accept_fast") * p("need_fast") >= share,
        "need_only": lambda: fits.accept_fast.base_rate >= tau(p("need_fast")),
    }.get(
        row.policy, lambda: p("accept_slow" if slow else "accept_fast") >= tau(p("need_slow" if slow else "need_fast"))
    )()


@pytest.mark.parametrize("dependence", [-0.9, 0.0, 0.9])
def test_bayes_is_the_best_of_all_decisions_and_the_gap_runs_from_the_better_constant_to_it(dependence):
    columns = make_columns(seed=9, streams=2, steps=10, noise=1.0)
    need, accept = columns["p_need_true"], columns["p_accept_true"]
    independent = need * accept
    extreme = np.minimum(need, accept) if dependence > 0 else np.maximum(0, need + accept - 1)
    columns["p_both_true"] = independent + abs(dependence) * (extreme - independent)
    fit = SignalFit(Temperature(2.0), base_rate=0.4, count=10, effective_count=10.0)
    scores = Scores.from_columns(columns)
    evaluation = protocol.evaluate(scores, Calibration(fit, fit), POINT)
    steps = splits.rows_of(scores, "test").steps()

    def cost(offers):
        return np.where(offers, 1 - steps.p_accept_true, 2 * steps.p_both_true).mean()

    best = min(cost(np.array(offers)) for offers in itertools.product([False, True], repeat=10))
    bayes = evaluation.policy("bayes")
    assert bayes.expected_cost == pytest.approx(best, rel=1e-12)
    constants = evaluation.policy("always").expected_cost, evaluation.policy("never").expected_cost
    assert constants == pytest.approx((cost(np.full(10, True)), cost(np.full(10, False))), rel=1e-12)
    for row in evaluation.policies:
        if row.policy == "clairvoyant":
            assert row.expected_cost is row.regret is row.gap_closed is None
            continue
        assert row.regret == pytest.approx(row.expected_cost - best, abs=1e-15)
        assert row.regret >= 0
        share = (min(constants) - row.expected_cost) / (min(constants) - best)
        assert row.gap_closed == pytest.approx(share, rel=1e-9, abs=1e-12)
    assert (bayes.regret, bayes.gap_closed) == (0.0, 1.0)
    assert max(evaluation.policy("always").gap_closed, evaluation.policy("never").gap_closed) == 0.0


def test_with_true_signals_the_gate_is_bayes_and_the_slow_pass_closes_more_of_the_gap():
    columns = make_columns(seed=10, streams=400, noise=1.5)
    truth = {"p_need_slow": columns["p_need_true"], "p_accept_slow": columns["p_accept_true"]}
    evaluation = evaluate(Scores.from_columns({**columns, **truth}), dataclasses.replace(POINT, margin=0.15))
    slow, fast = evaluation.policy("slow_only", "raw"), evaluation.policy("dynamic", "raw")
    assert slow.expected_cost == evaluation.policy("bayes").expected_cost
    assert slow.slow_rate == 1.0 and fast.slow_rate == 0.0
    for form in ("raw", "calibrated"):
        margin = evaluation.policy("slow_on_margin", form)
        assert 0 < margin.slow_rate < 1
        assert margin.gap_closed > evaluation.policy("dynamic", form).gap_closed


def test_scaling_both_costs_scales_all_costs_and_moves_no_decision():
    scores = make_scores()
    one = evaluate(scores, OperatingPoint(c_fa=1.0, c_fn=1.5))
    four = evaluate(scores, OperatingPoint(c_fa=4.0, c_fn=6.0))
    for a, b in zip(one.policies, four.policies, strict=True):
        assert (a.tp, a.fp, a.fn, a.tn, a.gap_closed) == pytest.approx((b.tp, b.fp, b.fn, b.tn, b.gap_closed))
        assert b.realised_cost == pytest.approx(4 * a.realised_cost)
    np.testing.assert_array_equal(one.trace.decision, four.trace.decision)


def test_constants_and_oracles_do_not_depend_on_the_scores():
    scores = make_scores()
    noise = np.random.default_rng(0).random(len(scores))
    other = changed(scores, True, p_need_fast=noise, p_accept_fast=1 - noise)
    other = protocol.evaluate(other, protocol.calibrate(scores), POINT)
    unlike = dict.fromkeys(("difference", "difference_low", "difference_high"))  # from the deployed policy

    def references(evaluation):
        return [dataclasses.replace(row, **unlike) for row in evaluation.policies if row.form is None]

    same = references(evaluate(scores))
    assert [row.policy for row in same] == ["always", "never", "bayes", "clairvoyant"]
    assert repr(references(other)) == repr(same)  # in the repr, NaN equals NaN


def test_a_threshold_of_one_half_decides_the_same_before_and_after_calibration():
    evaluation = evaluate(make_scores(), OperatingPoint(fixed_threshold=0.5))
    raw, calibrated = evaluation.policy("fixed", "raw"), evaluation.policy("fixed", "calibrated")
    assert dataclasses.replace(raw, form="calibrated") == calibrated


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_row_is_the_deployed_one(policy, slow):
    scores = make_scores(slow=slow)
    evaluation = evaluate(scores, OperatingPoint(policy=policy))
    margin = policy == "dynamic" and slow
    assert sum(row.deployed for row in evaluation.policies) == 1
    assert evaluation.deployed.policy == ("slow_on_margin" if margin else policy)
    assert evaluation.deployed.form == (None if policy in ("always", "never") else "calibrated")
    assert evaluation.trace.decision.mean() == evaluation.deployed.speak_rate
    assert evaluation.trace.slow.any() == margin
    without = evaluate(scores, OperatingPoint(policy=policy, margin=0.0))
    assert without.deployed.policy == policy


def test_the_oracle_is_silent_where_need_and_acceptance_never_meet():
    data = policy_rows.EvaluationData(splits.rows_of(make_scores(), "test").steps(), CALIBRATION, POINT, None, False)
    offer = data.oracle(policy_rows.Truth(np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0]))).offer
    assert offer.tolist() == [False, True, False]


def test_every_policy_of_an_evaluation_has_a_label_and_a_meaning():
    evaluation = evaluate(make_scores())
    for row in evaluation.policies:
        policy = policy_rows.ALL_POLICIES[row.policy]
        assert policy.label and policy.meaning.endswith(".")
    with pytest.raises(ValueError, match="policy: found 'need only', expected one with a threshold"):
        policy_rows.least_acceptance("need_only", np.array([0.5]), POINT)


unit = st.floats(0, 1)


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(unit, unit), min_size=1, max_size=20),
    policy=st.sampled_from(POLICIES),
    c_fn=st.just(0.0) | st.floats(1e-15, 5),
    fixed=unit,
)
def test_the_traces_threshold_is_where_the_gate_opens(pairs, policy, c_fn, fixed):
    p_need, p_accept = np.array(pairs).T
    point = OperatingPoint(c_fn=c_fn, policy=policy, fixed_threshold=fixed)
    least = policy_rows.least_acceptance(policy, p_need, point)
    assert (least >= 0).all()
    decision = gate.decide(p_need, p_accept, point.c_fa, point.c_fn, policy, fixed_threshold=fixed)
    clear = (np.abs(p_accept - least) > 1e-9) & (p_accept * p_need > 1e-9)
    np.testing.assert_array_equal(decision[clear], (p_accept >= least)[clear])
