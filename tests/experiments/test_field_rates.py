"""Baselines that know rates alone."""

import numpy as np
import pytest
from etils import epath

from prism_jax.experiments.field import rates
from prism_jax.experiments.field.interface import Baseline, Fold, Run, sampled_steps
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import without_answers


def stream(name: str, domain: str, *accepted: float) -> Stream:
    events = tuple(Event(time=float(second), text="a user does something") for second in range(len(accepted)))
    steps = tuple(Step(event=at, candidates=(Candidate(y_accept=y),)) for at, y in enumerate(accepted))
    return Stream(id=name, events=events, steps=steps, domain=domain)


TRAIN = [stream("a", "code", 1.0, 1.0, 0.0), stream("b", "life", 0.0)]
TEST = [without_answers(stream("c", "code", 0.0)), without_answers(stream("d", "other", 0.0))]


def test_rates_are_those_of_the_training_streams(tmp_path):
    scores = rates.score_constant(Fold(0, TRAIN, TEST), Run(epath.Path(tmp_path)))
    assert scores.p_accept_fast.tolist() == [0.5, 0.5]
    assert not scores.has_need


def test_rates_by_domain_are_shrunk_and_unknown_domains_take_the_rate_of_all(tmp_path):
    scores = rates.score_domain(Fold(0, TRAIN, TEST), Run(epath.Path(tmp_path)))
    np.testing.assert_allclose(scores.p_accept_fast, [(2 + 6 * 0.5) / 9, 0.5])


def test_a_sample_of_steps_is_the_same_for_the_same_seed(tmp_path):
    drawn = sampled_steps(TRAIN, Run(epath.Path(tmp_path), steps=2, seed=1))
    assert drawn == sampled_steps(TRAIN, Run(epath.Path(tmp_path), steps=2, seed=1)) and len(drawn) == 2
    assert sampled_steps(TRAIN, Run(epath.Path(tmp_path))) == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_a_baseline_gives_probabilities_or_decisions():
    assert rates.CONSTANT.gives == "probabilities"
    assert Baseline("told", "told its costs", decide=lambda fold, run, ratio: {}).gives == "decisions"
    with pytest.raises(ValueError, match="expected one of them"):
        Baseline("none", "neither")
