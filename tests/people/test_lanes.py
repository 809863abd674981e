"""Where offers and answers stand in the lanes, and that a late answer is known no earlier than it came."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from prism_jax.decision.person import Population, believe, predict, update
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import prequential

POPULATION = Population(0.8, -0.3, 0.9, 0.02)


@pytest.mark.parametrize("counts", [[1], [5, 1, 1], [1] * 20_000, [3000] + [1] * 3000, [2, 9, 4] * 50])
def test_lanes_hold_every_row_once_and_at_most_twice_as_many_places(counts):
    person = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    places = lanes(person)
    assert len(set(zip(places.step.tolist(), places.lane.tolist(), strict=True))) == len(person)
    assert places.first.sum() == len(counts)
    assert places.first.size <= 2 * len(person) + places.shape[1]
    padded = places.padded()
    assert padded.shape == padded.first.shape and padded.first.sum() == len(counts)
    for size, larger in zip(places.shape, padded.shape, strict=True):
        assert size <= larger <= 1.25 * size
    back = places.spread(np.arange(1, len(person) + 1))  # down a lane: one person after another, each in order
    person_of = places.spread(person)
    same = (back[1:] > 0) & ~places.first[1:]
    assert (person_of[1:] == person_of[:-1])[same].all() and (back[1:] > back[:-1])[same].all()


def by_arrival(log_odds, accepted, person, time, came):
    """Every prediction from scratch: the answers that had come by then, in the order in which they came."""
    out = []
    for row, who in enumerate(person):
        earlier = [i for i in range(row) if person[i] == who and came[i] <= time[row]]
        belief = believe(POPULATION)
        for i in sorted(earlier, key=lambda i: (came[i], i)):
            belief = update(belief, log_odds[i], accepted[i], POPULATION)
        out.append((predict(belief, log_odds[row], POPULATION), *belief, len(earlier)))
    return np.array(out).T


@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 4.0, 50.0]))
def test_late_answers_are_used_when_they_come(seed, delay):
    """Few distinct times, so that offers and answers often coincide."""
    rng = np.random.default_rng(seed)
    rows = 24
    person = rng.integers(0, 3, rows)
    time = np.sort(rng.integers(0, 10, rows)).astype(float)
    came = time + np.round(delay * rng.random(rows))
    log_odds, accepted = rng.normal(size=rows), rng.integers(0, 2, rows).astype(float)
    places = lanes(person, time, came)
    run = prequential(log_odds, accepted, person, POPULATION, places=places)
    expected = by_arrival(log_odds, accepted, person, time, came)
    np.testing.assert_allclose([run.log_odds, *run.belief, places.known], expected, rtol=1e-12, atol=1e-12)
    if delay == 0.0:
        plain = prequential(log_odds, accepted, person, POPULATION)
        for one, other in zip([run.log_odds, *run.belief], [plain.log_odds, *plain.belief], strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_missing_time_of_an_answer_counts_as_at_once():
    person, time = np.zeros(4, int), np.arange(4.0)
    assert lanes(person, time, np.array([9.0, np.nan, 2.0, np.nan])).known.tolist() == [0, 0, 1, 2]
