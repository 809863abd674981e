"""The baseline on words learns informative words and never sees a label of the test streams."""

import dataclasses

import numpy as np
from sklearn.metrics import roc_auc_score

from prism_jax.experiments.word_regression import score_words
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.streams.splits import Splits


def stream(number):
    """Need follows the event's text, acceptance the offer's text; one offer per step has no label."""
    rng = np.random.default_rng(number)
    events, steps = [], []
    for i in range(12):
        fails, fixes = rng.random(2) < 0.5
        events.append(Event(time=60.0 * i, text="an error appears" if fails else "saves the file"))
        offers = (
            Candidate(text="offer to mend it" if fixes else "offer a joke", y_accept=float(fixes), votes=(True, False)),
            Candidate(text="offer nothing"),
        )
        steps.append(Step(event=i, y_need=float(fails), candidates=offers))
    return Stream(id=f"s{number}", events=tuple(events), steps=tuple(steps))


SPLITS = Splits(train=tuple(map(stream, range(4))), calibration=(stream(4),), test=(stream(5), stream(6)))


def test_it_learns_informative_words():
    scores = score_words(SPLITS, 2)
    assert set(scores.fold) == {2}
    assert {name: sorted(set(scores.stream[scores.split == name])) for name in ("calibration", "test")} == {
        "calibration": ["s4"],
        "test": ["s5", "s6"],
    }
    assert len(scores) == 3 * 12 * 2
    known = ~np.isnan(scores.y_accept)
    assert known.sum() == len(scores) / 2
    assert roc_auc_score(scores.y_accept[known], scores.p_accept_fast[known]) == 1
    assert roc_auc_score(scores.y_need, scores.p_need_fast) == 1


def test_labels_of_test_streams_change_nothing():
    def turned(stream):
        return map_steps(stream, lambda step: dataclasses.replace(step, y_need=1 - step.y_need))

    scores = score_words(SPLITS, 0)
    other = score_words(dataclasses.replace(SPLITS, test=tuple(map(turned, SPLITS.test))), 0)
    np.testing.assert_array_equal(other.p_need_fast, scores.p_need_fast)
    np.testing.assert_array_equal(other.p_accept_fast, scores.p_accept_fast)
    assert (other.y_need != scores.y_need).any()
