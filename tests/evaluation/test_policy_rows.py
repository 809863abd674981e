import dataclasses
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from synthetic_scores import IDENTITY, POINT, evaluate, make_columns, make_scores
from test_slow_candidates import check_row, count_by_hand

from prism_jax.decision import gate
from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import policy_rows, protocol, splits
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.scores import Scores

POLICIES = ["fixed", "static", "dynamic", "product", "always", "never"]


@pytest.mark.parametrize("logging", [False, True])
@pytest.mark.parametrize("point", [POINT, OperatingPoint(c_fa=2.0, c_fn=0.7, margin=0.05, fixed_threshold=0.3)])
def test_every_row_agrees_with_a_count_by_hand(logging, point):
    columns = make_columns(seed=7, logging=logging)
    columns["y_need"] = np.where(np.random.default_rng(8).random(960) < 0.2, np.nan, columns["y_need"])
    scores = Scores.from_columns(columns)
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, fits, point)
    raw = splits.rows_of(scores, "test")
    signals = itertools.product(("need", "accept"), ("fast", "slow"))
    maps = {f"p_{signal}_{thinking}": fits.calibrated(signal, thinking, raw) for signal, thinking in signals}
    read = {None: raw, "raw": raw, "calibrated": dataclasses.replace(raw, **maps)}
    unknown = np.isnan(raw.y_need), np.isnan(raw.y_accept)
    counts = evaluation.counts
    assert (counts.need_unknown, counts.accept_unknown) == tuple(of.sum() for of in unknown)
    assert counts.judged == (~(unknown[0] | unknown[1])).sum() < counts.steps == 480
    for row in evaluation.policies:
        check_row(row, count_by_hand(read[row.form], row.policy, point, fits.accept_fast.base_rate)[0])


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
    data = policy_rows.EvaluationData(splits.rows_of(make_scores(), "test").steps(), IDENTITY, POINT, None, False)
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
