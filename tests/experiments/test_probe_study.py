import dataclasses

import numpy as np
import pytest
from offers import make_stream
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.experiments.probe import measure, ranked_by_probe, score_probe
from prism_jax.experiments.ranking import intervals
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.streams import proactivebench
from prism_jax.streams.edit import map_candidates, map_steps

STREAMS = [make_stream(number) for number in range(3)]
FEW = FitConfig(inner=2)


@pytest.fixture(scope="module")
def scores():
    return score_probe(STREAMS, None, FEW, StatesConfig())


def other_labels(stream):
    turned = map_candidates(stream, lambda one: dataclasses.replace(one, y_accept=1 - one.y_accept, votes=()))
    return map_steps(turned, lambda step: dataclasses.replace(step, y_need=1 - step.y_need))


def test_a_streams_labels_do_not_reach_its_own_scores(scores):
    first = scores
    second = score_probe([other_labels(STREAMS[0]), *STREAMS[1:]], None, FEW, StatesConfig())
    own = first.stream == STREAMS[0].id
    for name in ("p_accept_fast", "p_need_fast"):
        np.testing.assert_array_equal(getattr(first, name)[own], getattr(second, name)[own])
        assert np.abs(getattr(first, name)[~own] - getattr(second, name)[~own]).max() > 1e-3
    assert set(first.fold[own]) == {0}


def test_rows_count_once_per_offer_and_once_per_step(scores):
    accept, need = (ranked_by_probe(scores, signal) for signal in ("accept", "need"))
    assert len(accept.y) == sum(len(step.candidates) for stream in STREAMS for step in stream.steps)
    assert len(need.y) == sum(len(stream.steps) for stream in STREAMS)
    table = measure({"a": accept, "b": accept}, "Acceptance", 100)
    assert [row.name for row in table.sections[0].rows] == ["a", "b", "b minus a"]
    assert table.sections[0].rows[2].cells[0] == "0.000"  # nothing varies between streams: no interval of width 0


@pytest.mark.slow
@needs_checkout
def test_words_rank_real_offers():
    scores = score_probe(proactivebench.load(CHECKOUT), None, FitConfig(), StatesConfig())
    assert intervals(ranked_by_probe(scores, "accept"), resamples=200)["auroc_within"].low > 0.66
    assert intervals(ranked_by_probe(scores, "need"), resamples=200)["auroc_within"].low > 0.6
