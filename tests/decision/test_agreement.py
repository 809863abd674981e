import inspect
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score, cohen_kappa_score, matthews_corrcoef

from prism_jax.decision import agreement

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1)
binary = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1)


@given(pairs)
def test_kappa_and_raw_agreement_against_scikit_learn(rows):
    first, second = np.array(rows).T
    assert agreement.raw_agreement(first, second) == pytest.approx(accuracy_score(first, second))
    found = agreement.cohens_kappa(first, second)
    if np.unique(np.concatenate([first, second])).size == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
    named = np.array(["no", "yes", "maybe", "never"])
    np.testing.assert_equal(agreement.cohens_kappa(named[first], named[second]), found)


@given(binary)
def test_comparison_against_scikit_learn(rows):
    judge, reference = np.array(rows).T
    found = agreement.compare(judge, reference)
    assert found.items == len(rows)
    assert found.agreement == pytest.approx((judge == reference).mean())
    assert found.base_rate == reference.mean()
    assert found.judge_rate == judge.mean()
    constants = [(np.full_like(reference, label) == reference).mean() for label in (False, True)]
    assert found.constant_agreement == pytest.approx(max(constants))
    if 0 < judge.mean() < 1 and 0 < reference.mean() < 1:
        assert found.matthews == pytest.approx(matthews_corrcoef(reference, judge), abs=1e-12)
        assert found.kappa == pytest.approx(cohen_kappa_score(judge, reference), abs=1e-12)
    else:
        assert np.isnan(found.matthews)
    if judge.mean() in (0, 1) and 0 < reference.mean() < 1:
        assert found.kappa == pytest.approx(0, abs=1e-12), "a constant judge agrees by chance only"


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 30))
def test_kappa_is_matthews_where_marginals_agree(both, neither, each_alone):
    counts = {(1, 1): both, (0, 0): neither, (1, 0): each_alone, (0, 1): each_alone}
    first, second = np.array([pair for pair, n in counts.items() for _ in range(n)]).T
    found = agreement.compare(first, second)
    assert found.kappa == pytest.approx(found.matthews, abs=1e-12)


def test_the_papers_judge_row_is_far_from_its_kappa_for_a_rare_label():
    """At a base rate of 11 % a constant judge has 89 % raw agreement and kappa 0."""
    reference = np.arange(100) < 11
    constant = agreement.compare(np.zeros(100, bool), reference)
    assert constant.agreement == constant.constant_agreement == 0.89
    assert constant.kappa == 0


def test_fleiss_kappa_of_the_textbook_table():
    """The example of Fleiss (1971) as it is commonly reprinted: 10 items, 14 judges, 5 categories, kappa 0.210."""
    votes = np.array([
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ])  # fmt: skip
    assert agreement.fleiss_kappa(votes) == pytest.approx(0.210, abs=5e-4)


@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1))
def test_fleiss_kappa_against_its_definition_by_pairs_of_judges(panel):
    labels = np.array(panel)
    votes = np.stack([(labels == category).sum(1) for category in range(3)], axis=1)
    observed = np.mean([a == b for row in panel for a, b in itertools.permutations(row, 2)])
    chance = sum((labels == category).mean() ** 2 for category in range(3))
    found = agreement.fleiss_kappa(votes)
    if np.unique(labels).size == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx((observed - chance) / (1 - chance), abs=1e-12)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 20))
def test_fleiss_kappa_of_two_judges_is_cohens_where_marginals_agree(both, neither, each_alone):
    counts = {(1, 1): both, (0, 0): neither, (1, 0): each_alone, (0, 1): each_alone}
    first, second = np.array([pair for pair, n in counts.items() for _ in range(n)]).T
    votes = np.stack([2 - first - second, first + second], axis=1)
    assert agreement.fleiss_kappa(votes) == pytest.approx(agreement.cohens_kappa(first, second), abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement.raw_agreement(np.ones(2), np.ones(3)), "second: found 3 rows, expected 2 as in first"),
        (lambda: agreement.cohens_kappa(np.ones(0), np.ones(0)), "first: found an empty array"),
        (lambda: agreement.cohens_kappa(np.array([1.0, np.nan]), np.ones(2)), "first: found NaN at index 1"),
        (lambda: agreement.compare(np.array([0, 2]), np.array([0, 1])), "first: found 2"),
        (lambda: agreement.matthews(np.array([0, 1]), np.array([0.5, 1])), "second: found 0.5 at index 0"),
        (lambda: agreement.fleiss_kappa(np.array([[1, 0], [0, 1]])), "votes: found items with 1 to 1 votes"),
        (lambda: agreement.fleiss_kappa(np.array([[2, 0], [0, 3]])), "votes: found items with 2 to 3 votes"),
        (lambda: agreement.fleiss_kappa(np.array([[3, -1], [1, 1]])), "votes: found -1"),
        (lambda: inspect.unwrap(agreement.fleiss_kappa)(np.array([[2.5, 0.5], [1, 2]])), "votes: found 2.5, expected"),
        (
            lambda: agreement.raw_agreement(np.array([1, 0]), np.array(["1", "0"])),
            "^second: found text, expected number",
        ),
        (lambda: agreement.cohens_kappa(["a", "b"], [True, 0.5]), "^second: found numbers, expected text as in first$"),
        (lambda: agreement.raw_agreement([1, "1"], [1, 1]), "^first: found numbers and text, expected labels of one"),
        (lambda: agreement.fleiss_kappa(np.ones((0, 2), int)), r"votes: found shape \(0, 2\)"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_container_of_labels_does_not_matter():
    numbers, text = [1, 0, True, 1.0], ["yes", "no", "yes", "yes"]
    for kappa in (agreement.cohens_kappa, agreement.raw_agreement):
        expected = kappa(numbers, [1, 1, 1, 0])
        assert kappa(np.array(numbers, dtype=object), np.array([1, 1, 1, 0], np.uint8)) == expected
        assert kappa(text, np.array(["yes", "yes", "yes", "no"])) == expected
        assert kappa(np.array(text, dtype=object), ["yes", "yes", "yes", "no"]) == expected


# Krippendorff 2011, the example with missing values: four observers, twelve units, a dot where one gave no label.
UNITS = ["111", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", "555", "11", "3"]


def counts(units, categories="12345"):
    return np.array([[unit.count(category) for category in categories] for unit in units])


def test_alpha_of_the_published_example_with_missing_values():
    found = agreement.krippendorffs_alpha(counts(UNITS))
    assert found.alpha == pytest.approx(0.743, abs=5e-4)
    assert (found.items, found.left_out) == (11, 1)


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(2, 4)), elements=st.integers(0, 3)))
def test_alpha_against_its_definition_by_pairs_of_votes(votes):
    items = [np.repeat(np.arange(len(row)), row) for row in votes if row.sum() >= 2]
    if not items:
        with pytest.raises(ValueError, match="expected at least 2 on some item"):
            agreement.krippendorffs_alpha(votes)
        return
    pool = np.concatenate(items)
    # Each item's ordered pairs count 1 / (its votes - 1), so that every vote has the same weight.
    observed = sum((item[:, None] != item).sum() / (len(item) - 1) for item in items) / len(pool)
    expected = (pool[:, None] != pool).sum() / (len(pool) * (len(pool) - 1))
    found = agreement.krippendorffs_alpha(votes)
    if expected == 0:
        assert np.isnan(found.alpha)
    else:
        assert found.alpha == pytest.approx(1 - observed / expected, abs=1e-12)
    assert found.left_out == len(votes) - len(items)


def test_alpha_and_fleiss_kappa_agree_on_many_complete_items():
    rng = np.random.default_rng(0)
    votes = rng.multinomial(3, [0.5, 0.3, 0.2], 5000)
    assert agreement.krippendorffs_alpha(votes).alpha == pytest.approx(agreement.fleiss_kappa(votes), abs=1e-4)
