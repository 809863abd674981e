"""Corrections for judges' errors: exact where the errors are exact; tests/slow measures coverage more closely."""

import numpy as np
import pytest
from judged_population import coverage, majority, simulated_population

from prism_jax.decision import judge_noise, metrics

METHODS = ("rectified", "inversion", "inversion_by_decision")


def confusion(decision, judge, human, method="rectified"):
    """The corrected confusion of decisions, as shares of all rows."""
    code = judge_noise._code(decision, judge, human)
    return metrics.Confusion(*judge_noise._shares(np.bincount(code, minlength=judge_noise._CELLS), method))


def expanded(cells):
    """Rows (decision, truth, judge) from a table of their counts."""
    return (np.repeat(column, list(cells.values())) for column in np.array(list(cells)).T)


ERRORS_BY_DECISION = {
    **{(1, 1, 1): 90, (1, 1, 0): 10, (1, 0, 1): 30, (1, 0, 0): 30},
    **{(0, 1, 1): 12, (0, 1, 0): 28, (0, 0, 1): 5, (0, 0, 0): 95},
}
SAME_ERRORS = {
    **{(1, 1, 1): 80, (1, 1, 0): 20, (1, 0, 1): 10, (1, 0, 0): 30},
    **{(0, 1, 1): 32, (0, 1, 0): 8, (0, 0, 1): 30, (0, 0, 0): 90},
}


@pytest.mark.parametrize(
    ("cells", "method"),
    [(SAME_ERRORS, method) for method in METHODS]
    + [(ERRORS_BY_DECISION, method) for method in ("rectified", "inversion_by_decision")],
)
def test_humans_on_rows_like_the_others_give_the_true_confusion(cells, method):
    decision, truth, judge = expanded(cells)
    human = np.concatenate([truth.astype(float), np.full(2 * len(truth), np.nan)])
    decision, judge, truth = (np.tile(column, 3) for column in (decision, judge, truth))
    expected = np.array(metrics.confusion(decision, truth)) / len(truth)
    found = confusion(decision, judge, human, method)
    np.testing.assert_allclose(np.array(found), expected, atol=1e-12)
    wrong = confusion(decision, judge, human, "judge_only")
    assert np.abs(np.array(wrong) - expected).max() > 0.01


def test_an_inversion_needs_no_humans_like_the_others_and_rectifying_does():
    """Humans saw a balanced sample; the judge's errors are the same, the base rate is not."""
    decision, truth, judge = expanded(SAME_ERRORS)
    known = np.concatenate([np.flatnonzero(truth == label)[:: 1 + label] for label in (0, 1)])
    rates = judge_noise.error_rates(judge, truth.astype(float), streams=None, resamples=10)
    assert (rates.sensitivity.value, rates.specificity.value) == (0.8, 0.75)
    balanced = [np.concatenate([column, column[known]]) for column in (decision, judge)]
    human = np.concatenate([np.full(len(truth), np.nan), truth[known].astype(float)])
    cells = np.array(confusion(*balanced, human, "inversion"))
    expected = np.array(metrics.confusion(*(np.concatenate([c, c[known]]) for c in (decision, truth)))) / len(human)
    rectified = np.array(confusion(*balanced, human, "rectified"))
    assert np.abs(cells - expected).max() < 0.02
    assert np.abs(rectified - expected).max() > 2 * np.abs(cells - expected).max()


def test_rectifying_allows_humans_to_choose_rows_by_decision_and_judge():
    decision, truth, judge = (np.tile(column, 10) for column in expanded(ERRORS_BY_DECISION))
    number = np.arange(len(truth)) // (len(truth) // 10)
    human = np.where((number < np.where(decision == judge, 2, 7)), truth, np.nan)
    found = confusion(decision, judge, human, "rectified")
    expected = np.array(metrics.confusion(decision, truth)) / len(truth)
    np.testing.assert_allclose(np.array(found), expected, atol=1e-12)
    chosen = confusion(decision, judge, human, "human_only")
    assert np.abs(np.array(chosen) - expected).max() > 0.03


def test_a_perfect_judge_is_left_alone():
    rng = np.random.default_rng(0)
    decision, truth = rng.random(400) < 0.5, rng.random(400) < 0.3
    human = np.where(rng.random(400) < 0.3, truth, np.nan)
    plain = np.array(metrics.confusion(decision, truth)) / 400
    for method in (*METHODS, "judge_only"):
        found = np.array(confusion(decision, truth, human, method))
        np.testing.assert_allclose(found, plain, atol=1e-12)


def test_the_cost_is_the_one_of_the_labels_that_each_decision_needs():
    rng = np.random.default_rng(0)
    decision, need, accept = (rng.random(300) < 0.5 for _ in range(3))
    label = np.where(decision, accept, need & accept)
    for right, labels in ((label, (need, accept)), (need & accept, (np.ones(300), need & accept))):
        found = judge_noise.corrected_rates(
            decision, right, right.astype(float), streams=None, method="judge_only", names=("cost",), resamples=10
        )
        assert found["cost"].value == pytest.approx(metrics.realised_cost(decision, *labels, 1.0, 2.0))


def test_what_cannot_be_known_is_an_error_and_not_a_number():
    decision, judge = np.array([1, 1, 0, 0, 1, 0]), np.array([1, 0, 1, 0, 1, 0])
    human = np.array([0, 1, 0, 1, np.nan, np.nan])  # a judge who is always wrong
    with pytest.raises(ValueError, match=r"inversion cannot tell .*better than chance"):
        judge_noise.corrected_rates(decision, judge, human, streams=None, method="inversion")
    offers_only = np.where(decision == 1, human, np.nan)
    assert np.isnan(confusion(decision, judge, offers_only, "rectified").fn)
    with pytest.raises(ValueError, match="found no label on any of 6 rows"):
        confusion(decision, judge, np.full(6, np.nan))
    found = judge_noise.corrected_rates(
        decision, judge, human, streams=np.zeros(6), method="human_only", names=["recall"]
    )
    assert np.isnan(found["recall"].low), "one stream has no interval"
    with pytest.raises(ValueError, match="expected 0 or 1"):
        confusion(decision, judge, human / 2)
    with pytest.raises(ValueError, match="names: found 'magic'"):
        judge_noise.corrected_rates(decision, judge, human, streams=None, names=("magic",))


@pytest.fixture(scope="module")
def population():
    return simulated_population(500)


def test_a_corrected_interval_covers_the_truth_and_an_uncorrected_one_does_not(population):
    """Nominal coverage is 0.95; with 40 replicates, 0.85 is three standard deviations below."""
    assert (coverage(population, "rectified", replicates=40) >= 0.85).all()
    assert (coverage(population, "judge_only", replicates=40) <= 0.2).all()


def test_the_judge_narrows_the_interval_of_the_humans_alone(population):
    decision, gold, ends, _ = population
    rows, rng = np.arange(ends[-1]), np.random.default_rng(1)
    stream = np.repeat(np.arange(500), np.diff(ends))
    judge = majority(rng, gold[rows], decision[rows], lenient=False)
    human = np.where(stream % 8 == 0, gold[rows], np.nan)
    error = {
        method: judge_noise.corrected_rates(
            decision[rows], judge, human, streams=stream, method=method, names=("f1",), resamples=1000
        )["f1"].standard_error
        for method in ("rectified", "human_only", "judge_only")
    }
    assert error["judge_only"] < error["rectified"] < 0.85 * error["human_only"]
