"""The simulated teacher is as accurate as configured and does not change the stream that it judges."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logit
from simulated_steps import CONFIG, draw
from test_switches import CONFIG as SWITCHES

from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.simulator import simulate


def with_teacher(blur, bias, config=CONFIG):
    return dataclasses.replace(config, teacher=True, teacher_blur=blur, teacher_bias=bias)


def errors(streams):
    """Errors of the teacher's log-odds of need and of acceptance, at every step."""
    pairs = [
        ((step.teacher_need, step.p_need_true), (offer.teacher_accept, offer.p_accept_true))
        for stream in streams
        for step in stream.steps
        for offer in step.candidates
    ]
    given, true = np.moveaxis(np.array(pairs), 2, 0)
    return (logit(given) - logit(true)).T


@pytest.mark.parametrize("config", [CONFIG, SWITCHES], ids=["items", "switches"])
def test_a_teacher_changes_only_its_own_fields(config):
    for index in range(20):
        judged = simulate(with_teacher(1.0, 0.5, config), index)
        assert all(step.teacher_need is not None for step in judged.steps)
        plain = map_steps(judged, lambda step: dataclasses.replace(step, teacher_need=None))
        plain = map_candidates(plain, lambda offer: dataclasses.replace(offer, teacher_accept=None))
        assert plain == simulate(config, index)


def test_a_teacher_without_error_gives_the_true_probabilities():
    assert np.abs(errors(draw(20, config=with_teacher(0.0, 0.0)))).max() < 1e-3


def test_errors_have_the_configured_bias_and_blur_and_are_uncorrelated():
    need, accept = errors(draw(300, config=with_teacher(0.8, -0.3)))
    for off in (need, accept):
        # Rounding to six digits distorts the error of a probability near 0 or 1, too little to matter in 2,000 draws.
        assert stats.kstest(off, stats.norm(-0.3, 0.8).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(need, accept)[0, 1]) < 4 / math.sqrt(len(need))
