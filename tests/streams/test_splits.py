import collections
import math
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prism_jax.streams import Event, Stream
from prism_jax.streams.splits import Splits, folds, with_validation

EVENTS = (Event(time=0.0, text="works"),)

# Maps ids to domains.
many = st.dictionaries(st.text(min_size=1), st.sampled_from(["coding", "writing", "life"]), min_size=1, max_size=25)
shares = st.floats(0.01, 0.5)
seeds = st.integers(-5, 2**40)


def _stream(name, domain="coding"):
    return Stream(id=name, domain=domain, events=EVENTS, steps=())


def _streams(domains):
    return [_stream(name, domain) for name, domain in domains.items()]


def _enough(count, k):
    """Whether every fold has at least one stream each for test, calibration and training."""
    return count >= k and count - math.ceil(count / k) >= 2


def _sides(splits):
    return splits.train, splits.calibration, splits.test


def _assert_partition(splits, streams):
    assert all(_sides(splits))
    ids = [stream.id for side in _sides(splits) for stream in side]
    assert sorted(ids) == sorted(stream.id for stream in streams)  # each stream exactly once
    for side in _sides(splits):
        assert list(side) == sorted(side, key=lambda stream: stream.id)


@settings(deadline=None)
@given(many, st.integers(2, 6), shares, seeds)
def test_folds_partition_whole_streams_and_test_each_once(domains, k, share, seed):
    streams = _streams(domains)
    if not _enough(len(streams), k):
        with pytest.raises(ValueError, match=r"^split (train|calibration|test): found no streams \(train \d"):
            [folds(streams, k, fold, calibration=share, seed=seed) for fold in range(k)]
        return
    every = [folds(streams, k, fold, calibration=share, seed=seed) for fold in range(k)]
    for splits in every:
        _assert_partition(splits, streams)
    tested = [stream.id for splits in every for stream in splits.test]
    assert sorted(tested) == sorted(stream.id for stream in streams)


@settings(deadline=None)
@given(many, st.integers(2, 6), seeds)
def test_folds_are_even_within_each_domain(domains, k, seed):
    streams = _streams(domains)
    assume(_enough(len(streams), k))
    tests = [folds(streams, k, fold, seed=seed).test for fold in range(k)]
    assert max(map(len, tests)) - min(map(len, tests)) <= 1
    for domain in {stream.domain for stream in streams}:
        counts = [sum(stream.domain == domain for stream in test) for test in tests]
        assert max(counts) - min(counts) <= 1


@settings(deadline=None)
@given(many, st.integers(2, 4), seeds, st.randoms())
def test_the_order_of_the_list_does_not_matter(domains, k, seed, rng):
    streams = _streams(domains)
    assume(len(streams) >= 5)
    shuffled = list(streams)
    rng.shuffle(shuffled)
    assert folds(streams, k, 0, seed=seed) == folds(shuffled, k, 0, seed=seed)


def test_the_seed_matters_and_the_split_is_the_same_on_every_machine():
    streams = [_stream(f"s{i}", "coding" if i % 2 else "writing") for i in range(20)]
    chosen = {tuple(stream.id for stream in folds(streams, 4, 0, seed=seed).test) for seed in range(10)}
    assert len(chosen) == 10
    splits = folds(streams, 4, 1)
    assert [stream.id for stream in splits.test] == ["s14", "s15", "s18", "s19", "s7"]
    assert [stream.id for stream in splits.calibration] == ["s0", "s12", "s17", "s5"]


def test_every_stream_can_be_drawn():
    streams = [_stream(f"s{i}") for i in range(7)]
    splits = Splits(tuple(streams), (_stream("c"),), (_stream("t"),))
    drawn = collections.Counter(
        stream.id for seed in range(200) for stream in with_validation(splits, 0.1, seed=seed).validation
    )
    # 200 draws of 1 in 7: mean 28.6, standard deviation 4.9; the bounds are five standard deviations away.
    assert set(drawn) == {stream.id for stream in streams}
    assert all(4 < count < 54 for count in drawn.values())


def test_calibration_is_a_share_of_the_streams_not_tested():
    streams = [_stream(f"s{i}") for i in range(21)]
    assert [len(side) for side in _sides(folds(streams, 3, 0, calibration=0.5))] == [7, 7, 7]
    assert [len(side) for side in _sides(folds(streams, 3, 0, calibration=0.001))] == [13, 1, 7]


@pytest.mark.parametrize(
    ("count", "arguments", "message"),
    [
        (9, {"folds": 1, "fold": 0}, r"^folds: found 1, expected at least 2$"),
        (9, {"folds": 3, "fold": 3}, r"^fold: found 3, expected 0 to 2 \(folds = 3\)$"),
        (9, {"folds": 3, "fold": -1}, r"^fold: found -1, expected 0 to 2 \(folds = 3\)$"),
        (9, {"folds": 3, "fold": 0, "calibration": 0.0}, r"^calibration: found 0\.0, expected a share between 0"),
        (9, {"folds": 3, "fold": 0, "calibration": float("nan")}, r"^calibration: found nan, expected a share"),
        (
            3,
            {"folds": 4, "fold": 3},
            r"^split test: found no streams \(train 2, calibration 1, test 0\), expected at least one in each; "
            r"use fewer folds than 4, lower calibration = 0\.25, or add streams$",
        ),
        (4, {"folds": 2, "fold": 0, "calibration": 0.9}, r"^split train: found no streams \(train 0, calibration 2"),
        (0, {"folds": 2, "fold": 0}, r"^split train: found no streams \(train 0, calibration 0, test 0\)"),
    ],
)
def test_what_cannot_be_split_is_refused(count, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        folds([_stream(f"s{i}") for i in range(count)], **arguments)
    assert "\n" not in str(caught.value)


def test_an_id_used_twice_is_refused():
    streams = [_stream("a"), _stream("b"), _stream("c", "writing"), _stream("b", "writing")]
    random.Random(0).shuffle(streams)
    with pytest.raises(ValueError, match=r"^streams: found id 'b' twice, expected distinct ids$"):
        folds(streams, 2, 0)


@settings(deadline=None)
@given(many, shares, seeds)
def test_validation_streams_come_whole_from_the_training_split_alone(domains, share, seed):
    streams = _streams(domains)
    assume(len(streams) >= 2)
    before = Splits(tuple(streams), (_stream("calibrate"),), (_stream("test"),))
    after = with_validation(before, share, seed=seed)
    assert (after.calibration, after.test) == (before.calibration, before.test)
    assert len(after.validation) == max(1, round(share * len(streams)))
    assert sorted(stream.id for stream in after.train + after.validation) == sorted(domains)
    for side in (after.train, after.validation):
        assert side
        assert list(side) == sorted(side, key=lambda stream: stream.id)
    assert with_validation(Splits(tuple(streams[::-1]), before.calibration, before.test), share, seed=seed) == after
    assert with_validation(before, 0.0, seed=seed) is before


def test_a_share_that_leaves_nothing_to_train_on_is_refused():
    one = Splits((_stream("a"),), (_stream("b"),), (_stream("c"),))
    too_many = r"^split train: found no streams beside 1 for validation, .* lower validation = 0.5$"
    for share, message in ((0.5, too_many), (1.0, r"^validation: found 1.0, expected a share")):
        with pytest.raises(ValueError, match=message):
            with_validation(one, share)
