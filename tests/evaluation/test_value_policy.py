"""The policy that thinks by value: its row, the operating point that deploys it, and its results across ratios."""

import dataclasses

import numpy as np
import pytest
from synthetic_scores import POINT, evaluate, make_columns, make_scores, make_two_passes

from prism_jax.decision import gate, thinking
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.scores import Scores

VALUE = OperatingPoint(trigger="value", price=3e-4)


def with_tokens(columns, spent=100):
    return Scores.from_columns(columns | {"tokens_slow": np.full(len(columns["step"]), spent)})


def two_candidates():
    return make_two_passes(splits=("test", "calibration"))[0]


def row_of(rows, policy, form="calibrated"):
    (row,) = (row for row in rows if (row.policy, row.form) == (policy, form))
    return row


@pytest.mark.parametrize("two", [False, True])
def test_the_row_counts_the_candidate_of_the_pass_that_decides(two):
    scores = with_tokens(two_candidates() if two else make_columns())
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, fits, VALUE)
    row = row_of(evaluation.policies, "slow_on_value")
    rows = splits.rows_of(scores, "test")
    steps, thought = rows.steps(), rows.steps("slow")
    fast = [fits.calibrated(signal, "fast", steps) for signal in ("need", "accept")]
    slow = [fits.calibrated(signal, "slow", thought) for signal in ("need", "accept")]
    value = thinking.value_of_thinking(*fast, 1.0, 2.0, fits.thinking.moves)
    runs = value >= VALUE.price * fits.thinking.tokens
    offer = np.where(runs, gate.decide(*slow, 1.0, 2.0), gate.decide(*fast, 1.0, 2.0))
    accept = np.where(runs, thought.y_accept, steps.y_accept)
    assert 0 < runs.mean() < 1
    best = {}
    for stream, step, answer in zip(rows.stream, rows.step, rows.y_accept, strict=True):
        best[stream, step] = max(answer, best.get((stream, step), 0.0))
    missed = steps.y_need * [best[key] for key in zip(steps.stream, steps.step, strict=True)]
    assert row.realised_cost == pytest.approx(np.where(offer, 1 - accept, 2 * missed).mean(), rel=1e-12)
    assert (row.slow_rate, row.speak_rate) == pytest.approx((runs.mean(), offer.mean()))
    assert row.deployed and row.difference == 0
    np.testing.assert_array_equal(evaluation.trace.slow, runs)
    np.testing.assert_array_equal(evaluation.trace.decision, offer)


@pytest.mark.parametrize(
    ("columns", "near"),
    [(make_columns, {"mean_cost": 1e-3}), (two_candidates, {"mean_cost": 2e-3, "audbc_rescaled": 1e-2})],
)
def test_the_price_spans_from_slow_only_to_fast_only(columns, near):
    scores = with_tokens(columns())
    numbers = ("realised_cost", "expected_cost", "speak_rate", "slow_rate")
    for price, policy in ((0.0, "slow_only"), (1e6, "dynamic")):
        evaluation = evaluate(scores, dataclasses.replace(VALUE, price=price))
        same = row_of(evaluation.policies, policy)
        for name in numbers:
            assert getattr(evaluation.deployed, name) == getattr(same, name)
        own, other = (row_of(evaluation.ratios.rows, name) for name in ("slow_on_value", policy))
        near = {"mean_cost_rescaled": 1e-2} | near
        for name in ("mean_cost", "mean_cost_rescaled", "audbc", "audbc_low", "audbc_high", "audbc_rescaled"):
            assert getattr(own, name) == pytest.approx(getattr(other, name), abs=near.get(name, 3e-3)), name


@pytest.mark.slow
def test_across_ratios_it_follows_its_own_decisions():
    """The oracle decides every step on a fine grid of ratios."""
    scores = with_tokens(make_columns(seed=6))
    fits = protocol.calibrate(scores)
    point = OperatingPoint(c_fa=2.0, c_fn=1.0, trigger="value", price=8e-4)  # 4e-4 in units of C_FA
    row = row_of(protocol.evaluate(scores, fits, point).ratios.rows, "slow_on_value", "raw")
    steps = splits.rows_of(scores, "test").steps()
    passes = Pass(steps.p_need_fast, steps.p_accept_fast), Pass(steps.p_need_slow, steps.p_accept_slow)
    grid = 0.5 * 8 ** ((np.arange(1000) + 0.5) / 1000)
    costs = []
    for ratio in grid:
        offer, _ = thinking.decide_by_value(*passes, 1.0, ratio, fits.thinking.moves, 4e-4, fits.thinking.tokens)
        costs.append(np.where(offer, 1 - steps.y_accept, ratio * steps.y_need * steps.y_accept).mean() / (1 + ratio))
    assert row.mean_cost == pytest.approx(np.mean(costs), abs=5e-4)
    burden, benefit = [0.0], [0.0]
    for ratio in np.geomspace(1e-3, 1e5, 4000):
        offer, _ = thinking.decide_by_value(*passes, 1.0, ratio, fits.thinking.moves, 4e-4, fits.thinking.tokens)
        burden.append(offer.mean())
        benefit.append((offer * steps.y_need * steps.y_accept).mean())
    prevalence = (steps.y_need * steps.y_accept).mean()
    area = np.trapezoid([*benefit, prevalence], [*burden, 1.0]) / (prevalence - prevalence**2 / 2)
    assert row.audbc == pytest.approx(area, abs=2e-3)
    assert row.audbc_low < row.audbc < row.audbc_high


def test_the_trigger_without_slow_signals_changes_nothing_and_says_so():
    scores = make_scores(slow=False)
    plain, value = evaluate(scores, POINT), evaluate(scores, VALUE)
    assert list(map(str, value.policies)) == list(map(str, plain.policies))
    assert value.ratios == plain.ratios
    assert value.deployed.policy == "dynamic"
    said = "slow pass: there is no column p_accept_slow; the trigger value has no effect: the fast pass decides"
    assert said in value.switched_off
    assert value.triggers is None


def test_the_trigger_without_tokens_deploys_the_fast_pass_and_says_so():
    value = evaluate(make_scores(), VALUE)
    assert value.deployed.policy == "dynamic"
    said = "slow on value: there is no column tokens_slow; the trigger value has no effect: the fast pass decides"
    assert said in value.switched_off


def test_auto_is_the_value_of_thinking_where_it_is_known_and_the_margin_elsewhere():
    known = evaluate(with_tokens(make_columns()), POINT)
    assert (known.point.trigger, known.deployed.policy) == ("value", "slow_on_value")
    unknown = evaluate(Scores.from_columns(make_columns()), POINT)
    assert (unknown.point.trigger, unknown.deployed.policy) == ("margin", "slow_on_margin")
    fast = evaluate(Scores.from_columns(make_columns(slow=False)), POINT)
    assert (fast.point.trigger, fast.deployed.policy) == ("margin", "dynamic")


def test_each_trigger_marks_its_own_policy():
    scores = with_tokens(make_columns())
    margin = dataclasses.replace(POINT, trigger="margin")
    assert evaluate(scores, margin).deployed.policy == "slow_on_margin"
    assert evaluate(scores, dataclasses.replace(margin, margin=0.0)).deployed.policy == "dynamic"
    assert evaluate(scores, VALUE).deployed.policy == "slow_on_value"
    assert evaluate(scores, dataclasses.replace(VALUE, policy="static")).deployed.policy == "static"
    data = EvaluationData(scores, protocol.calibrate(scores), VALUE, scores, True, True)
    assert data.slow_policies == ("slow_only", "slow_on_margin", "slow_on_value")
