"""Intervals of agreement and of official rates against definitions, and against resampling rows by index."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, matthews_corrcoef

from prism_jax.decision import metrics, uncertainty

binary = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60)


@given(binary)
def test_the_estimates_are_scikit_learns(rows):
    judge, reference = np.array(rows).T
    found = uncertainty.agreement_intervals(judge, reference, streams=None, resamples=50)
    assert tuple(found) == uncertainty.PAIR_MEASURES
    values = {name: interval.value for name, interval in found.items()}
    assert values["agreement"] == pytest.approx(accuracy_score(reference, judge))
    assert (values["base_rate"], values["judge_rate"]) == pytest.approx((reference.mean(), judge.mean()))
    constant = len(set(judge)) == 1 or len(set(reference)) == 1
    mcc = np.nan if constant else matthews_corrcoef(reference, judge)
    kappa = np.nan if len({*judge, *reference}) == 1 else 0.0 if constant else cohen_kappa_score(judge, reference)
    assert values["matthews"] == pytest.approx(mcc, abs=1e-12, nan_ok=True)
    assert values["kappa"] == pytest.approx(kappa, abs=1e-12, nan_ok=True), "a constant judge agrees by chance only"


def panel(votes):
    """The estimates of `panel_intervals` by name."""
    found = uncertainty.panel_intervals(votes, streams=None, resamples=50)
    return {name: interval.value for name, interval in found.items()}


def alpha_of(votes):
    """Krippendorff's alpha by pairs of votes: each item's ordered pairs count 1 / (its votes - 1)."""
    items = [np.repeat(np.arange(len(row)), row) for row in votes if row.sum() >= 2]
    pool = np.concatenate(items)
    observed = sum((item[:, None] != item).sum() / (len(item) - 1) for item in items) / len(pool)
    expected = (pool[:, None] != pool).sum() / (len(pool) * (len(pool) - 1))
    return 1 - observed / expected if expected else np.nan


def fleiss_of(votes):
    """Fleiss' kappa by pairs of judges, of the items with the most votes."""
    full = votes[votes.sum(1) == votes.sum(1).max()]
    items = [np.repeat(np.arange(len(row)), row) for row in full]
    observed = np.mean([a == b for item in items for a, b in itertools.permutations(item, 2)])
    share = full.sum(0) / full.sum()
    chance = (share**2).sum()
    return (observed - chance) / (1 - chance) if np.count_nonzero(share) > 1 else np.nan


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=30))
def test_the_panel_estimates_follow_their_definitions(rows):
    votes = np.array(rows)
    judges = votes.sum(1)
    if judges.max() < 2:
        with pytest.raises(ValueError, match="no item with 2 votes"):
            uncertainty.panel_intervals(votes, streams=None)
        return
    if (judges >= 2).sum() < 2:
        return
    found = panel(votes)
    assert found["fleiss"] == pytest.approx(fleiss_of(votes), abs=1e-9, nan_ok=True)
    assert found["alpha"] == pytest.approx(alpha_of(votes), abs=1e-9, nan_ok=True)
    pairs = [
        (ballot * (ballot - 1)).sum() / (ballot.sum() * (ballot.sum() - 1)) for ballot in votes if ballot.sum() > 1
    ]
    assert found["agreement"] == pytest.approx(np.mean(pairs))


def test_the_textbook_examples_of_panels():
    """Fleiss (1971) as it is commonly reprinted, 10 items and 14 judges; Krippendorff (2011) with missing values."""
    votes = np.array([
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ])  # fmt: skip
    assert panel(votes)["fleiss"] == pytest.approx(0.210, abs=5e-4)
    units = ["111", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", "555", "11", "3"]
    votes = np.array([[unit.count(category) for category in "12345"] for unit in units])
    assert panel(votes)["alpha"] == pytest.approx(0.743, abs=5e-4)


def test_the_error_is_that_of_drawing_streams_by_index():
    rng = np.random.default_rng(0)
    streams = np.repeat(np.arange(40), 5)
    hard = np.repeat(rng.random(40) < 0.3, 5)  # the judge errs at the steps of some streams only
    reference = rng.random(200) < 0.4
    judge = np.where(hard & (rng.random(200) < 0.7), ~reference, reference)
    found = uncertainty.agreement_intervals(judge, reference, streams=streams)
    rows = (rng.integers(0, 40, (3000, 40))[..., None] * 5 + np.arange(5)).reshape(3000, -1)
    first, second = judge[rows], reference[rows]
    chance = (1 - first.mean(1)) * (1 - second.mean(1)) + first.mean(1) * second.mean(1)
    values = ((first == second).mean(1) - chance) / (1 - chance)
    assert found["kappa"].standard_error == pytest.approx(np.std(values), rel=0.1)
    assert -1 < found["kappa"].low < found["kappa"].value < found["kappa"].high < 1
    assert found["kappa"].units == 40
    apart = uncertainty.agreement_intervals(judge, reference, streams=None)
    assert apart["agreement"].standard_error < 0.8 * found["agreement"].standard_error


@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=2, max_size=40))
def test_official_rates_of_a_pair_are_those_of_each(rows):
    first, first_accepted, second, second_accepted = np.array(rows).T
    found = uncertainty.paired_official_rates(
        first, first_accepted, second, second_accepted, streams=None, resamples=2, names=("f1", "accuracy")
    )
    for name, pair in found.items():
        one = getattr(metrics.rates(metrics.confusion(first, first == first_accepted), "official"), name)
        two = getattr(metrics.rates(metrics.confusion(second, second == second_accepted), "official"), name)
        assert pair.first.value == pytest.approx(one, abs=1e-12)
        assert pair.second.value == pytest.approx(two, abs=1e-12)
        assert pair.difference.value == pytest.approx(two - one, abs=1e-12)


def test_pairing_narrows_the_difference_of_systems_that_agree():
    rng = np.random.default_rng(1)
    proposed, accepted = rng.random(600) < 0.6, rng.random(600) < 0.6
    changed = rng.random(600) < 0.05
    found = uncertainty.paired_official_rates(
        proposed, accepted, proposed, accepted ^ changed, streams=np.arange(600) // 4, names=("f1",), resamples=2000
    )["f1"]
    alone = np.hypot(found.first.standard_error, found.second.standard_error)
    assert found.difference.standard_error < 0.6 * alone
    same = uncertainty.paired_official_rates(proposed, accepted, proposed, accepted, streams=None, resamples=50)
    for pair in same.values():
        assert (pair.difference.value, pair.difference.standard_error) == (0.0, 0.0)
        assert np.isnan([pair.difference.low, pair.difference.high]).all(), "no difference was seen"
