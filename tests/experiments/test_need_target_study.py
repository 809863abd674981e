"""The studies of need given acceptance: every seed's difference, means with intervals, and equal slow rates."""

import numpy as np
import pytest
from synthetic_scores import make_columns

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation import protocol
from prism_jax.experiments.need_target import RATIOS, Regrets, table
from prism_jax.experiments.need_target_costs import POPULATIONS, TARGETS, compare, section, sized
from prism_jax.scores import Scores


def test_the_table_has_means_differences_and_every_seed():
    rng = np.random.default_rng(0)
    runs = tuple(Regrets(*(rng.random((len(RATIOS), 50)) + shift for shift in (0.0, 2.0, 1.0))) for _ in range(3))
    shown = table({-1.0: runs, 1.0: runs})
    assert [section.title for section in shown.sections] == ["Dependence -1", "Dependence +1"]
    for i, row in enumerate(shown.sections[0].rows):
        means = [np.concatenate([getattr(run, name)[i] for run in runs]).mean() for name in Regrets._fields]
        assert row.cells[:3] == tuple(f"{mean:.4f}" for mean in means)
        assert row.cells[3].startswith(f"{means[1] - means[2]:+.4f} [+")
        seeds = [f"{(run.marginal[i] - run.given_accept[i]).mean():+.4f}" for run in runs]
        assert row.cells[4] == ", ".join(seeds)


def test_the_interval_is_of_the_mean_over_streams():
    values = np.random.default_rng(1).normal(0.3, 1.0, 400)
    found = mean_interval(values, np.arange(len(values)), resamples=2000)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert float(found.value) == pytest.approx(values.mean())
    np.testing.assert_allclose([found.low, found.high], [values.mean() - half, values.mean() + half], atol=0.01)


def scores_of(seed, need_target):
    columns = make_columns(seed=seed, streams=20, steps=6)
    columns |= {"need_target": [need_target] * 120, "tokens_slow": np.full(120, 20)}
    return Scores.from_columns(columns)


def test_both_meanings_are_compared_on_the_same_steps_at_equal_slow_rates():
    both = {seed: {target: scores_of(seed, target) for target in TARGETS} for seed in (0, 1)}
    found = compare(both, 2.0)
    assert len(found.stream) == len(set(found.stream)) * 6 == 120
    for target in TARGETS:
        assert {"p_accept alone", "fast pass", "slow pass", "margin, 25%", "value, 25%"} <= set(found.costs[target])
        assert found.thinks[target]["slow pass"] == 1 and found.thinks[target]["fast pass"] == 0
    data, _ = protocol.prepare(both[1]["given_accept"], protocol.calibrate(both[1]["given_accept"]), OperatingPoint())
    decided = data.decide("dynamic", "calibrated")
    speak, silent = 1 - data.steps.p_accept_true, 2 * data.steps.p_both_true
    np.testing.assert_allclose(
        found.costs["given_accept"]["fast pass"][found.seed == 1], np.where(decided.offer, speak, silent)
    )
    np.testing.assert_array_equal(
        found.costs["marginal"]["p_accept alone"], found.costs["given_accept"]["p_accept alone"]
    )
    rows = {row.name: row.cells for row in section(found, "r = 2", 100).rows}
    difference = found.costs["given_accept"]["fast pass"] - found.costs["marginal"]["fast pass"]
    assert rows["fast pass"][2].startswith(f"{difference.mean():+.4f}".replace("-", "−")[:6])
    assert rows["fast pass"][3] == ", ".join(f"{difference[found.seed == seed].mean():+.4f}" for seed in (0, 1))


def test_fewer_rows_have_as_many_updates():
    config = sized(POPULATIONS["switches"], 0.1)
    assert config.data.train_streams == 672
    assert config.training == POPULATIONS["switches"].training
