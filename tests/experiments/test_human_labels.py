"""The protocol on human labels: no test label reaches a probability, and the order of offers tells nothing."""

import dataclasses

import numpy as np
import pytest
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.experiments.field.tfidf import outer_folds, score_words_nested
from prism_jax.experiments.human_labels import in_fixed_order, soft, study, with_labels
from prism_jax.scores import Scores, ScoresError
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.streams.proactivebench_source import measure_leakage


def stream(number):
    """Need follows the event's text, acceptance the offer's; the accepted offers come first, as in the source."""
    rng = np.random.default_rng(number)
    events, steps = [], []
    for i in range(8):
        fails = bool(rng.random() < 0.5)
        events.append(Event(time=60.0 * i, text=f"an error {i} appears" if fails else f"saves the file {i}"))
        votes = sorted([bool(rng.random() < 0.5), bool(rng.random() < 0.5), True, False], reverse=True)
        offers = tuple(
            Candidate(
                text=f"mend {j} {i}" if vote else f"joke {j} {i}",
                y_accept=float(vote),
                votes=(vote, vote, True),
                logged=True,
                propensity=1.0,
            )
            for j, vote in enumerate(votes)
        )
        steps.append(Step(event=i, y_need=float(fails), votes=(not fails, not fails), candidates=offers))
    return Stream(id=f"s{number}", events=tuple(events), steps=tuple(steps))


STREAMS = [stream(i) for i in range(6)]


def test_outer_folds_test_every_stream_once():
    for count, size in ((None, 1), (3, 2)):
        divided = outer_folds(STREAMS, count)
        assert sorted(one.id for _, test in divided for one in test) == [one.id for one in STREAMS]
        assert all(len(test) == size and len(train) == 6 - size for train, test in divided)
        assert all(not {one.id for one in train} & {one.id for one in test} for train, test in divided)


@pytest.mark.slow
def test_labels_of_test_streams_change_no_probability():
    train, test = STREAMS[:5], STREAMS[5:]

    def turned(step):
        offers = tuple(dataclasses.replace(one, y_accept=1 - one.y_accept) for one in step.candidates)
        return dataclasses.replace(step, y_need=1 - step.y_need, candidates=offers)

    scores, chosen = score_words_nested(train, test, 0)
    other, again = score_words_nested(train, [map_steps(one, turned) for one in test], 0)
    assert chosen == again
    np.testing.assert_array_equal(other.p_need_fast, scores.p_need_fast)
    np.testing.assert_array_equal(other.p_accept_fast, scores.p_accept_fast)
    assert (other.y_need != scores.y_need).any()


@pytest.mark.slow
def test_the_order_of_offers_changes_nothing():
    rng = np.random.default_rng(0)

    def shuffled(step):
        return dataclasses.replace(
            step, candidates=tuple(step.candidates[i] for i in rng.permutation(len(step.candidates)))
        )

    tables = [
        study([map_steps(one, change) for one in STREAMS], folds=2, labels="majority", ratios=(2.0,), resamples=100)
        for change in (lambda step: step, shuffled)
    ]
    assert tables[0] == tables[1]


def test_shares_of_votes_are_labels():
    step = soft(STREAMS)[0].steps[0]
    assert {one.y_accept for one in step.candidates} == {1.0, 1 / 3}
    assert step.y_need == STREAMS[0].steps[0].y_need


def own_scores(streams, **changes):
    return Scores.from_rows(
        {
            "stream": one.id,
            "step": number,
            "candidate": index,
            "p_need_fast": 0.9 if "error" in one.events[step.event].text else 0.2,
            "p_accept_fast": 0.8 if offer.text.startswith("mend") else 0.3,
            "votes": list(offer.votes),
            **changes,
        }
        for one in streams
        for number, step in enumerate(one.steps)
        for index, offer in enumerate(step.candidates)
    )


@pytest.mark.slow
def test_any_scores_are_a_method():
    tables = study(STREAMS, folds=2, labels="votes", scores={"mine": own_scores(STREAMS)}, ratios=(2.0,), resamples=100)
    assert "gate on mine" in tables[2].to_markdown()
    assert "mine, exactly the same speak rate" in tables[3].to_markdown()


def test_the_offers_of_other_scores_are_checked():
    labelled = with_labels(own_scores(STREAMS), STREAMS)
    assert len(labelled) == sum(len(step.candidates) for one in STREAMS for step in one.steps)
    with pytest.raises(ScoresError, match="found no row for stream 's5'"):
        with_labels(own_scores(STREAMS[:5]), STREAMS)
    with pytest.raises(ScoresError, match="found the votes of another offer"):
        with_labels(own_scores(STREAMS, votes=[False, False, False]), STREAMS)


def test_a_fixed_order_is_one_of_texts():
    step = in_fixed_order(STREAMS[0]).steps[0]
    texts = [one.text for one in step.candidates]
    assert texts == sorted(texts)


@needs_checkout
def test_every_official_test_row_shares_its_step_with_training_rows():
    found = measure_leakage(CHECKOUT)
    assert found.rows == found.same_stream == found.same_step == found.same_need > 0
    assert found.same_row == 0
