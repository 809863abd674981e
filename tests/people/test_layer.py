"""The person layer over logs: lanes against one row after another, fits, and what a prediction may know.

A late answer is known no earlier than it came.
"""

import queue
import types

import chex
import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import optimize, special

from prism_jax.decision.person import Population, anchored, believe, predict, update
from prism_jax.people import layer
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import Placed, fit_population, fit_together, prequential
from prism_jax.people.scan import _gradient as gradient

POPULATION = Population(0.8, -0.3, 0.9, 0.02)


def draw(rows=300, people=9, seed=0):
    rng = np.random.default_rng(seed)
    person = rng.integers(0, people, rows) ** 2 // people  # some people have many rows
    log_odds = rng.normal(size=rows)
    rate = rng.normal(0, 1.2, people)
    return log_odds, (rng.random(rows) < special.expit(log_odds + rate[person])).astype(float), person


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


def test_lanes_give_what_one_row_after_another_gives():
    log_odds, accepted, person = draw()
    answered = np.random.default_rng(1).random(len(person)) < 0.8
    run = prequential(log_odds, np.where(answered, accepted, np.nan), person, POPULATION, answered)
    time = np.arange(len(person))
    *expected, _ = by_arrival(log_odds, accepted, person, time, np.where(answered, time, np.inf))
    np.testing.assert_allclose([run.log_odds, *run.belief], expected, rtol=1e-12, atol=1e-12)


def test_names_and_later_answers_change_no_prediction():
    log_odds, accepted, person = draw()
    before = prequential(log_odds, accepted, person, POPULATION).log_odds
    renamed = np.random.default_rng(2).permutation(person.max() + 1)[person]
    np.testing.assert_allclose(prequential(log_odds, accepted, renamed, POPULATION).log_odds, before, rtol=1e-12)
    changed = np.where(np.arange(300) < 150, accepted, 1 - accepted)
    after = prequential(log_odds, changed, person, POPULATION).log_odds
    np.testing.assert_array_equal(after[:151], before[:151])
    assert (after[200:] != before[200:]).any()


def test_the_gradient_is_that_of_finite_differences():
    log_odds, accepted, person = draw()
    places = lanes(person)
    weight = np.full(300, 1 / 300)
    answers = [places.spread_answers(values) for values in (log_odds, accepted, np.ones(300))]
    arrays = [places.spread(accepted), places.spread(weight), places.spread(log_odds), *answers]
    theta = np.array([0.8, -0.3, np.log(0.9), np.log(0.02)])
    with jax.enable_x64(True):
        found, value = gradient(theta, *arrays, places.first)
        expected = optimize.approx_fprime(theta, lambda t: float(gradient(t, *arrays, places.first)[1]), 1e-6)
        tied, same = gradient(theta[2:], *arrays, places.first)
        expected_tied = optimize.approx_fprime(theta[2:], lambda t: float(gradient(t, *arrays, places.first)[1]), 1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(tied, expected_tied, rtol=1e-4, atol=1e-7)
    for population, loss in ((Population(0.8, -0.3, 0.9, 0.02), value), (anchored(0.9, 0.02), same)):
        predicted = prequential(log_odds, accepted, person, population).log_odds
        np.testing.assert_allclose(loss, np.mean(np.logaddexp(0, predicted) - accepted * predicted), rtol=1e-12)


def test_the_fit_finds_the_population_and_sees_only_who_counts():
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(400), 25)
    log_odds, rate = rng.normal(size=len(person)), rng.normal(0, 0.9, 400)
    p = special.expit(0.8 * log_odds - 0.3 + rate[person])
    accepted = (rng.random(len(person)) < p).astype(float)
    counted = person < 300
    found = fit_population(log_odds, accepted, person, counted)
    chex.assert_trees_all_close(np.array(found[:3]), np.array([0.8, -0.3, 0.9]), atol=0.12)
    other = np.where(counted, accepted, 1 - accepted)
    assert fit_population(log_odds, other, person, counted) == found
    # The same people as the average over them sees them: the score that is calibrated for strangers.
    shrunk = (0.8 * log_odds - 0.3) / (1 + np.pi / 8 * 0.9**2) ** 0.5
    tied = fit_population(shrunk, accepted, person, counted, calibrated=True)
    assert tied == anchored(tied.spread, tied.drift)
    assert tied.spread == pytest.approx(0.9, abs=0.12)
    with pytest.raises(ValueError, match="found a likelihood of nan, expected a number"):
        fit_population(np.where(person == 0, np.inf, log_odds), accepted, person)


def test_fits_in_step_are_those_alone():
    """One call for each round of questions; what it raises ends all fits."""
    rng = np.random.default_rng(0)
    person, y = np.repeat(np.arange(8), 20), (rng.random(160) < 0.5) * 1.0
    places, everyone = lanes(person), np.ones(160, bool)
    scores = {name: scale * rng.normal(size=160) for name, scale in (("a", 0.5), ("b", 2.0), ("c", 0.0))}
    placed, share = Placed.of(y, everyone, places.padded()), np.full(160, 1 / 160)
    losses = {
        name: placed.loss(*(placed.places.spread(of) for of in (share, z)), placed.places.spread_answers(z))
        for name, z in scores.items()
    }
    rounds = []

    def ask(asked):
        rounds.append(list(asked))
        return {name: losses[name](theta) for name, theta in asked.items()}

    found = fit_together(scores, ask)
    assert list(found) == ["a", "b", "c"] and rounds[0] == ["a", "b", "c"] and len(rounds) < 60
    for name, z in scores.items():
        alone = fit_population(z, y, person, calibrated=True)
        np.testing.assert_allclose(found[name], alone, rtol=1e-5, atol=1e-7)

    def fails(asked):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit_together(scores, fails)


def test_an_interruption_between_two_calls_ends_the_fits(monkeypatch):
    class Interrupted(queue.SimpleQueue):
        def get(self):
            super().get()  # a question that nobody answers
            raise KeyboardInterrupt

    monkeypatch.setattr(layer, "queue", types.SimpleNamespace(SimpleQueue=Interrupted))
    with pytest.raises(KeyboardInterrupt):
        fit_together(["a", "b"], lambda asked: pytest.fail("nothing is computed"))


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
