"""Promises hold for people who were not drawn, on dependent rows where a test of rows breaks them."""

import numpy as np
import pytest
from scipy import stats

from prism_jax.decision import risk
from prism_jax.experiments.promises import Population, measure

pytestmark = pytest.mark.slow
ERROR = 0.1


def test_new_people_of_an_endless_population_keep_the_promise():
    """Each person accepts at their own rate, so the true risk of the rule that offers a share s of steps is s * 0.4."""
    rng = np.random.default_rng(0)
    people, steps, rules, replays = 60, 40, 50, 1_000
    promise = risk.Promise("false_alarms", 0.2)
    broken_rules = 0.4 * np.arange(1, rules + 1) / rules > promise.limit + 1e-12
    unit = np.repeat(np.arange(people), steps)
    broken = dict.fromkeys(["rows", *risk.BOUNDS], 0)
    for _ in range(replays):
        rate = rng.beta(0.6, 0.4, people)
        y = (rng.random((people, steps)) < rate[:, None]).astype(float).ravel()
        losses = risk.unit_losses(rng.integers(0, rules, len(y)), y, unit, rules, promise)
        p_values = {name: bound(losses, promise.limit) for name, bound in risk.BOUNDS.items()}
        p_values["rows"] = stats.binom.cdf(np.rint(losses.sum(axis=0) * steps), len(y), promise.limit)[None]
        for name, found in p_values.items():
            broken[name] += bool((risk.fixed_sequence(found, ERROR)[0] & broken_rules).any())
    assert broken["rows"] / replays > 2 * ERROR
    for name in risk.BOUNDS:
        assert broken[name] / replays <= ERROR, name


def test_the_study_finds_the_same_by_resampling_people():
    rng = np.random.default_rng(1)
    people = 80
    sizes = rng.integers(20, 200, people)
    unit = np.repeat(np.arange(people), sizes)
    y = (rng.random(len(unit)) < np.repeat(rng.beta(0.6, 0.4, people), sizes)).astype(float)
    score = rng.normal(size=len(unit)) + y
    found = measure(
        Population(score, y, unit, "synthetic people"), risk.Promise("false_alarms", 0.15), error=ERROR, units=200
    )
    by_method = {one.method: one for one in found}
    assert by_method["rows"].violations > 2 * ERROR
    for name in risk.BOUNDS:
        assert by_method[name].violations <= ERROR
        assert by_method[name].speak_rate > 0.1
    assert by_method["betting"].speak_rate > by_method["hoeffding_bentkus"].speak_rate
    assert by_method["expectation"].mean_risk <= 0.15
