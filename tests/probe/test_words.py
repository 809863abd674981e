import dataclasses

import numpy as np
import pytest
from offers import make_stream

from prism_jax.probe.ngrams import Idf
from prism_jax.probe.similarity import DECAY, NAMES
from prism_jax.probe.words import (
    ACCEPT_COLUMNS,
    NEED_COLUMNS,
    OF_HISTORY,
    OF_OFFER,
    describe,
    history_features,
    offer_features,
    words,
)
from prism_jax.streams import Candidate, Event, Step, Stream


def columns(stream, of="accept"):
    described = describe(stream)
    idf = Idf.fit([described.counted])
    table = getattr(described, f"{of}_columns")(idf)
    names = ACCEPT_COLUMNS if of == "accept" else NEED_COLUMNS
    assert table.shape[1] == len(names)
    return dict(zip(names, table.T, strict=True)), described, idf


def test_cosines_by_hand():
    """Each column, from the cosines of every pair of texts."""
    stream = make_stream(3, steps=4)
    found, described, idf = columns(stream)
    vectors = idf.vectors(described.counted).toarray()
    events, offers = vectors[:4], vectors[4:]
    row = 0
    for number, step in enumerate(stream.steps):
        block = range(row, row + len(step.candidates))
        for i in block:
            s = [float(offers[i] @ event) for event in events[: step.event + 1]]
            others = [float(offers[i] @ offers[j]) for j in block if j != i]
            theirs = [float(offers[j] @ events[step.event]) for j in block if j != i]
            decay = [DECAY**age for age in range(step.event, -1, -1)]
            expected = {
                "newest": s[-1],
                "max": max(s),
                "mean": np.mean(s),
                "decayed_mean": np.average(s, weights=decay),
                "others_mean": np.mean(others),
                "others_max": max(others),
                "newest_minus_others": s[-1] - max(theirs),
                "others_below": np.mean([(one < s[-1]) + 0.5 * (one == s[-1]) for one in theirs]),
            }
            if number:
                expected |= {
                    "previous": s[-2],
                    "newest_minus_older": s[-1] - np.mean(s[:-1]),
                    "older_below_newest": np.mean([(one < s[-1]) + 0.5 * (one == s[-1]) for one in s[:-1]]),
                    "earlier_offers_max": max(float(offers[i] @ offers[j]) for j in range(block.start)),
                }
            for name in NAMES:
                np.testing.assert_allclose(found[name][i], expected.get(name, np.nan), atol=1e-12, err_msg=name)
        row = block.stop


def test_neither_place_nor_number_of_offers_is_a_feature():
    """Equal offers have equal columns wherever they stand; what one offer alone lacks is missing, not zero."""
    event = Event(time=0.0, text="The user opens a file")
    twins = Stream(id="a", events=(event,), steps=(Step(event=0, candidates=(Candidate(text="Open a file"),) * 3),))
    table = describe(twins).accept_columns(Idf.fit([describe(twins).counted]))
    np.testing.assert_array_equal(table[0], table[2])
    alone, _, _ = columns(
        dataclasses.replace(twins, steps=(Step(event=0, candidates=(Candidate(text="Open a file"),)),))
    )
    for name in NAMES:
        missing = name in ("previous", "earlier_offers_max") or "older" in name or "others" in name
        assert np.isnan(alone[name]).all() == missing, name


def test_an_offer_sees_nothing_that_comes_later():
    stream = make_stream(5, steps=4)
    later = dataclasses.replace(stream.events[3], text="The user gives up")
    changed = dataclasses.replace(
        stream,
        events=(*stream.events[:3], later),
        steps=(*stream.steps[:3], Step(event=3, candidates=(Candidate(text="Fetch the doctor"),))),
    )
    idf = Idf.fit([describe(stream).counted])
    first, second = (describe(one) for one in (stream, changed))
    count = sum(len(step.candidates) for step in stream.steps[:3])
    np.testing.assert_allclose(first.accept_columns(idf)[:count], second.accept_columns(idf)[:count], atol=1e-12)
    np.testing.assert_allclose(first.need_columns(idf)[:3], second.need_columns(idf)[:3], atol=1e-12)


def test_simple_features():
    texts = ["The user opens 'a.py'", "The user gets an error", "The user searches the web", "The user opens 'a.py'"]
    found = dict(zip(OF_HISTORY, history_features(texts, len(texts)), strict=True))
    ones = {name for name, value in found.items() if value == 1}
    assert ones == {"newest_repeats", "newest_open", "recent_search", "recent_error"}
    assert np.expm1(found["events"]) == pytest.approx(4)
    asked = dict(
        zip(OF_OFFER, offer_features("Can I open 'b.py'?", set(words(texts[0])), {"i", *words(texts[0])}), strict=True)
    )
    assert (asked["asks"], asked["offers"], asked["quotes"]) == (1, 0, 1)
    assert (asked["overlap_newest"], asked["overlap_history"]) == (pytest.approx(1 / 5), pytest.approx(2 / 5))
    told = dict(zip(OF_OFFER, offer_features("Suggest the user's file", set(), set()), strict=True))
    assert (told["asks"], told["offers"], told["quotes"]) == (0, 1, 0)


def test_need_sees_the_largest_and_the_mean_of_the_offers():
    stream = make_stream(6)
    need, described, _ = columns(stream, "need")
    accept, _, _ = columns(stream)
    for number in range(len(stream.steps)):
        mine = accept["newest"][described.step == number]
        np.testing.assert_allclose(need["max_newest"][number], mine.max())
        np.testing.assert_allclose(need["mean_newest"][number], mine.mean())


def test_an_offer_without_a_text_is_like_nothing():
    stream = Stream(id="a", events=(Event(time=0.0, text="The user waits"),), steps=(Step(event=0),))
    found, _, _ = columns(stream)
    assert (found["newest"][0], found["length"][0], found["overlap_newest"][0]) == (0, 0, 0)
