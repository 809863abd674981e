"""Intervals of realised costs, paired differences, CORP and debiased columns, and breakdowns by domain and persona."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from synthetic_scores import evaluate, make_columns, make_scores, without

from prism_jax.decision.uncertainty import Cells
from prism_jax.evaluation import intervals
from prism_jax.report import tables
from prism_jax.scores import Scores


@pytest.fixture(scope="module")
def evaluation():
    return evaluate(make_scores(seed=3, logging=True))


def with_costs(evaluation, costs, weight, streams):
    rows = [
        dataclasses.replace(evaluation.policies[i], deployed=i == 1, realised_low=None, difference=None)
        for i in range(len(costs))
    ]
    columns = [np.bincount(streams, column * weight) for column in (*costs, np.ones(len(weight)))]
    return intervals.with_intervals(rows, Cells.of_units(np.stack(columns, axis=1)), 2.0)


def test_intervals_are_those_of_the_jackknife(evaluation):
    """The oracle leaves out the rows of one stream at a time."""
    rng = np.random.default_rng(0)
    streams = np.repeat(np.arange(40), rng.integers(1, 9, 40))
    level = rng.random(40)[streams]  # costs of one stream resemble each other
    costs = np.stack([(rng.random(len(streams)) < level) * 1.0, (rng.random(len(streams)) < 0.4) * 2.0])
    weight = rng.uniform(0.5, 3, len(streams))
    first, second = with_costs(evaluation, costs, weight, streams)
    means = np.average(costs, axis=1, weights=weight)
    left_out = [np.average(costs[:, streams != s], axis=1, weights=weight[streams != s]) for s in range(40)]
    change = np.subtract(*(np.array(left_out) - means).T)
    error = np.sqrt(39 / 40 * (change**2).sum())
    reach = stats.t.ppf(0.975, 2 * (change**2).sum() ** 2 / (change**4).sum()) * error
    assert first.difference == pytest.approx(means[0] - means[1])
    assert (first.difference_low, first.difference_high) == pytest.approx(
        (first.difference - reach, first.difference + reach)
    )
    for row, mean in zip((first, second), means, strict=True):
        assert 0 < row.realised_low < mean < row.realised_high < 2
    assert (second.difference, second.difference_low, second.difference_high) == (0, None, None)


def test_the_difference_is_paired(evaluation):
    """Two policies whose costs differ by almost a constant: their costs vary, their difference hardly does."""
    rng = np.random.default_rng(1)
    costs = rng.random(60)
    near = costs + 0.25 + 1e-3 * rng.random(60)
    first, second = with_costs(evaluation, np.stack([near, costs]), np.ones(60), np.arange(60) // 3)
    assert 0.25 < first.difference_low < first.difference_high < 0.251
    assert first.realised_high - first.realised_low > 0.05
    assert second.deployed


def test_two_costs_that_rounding_tells_apart_do_not_differ(evaluation):
    cost, streams = np.random.default_rng(0).random(40), np.arange(40)
    costs = [cost, cost * (1 - 2e-16 * streams)]
    _, difference, low, high = intervals.paired_costs(Cells.of_units(np.stack([*costs, np.ones(40)], axis=1)))
    assert difference == 0 and np.isnan(low) and np.isnan(high)
    other, _ = with_costs(evaluation, costs, np.ones(40), streams)
    assert other.difference == 0 and other.difference_low is other.difference_high is None


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_few_streams_have_no_interval(evaluation, streams):
    costs = np.random.default_rng(0).random((2, 20))
    (row, _) = with_costs(evaluation, costs, np.ones(20), np.arange(20) % streams)
    assert row.realised_low is None and row.difference_low is None
    assert row.difference == pytest.approx(np.subtract(*costs.mean(axis=1)))


def test_corp_parts_add_up_and_the_debiased_error_of_a_calibrated_signal_is_smaller(evaluation):
    for row in evaluation.signals:
        assert row.brier == pytest.approx(row.miscalibration - row.discrimination + row.uncertainty)
        assert min(row.miscalibration, row.discrimination) >= 0
    calibrated = [row for row in evaluation.signals if row.form == "calibrated"]
    assert all(row.ece_debiased < row.ece for row in calibrated)


def test_groups_are_the_steps_of_each_domain_and_persona():
    columns = make_columns(seed=4)
    columns["persona"] = [f"user {name[-1]}" for name in columns["stream"]]
    evaluation = evaluate(Scores.from_columns(columns))
    rows = [row for row in evaluation.groups if row.column == "domain"]
    assert [row.value for row in rows] == ["coding", "life", "writing"]
    assert {row.column for row in evaluation.groups} == {"domain", "persona"}
    for column in ("domain", "persona"):
        group = [row for row in evaluation.groups if row.column == column]
        assert sum(row.steps for row in group) == evaluation.counts.steps
        for name, whole in (
            ("realised_cost", evaluation.deployed.realised_cost),
            ("always", evaluation.policy("always").realised_cost),
            ("never", evaluation.policy("never").realised_cost),
            ("positive", evaluation.counts.positive),
            ("speak_rate", evaluation.deployed.speak_rate),
        ):
            mean = np.average([getattr(row, name) for row in group], weights=[row.judged for row in group])
            assert mean == pytest.approx(whole)


def test_there_is_no_breakdown_without_the_columns(evaluation):
    assert evaluate(Scores.from_columns(without(make_columns(seed=3), "domain"))).groups == ()
    assert [table.title for table in tables.group_tables(evaluation)] == ["By domain"]


@pytest.mark.parametrize(("units", "most", "says"), [(19, None, True), (20, None, False), (7, 40, True), (3, 40, True)])
def test_intervals_of_few_units_say_what_they_cannot_know(units, most, says):
    words = tables.over_units(units, "people", most=most)
    assert words.startswith(f"95 % intervals over {units}{f' to {most}' if most else ''} people")
    assert ("a rare kind of unit is terrible" in words) == says
    assert tables.over_units(3, most=4) == "no intervals: 4 streams, at least 5 needed"


def test_the_tables_show_all_of_it(evaluation):
    shown = {table.title: table.to_markdown() for table in tables.all_tables(evaluation)}
    assert f"95 % intervals over {evaluation.units} streams" in shown["How certain the realised costs are"]
    assert "| coding |" in shown["By domain"]
    for heading in ("debiased", "MCB", "DSC", "UNC"):
        assert heading in shown["How well the signals are calibrated"]
