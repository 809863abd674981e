import dataclasses

import numpy as np
import pytest
from offers import make_stream
from scipy import special

from prism_jax.experiments.ranking import Ranked, measures
from prism_jax.probe.config import FitConfig, StatesConfig
from prism_jax.probe.fitting import Seen, fit_probe
from prism_jax.probe.labels import accept_labels
from prism_jax.probe.scoring import score
from prism_jax.probe.words import describe
from prism_jax.scores import Scores
from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_candidates, map_steps

TRAIN = [make_stream(number) for number in range(6)]
TEST = [make_stream(number) for number in range(20, 23)]


def fitted(streams, states=None, **settings):
    seen = [Seen(describe(one), None if states is None else states[one.id]) for one in streams]
    return fit_probe(seen, FitConfig(**{"ridge": 10.0, "inner": 2, **settings}), StatesConfig(components=4))


def table(probe, streams):
    return Scores.from_rows(list(score(probe, [Seen(describe(one)) for one in streams], split="test", fold=0)))


def shuffled(stream, seed):
    """The stream with each step's offers in another order, and that order."""
    rng, orders = np.random.default_rng(seed), []

    def move(step):
        orders.append(rng.permutation(len(step.candidates)))
        return dataclasses.replace(step, candidates=tuple(step.candidates[place] for place in orders[-1]))

    return map_steps(stream, move), orders


def sorted_by_label(stream):
    return map_steps(
        stream,
        lambda step: dataclasses.replace(
            step, candidates=tuple(sorted(step.candidates, key=lambda one: -one.y_accept))
        ),
    )


def quality(scores):
    """AUROC pooled and within streams, Brier score and ECE of acceptance."""
    stream = np.asarray(scores.stream, str)
    ranked = Ranked(scores.p_accept_fast, scores.p_accept_fast, scores.y_accept, stream)
    return measures(ranked, np.unique(stream).tolist())(np.ones(len(np.unique(stream))))


def test_the_order_of_the_offers_changes_nothing():
    """In training and in prediction: of every offer, of every step's need, and of the metrics."""
    first = table(fitted(TRAIN), TEST)
    moved = [shuffled(stream, number) for number, stream in enumerate(TEST)]
    second = table(fitted([shuffled(stream, 9)[0] for stream in TRAIN]), [stream for stream, _ in moved])
    np.testing.assert_allclose(
        second.p_need_fast[second.candidate == 0], first.p_need_fast[first.candidate == 0], atol=1e-9
    )
    orders = [order for _, steps in moved for order in steps]
    starts = np.flatnonzero(first.candidate == 0)
    back = np.concatenate([start + order for start, order in zip(starts, orders, strict=True)])
    np.testing.assert_allclose(second.p_accept_fast, first.p_accept_fast[back], atol=1e-9)
    np.testing.assert_allclose(quality(second), quality(first), atol=1e-9)


def test_offers_sorted_by_their_label_tell_nothing_by_their_place():
    """Where all offers of a step are alike, none is above another, although the accepted ones come first."""
    train = [sorted_by_label(stream) for stream in TRAIN]
    alike = [
        map_steps(
            sorted_by_label(stream),
            lambda step: dataclasses.replace(
                step, candidates=tuple(dataclasses.replace(one, text="Offer help") for one in step.candidates)
            ),
        )
        for stream in TEST
    ]
    scores = table(fitted(train), alike)
    for stream in alike:
        for number in range(len(stream.steps)):
            p = scores.p_accept_fast[(scores.stream == stream.id) & (scores.step == number)]
            np.testing.assert_allclose(p, p[0], atol=1e-12)


def test_it_learns_what_is_there_and_reads_no_label_of_a_new_stream():
    probe = fitted(TRAIN)
    scores = table(probe, TEST)
    assert quality(scores)[1] > 0.65  # 0.5 is chance
    hidden = [map_candidates(stream, lambda one: Candidate(text=one.text)) for stream in TEST]
    np.testing.assert_array_equal(table(probe, hidden).p_accept_fast, scores.p_accept_fast)


def test_need_is_the_mean_of_two_log_odds():
    probe, seen = fitted(TRAIN), Seen(describe(TEST[0]))
    z = probe.regressions.accept_log_odds(seen)
    largest = [z[seen.words.step == number].max() for number in range(len(TEST[0].steps))]
    expected = special.expit((probe.need(np.array(largest)) + probe.regressions.need_log_odds(seen)) / 2)
    np.testing.assert_allclose(probe.predict(seen)[0], expected, atol=1e-12)


def test_unknown_labels_count_for_nothing():
    """A stream whose offers nobody judged adds texts but no rows."""
    unknown = map_candidates(TRAIN[0], lambda one: Candidate(text=one.text))
    labels = accept_labels(unknown, votes=True)
    assert np.isnan(labels.y).all()
    probe = fitted([unknown, *TRAIN[1:]])
    assert np.isfinite(probe.predict(Seen(describe(TEST[0])))[1]).all()


def test_labels_are_shares_of_votes_and_weights_inverse_propensities():
    stream = map_candidates(
        TRAIN[0], lambda one: dataclasses.replace(one, votes=(True, False), logged=True, propensity=0.25)
    )
    labels = accept_labels(stream, votes=True)
    assert set(labels.y) == {0.5} and set(labels.weight) == {4.0}
    assert set(accept_labels(stream, votes=False).y) <= {0.0, 1.0}


def test_states_of_a_model_are_stacked():
    """States that hold the label make the prediction better; a probe that was trained on states needs them."""
    rng = np.random.default_rng(0)

    def states(stream):
        y = accept_labels(stream, votes=False).y
        return (y[:, None] + rng.normal(size=(len(y), 12)) * 0.3).astype(np.float32)

    found = {one.id: states(one) for one in (*TRAIN, *TEST)}
    probe = fitted(TRAIN, found)
    y = np.concatenate([accept_labels(one, votes=False).y for one in TEST])
    p = np.concatenate([probe.predict(Seen(describe(one), found[one.id]))[1] for one in TEST])
    words = table(fitted(TRAIN), TEST).p_accept_fast
    assert ((p - y) ** 2).mean() < 0.7 * ((words - y) ** 2).mean()
    with pytest.raises(ValueError, match="stream 'stream_20': found no states of a model, expected them"):
        probe.predict(Seen(describe(TEST[0])))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            lambda one: map_candidates(one, lambda offer: Candidate(text=offer.text, y_accept=1.0)),
            "y_accept: found .* all of them 1",
        ),
        (lambda one: map_steps(one, lambda step: dataclasses.replace(step, y_need=None)), "y_need: found no label"),
    ],
)
def test_labels_of_one_kind_are_refused(change, found):
    with pytest.raises(ValueError, match=found):
        fitted([change(one) for one in TRAIN])
