"""The study of need given acceptance: its table has every seed's difference, and the mean with its interval."""

import numpy as np
import pytest

from prism_jax.experiments.need_target import RATIOS, Regrets, paired, table


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
    found = paired(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert float(found.estimate[0]) == pytest.approx(values.mean())
    np.testing.assert_allclose([found.low[0], found.high[0]], [values.mean() - half, values.mean() + half], atol=0.01)
