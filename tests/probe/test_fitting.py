import dataclasses

import numpy as np
import pytest
from offers import make_stream
from scipy import special

from prism_jax.decision import gate
from prism_jax.experiments.ranking import Ranked, measures
from prism_jax.probe import logistic
from prism_jax.probe.fitting import StreamInputs, accept_labels, fit_acceptance, fit_probe, score
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.words import describe
from prism_jax.scores import Scores
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_candidates, map_steps

TRAIN = [make_stream(number) for number in range(6)]
TEST = [make_stream(number) for number in range(20, 23)]


def fitted(streams, states=None, **settings):
    seen = [StreamInputs(describe(one), None if states is None else states[one.id]) for one in streams]
    return fit_probe(seen, FitConfig(**{"ridge": 10.0, "inner": 2, **settings}), StatesConfig(components=4))


def table(probe, streams):
    return Scores.from_rows(list(score(probe, [StreamInputs(describe(one)) for one in streams], split="test", fold=0)))


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
    probe, seen = fitted(TRAIN), StreamInputs(describe(TEST[0]))
    z = probe.acceptance.log_odds(seen.words, seen.states)
    largest = [z[seen.words.step == number].max() for number in range(len(TEST[0].steps))]
    from_words = probe.words.log_odds(seen.words.need_columns(probe.acceptance.idf))
    expected = special.expit((probe.need.of_log_odds(np.array(largest)) + from_words) / 2)
    np.testing.assert_allclose(probe.predict(seen)[0], expected, atol=1e-12)


def test_unknown_labels_count_for_nothing():
    """A stream whose offers nobody judged adds texts but no rows."""
    unknown = map_candidates(TRAIN[0], lambda one: Candidate(text=one.text))
    labels = accept_labels(unknown, votes=True)
    assert np.isnan(labels.y).all()
    probe = fitted([unknown, *TRAIN[1:]])
    assert np.isfinite(probe.predict(StreamInputs(describe(TEST[0])))[1]).all()


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
    p = np.concatenate([probe.predict(StreamInputs(describe(one), found[one.id]))[1] for one in TEST])
    words = table(fitted(TRAIN), TEST).p_accept_fast
    assert ((p - y) ** 2).mean() < 0.7 * ((words - y) ** 2).mean()
    with pytest.raises(ValueError, match="stream 'stream_20': found no states of a model, expected them"):
        probe.predict(StreamInputs(describe(TEST[0])))


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


def of_accepted_offers(stream, z):
    """Brute force: each step's need label and weight, from the votes and propensity of its offer of highest z."""
    y, weight, place = [], [], 0
    for step in stream.steps:
        own = z[place : place + len(step.candidates)]
        place += len(step.candidates)
        offer = step.candidates[int(np.argmax(own))]
        y.append(step.y_need)
        weight.append(sum(offer.votes) / len(offer.votes) / (offer.propensity or 1.0))
    return y, weight


@pytest.mark.parametrize("target", ["marginal", "given_accept"])
def test_need_is_fitted_on_all_steps_or_on_accepted_offers(target):
    """The regression equals one on plain lists of labels; of a step's offers the one of highest nested log-odds counts.

    The seventh stream has one offer per step, with propensities.
    """
    one_offer = map_steps(make_stream(6), lambda step: dataclasses.replace(step, candidates=step.candidates[:1]))
    logged = map_candidates(one_offer, lambda one: dataclasses.replace(one, logged=True, propensity=0.5))
    streams = [StreamInputs(describe(one)) for one in (*TRAIN, logged)]
    config, reading = FitConfig(ridge=10.0, inner=2, need_target=target), StatesConfig()
    probe = fit_probe(streams, config, reading)
    assert probe.need_target == target
    columns, labels, weights, names = [], [], [], []
    for number, seen in enumerate(streams):  # ids are in the order of the numbers
        stream = seen.words.stream
        without = [one for other, one in enumerate(streams) if other % 2 != number % 2]
        y, weight = of_accepted_offers(stream, fit_acceptance(without, config, reading).log_odds(seen.words, None))
        columns.append(seen.words.need_columns(probe.acceptance.idf))
        labels += y
        weights += weight if target == "given_accept" else [1.0] * len(y)
        names += [stream.id] * len(y)
    x, y, weight, stream = np.concatenate(columns), np.array(labels), np.array(weights), np.array(names)
    kept = weight > 0
    expected = logistic.fit(x[kept], y[kept], weight[kept], stream[kept], 10.0)
    np.testing.assert_array_equal(probe.words.weight, expected.weight)
    assert probe.words.intercept == expected.intercept


ACCEPTED = {"searches": 0.6, "types": 0.4}
"""Pr(accept) after an event of each kind."""
NEEDED = {"searches": {True: 0.8, False: 0.05}, "types": {True: 0.2, False: 0.7}}
"""Pr(need) after it, given whether the offer is accepted: one half in all after either kind."""


def dependent_stream(number, steps=30):
    rng = np.random.default_rng(number)
    events, made = [], []
    for index in range(steps):
        kind = str(rng.choice(list(ACCEPTED)))
        accepted = bool(rng.random() < ACCEPTED[kind])
        needed = float(rng.random() < NEEDED[kind][accepted])
        events.append(Event(time=60.0 * index, text=f"The user {kind}"))
        made.append(
            Step(event=index, candidates=(Candidate(text="Offer help", y_accept=float(accepted)),), y_need=needed)
        )
    return Stream(id=f"stream_{number:03d}", events=tuple(events), steps=tuple(made))


def test_need_given_acceptance_is_right_where_the_two_depend_and_saves_regret():
    """With one offer per step. At C_FN = 4 C_FA the unconditional need offers after typing, where it does not pay."""
    train, test = [dependent_stream(number) for number in range(24)], [dependent_stream(100 + n) for n in range(8)]
    kinds = [event.text.split()[-1] for stream in test for event in stream.events]
    accept, given = (np.array([of[kind] for kind in kinds]) for of in (ACCEPTED, {k: NEEDED[k][True] for k in NEEDED}))
    speak, silent = gate.expected_costs(accept, accept * given, 1.0, 4.0)
    regret = {}
    for target, need in (("marginal", 0.5), ("given_accept", given)):
        scores = table(fitted(train, need_target=target, ridge=30.0), test)
        assert scores.need_given_accept == (target == "given_accept")
        assert np.abs(scores.p_need_fast - need).mean() < 0.1
        offer = np.asarray(gate.decide(scores.p_need_fast, scores.p_accept_fast, 1.0, 4.0))
        regret[target] = np.where(offer, speak, silent) - np.minimum(speak, silent)
    saved = (regret["marginal"] - regret["given_accept"]).reshape(len(test), -1).mean(axis=1)
    assert regret["given_accept"].mean() < 0.02
    assert saved.mean() > 5 * saved.std(ddof=1) / len(test) ** 0.5
