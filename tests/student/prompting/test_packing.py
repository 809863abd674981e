"""The layout of packed rows: the content of each column, the sizes of rows, and how many tokens packing saves."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed_streams import event_lengths, sequence, streams
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.student.prompting.packing import Packed, Sizes, decisions, pack, pad, sizes
from prism_jax.student.prompting.template import PromptConfig, Template, make_tokenizer

CONTEXT = 4096
SIZE = Sizes(trunk=128, branches=384, window=192, steps=3, candidates=9, responses=128)


def one_step(**fields):
    return Stream(id="s", events=(Event(time=0.0, text="a"),), steps=(Step(event=0, **fields),))


@pytest.mark.parametrize(
    ("y_accept", "logged", "weight", "offered"),
    [
        (1.0, None, 1, 1),  # judged, nothing logged: counts as offered
        (None, None, 0, 0),  # nothing known
        (0.25, True, 1, 1),  # offered, outcome observed
        (None, True, 0, 1),  # offered, outcome unknown
        (None, False, 1, 0),  # not offered: counts in the mean over the log, with inverse propensity weight 0
    ],
)
def test_the_weight_of_an_acceptance_label(y_accept, logged, weight, offered, template):
    candidate = Candidate(y_accept=y_accept, logged=logged, propensity=None if logged is None else 0.5)
    row = pack(one_step(candidates=(candidate,)), template, 64)
    assert row.accept_weight.tolist() == [weight]
    assert row.logged.tolist() == [offered]
    assert row.y_accept.tolist() == [y_accept or 0.0]
    assert row.propensity.tolist() == [1.0 if logged is None else 0.5]


@pytest.mark.parametrize(("y_need", "weight"), [(None, 0), (0.0, 1), (0.75, 1)])
def test_the_weight_of_a_need_label(y_need, weight, template):
    row = pack(one_step(y_need=y_need), template, 64)
    assert (row.y_need.tolist(), row.need_weight.tolist()) == ([y_need or 0.0], [weight])


def test_what_a_system_would_say_is_never_read_before_it_is_written(template):
    """The constant stands at the accept slot; the proposal's text comes after it, in the response, or not at all."""
    proposal = "Mend the parser"
    offers = [Candidate(), Candidate(proposal=proposal), Candidate(proposal=proposal, response=f'{{"{proposal}"}}')]
    bare, silent, spoken = (pack(one_step(candidates=(offer,)), template, 256) for offer in offers)
    for name in Packed._fields:
        np.testing.assert_array_equal(getattr(silent, name), getattr(bare, name))
    assert silent.response_target.size == 0 < spoken.response_target.size
    (slot,) = spoken.accept_slot
    assert spoken.accept_slot.tolist() == bare.accept_slot.tolist()
    np.testing.assert_array_equal(spoken.tokens[: slot + 1], bare.tokens[: slot + 1])
    np.testing.assert_array_equal(spoken.trunk, bare.trunk)
    written = set(template.tokenizer.encode(proposal)) - set(bare.tokens.tolist()) - set(bare.trunk.tolist())
    assert written and written <= set(spoken.tokens[slot + 1 :].tolist())


@given(stream=streams())
def test_labels_and_log_are_never_among_the_tokens(stream, template):
    bare = dataclasses.replace(
        stream,
        steps=tuple(
            Step(event=s.event, candidates=tuple(Candidate(text=c.text, response=c.response) for c in s.candidates))
            for s in stream.steps
        ),
    )
    labelled, unlabelled = pack(stream, template, CONTEXT), pack(bare, template, CONTEXT)
    labels = {"y_need", "need_target", "need_weight", "y_accept", "accept_target", "accept_weight"}
    labels |= {"logged", "propensity"}
    for name in set(Packed._fields) - labels:
        np.testing.assert_array_equal(getattr(labelled, name), getattr(unlabelled, name))
    slots = labelled.tokens[np.concatenate([labelled.need_slot, labelled.accept_slot])]
    assert not {template.yes, template.no} & set(slots.tolist())


@given(stream=streams())
def test_the_layout_of_a_row(stream, template):
    """Branches follow one another, their positions continue from their trunk, and they are numbered like steps."""
    row = pack(stream, template, CONTEXT, row=5)
    stops = np.cumsum([len(template.system()), *event_lengths(stream, template)])[1:]
    assert row.row == 5
    assert len(row.trunk) == stops[stream.steps[-1].event]
    assert (np.diff(row.branch) >= 0).all()
    assert row.accept_step.tolist() == [i for i, step in enumerate(stream.steps) for _ in step.candidates]
    for number, step in enumerate(stream.steps, start=1):
        own = np.flatnonzero(row.branch == number)
        assert set(row.stop[own]) == {stops[step.event]}
        assert sorted(set(row.leaf[own])) == list(range(len(step.candidates) + 1))
        head = own[row.leaf[own] == 0]
        assert row.need_slot[number - 1] == head[-1]
        np.testing.assert_array_equal(row.positions[head], stops[step.event] + np.arange(len(head)))
        for leaf in range(1, len(step.candidates) + 1):
            tokens = own[row.leaf[own] == leaf]
            np.testing.assert_array_equal(row.positions[tokens], row.positions[head[-1]] + 1 + np.arange(len(tokens)))
    # Accept slots and the tokens that predict a response are on leaves of their own branch.
    np.testing.assert_array_equal(row.branch[row.accept_slot], row.accept_step + 1)
    assert (row.leaf[row.accept_slot] > 0).all() and (row.leaf[row.response_source] > 0).all()


@given(stream=streams())
def test_each_decision_has_one_candidate_and_its_visible_events(stream):
    singles = list(decisions(stream))
    pairs = [(step, candidate) for step in stream.steps for candidate in step.candidates]
    assert len(singles) == len(pairs)
    for single, (step, candidate) in zip(singles, pairs, strict=True):
        assert single.events == stream.events[: step.event + 1]
        assert single.steps == (dataclasses.replace(step, candidates=(candidate,)),)
        assert single.id == stream.id


def test_a_stream_longer_than_the_context_is_named(bushy, template):
    # The last token of a response, the end of the turn, is a target but not an input.
    longest = max(
        len(whole) - (whole != accept) for _, accept, whole in (sequence(s, template) for s in decisions(bushy))
    )
    assert pack(bushy, template, longest).branch.max() == 3
    with pytest.raises(ValueError) as error:
        pack(bushy, template, longest - 1)
    assert re.fullmatch(
        rf"stream 'bushy', steps\[\d\]: found {longest} tokens up to the end of the decision, expected at most the "
        rf"context of {longest - 1}; raise packing\.context or shorten the stream",
        str(error.value),
    )
    with pytest.raises(ValueError, match=r"^stream 'bushy', steps\[0\]: found \d+ tokens"):
        pack(bushy, template, 10)


@given(batch=st.lists(streams(), min_size=1, max_size=4), multiple=st.sampled_from([1, 8, 32]))
def test_sizes_are_the_smallest_that_hold_every_row(batch, multiple, template):
    rows = [pack(stream, template, CONTEXT) for stream in batch]
    size = sizes(rows, multiple)
    assert size.branches % size.window == 0
    assert size.trunk % multiple == size.window % multiple == size.responses % multiple == 0
    needed = {
        "trunk": (max(len(row.trunk) for row in rows), multiple),
        "window": (max(np.bincount(row.branch).max() for row in rows), multiple),
        "branches": (max(len(row.tokens) for row in rows), size.window),
        "steps": (max(len(row.need_slot) for row in rows), 1),
        "candidates": (max(len(row.accept_slot) for row in rows), 1),
        "responses": (max(len(row.response_target) for row in rows), multiple),
    }
    for name, (count, unit) in needed.items():
        assert count <= getattr(size, name) < count + unit, name
    chunks = [np.pad(row.stop, (0, size.branches - len(row.stop))).reshape(-1, size.window) for row in rows]
    bounds = np.max(chunks, axis=(0, 2))
    assert len(size.visible) == len(bounds) and size.trunk >= max(size.visible)
    assert all(
        bound <= got < bound + multiple or got == multiple > bound == 0
        for got, bound in zip(size.visible, bounds, strict=True)
    )
    for row in rows:
        padded = pad(row, size, 3)
        for name in Packed._fields:
            before, after = getattr(row, name), getattr(padded, name)
            if name in ("row", "begin"):  # a scalar; None in a row of one stream
                continue
            fill = {"trunk": 3, "tokens": 3, "propensity": 1}.get(name, 0)
            np.testing.assert_array_equal(after, [*before, *[fill] * (len(after) - len(before))])
            assert after.dtype == before.dtype


@pytest.mark.parametrize(
    ("small", "name"),
    [
        (dataclasses.replace(SIZE, trunk=8), "trunk"),
        (dataclasses.replace(SIZE, branches=8), "tokens"),
        (dataclasses.replace(SIZE, steps=2), "need_slot"),
        (dataclasses.replace(SIZE, candidates=5), "accept_slot"),
        (dataclasses.replace(SIZE, responses=1), "response_source"),
    ],
)
def test_a_row_larger_than_its_sizes_is_an_error(small, name, bushy, template):
    with pytest.raises(ValueError, match=rf"^{name}: found \d+ entries, expected at most \d+$"):
        pad(pack(bushy, template, CONTEXT), small, 0)


def test_a_row_that_sees_beyond_the_bounds_is_an_error(bushy, template):
    row = pack(bushy, template, CONTEXT)
    size = sizes([row], 1)
    early = (*size.visible[:-1], size.visible[-1] - 1)
    message = (
        rf"^stop: found a branch in chunk {len(early) - 1} that sees beyond {early[-1]}, expected sizes of this row$"
    )
    with pytest.raises(ValueError, match=message):
        pad(row, dataclasses.replace(size, visible=early), 0)


def test_a_stream_without_steps_is_all_trunk(template):
    row = pack(Stream(id="s", events=(Event(time=0.0, text="a"),), steps=()), template, 64)
    assert len(row.tokens) == len(row.need_slot) == 0
    padded = pad(row, sizes([row]), 0)
    assert padded.need_weight.tolist() == padded.accept_weight.tolist() == [0.0]


@needs_checkout
def test_packing_reads_proactivebench_with_a_tenth_of_the_tokens(tmp_path, capsys):
    from prism_jax.streams.proactivebench import load

    judged = load(CHECKOUT, tmp_path)
    config = PromptConfig()
    template = Template(make_tokenizer(judged, config), config)

    def tokens(rows):
        return sum(len(row.trunk) + len(row.tokens) for row in rows)

    packed = tokens(pack(stream, template, CONTEXT) for stream in judged)
    alone = tokens(pack(single, template, CONTEXT) for stream in judged for single in decisions(stream))
    with capsys.disabled():
        print(f"\nProactiveBench: {alone:,} tokens decision by decision, {packed:,} packed: {alone / packed:.1f} times")
    assert alone / packed > 8
