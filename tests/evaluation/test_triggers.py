"""Triggers of the slow pass at equal budgets."""

import dataclasses

import numpy as np
import pytest
from synthetic_scores import POINT, changed, evaluate, in_folds, make_columns, make_scores, make_two_passes

from prism_jax.decision import budgets, gate
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.triggers import BUDGETS
from prism_jax.scores import Scores

TOKENS = 120


def two_candidates():
    return make_two_passes(streams=100, splits=("test", "calibration"))[0]


def one_candidate():
    return make_columns(seed=1, noise=1.0)


@pytest.fixture(scope="module", params=[one_candidate, two_candidates])
def case(request):
    columns = request.param()
    scores = Scores.from_columns(columns | {"tokens_slow": np.full(len(columns["step"]), TOKENS)})
    fits = protocol.calibrate(scores)
    return scores, fits, protocol.evaluate(scores, fits, POINT)


def test_every_trigger_has_a_row_for_every_budget(case):
    rows = case[2].triggers.rows
    expected = [("never", None), ("always", None)]
    expected += [(trigger, budget) for budget in BUDGETS for trigger in budgets.TRIGGERS]
    assert [(row.trigger, row.budget) for row in rows] == expected
    assert BUDGETS == (0.10, 0.20, 0.25, 0.30, 0.40, 0.50)


def test_never_and_always_are_the_policies_of_one_pass(case):
    _, _, evaluation = case
    for row, policy in zip(evaluation.triggers.rows[:2], ("dynamic", "slow_only"), strict=True):
        same = evaluation.policy(policy, "calibrated")
        assert row.realised_cost == pytest.approx(same.realised_cost, rel=1e-12)
        assert row.expected_cost == pytest.approx(same.expected_cost, rel=1e-12)
        assert (row.realised_low, row.realised_high) == pytest.approx((same.realised_low, same.realised_high))
        assert (row.slow_rate, row.tokens) == (same.slow_rate, TOKENS * same.slow_rate)
    never, always = evaluation.triggers.rows[:2]
    assert evaluation.triggers.gain == pytest.approx(never.realised_cost - always.realised_cost)
    assert evaluation.triggers.gain_low < evaluation.triggers.gain < evaluation.triggers.gain_high
    assert (never.kept, always.kept) == (0, 1)


def test_each_row_by_hand(case):
    """Thresholds from calibration steps, decisions on test steps, the labels of the pass that decides."""
    scores, fits, evaluation = case
    tables = {split: splits.rows_of(scores, split) for split in ("calibration", "test")}

    def signals(rows, name):
        table = rows.steps(name)
        return table, [fits.calibrated(signal, name, table) for signal in ("need", "accept")]

    (_, known), (steps, fast) = (signals(tables[split], "fast") for split in ("calibration", "test"))
    thought, slow = signals(tables["test"], "slow")
    rows = tables["test"]
    number = rows.step_numbers()
    missed = [max((rows.y_need * rows.y_accept)[number == one]) for one in range(len(steps))]
    costs = [
        np.where(gate.decide(*p, 1.0, 2.0), 1 - table.y_accept, 2 * np.array(missed))
        for table, p in ((steps, fast), (thought, slow))
    ]
    for row in evaluation.triggers.rows[2:]:
        if row.trigger == "random":
            share = np.full(len(steps), row.budget)  # exactly in every stream, so that it has no interval
            assert (row.kept_low, row.kept_high) == (None, None)
        else:
            before = budgets.urgency(row.trigger, *known, 1.0, 2.0, fits.thinking.moves)
            now = budgets.urgency(row.trigger, *fast, 1.0, 2.0, fits.thinking.moves)
            inside = int(row.budget * len(before) + 1e-9)
            limit = np.sort(before)[::-1][inside - 1 : inside + 1].mean()
            assert (before >= limit).sum() == inside
            share = (now >= limit).astype(float)
        found = ((1 - share) * costs[0] + share * costs[1]).mean()
        gain = costs[0].mean() - costs[1].mean()
        assert row.realised_cost == pytest.approx(found, rel=1e-9), row
        assert row.slow_rate == pytest.approx(share.mean())
        assert row.kept == pytest.approx((costs[0].mean() - row.realised_cost) / gain, rel=1e-9)
        assert row.tokens == pytest.approx(TOKENS * row.slow_rate)
        assert row.token_cost == pytest.approx(POINT.price * row.tokens)


def test_differences_are_paired_with_the_margin_at_the_same_budget(case):
    rows = case[2].triggers.rows
    margin = {row.budget: row for row in rows if row.trigger == "margin"}
    for row in rows:
        if row.trigger in ("never", "always", "margin"):
            assert row.difference is None
        else:
            rival = margin[row.budget]
            assert row.difference == pytest.approx(row.realised_cost - rival.realised_cost, abs=1e-12)
            assert row.difference_low <= row.difference <= row.difference_high
            spread = row.difference_high - row.difference_low
            assert spread < (row.realised_high - row.realised_low) + (rival.realised_high - rival.realised_low)


def test_the_price_of_tokens_is_no_part_of_any_cost(case):
    scores, fits, evaluation = case
    dear = protocol.evaluate(scores, fits, dataclasses.replace(POINT, price=1.0)).triggers
    for row, other in zip(evaluation.triggers.rows, dear.rows, strict=True):
        assert dataclasses.replace(other, token_cost=row.token_cost) == row
        assert other.token_cost == pytest.approx(row.token_cost * 1e4)


def test_a_useful_slow_pass_is_spent_better_by_value_and_margin_than_at_random():
    """On the synthetic truth: expected costs are known without the noise of labels."""
    scores = Scores.from_columns(make_columns(seed=2, streams=300, noise=1.0))
    rows = {(row.trigger, row.budget): row for row in evaluate(scores).triggers.rows}
    for budget in BUDGETS:
        cost = {trigger: rows[trigger, budget].expected_cost for trigger in budgets.TRIGGERS}
        assert max(cost["value"], cost["margin"]) < cost["random"]


def test_folds_choose_thresholds_on_the_other_folds():
    scores = Scores.from_columns(in_folds(make_columns(seed=3), 4))
    fits = protocol.calibrate(scores)
    found = protocol.evaluate(scores, fits, POINT).triggers
    assert found.calibration_steps == 3 * len(scores)
    expected = np.zeros(len(scores))
    for fold, part in fits.folds.items():
        inside = scores.fold == fold
        own, others = scores.take(inside).steps(), scores.take(~inside).steps()
        before, now = (
            budgets.urgency("margin", *(part.calibrated(s, "fast", table) for s in ("need", "accept")), 1.0, 2.0)
            for table in (others, own)
        )
        expected[inside] = now >= budgets.threshold_at_rate(before, 0.3)
    (row,) = (row for row in found.rows if (row.trigger, row.budget) == ("margin", 0.3))
    assert row.slow_rate == expected.mean()


def test_without_calibration_rows_there_are_no_thresholds():
    scores = make_scores()
    fits = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores.take(scores.split == "test"), fits, POINT)
    assert evaluation.triggers is None
    said = "triggers at one budget: there are no calibration rows to choose their thresholds on"
    assert said in evaluation.switched_off


def test_a_slow_pass_that_saves_nothing_has_no_share_to_keep():
    scores = make_scores()
    same = changed(scores, True, p_need_slow=scores.p_need_fast, p_accept_slow=scores.p_accept_fast)
    found = evaluate(same).triggers
    assert found.gain == 0
    assert {row.kept for row in found.rows} == {None}
    assert {row.difference for row in found.rows} <= {None, 0.0}
    value = [row for row in found.rows if row.trigger == "value"]
    assert all(row.slow_rate == 0 for row in value)  # nothing moves, so no step is worth a thought
