"""Counterfactual costs: unbiased by enumeration, obp's numbers, intervals over people, and what is refused."""

import itertools
import re

import numpy as np
import pytest
from sklearn import linear_model

from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import Logged, OverlapError

C_FA, C_FN = 1.0, 3.0
PROPENSITY = np.array([0.3, 0.9, 0.5, 0.2, 1.0])
TARGET = np.array([1.0, 0.0, 0.25, 1.0, 0.5])
ACCEPTED = np.array([1.0, 0.0, 0.4, 1.0, 0.0])
NEEDED = np.array([1.0, 1.0, 0.0, 0.5, 1.0])
MODEL = np.array([-0.7, 0.3, 0.0, -1.0, 2.0])


def log(offered):
    offered = np.array(offered, bool)
    return Logged(offered, PROPENSITY, np.where(offered, ACCEPTED, 0.0), np.where(offered, NEEDED, 0.0))


def expectation(estimate):
    """The mean of an estimate over every way in which the logging policy's coins can fall."""
    total = 0.0
    for offered in itertools.product([False, True], repeat=5):
        chance = np.prod(np.where(offered, PROPENSITY, 1 - PROPENSITY))
        total += chance * estimate(log(offered)) if chance else 0.0
    return total


@pytest.mark.parametrize("name", ["ips", "dr"])
def test_differences_and_levels_are_unbiased_over_all_logs(name):
    d = C_FA * (1 - ACCEPTED) - C_FN * NEEDED * ACCEPTED
    silence = C_FN * NEEDED * ACCEPTED

    def difference(seen):
        return off_policy.difference_terms(name, TARGET, seen, off_policy.savings(seen, C_FA, C_FN), MODEL).mean()

    def level(seen):
        known = off_policy.savings(seen, C_FA, C_FN)
        return off_policy.level_terms(name, TARGET, seen, known, silence, MODEL, MODEL**2).mean()

    assert expectation(difference) == pytest.approx(((TARGET - PROPENSITY) * d).mean(), abs=1e-12)
    assert expectation(level) == pytest.approx((silence + TARGET * d).mean(), abs=1e-12)


OBP = {"ips": -1.8399999999999999, "dr": -1.713333333333333}
"""E[pi d] by obp 0.4.1: InverseProbabilityWeighting and DoublyRobust with the actions offer and silence, where silence
brings 0, for the log with offers at rows 0, 2 and 4."""


@pytest.mark.parametrize("name", OBP)
def test_estimates_are_those_of_obp(name):
    seen = log([True, False, True, False, True])
    d = off_policy.savings(seen, C_FA, C_FN)
    ours = off_policy.difference_terms(name, TARGET, seen, d, MODEL) + d  # of the target alone
    assert ours.mean() == pytest.approx(OBP[name], abs=1e-12)


def test_a_target_that_only_drops_offers_of_a_deterministic_log_is_exact():
    offered = np.array([True, True, False, True])
    seen = Logged(offered, np.where(offered, 1.0, 0.0), np.array([1.0, 0.0, 0.0, 0.0]), np.ones(4))
    target = np.array([1.0, 0.0, 0.0, 1.0])
    d = off_policy.savings(seen, C_FA, C_FN)
    assert off_policy.measure_support(target, seen, np.zeros(4, int)).effective == 2
    assert off_policy.difference_terms("ips", target, seen, d).mean() == -0.25  # one rejected offer less of four rows
    assert off_policy.difference_terms("ips", offered * 1.0, seen, d).tolist() == [0, 0, 0, 0]


def test_the_self_normalised_terms_have_the_ratio_as_their_mean():
    seen = log([True, True, True, False, True])
    d = off_policy.savings(seen, C_FA, C_FN)
    weight = seen.offered * TARGET / PROPENSITY
    expected = (weight * d).sum() / weight.sum() * TARGET.mean() - d.mean()
    terms = off_policy.difference_terms("snips", TARGET, seen, d)
    assert terms.mean() == pytest.approx(expected)
    mean = (weight * d).sum() / weight.sum()
    np.testing.assert_allclose(terms, weight * (d - mean) * TARGET.sum() / weight.sum() + TARGET * mean - d)
    clipped = off_policy.difference_terms("ips", TARGET, seen, d, most=2.0)
    np.testing.assert_allclose(clipped, np.minimum(weight, 2) * d - d)


def test_the_model_for_a_person_has_not_seen_them():
    rng = np.random.default_rng(0)
    features, fold = rng.normal(size=(60, 2)), np.arange(60) % 3
    seen = Logged(rng.random(60) < 0.7, np.full(60, 0.7), np.ones(60), np.ones(60))
    outcome = features @ [2.0, -1.0] + 0.5
    found = off_policy.cross_fitted(features, outcome, seen, fold)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    for one in range(3):
        known = seen.offered & (fold != one)
        model = linear_model.Ridge(alpha=1.0).fit(x[known], outcome[known])
        np.testing.assert_allclose(found[fold == one], model.predict(x[fold == one]), rtol=1e-8)
    changed = off_policy.cross_fitted(features, np.where(fold == 1, outcome + 99.0, outcome), seen, fold)
    np.testing.assert_allclose(changed[fold == 1], found[fold == 1])
    assert np.abs(changed - found)[fold != 1].min() > 1


def test_intervals_take_people_as_units():
    rng = np.random.default_rng(1)
    person, own = np.repeat(np.arange(40), 25), rng.normal(size=40)
    terms = own[person] + 0.01 * rng.normal(size=1000)
    found = off_policy.mean_over_people(terms, person)
    of_people = np.bincount(person, terms) / 25
    half = 2.02 * of_people.std(ddof=1) / np.sqrt(40)  # Student's t with 39 degrees of freedom
    assert found.value == pytest.approx(terms.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)
    with pytest.raises(ValueError, match="found 7 people, expected at least 8"):
        off_policy.mean_over_people(terms, np.arange(1000) % 7)
    flat = off_policy.mean_over_people(np.ones(1000), person)
    assert (flat.low, flat.high) == (1, 1)


def test_moments_of_parts_are_those_of_all_rows():
    features = np.random.default_rng(0).normal(50, 0.1, (1000, 2))
    features[:, 1] = 3.0
    one, two, three, four = (off_policy.Moments.of(part) for part in np.split(features, [1, 400, 990]))
    merged = one.merge(two.merge(three.merge(four)))
    np.testing.assert_allclose(merged.mean, features.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(merged.squares / merged.rows, features.var(axis=0), rtol=1e-10, atol=1e-25)


def test_draws_in_blocks_are_the_draws_at_once(monkeypatch):
    sums = np.random.default_rng(0).random((50, 4)) + 1
    expected = off_policy.means_over_people(sums, resamples=100, seed=3)
    monkeypatch.setattr(off_policy.intervals, "_KEPT", 700)
    found = off_policy.means_over_people(sums, resamples=100, seed=3)
    assert [tuple(of) for of in found] == [pytest.approx(tuple(of), rel=1e-12) for of in expected]


PEOPLE = np.arange(400) % 20


@pytest.mark.parametrize(
    ("propensity", "person", "message"),
    [
        (np.where(np.arange(400) % 4 == 1, np.nan, 0.5), PEOPLE, "propensity: found none at 50.0 % of the rows"),
        (np.where(np.arange(400) % 4 == 1, 0.0, 0.5), PEOPLE, "overlap: found that 50.0 % of the target policy's"),
        (np.where(np.arange(400) == 0, 1e-3, 0.5), PEOPLE, "effective offers: found 28.6, expected at least 50"),
        (np.where(np.arange(400) % 40 == 0, 0.05, 0.9), PEOPLE, "effective changes: found 2.0, expected at least 40"),
        (np.full(400, 0.5), np.minimum(np.arange(400) // 10, 9), "effective people: found 1.6 of 10, expected at"),
        (np.full(400, 0.5), np.arange(400) % 7, "people: found 7, expected at least 8"),
    ],
)
def test_what_a_log_cannot_tell_is_refused_by_its_probabilities(propensity, person, message):
    offered = np.arange(400) % 2 == 0
    seen = Logged(offered, propensity, offered * 0.5, np.ones(400))
    target = (np.arange(400) % 4 < 2) * 1.0
    with pytest.raises(OverlapError, match=f"^{message}"):
        off_policy.check_support(target, seen, person)
    unseen = seen._replace(offered=~offered, accepted=~offered * 0.5)  # what was drawn decides nothing
    assert off_policy.measure_support(target, unseen, person) == off_policy.measure_support(target, seen, person)


def test_exploration_is_asked_for_where_the_target_offers():
    e = np.array([0.0, np.nan, 0.01, 0.5, 0.0, np.nan])
    seen = Logged(e > 0.1, e, np.zeros(6), np.ones(6))
    found = off_policy.explored(np.array([1.0, 0.5, 1.0, 1.0, 0.0, 0.0]), seen, 0.2).propensity
    np.testing.assert_array_equal(found, [0.2, 0.2, 0.2, 0.5, 0.0, np.nan])


def test_a_target_that_never_offers_needs_no_overlap():
    seen = Logged(np.arange(400) % 2 == 0, np.where(np.arange(400) == 0, 1e-3, 0.5), np.zeros(400), np.ones(400))
    assert off_policy.check_support(np.zeros(400), seen, PEOPLE).target == 0


def test_effective_numbers_are_those_of_their_formulas():
    rng = np.random.default_rng(3)
    target, e, person = rng.random(300), rng.uniform(0.01, 1, 300), np.arange(300) % 12
    found = off_policy.measure_support(target, Logged(e > 0.5, e, e, e), person)
    assert found.effective == pytest.approx(target.sum() ** 2 / (target**2 / e).sum())
    assert found.changes == pytest.approx(((target - e) ** 2 / e).sum() ** 2 / ((target - e) ** 4 / e**3).sum())
    squares = np.bincount(person, (target - e) ** 2 / e)
    assert found.effective_people == pytest.approx(squares.sum() ** 2 / (squares**2).sum())
    agreeing = off_policy.measure_support(e, Logged(e > 0.5, e, e, e), person)
    assert agreeing.changes == np.inf and agreeing.effective_people == 12
    tiny = off_policy.measure_support(target, Logged(e > 0.5, np.where(e < 0.1, 5e-324, e), e, e), person)
    assert tiny.effective < 1e-9 and tiny.changes == pytest.approx(0, abs=1e-9)


def drawn_of(offered, e, score, person):
    people = int(person.max()) + 1
    sums = off_policy.drawn_sums(offered, e, score, off_policy.edges_of(score), person, people)
    return off_policy.drawn(*sums, people)


RNG = np.random.default_rng(5)
SCORE, PERSON = RNG.random(3000), np.sort(RNG.integers(0, 40, 3000))
CHANCE = 0.1 + 0.8 * SCORE
MADE = RNG.random(3000) < CHANCE
WRONG = {  # the propensities that a log states, whether the offer was made, and what is found
    "one over the number of options": (np.full(3000, 1 / 3), MADE, r"mean\(A/e\) of all rows to be 1\.4"),
    "constant where offers follow the score": (np.full(3000, MADE.mean()), MADE, "of the lowest fifth of the score"),
    "of what was done": (np.where(MADE, CHANCE, 1 - CHANCE), MADE, r"sum\(A\)/sum\(e\), of all rows"),
    "half of each": (CHANCE / 2, MADE, r"mean\(A/e\) of all rows to be 1\.9"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_propensities_that_the_offers_contradict_are_doubted(kind):
    e, made, words = WRONG[kind]
    found = drawn_of(made, e, SCORE, PERSON)
    np.testing.assert_allclose(found[0].weight.value, (made / e).mean())
    np.testing.assert_allclose(found[0].offers.value, made.sum() / e.sum())
    assert re.search(words, off_policy.doubt(found, off_policy.MOST_OFF))


def test_right_propensities_are_seldom_doubted():
    """Not with small ones, where few offers weigh much, nor where each person is given offers or none."""
    rng, doubts = np.random.default_rng(1), 0
    for _ in range(150):
        score = rng.normal(size=400)
        person = rng.integers(0, 12, 400)
        rare = np.clip(rng.beta(0.3, 3, 400), 0.003, 1)
        assigned = (rng.random(12) < 0.5)[person]
        made = rng.random(400) < rare
        doubts += off_policy.doubt(drawn_of(made, rare, score, person)) is not None
        doubts += off_policy.doubt(drawn_of(assigned, np.full(400, 0.5), score, person)) is not None
    assert doubts <= 3


def test_the_check_of_propensities_adds_up_over_parts_and_says_where_it_cannot_tell():
    edges = off_policy.edges_of(SCORE)
    whole = off_policy.drawn_sums(MADE, CHANCE, SCORE, edges, PERSON, 40)
    parts = [off_policy.drawn_sums(*(c[i::2] for c in (MADE, CHANCE, SCORE)), edges, PERSON[i::2], 40) for i in (0, 1)]
    for both, *of_parts in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(sum(of_parts), both, atol=1e-9)
    assert drawn_of(MADE, np.where(MADE, CHANCE, np.nan), SCORE, PERSON) == []  # offers alone have one
    assert drawn_of(MADE, np.ones(3000), SCORE, PERSON) == []  # every offer was certain
    assert [of.where for of in drawn_of(MADE, CHANCE, np.where(SCORE < 0.1, np.nan, 0.5), PERSON)][1:] == [
        "the highest fifth of the score",
        "the rows without a score",
    ]


def test_offers_that_the_log_could_not_show_cost_at_most_all_they_can():
    e = np.where(np.arange(400) % 100 == 7, 0.0, 0.5)
    e[5] = np.nan
    offered = (np.arange(400) % 3 == 0) & (e > 0)
    seen = Logged(offered, e, offered * 0.5, np.ones(400))
    for name in off_policy.ESTIMATORS:
        costs = {"c_fa": 3.0, "c_fn": 8.0, "model": np.full(400, -0.5)}
        whole = off_policy.difference(name, np.ones(400), seen, PEOPLE, **costs)
        part = off_policy.difference(name, np.where(e > 0, 1.0, 0.0), seen, PEOPLE, **costs)
        assert (whole.value, whole.low, whole.high) == pytest.approx(
            (part.value, part.low - 5 / 400 * 8, part.high + 5 / 400 * 3)
        )
