"""One annotator against the others, on ballots small enough to count by hand."""

import numpy as np
import pytest

from prism_jax.evaluation.replay import Replay
from prism_jax.experiments.annotators import (
    against_votes,
    annotator_rows,
    need_against_others,
    replay_annotators,
    votes_against_votes,
)
from prism_jax.scores import Scores
from prism_jax.streams import Candidate, Event, Step, Stream


def stream(*steps):
    events = tuple(Event(time=float(i), text="x") for i in range(len(steps)))
    return Stream(id="s", events=events, steps=tuple(Step(event=i, **step) for i, step in enumerate(steps)))


def offers(*ballots):
    return {"candidates": tuple(Candidate(text="o", votes=tuple(map(bool, ballot))) for ballot in ballots)}


def test_every_ordered_pair_of_votes_on_an_offer_counts_once():
    found = votes_against_votes([stream(offers((1, 0, 0)), offers((1, 1)), offers(()))])
    pairs = sorted(zip(found.p, found.y, strict=True))
    assert pairs == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]


def test_need_is_an_offer_that_all_others_accepted():
    found = need_against_others(
        [
            stream(
                offers((1, 0, 1), (0, 1, 0)),  # the annotators other than the second agree on an offer
                offers((1, 1), (0, 0)),
                {"votes": (True, True)},  # no offer to accept
                offers((1, 1), (1, 1, 1)),  # different numbers of votes
            )
        ]
    )
    assert list(zip(found.p, found.y, strict=True)) == [(1, 0), (1, 1), (1, 0), (1, 1), (1, 1), (0, 0), (0, 0)]
    assert set(found.stream) == {"s"}


def test_an_annotator_as_a_policy_costs_what_the_others_say():
    steps = stream(
        offers((1, 0, 1), (0, 1, 0)), offers((1, 1), (0, 0)), {"votes": (True, True)}, offers((0, 1), (0, 1))
    )
    found = replay_annotators([steps])
    assert found.step.tolist() == [0, 0, 0, 1, 1, 3, 3]
    assert found.p_accept.tolist() == [1, 1, 1, 1, 1, 0, 1]  # whether the annotator speaks
    assert found.y_first.tolist() == [0.5, 0, 0.5, 1, 1, 1, 0]  # what the others say of the own offer
    assert found.y_best.tolist() == [0.5, 1, 0.5, 1, 1, 1, 0]
    assert found.y_need.tolist() == [0, 1, 0, 1, 1, 1, 0]
    other = Replay(**{**vars(found), "stream": np.array(list("aaabbbb"))})
    rows = {row.name: row for row in annotator_rows(other, 2.0, resamples=100)}
    assert rows["one annotator"].realised.value == pytest.approx((0.5 + 1 + 0.5 + 0 + 0 + 2 + 1) / 7)
    assert rows["never"].realised.value == pytest.approx(2 * 4 / 7)
    assert rows["clairvoyant, of the others"].realised.value == 0
    assert replay_annotators([stream({"votes": (True, True)})]) is None


def test_a_signal_is_compared_with_every_vote():
    rows = Scores.from_rows(
        {"stream": "s", "step": i, "p_need_fast": 0.5, "p_accept_fast": 0.5, "votes": votes}
        for i, votes in enumerate([[True, False], None, [True]])
    )
    found = against_votes(rows, np.array([0.2, 0.3, 0.9]))
    assert list(zip(found.p, found.y, strict=True)) == [(0.2, 1), (0.2, 0), (0.9, 1)]
