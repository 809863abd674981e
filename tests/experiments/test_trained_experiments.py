"""The experiments on a student of one's own: judges, seconds, and what a policy did, without a training."""

import dataclasses

import numpy as np
import pytest
from paper_study import columns, study_of
from tiny_trainings import RECIPES

from prism_jax.experiments.paper import latency, pools, references
from prism_jax.experiments.paper.domain_transfer import HELD_OUT, SEEN
from prism_jax.experiments.paper.judge_robustness import deeds_of
from prism_jax.experiments.paper.timing import Phase, Timing
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.labelling.judges.agreements import common
from prism_jax.labelling.judges.ballots import majority
from prism_jax.labelling.judges.robustness import deeds
from prism_jax.runs.store import Store
from prism_jax.streams.edit import map_candidates, without_answers
from prism_jax.streams.simulator_text import PHRASES


@pytest.fixture(scope="module")
def streams():
    return Trainings(Store("none"), 3, RECIPES).test_streams()


def test_test_streams_are_those_of_the_seed_with_every_label(streams):
    assert len(streams) == RECIPES.student.data.test_streams
    assert all(stream.id.startswith("switches-3-") for stream in streams)
    assert all(step.candidates[0].y_accept is not None for stream in streams for step in stream.steps)


def test_the_truth_accepts_what_the_user_does_and_silence_without_need(streams):
    ballots = pools.truth(streams)
    verdict = dict(zip(ballots.items, ballots.verdicts[:, 0], strict=True))
    for item, found in verdict.items():
        [step] = [
            step for stream in streams if stream.id == item.stream for step in stream.steps if step.event == item.event
        ]
        assert found == (1 - step.y_need if item.silence else step.candidates[0].y_accept)
    assert len(verdict) == 2 * sum(len(stream.steps) for stream in streams)


def test_judges_of_a_pool_err_as_stated_and_majorities_err_less():
    many = [stream for seed in range(4) for stream in Trainings(Store("none"), seed, RECIPES).test_streams()]
    panels, truth = pools.panels(many, 0), pools.truth(many)
    for pool, errors in pools.ERRORS.items():
        right = [_right(panels[pool].verdicts[:, judge], truth) for judge in range(pools.JUDGES)]
        expected = (errors.sensitivity + errors.specificity) / 2
        assert np.mean(right) == pytest.approx(expected, abs=0.06)
        found = common(majority(panels[pool]), truth)
        assert (found.first == found.second).mean() > np.mean(right)
    both = panels[pools.ENSEMBLE].verdicts
    np.testing.assert_array_equal(both[:, :2], panels[pools.POOL_A].verdicts[:, :2])
    np.testing.assert_array_equal(both[:, 2], panels[pools.POOL_B].verdicts[:, 0])


def _right(verdicts, truth):
    """The mean of sensitivity and specificity."""
    label = truth.verdicts[:, 0]
    return np.mean([(verdicts[label == kind] == kind).mean() for kind in (0, 1)])


def test_what_a_policy_did_is_that_of_its_log(streams):
    places = [(stream.id, number) for stream in streams for number in range(len(stream.steps))]
    offers = {place: index % 3 == 0 for index, place in enumerate(places)}
    made = iter(offers.values())
    log = [
        map_candidates(without_answers(stream), lambda offer: dataclasses.replace(offer, logged=next(made)))
        for stream in streams
    ]
    assert list(deeds_of(streams, offers).values()) == list(deeds(log).values())


def test_seconds_of_a_policy_are_those_of_its_passes():
    study = study_of(columns())
    data = study.at()
    decided = data.decide("slow_on_margin", "calibrated")
    places = list(zip(data.steps.stream.tolist(), data.steps.step.tolist(), strict=True))[5:40]
    rng = np.random.default_rng(0)
    phases = {name: Phase(rng.random(35), rng.integers(1, 9, 35)) for name in ("prefill", "fast", "slow")}
    seconds, tokens = latency.spent(Timing(places, phases), data, decided)
    slow = decided.slow[5:40]
    assert 0 < slow.sum() < 35
    np.testing.assert_allclose(
        seconds, np.where(slow, phases["fast"].seconds + phases["slow"].seconds, phases["fast"].seconds)
    )
    np.testing.assert_array_equal(tokens, phases["fast"].tokens + slow * phases["slow"].tokens)
    found = latency.summary(seconds)
    assert found["p95"].value == pytest.approx(np.quantile(seconds, 0.95))
    assert found["mean"].value == pytest.approx(seconds.mean())


def test_the_held_out_domain_is_one_of_the_simulators():
    assert {HELD_OUT, *SEEN} == set(PHRASES) and HELD_OUT not in SEEN


def test_the_papers_numbers_about_students_and_judges_are_those_of_its_tables():
    """A sample of each table, typed a second time from the paper."""
    assert references.PATHWAYS["weighted_sft"]["f1"] == pytest.approx(0.8059)
    assert references.DOMAINS["out of domain, calibrated"]["audbc"] == pytest.approx(0.8466)
    assert references.AGREEMENT["pool A and pool B"] == pytest.approx(
        dict(support=229, agreement=0.912, kappa=0.76, mcc=0.77)
    )
    assert references.ROBUSTNESS["the truth"]["gain"] == pytest.approx(0.028)
    assert references.INFERENCE["slow only"]["latency"] == pytest.approx(0.312)
