import dataclasses

import numpy as np
import pytest
from synthetic_scores import POINT, changed, evaluate, make_scores

from prism_jax.decision import gate
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.evaluation import protocol, splits
from prism_jax.report.tables import ratio_table
from prism_jax.scores import Scores
from prism_jax.scores.labels import acceptance_weight

RULES = ("static", "dynamic", "product", "need_only")


def measured(seed=3, **knobs):
    """Scores with masked and weighted steps, their calibration, and the judged steps."""
    scores = make_scores(seed=seed, logging=True, slow=False, **knobs)
    fits = protocol.calibrate(scores)
    steps = splits.rows_of(scores, "test").steps()
    return protocol.evaluate(scores, fits, POINT), fits, steps.take(~np.isnan(steps.y_need + steps.y_accept))


def signals(steps, fits, form):
    """The two probabilities of each step."""
    for name in ("need", "accept"):
        p = getattr(steps, f"p_{name}_fast")
        temperature = 1.0 if form == "raw" else fits.fit(name, "fast").temperature
        yield 1 / (1 + np.exp(-np.log(p / (1 - p)) / temperature))


def decisions(steps, fits, row, ratio):
    """The decisions of a row's policy at some cost ratios, computed by the gate."""
    rate = fits.accept_fast.base_rate
    return gate.decide(*signals(steps, fits, row.form), 1.0, ratio, row.policy, base_rate=rate)


def area(offer_sets, gold, weight):
    """Trapezoid area under benefit over burden relative to the oracle's, from the sets of steps with an offer."""
    total, positive = weight.sum(), (weight * gold).sum()
    burden = [(weight * offers).sum() / total for offers in offer_sets]
    benefit = [(weight * gold * offers).sum() / total for offers in offer_sets]
    return np.trapezoid(benefit, burden) / (positive / total - (positive / total) ** 2 / 2)


def test_mean_costs_are_those_of_the_gate_over_a_fine_grid_of_ratios():
    evaluation, fits, steps = measured()
    weight = acceptance_weight(steps)
    assert len(set(weight)) > 2 and len(steps) < 480
    grid = np.exp((np.arange(2000) + 0.5) / 2000 * np.log(8)) * 0.5
    wanted, refused = steps.y_need * steps.y_accept, 1 - steps.y_accept
    silent = np.average(wanted, weights=weight) * (grid / (1 + grid)).mean()
    always = np.average(refused, weights=weight) * (1 / (1 + grid)).mean()
    for row in evaluation.ratios.rows:
        if row.form is None:
            expected = {"always": always, "never": silent, "clairvoyant": 0.0}[row.policy]
        else:
            offer = decisions(steps, fits, row, grid[:, None])
            costs = np.where(offer, refused, grid[:, None] * wanted) / (1 + grid[:, None])
            expected = np.average(costs.mean(0), weights=weight)
        assert row.mean_cost == pytest.approx(expected, abs=2e-4), (row.policy, row.form)
        better = min(silent, always)
        assert row.mean_cost_rescaled == pytest.approx((better - expected) / better, abs=2e-3)


def test_areas_are_those_of_the_decisions_that_the_gate_makes_as_the_ratio_grows():
    evaluation, fits, steps = measured()
    weight, gold = acceptance_weight(steps), steps.y_need * steps.y_accept
    prevalence = np.average(gold, weights=weight)
    chance = 1 / (2 - prevalence)
    for row in evaluation.ratios.rows[3:]:
        p_need, p_accept = signals(steps, fits, row.form)
        scalar = {
            "static": (1 - p_accept) / p_accept,
            "dynamic": (1 - p_accept) / (p_accept * p_need),
            "product": 1 / (p_accept * p_need) - 1,
            "need_only": 1 / p_need,
        }[row.policy]
        cuts = np.unique(scalar)
        value = area([np.zeros(len(steps), bool), *(scalar <= cut for cut in cuts)], gold, weight)
        assert row.audbc == pytest.approx(value, abs=1e-9)
        assert row.audbc_rescaled == pytest.approx((value - chance) / (1 - chance), abs=1e-9)
        assert row.audbc_low < row.audbc < row.audbc_high


def test_the_interval_resamples_streams():
    """Duplicates of a stream under its own name add no information; the interval does not change."""
    scores = make_scores(seed=4, slow=False)
    twin = {name: np.concatenate([column, column]) for name, column in scores.columns().items()}
    twin["step"] = np.concatenate([scores.step, scores.step + 100])
    one, two = (evaluate(table).ratios.rows[4] for table in (scores, Scores.from_columns(twin)))
    assert (one.policy, one.form) == ("dynamic", "calibrated")
    for name in ("audbc", "audbc_low", "audbc_high", "mean_cost"):
        assert getattr(two, name) == pytest.approx(getattr(one, name), abs=1e-6)


def test_the_record_says_what_it_was_taken_on_and_marks_what_is_deployed():
    evaluation, _, steps = measured()
    across = evaluation.ratios
    assert [(row.policy, row.form) for row in across.rows] == [
        *((name, None) for name in ("always", "never", "clairvoyant")),
        *((name, form) for form in ("calibrated", "raw") for name in RULES),
    ]
    assert (across.steps, across.streams) == (len(steps), len(set(steps.stream)))
    assert (across.low_ratio, across.high_ratio, across.level, across.resamples, across.seed) == (0.5, 4, 0.95, 1000, 0)
    assert [row.policy for row in across.rows if row.deployed] == ["dynamic"]
    fixed = evaluate(make_scores(), OperatingPoint(policy="fixed"))
    assert not [row for row in fixed.ratios.rows if row.deployed]
    dear = evaluate(make_scores(), OperatingPoint(c_fn=7.0, policy="fixed"))
    assert dear.ratios == fixed.ratios  # the costs of the operating point do not matter


@pytest.mark.parametrize(
    ("change", "message"),
    [({"y_accept": 0.5}, "AUDBC: some labels are soft"), ({"y_accept": 0.0}, "AUDBC: no judged step is gold")],
)
def test_labels_that_have_no_area_switch_it_off_by_name_and_keep_the_costs(change, message):
    scores = make_scores(slow=False)
    evaluation = evaluate(changed(scores, scores.split == "test", **change))
    assert any(line.startswith(message) for line in evaluation.switched_off)
    assert {row.audbc for row in evaluation.ratios.rows} == {None}
    assert all(np.isfinite(row.mean_cost) for row in evaluation.ratios.rows)
    assert dataclasses.asdict(evaluation.ratios)["no_area"].startswith(message)


def test_one_stream_alone_has_no_interval():
    scores = make_scores(streams=40, steps=30)
    keep = (scores.split == "calibration") | (scores.stream == "stream-1")
    evaluation = evaluate(scores.take(keep))
    assert evaluation.units == 1 and evaluation.triggers.gain_low is None
    assert {row.realised_low for row in evaluation.triggers.rows} == {None}
    for low, high in (("audbc_low", "audbc_high"), ("low", "high")):
        rows = evaluation.ratios.rows if low == "audbc_low" else evaluation.second_signal
        assert {(getattr(row, low), getattr(row, high)) for row in rows} == {(None, None)}
    assert "no intervals: 1 streams, at least 5 needed" in ratio_table(evaluation).note


@pytest.mark.parametrize("margin", [0.1, 0.4])
def test_policies_with_a_slow_pass_follow_their_own_decisions_at_every_ratio(margin):
    """The oracle decides every step at every ratio with the gate, and sorts nothing."""
    scores = make_scores(seed=6, logging=True)
    point = dataclasses.replace(POINT, margin=margin)
    evaluation = protocol.evaluate(scores, protocol.calibrate(scores), point)
    steps = splits.rows_of(scores, "test").steps()
    steps = steps.take(~np.isnan(steps.y_need + steps.y_accept))
    weight, gold = acceptance_weight(steps), steps.y_need * steps.y_accept
    passes = Pass(steps.p_need_fast, steps.p_accept_fast), Pass(steps.p_need_slow, steps.p_accept_slow)
    grid = np.exp((np.arange(4000) + 0.5) / 4000 * np.log(8)) * 0.5
    every = np.concatenate([[0.0], np.geomspace(1e-4, 1e5, 20_000)])
    for policy, width in (("slow_on_margin", margin), ("slow_only", 1.0)):
        (row,) = [row for row in evaluation.ratios.rows if (row.policy, row.form) == (policy, "raw")]
        offer, _ = gate.decide_with_slow(*passes, 1.0, grid[:, None], width)
        costs = np.where(offer, 1 - steps.y_accept, grid[:, None] * gold) / (1 + grid[:, None])
        assert row.mean_cost == pytest.approx(np.average(costs.mean(0), weights=weight), abs=3e-4)
        sets, _ = gate.decide_with_slow(*passes, 1.0, every[:, None], width)
        assert row.audbc == pytest.approx(area([*sets, np.ones(len(steps), bool)], gold, weight), abs=2e-4)
        assert row.audbc_low < row.audbc < row.audbc_high


def test_the_deployed_slow_pass_is_marked_across_ratios():
    rows = evaluate(make_scores()).ratios.rows
    assert [(row.policy, row.form) for row in rows if row.deployed] == [("slow_on_margin", "calibrated")]
    at_zero = evaluate(make_scores(), dataclasses.replace(POINT, margin=0.0)).ratios.rows
    (margin,) = [row for row in at_zero if (row.policy, row.form) == ("slow_on_margin", "raw")]
    (fast,) = [row for row in at_zero if (row.policy, row.form) == ("dynamic", "raw")]
    assert (margin.audbc, margin.mean_cost) == (fast.audbc, fast.mean_cost)
    assert not [row for row in evaluate(make_scores(slow=False)).ratios.rows if row.policy.startswith("slow")]
