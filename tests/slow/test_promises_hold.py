"""Promises hold for people who were not drawn, on dependent rows where a test of rows breaks them."""

import numpy as np
import pytest
from scipy import stats

from prism_jax.decision import risk
from studies.coverage.promises import Steps, measure

pytestmark = pytest.mark.study
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
    by_method = measure(Steps(score, y, unit, "synthetic people"), risk.Promise("false_alarms", 0.15), units=200)
    assert by_method["rows"].broken > 2 * ERROR
    for name in risk.BOUNDS:
        assert by_method[name].broken <= ERROR
        assert by_method[name].speaks > 0.1
    assert by_method["betting"].speaks > by_method["hoeffding_bentkus"].speaks
    assert by_method["expectation"].risk <= 0.15


def families_of_a_population(rng, people, steps):
    """Losses of people under gates of 16 models with offers of their own and three margins; passes choose apart."""
    unit = np.repeat(np.arange(people), steps)
    ratios, promise = np.geomspace(0.01, 100, 80), risk.Promise("false_alarms", 0.2)
    found = []
    for _ in range(16):
        rate = np.repeat(rng.beta(0.1, 0.1, people), steps)
        y, y_slow = (rng.random((2, len(unit))) < rate).astype(float)
        mean = np.stack([np.zeros(len(unit)), y - 0.5, 2 * y_slow - 1])
        need, fast, slow = 1 / (1 + np.exp(-rng.normal(mean, 1.5)))
        for margin in (0.0, 0.2, 1.0):
            first, start, stop = risk.first_gate_with_slow((need, fast), (need, slow), ratios, margin)
            found.append(risk.unit_losses(first, y, unit, len(ratios), promise, risk.Slow(start, stop, y_slow)))
    return promise, found


def test_all_families_keep_the_promise_at_once_also_where_losses_are_not_monotone():
    """The worst choice after looking: a promise is broken if any certified rule of any family is in truth too risky."""
    rng = np.random.default_rng(2)
    people, draws = 400, 1_000
    promise, families = families_of_a_population(rng, people, 8)
    assert any((np.diff(L_UxG, axis=1) < 0).any() for L_UxG in families)
    counts_DxU = rng.multinomial(100, np.full(people, 1 / people), draws)
    broken = {
        (bound, error): np.zeros(draws, bool) for bound in risk.BOUNDS for error in (ERROR / len(families), ERROR)
    }
    for L_UxG in families:
        too_risky = L_UxG.mean(axis=0) > promise.limit + 1e-12
        assert 0 < too_risky.sum() < len(too_risky)
        for bound in risk.BOUNDS:
            p_values = risk.BOUNDS[bound](L_UxG, promise.limit, counts=counts_DxU)
            for error in (ERROR / len(families), ERROR):
                certified = risk.fixed_sequence(p_values, error)
                broken[bound, error] |= (certified & too_risky).any(axis=1)
    assert broken["betting", ERROR].mean() > ERROR  # the choice among families costs: their shares are needed
    for bound in risk.BOUNDS:
        assert broken[bound, ERROR / len(families)].mean() <= ERROR, bound
