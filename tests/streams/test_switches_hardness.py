"""In the population of switches, a reader without the state loses most of the gap, and can tell at which steps."""

import dataclasses

import numpy as np
import pytest
from simulated_steps import draw, table
from test_simulator_hardness import closed_by_linear_models, last_event, whole_history
from test_switches import CONFIG, read

from prism_jax.streams import switches

RATIOS = (1.0, 2.0, 4.0)


def cost(offer, t, ratio):
    """Expected cost per step for C_FA = 1 and C_FN = `ratio`."""
    return np.where(offer, 1 - t.p_accept, ratio * t.p_both)


def best(t, ratio):
    """Costs of Bayes decisions and of the better constant policy."""
    constant = min((cost(np.full(len(t.need), offer), t, ratio) for offer in (True, False)), key=np.mean)
    return cost(1 - t.p_accept <= ratio * t.p_both, t, ratio), constant


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 3])
def config(request):
    return dataclasses.replace(CONFIG, switches=request.param)


@pytest.fixture(scope="module")
def streams(config):
    return draw(1500, "always", config, first=3000)


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "least", "most"), [(last_event, 0.2, 0.4), (whole_history, -0.1, 0.1)])
def test_counting_words_does_not_suffice(config, streams, texts, least, most):
    closed = closed_by_linear_models(draw(1500, "always", config), streams, texts)
    assert least < max(closed) <= most, closed


@pytest.mark.slow
@pytest.mark.parametrize("ratio", RATIOS)
def test_bayes_decisions_beat_constant_ones_and_offer_sometimes(streams, ratio):
    t = table(streams)
    bayes, constant = best(t, ratio)
    assert bayes.mean() <= 0.40 * constant.mean()
    assert 0.25 <= np.mean(1 - t.p_accept <= ratio * t.p_both) <= 0.80


@pytest.mark.slow
@pytest.mark.parametrize("ratio", RATIOS)
def test_without_the_state_most_of_the_gap_remains_at_steps_that_can_be_told(config, streams, ratio):
    """The best decisions given persona and newest event, with the state averaged by its frequency."""
    t = table(streams)
    situations = [switches.Situation(*seen[:3]) for stream in streams for seen in read(stream, config.switches)]
    tried = np.array([situation.kind == "try" for situation in situations])
    stuck = np.array([situation.stuck for situation in situations])[tried].mean()
    each = np.array([[switches.truth(s._replace(stuck=state), config) for s in situations] for state in (False, True)])
    p_need, p_accept, p_both = np.moveaxis((1 - stuck) * each[0] + stuck * each[1], 1, 0)
    bayes, constant = best(t, ratio)
    blind = cost(1 - p_accept <= ratio * p_both, t, ratio)
    assert (constant.mean() - blind.mean()) / (constant.mean() - bayes.mean()) < 0.5
    # All of the regret lies where the newest event is a try, and these are less than half of the steps.
    np.testing.assert_allclose(blind[~tried], bayes[~tried], atol=1e-12)
    assert tried.mean() == pytest.approx(switches.NEXT["try"], abs=0.02)
    # The gate decides as the joint probability does, although need and acceptance both depend on the state.
    np.testing.assert_array_equal(1 - p_accept <= ratio * p_both, 1 - p_accept <= ratio * p_need * p_accept)
