"""Rows cut from packed streams equal rows packed from the shortened stream; every decision occurs exactly once."""

import dataclasses
import re

import chex
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packed_streams import event_lengths, make_bushy, streams, supervised_streams

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.student.prompting.packing import decisions, pack
from prism_jax.student.prompting.rows import HISTORY, pack_stream

ENOUGH = 4096


def pack_parts(stream, template, context, history=1.0):
    return pack_stream(stream, template, context).parts(history)


def pack_alone(stream, template, context):
    return list(pack_stream(stream, template, context).single_decisions())


def assert_same_row(got, want):
    chex.assert_trees_all_equal(got._replace(row=want.row), want)
    chex.assert_trees_all_equal_dtypes(got._replace(row=want.row), want)


@given(stream=streams() | supervised_streams())
def test_a_decision_cut_from_a_row_equals_the_decision_packed_alone(stream, template):
    """Only the weights of what belongs to a step differ: the decisions of the step share them."""
    found = pack_alone(stream, template, ENOUGH)
    shares = [len(step.candidates) for step in stream.steps for _ in step.candidates]
    for got, single, share in zip(found, decisions(stream), shares, strict=True):
        want = pack(single, template, ENOUGH)
        on_head = want.leaf[want.response_source] == 0
        written = np.where(on_head, np.float32(1 / share), want.response_weight)
        need = want.need_weight * np.float32(1 / share)
        assert_same_row(got, want._replace(need_weight=need, response_weight=written))
    for number, step in enumerate(stream.steps):
        mine = sum(len(step.candidates) for step in stream.steps[:number])
        weights = [row.need_weight.item() for row in found[mine : mine + len(step.candidates)]]
        assert sum(weights) == pytest.approx(float(step.y_need is not None), abs=1e-6)


@given(stream=streams())
def test_a_stream_that_fits_is_one_row(stream, template):
    (row,) = pack_parts(stream, template, ENOUGH)
    assert_same_row(row, pack(stream, template, ENOUGH))


def long_stream(lengths, offers):
    """A stream whose events have the given lengths in words, with the given number of offers at each (0 = no step)."""
    events = tuple(Event(time=100.0 * i, text=" ".join(["ab"] * n)) for i, n in enumerate(lengths))
    steps = tuple(
        Step(
            event=i,
            y_need=float(i % 2),
            candidates=tuple(Candidate(text=f"o{j}", y_accept=1.0, response="r" * (j + 1)) for j in range(n)),
        )
        for i, n in enumerate(offers[: len(lengths)])
        if n
    )
    return Stream(id="long", events=events, steps=steps)


long_streams = st.builds(
    long_stream,
    st.lists(st.integers(1, 12), min_size=2, max_size=12),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
)


def needs(stream, template, step):
    """Number of positions that a step needs after the events, and the same for each of its candidates alone."""
    only = dataclasses.replace(stream, steps=(step,))
    alone = [pack(one, template, ENOUGH) for one in decisions(only)]
    each = [int(row.positions.max()) + 1 - len(row.trunk) for row in alone]
    return max(each), each


def oldest(stream, template, step, tail, context):
    """The oldest event with which the decision fits, by trying every event; None if there is none."""
    lengths, system = event_lengths(stream, template), len(template.system())
    fitting = [
        first for first in range(step.event + 1) if system + sum(lengths[first : step.event + 1]) + tail <= context
    ]
    return min(fitting, default=None)


def expected_trunk(stream, template, first, last):
    ids = template.system()
    for number in range(first, last + 1):
        ids += template.event(stream.events[number], stream.events[number - 1] if number else None)
    return ids


@given(stream=long_streams, context=st.integers(60, 220))
def test_single_decisions_keep_the_newest_events_that_fit(stream, context, template):
    wanted = [
        (step, oldest(stream, template, step, tail, context))
        for step in stream.steps
        for tail in needs(stream, template, step)[1]
    ]
    assume(all(first is not None for _, first in wanted))
    found = pack_alone(stream, template, context)
    for row, (step, first), single in zip(found, wanted, decisions(stream), strict=True):
        assert row.trunk.tolist() == expected_trunk(stream, template, first, step.event)
        whole = pack(single, template, ENOUGH)
        moved = len(whole.trunk) - len(row.trunk)
        for name in ("tokens", "leaf", "branch", "need_slot", "accept_slot", "y_need", "y_accept", "response_target"):
            np.testing.assert_array_equal(getattr(row, name), getattr(whole, name))
        np.testing.assert_array_equal(row.positions, whole.positions - moved)
        np.testing.assert_array_equal(row.stop, whole.stop - moved)
        assert row.positions.max() < context
    tokens = sum(len(row.trunk) + len(row.tokens) for row in found)
    assert pack_stream(stream, template, context).single_decision_tokens() == tokens


@given(stream=long_streams, context=st.integers(60, 220), history=st.sampled_from([1.0, HISTORY, 0.01]))
def test_every_step_of_a_long_stream_is_in_one_row_with_enough_history(stream, context, history, template):
    alone = {
        number: oldest(stream, template, step, needs(stream, template, step)[0], context)
        for number, step in enumerate(stream.steps)
    }
    assume(stream.steps and None not in alone.values())
    lengths, system = event_lengths(stream, template), len(template.system())
    rows, number = pack_parts(stream, template, context, history), 0
    for row in rows:
        mine = stream.steps[number : number + len(row.need_slot)]
        (first,) = (
            f
            for f in range(mine[0].event + 1)
            if row.trunk.tolist() == expected_trunk(stream, template, f, mine[-1].event)
        )
        assert row.positions.max() < context and len(row.trunk) <= context
        for place, step in enumerate(mine):
            stop = row.stop[row.need_slot[place]]
            kept = sum(lengths[first : step.event + 1])
            assert stop == system + kept
            best = sum(lengths[alone[number + place] : step.event + 1])
            assert history * best <= kept <= best
        assert row.accept_step.tolist() == [i for i, step in enumerate(mine) for _ in step.candidates]
        labels = [candidate.y_accept for step in mine for candidate in step.candidates]
        assert (row.y_accept.tolist(), row.y_need.tolist()) == (labels, [step.y_need for step in mine])
        # The branches themselves are those of the same steps packed alone.
        same = pack(dataclasses.replace(stream, steps=mine), template, ENOUGH)
        for name in ("tokens", "branch", "leaf", "need_slot", "accept_slot", "response_source", "response_target"):
            np.testing.assert_array_equal(getattr(row, name), getattr(same, name))
        np.testing.assert_array_equal(row.positions - row.stop, same.positions - same.stop)
        number += len(mine)
    assert number == len(stream.steps)


def test_half_of_the_history_takes_far_fewer_rows_than_all_of_it(template):
    stream = long_stream([8] * 40, [1] * 40)
    rows = {history: len(pack_parts(stream, template, 220, history)) for history in (1.0, HISTORY)}
    assert rows[HISTORY] < rows[1.0] / 3 and rows[HISTORY] > 1


def test_a_decision_that_does_not_fit_with_its_own_event_alone_is_named(template):
    stream = long_stream([2, 30, 2], [1, 1, 1])
    lengths, (tail, _) = event_lengths(stream, template), needs(stream, template, stream.steps[1])
    least = len(template.system()) + lengths[1] + tail
    assert len(pack_parts(stream, template, least)) == 3
    message = (
        f"stream 'long', steps[1]: found {least} tokens up to the end of the decision, expected at most the context of "
        f"{least - 1}; raise packing.context or shorten the stream's events"
    )
    for cut in (pack_parts, pack_alone):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            cut(stream, template, least - 1)


def test_a_stream_without_steps_has_no_decisions(template):
    bare = dataclasses.replace(make_bushy(), steps=())
    assert pack_alone(bare, template, ENOUGH) == []
    assert len(pack_parts(bare, template, ENOUGH)) == 1
    assert pack_parts(bare, template, 8) == []


def pack_groups(stream, template, context, most, history=HISTORY):
    return list(pack_stream(stream, template, context).groups(history, most))


@given(stream=streams() | supervised_streams(), most=st.integers(1, 9))
def test_rows_of_few_decisions_hold_each_decision_once_with_the_events_of_the_whole_row(stream, most, template):
    """A row equals the stream with only its decisions; what belongs to a step has its share of the weight."""
    found = pack_groups(stream, template, ENOUGH, most)
    offers = [(i, k) for i, step in enumerate(stream.steps) for k in range(len(step.candidates))]
    assert len(found) == -(-len(offers) // most)
    sizes = [len(row.accept_slot) for row in found]
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1 and sum(sizes) == len(offers)
    for row, own in zip(found, np.split(np.array(offers), np.cumsum(sizes)[:-1]), strict=True):
        kept, counts = np.unique(own[:, 0], return_counts=True)
        steps = tuple(
            dataclasses.replace(
                stream.steps[i], candidates=tuple(stream.steps[i].candidates[k] for j, k in own.tolist() if j == i)
            )
            for i in kept.tolist()
        )
        want = pack(dataclasses.replace(stream, steps=steps), template, ENOUGH)
        share = np.float32(counts / [len(stream.steps[i].candidates) for i in kept])
        on_head = want.leaf[want.response_source] == 0
        of_step = share[want.branch[want.response_source] - 1]
        written = np.where(on_head, of_step, want.response_weight)
        assert_same_row(row, want._replace(need_weight=want.need_weight * share, response_weight=written))


def test_decisions_of_a_long_stream_see_the_same_events_whatever_the_limit(template):
    stream = long_stream([6, 2, 9, 4, 3, 8, 5, 2, 7], [1, 2, 1, 3, 1, 1, 2, 1, 1])

    def seen(rows):
        """The trunk that each decision sees, with the tokens of its leaf."""
        return [
            (row.trunk[: row.stop[slot]].tolist(), row.tokens[row.branch == row.branch[slot]].tolist()[:3])
            for row in rows
            for slot in row.accept_slot.tolist()
        ]

    context = 120
    whole = pack_parts(stream, template, context, HISTORY)
    assert len(whole) > 1
    for most in (1, 2, 3):
        rows = pack_groups(stream, template, context, most)
        assert len(rows) > len(whole)
        assert seen(rows) == seen(whole)
    assert len(pack_groups(stream, template, context, 99)) == len(whole)
