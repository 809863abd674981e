"""The study of single votes: what may reach a prediction, what a turn costs, and what the tables hold."""

import numpy as np
import pytest

from prism_jax.experiments import single_votes as study
from prism_jax.scores import Scores

STREAMS, STEPS, OFFERS, PEOPLE = 4, 6, 2, 3


def make_scores(change=lambda votes: None):
    """Scores of steps with two offers and three votes each; `change` edits the votes [stream, step, offer, person]."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, (STREAMS, STEPS, OFFERS))
    rate = rng.normal(0, 1.5, (STREAMS, 1, 1, PEOPLE))
    votes = rng.random((STREAMS, STEPS, OFFERS, PEOPLE)) < 1 / (1 + np.exp(-np.log(p / (1 - p))[..., None] - rate))
    change(votes)
    places = list(np.ndindex(STREAMS, STEPS, OFFERS))
    return Scores.from_columns(
        {
            "stream": [f"s{i}" for i, _, _ in places],
            "step": [j for _, j, _ in places],
            "candidate": [k for _, _, k in places],
            "p_need_fast": [0.5] * len(places),
            "p_accept_fast": p.ravel(),
            "votes": [votes[place].tolist() for place in places],
        }
    )


def predicted(change=lambda votes: None):
    votes = study.single_votes(make_scores(change))
    return votes, study.predict_votes(votes)


@pytest.fixture(scope="module")
def study_of_votes():
    """The votes, and what is predicted of them."""
    return predicted()


def flipped(*place):
    def change(votes):
        votes[place] = ~votes[place]

    return change


def test_people_are_places_in_the_list_of_votes_of_one_stream(study_of_votes):
    votes, _ = study_of_votes
    assert len(votes.p) == STREAMS * STEPS * OFFERS * PEOPLE
    assert len(np.unique(votes.person)) == STREAMS * PEOPLE
    for person in range(STREAMS * PEOPLE):
        assert len(set(votes.stream[votes.person == person])) == 1


def test_a_vote_reaches_later_steps_of_its_own_annotator_and_no_others_of_the_stream(study_of_votes):
    votes, found = study_of_votes
    _, other = predicted(flipped(1, 2, 0, 0))
    inside = np.flatnonzero(votes.stream == "s1")
    row = inside[(votes.step[inside] == 2)][0]  # the vote that was flipped
    own = votes.person == votes.person[row]
    changed = other.person != found.person
    later = own & (votes.step > 2)
    assert changed[later].all()
    assert not changed[inside][~later[inside]].any(), "neither the step's other offers nor other people of the stream"
    assert not (other.content != found.content)[inside].any(), "the stream's own fit does not see its votes"


def test_hidden_votes_have_no_influence_where_only_offers_are_answered(study_of_votes):
    votes, found = study_of_votes
    turns = study.turns_of(votes)
    offers = study.offers_where_answered(votes, found, turns, 1.0)
    assert 0 < offers.sum() < len(offers)
    hidden = np.ones(len(votes.p), bool)
    hidden[turns.top[offers]] = False
    other = votes._replace(accepted=np.where(hidden, 1 - votes.accepted, votes.accepted))
    np.testing.assert_array_equal(study.offers_where_answered(other, found, turns, 1.0), offers)


def test_a_turn_is_about_the_offer_of_highest_content_score(study_of_votes):
    votes, _ = study_of_votes
    turns = study.turns_of(votes)
    assert len(turns.top) == STREAMS * STEPS * PEOPLE
    for row, number in zip(turns.top, turns.number, strict=True):
        same = (votes.person == votes.person[row]) & (votes.step == votes.step[row])
        assert votes.p[row] == votes.p[same].max() and number == votes.step[row]


def test_costs_and_the_gate_by_hand():
    offers, accepted = np.array([True, True, False, False]), np.array([1.0, 0.0, 1.0, 0.0])
    np.testing.assert_array_equal(study.cost(offers, accepted, 4.0), [0, 1, 4, 0])
    at = np.log([0.5, 1.0, 4.0]) * -1
    for ratio, boundary in zip((0.5, 1.0, 4.0), at, strict=True):
        optimism = {0.5: 0.5, 1.0: 0.25, 4.0: 0.0}[ratio]
        near = boundary - optimism + np.array([-1e-9, 1e-9])
        assert study.passes(near, np.ones(2), ratio).tolist() == [False, True]


def test_the_tables_hold_both_predictions_and_every_ratio():
    ranked, costs = study.study(make_scores(), 100)
    assert [row.name for row in ranked.sections[0].rows][:2] == [study.CONTENT, study.PERSON]
    assert "12 annotators" in ranked.title
    assert [len(section.rows) for section in costs.sections] == [len(study.RATIOS)] * 2


def test_votes_of_one_stream_are_an_error():
    scores = make_scores()
    with pytest.raises(ValueError, match="votes: found votes in 1 streams, expected at least 2"):
        study.single_votes(scores.take(scores.stream == "s0"))
