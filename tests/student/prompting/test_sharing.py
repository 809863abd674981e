"""Streams that share a row have the same logits as in separate rows, and rows are assigned first-fit decreasing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packed_streams import make_bushy, streams

from prism_jax.student.prompting.packing import AXES, Sizes, pack, pad, sizes
from prism_jax.student.prompting.rows import first_fit_decreasing, join_rows
from prism_jax.student.qwen3 import Tree

CONTEXT, ROWS = 4096, 4
SIZE = Sizes(trunk=256, branches=768, window=192, steps=9, candidates=27, responses=256)


@pytest.fixture(scope="module")
def read(slots):
    """A function from rows to the logits of both kinds of slots and the hidden states that predict responses."""

    def run(rows, size=SIZE):
        filled = [pad(row, size, 0) for row in [*rows, *rows[:1] * (ROWS - len(rows))]]  # one shape is compiled
        batch = jax.tree.map(lambda *leaves: np.stack(leaves), *filled)
        return [np.asarray(part)[: len(rows)] for part in slots(batch, size.window, size.visible)]

    return run


def check_shared(batch, template, read):
    """A row of all streams has the logits and targets of their own rows."""
    rows = [pack(stream, template, CONTEXT) for stream in batch]
    shared = join_rows(rows)
    alone = read(rows)
    counts = [[len(getattr(row, name)) for row in rows] for name in ("need_slot", "accept_slot", "response_source")]
    for whole, parts, lengths in zip(read([shared]), alone, counts, strict=True):
        expected = np.concatenate([part[:length] for part, length in zip(parts, lengths, strict=True)])
        np.testing.assert_allclose(whole[0, : sum(lengths)], expected, atol=1e-4, rtol=0)
    np.testing.assert_array_equal(shared.y_accept, np.concatenate([row.y_accept for row in rows]))
    np.testing.assert_array_equal(shared.response_target, np.concatenate([row.response_target for row in rows]))


def test_a_shared_row_has_the_logits_of_separate_rows(template, read):
    check_shared([make_bushy(), make_bushy()], template, read)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 12)
@given(batch=st.lists(streams(), min_size=2, max_size=ROWS))
def test_a_shared_row_of_any_streams_has_the_logits_of_separate_rows(batch, template, read):
    needed = sizes([join_rows([pack(stream, template, CONTEXT) for stream in batch])], multiple=1)
    axes = ("trunk", "window", "branches", "steps", "candidates", "responses")
    assume(all(getattr(needed, name) <= getattr(SIZE, name) for name in axes))
    check_shared(batch, template, read)


def test_bounds_of_shared_rows_hide_nothing(template, read):
    """Static bounds on the visible trunk cover every shared row, including the last of its streams."""
    row = pack(make_bushy(), template, CONTEXT)
    shared = [join_rows([row, row, row]), join_rows([row])]
    tight = sizes(shared)
    assert tight.visible[0] < tight.visible[-1]
    assert SIZE.visible is None
    for bounded, free in zip(read(shared, tight), read(shared), strict=True):
        np.testing.assert_allclose(bounded, free[:, : bounded.shape[1]], atol=1e-5, rtol=0)


@pytest.mark.slow
def test_neither_events_nor_branches_of_a_neighbour_are_seen(template, model, params):
    """Changing the tokens of the first stream changes no slot of the second one, and vice versa."""
    row = pack(make_bushy(), template, CONTEXT)
    shared = join_rows([row, row])
    trunk, tokens, steps = len(row.trunk), len(row.tokens), len(row.need_slot)
    window = int(np.bincount(shared.branch).max())
    size = dataclasses.replace(sizes([shared], 1), branches=-(-len(shared.tokens) // window) * window, window=window)
    shared = pad(shared, dataclasses.replace(size, visible=None), 0)

    def other(ids, part):
        return np.where(part, (ids + 1) % template.tokenizer.size, ids)

    first = np.arange(size.trunk) < trunk, np.arange(size.branches) < tokens
    variants = [
        shared,
        shared._replace(trunk=other(shared.trunk, first[0]), tokens=other(shared.tokens, first[1])),
        shared._replace(trunk=other(shared.trunk, ~first[0]), tokens=other(shared.tokens, ~first[1])),
    ]
    batch = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *variants)
    hidden = model.branch_hidden(params, Tree.of(batch), window)
    z = np.asarray(model.answers(params, hidden, batch.need_slot, template.yes, template.no))
    moved = np.abs(z[1:] - z[0]) > 1e-5
    expected = np.arange(2 * steps) < steps
    np.testing.assert_array_equal(moved[:, : 2 * steps], [expected, ~expected])


def lengths_of(rows):
    return np.array([[len(row.trunk), len(row.tokens)] for row in rows])


@settings(max_examples=30)
@given(batch=st.lists(streams(), min_size=1, max_size=12), tokens=st.integers(1, 600))
def test_every_row_goes_into_the_first_group_with_room(batch, tokens, template):
    rows = [pack(stream, template, CONTEXT) for stream in batch]
    groups, lengths = first_fit_decreasing(rows, tokens), lengths_of(rows)
    assert sorted(i for group in groups for i in group) == list(range(len(rows)))
    limit = np.maximum(lengths.max(axis=0), tokens * lengths.sum(axis=0) // lengths.sum())
    totals = [lengths[group].sum(axis=0) for group in groups]
    assert all((total <= limit).all() for total in totals)
    order = sorted(range(len(rows)), key=lambda i: (-lengths[i].sum(), i))
    place = {number: order.index(number) for number in range(len(rows))}
    for later, group in enumerate(groups):
        for number in group:
            for earlier in groups[:later]:
                before = [i for i in earlier if place[i] < place[number]]
                assert (lengths[before].sum(axis=0) + lengths[number] > limit).any()
    assert groups == first_fit_decreasing(rows, tokens)
    for group in groups:
        joined = join_rows([rows[i] for i in group])
        assert len(joined.trunk) == len(joined.begin) == lengths[group, 0].sum()
        assert {len(getattr(joined, name)) for name, axis in AXES.items() if axis == "branches"} == {
            lengths[group, 1].sum()
        }
