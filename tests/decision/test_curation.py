import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.decision import curation

unit = st.floats(0, 1)
hard = st.integers(0, 1)


@given(unit, unit, hard, hard, hard)
def test_scores_against_their_formulas(q_need, q_accept, y_need, y_accept, logged):
    need, accept = (q_need - y_need) ** 2, (q_accept - y_accept) ** 2
    seen = y_accept - accept if logged else 0.0
    assert curation.score(q_need, q_accept, y_need, y_accept, logged) == pytest.approx(seen - need, abs=1e-15)
    printed = y_accept - need - (accept if q_need >= 0.5 else 0.0)
    assert curation.score_paper(q_need, q_accept, y_need, y_accept) == pytest.approx(printed, abs=1e-15)
    assert -2 <= curation.score(q_need, q_accept, y_need, y_accept, logged) <= 1


def expected(rule, q_need, q_accept, p_need, p_accept):
    """Expected score of a report if the labels are independent and have the true probabilities."""
    return sum(
        abs(1 - y_need - p_need) * abs(1 - y_accept - p_accept) * rule(q_need, q_accept, y_need, y_accept)
        for y_need in (0, 1)
        for y_accept in (0, 1)
    )


@given(unit, unit, unit, unit)
def test_default_score_is_proper(p_need, p_accept, q_need, q_accept):
    honest = expected(curation.score, p_need, p_accept, p_need, p_accept)
    assert expected(curation.score, q_need, q_accept, p_need, p_accept) <= honest + 1e-12


def test_papers_score_is_improper():
    """At true need 0.55 and acceptance 0.5, reporting 0.49 avoids the acceptance penalty and scores higher."""
    honest = expected(curation.score_paper, 0.55, 0.5, 0.55, 0.5)
    dodging = expected(curation.score_paper, 0.49, 0.5, 0.55, 0.5)
    assert dodging > honest + 0.2
    assert expected(curation.score, 0.49, 0.5, 0.55, 0.5) < expected(curation.score, 0.55, 0.5, 0.55, 0.5)


def test_papers_score_ranks_perfect_silence_below_a_sloppy_accepted_offer():
    silence = curation.score_paper(0.0, 0.0, 0, 0)
    sloppy_offer = curation.score_paper(0.6, 0.4, 1, 1)
    assert silence == 0 < sloppy_offer


def test_unobserved_acceptance_is_not_read():
    found = curation.score(np.full(2, 0.5), np.full(2, 0.9), np.ones(2), np.array([np.nan, 1.0]), np.array([0, 1]))
    np.testing.assert_allclose(found, [-0.25, 1 - 0.25 - 0.01])


def test_scores_follow_jax():
    q = np.random.default_rng(0).random((2, 20)).astype(np.float32)
    y = (np.random.default_rng(1).random((2, 20)) < 0.5).astype(np.float32)
    for rule in (curation.score, curation.score_paper):
        np.testing.assert_allclose(jax.jit(rule)(*map(jnp.asarray, (*q, *y))), rule(*q, *y), rtol=1e-6)


@st.composite
def rows(draw):
    size = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.integers(-4, 5, size) / 4  # with ties
    need, accept, logged = (rng.random((3, size)) < [[0.5], [0.6], [0.8]]).astype(float)
    return scores, need, np.where(logged > 0, accept, np.nan), logged, rng.choice(["code", "life"], size)


@given(rows(), st.floats(0.01, 1))
def test_stratified_selection_keeps_the_top_of_each_stratum_in_proportion(data, fraction):
    scores, need, accept, logged, domain = data
    selection = curation.select(scores, need, accept, logged, fraction=fraction, domain=domain)
    total = max(1, int(np.floor(fraction * scores.size + 0.5)))
    assert selection.kept.sum() == total
    strata = np.where(logged > 0, need * 2 + np.nan_to_num(accept), 4)
    for stratum in np.unique(strata):
        inside = strata == stratum
        kept, dropped = scores[inside & selection.kept], scores[inside & ~selection.kept]
        assert abs(kept.size - total * inside.sum() / scores.size) < 1
        if kept.size and dropped.size:
            assert kept.min() >= dropped.max()
    assert sum(entry.kept for entry in selection.summary) == total
    assert sum(entry.dropped for entry in selection.summary) == scores.size - total
    for entry in selection.summary:
        assert entry.kept + entry.dropped > 0
        assert entry.domain in ("code", "life")


@given(rows(), st.integers(1, 60))
def test_global_selection_is_the_top_k(data, count):
    scores, need, accept, logged, _ = data
    count = min(count, scores.size)
    selection = curation.select(scores, need, accept, logged, count=count, stratify=False)
    assert selection.kept.sum() == count
    first = sorted(range(scores.size), key=lambda i: (-scores[i], i))[:count]
    assert set(np.flatnonzero(selection.kept)) == set(first)


def test_the_summary_names_strata_and_domains():
    selection = curation.select(
        np.arange(5.0),
        np.array([1, 1, 0, 0, 1]),
        np.array([1, 1, 0, 0, np.nan]),
        np.array([1, 1, 1, 1, 0]),
        fraction=0.5,
        domain=np.array(["code", "life", "code", "code", "life"]),
    )
    found = [(e.stratum, e.domain, e.kept, e.dropped) for e in selection.summary]
    assert found == [
        ("need 0, accept 0", "code", 1, 1),
        ("need 1, accept 1", "code", 0, 1),
        ("need 1, accept 1", "life", 1, 0),
        ("not offered", "life", 1, 0),
    ]


GOOD = dict(scores=np.zeros(3), y_need=np.zeros(3), y_accept=np.zeros(3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "fraction, count: found None and None, expected exactly one"),
        ({"fraction": 0.5, "count": 1}, "fraction, count: found 0.5 and 1"),
        ({"fraction": 0.0}, "fraction: found 0.0"),
        ({"fraction": 1.5}, "fraction: found 1.5"),
        ({"count": 4}, "count: found 4, expected from 1 to the 3 rows"),
        ({"count": 0}, "count: found 0"),
        ({"count": 1, "scores": np.array([0.0, np.nan, 1.0])}, "scores: found nan at index 1"),
        ({"count": 1, "y_need": np.array([0.0, 2.0, 1.0])}, "y_need: found 2.0 at index 1"),
        ({"count": 1, "y_accept": np.array([0.0, np.nan, 1.0])}, "y_accept: found nan at index 1"),
        ({"count": 1, "logged": np.array([0.0, 0.5, 1.0])}, "logged: found 0.5 at index 1"),
        ({"count": 1, "y_need": np.zeros(2)}, "y_need: found 2 rows, expected 3 as in scores"),
    ],
)
def test_select_refuses_bad_input_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        curation.select(**{**GOOD, **changes})


def test_score_refuses_bad_input_by_name():
    with pytest.raises(ValueError, match=r"q_need: found 1\.5"):
        curation.score(1.5, 0.5, 1, 1)
    with pytest.raises(ValueError, match="logged: found 2"):
        curation.score(0.5, 0.5, 1, 1, 2)
    with pytest.raises(ValueError, match="q_accept: found nan"):
        curation.score_paper(0.5, np.nan, 1, 1)
    with pytest.raises(ValueError, match="do not broadcast"):
        curation.score(np.ones(2), np.ones(3), 1, 1)
