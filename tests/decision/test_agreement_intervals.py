"""Intervals of agreement and of official rates against the plain functions, and against resampling rows by index."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.decision import agreement, metrics, uncertainty

binary = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60)


@given(binary)
def test_the_estimates_are_those_of_compare(rows):
    judge, reference = np.array(rows).T
    found = uncertainty.agreement_intervals(judge, reference, streams=None, resamples=50)
    expected = agreement.compare(judge, reference)
    assert tuple(found) == uncertainty.PAIR_MEASURES
    for name, interval in found.items():
        assert interval.value == pytest.approx(getattr(expected, name), abs=1e-12, nan_ok=True), name


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=30))
def test_the_panel_estimates_are_those_of_the_plain_functions(rows):
    votes = np.array(rows)
    judges = votes.sum(1)
    if judges.max() < 2:
        with pytest.raises(ValueError, match="no item with 2 votes"):
            uncertainty.panel_intervals(votes, streams=None)
        return
    if (judges >= 2).sum() < 2:
        return
    found = uncertainty.panel_intervals(votes, streams=None, resamples=50)
    fleiss = agreement.fleiss_kappa(votes[judges == judges.max()])
    alpha = agreement.krippendorffs_alpha(votes).alpha
    assert found["fleiss"].value == pytest.approx(fleiss, abs=1e-9, nan_ok=True)
    assert found["alpha"].value == pytest.approx(alpha, abs=1e-9, nan_ok=True)
    pairs = [
        (ballot * (ballot - 1)).sum() / (ballot.sum() * (ballot.sum() - 1)) for ballot in votes if ballot.sum() > 1
    ]
    assert found["agreement"].value == pytest.approx(np.mean(pairs))


def test_the_error_is_that_of_drawing_streams_by_index():
    rng = np.random.default_rng(0)
    streams = np.repeat(np.arange(40), 5)
    hard = np.repeat(rng.random(40) < 0.3, 5)  # the judge errs at the steps of some streams only
    reference = rng.random(200) < 0.4
    judge = np.where(hard & (rng.random(200) < 0.7), ~reference, reference)
    found = uncertainty.agreement_intervals(judge, reference, streams=streams)
    values = []
    for _ in range(3000):
        rows = (rng.integers(0, 40, 40)[:, None] * 5 + np.arange(5)).reshape(-1)
        values.append(agreement.cohens_kappa(judge[rows], reference[rows]))
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
        one = getattr(metrics.rates(metrics.official_counts(first, first_accepted), "official"), name)
        two = getattr(metrics.rates(metrics.official_counts(second, second_accepted), "official"), name)
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
