"""Packing changes only the cost: every slot of a packed stream has the logits of its decision packed alone."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packed_streams import event_lengths, sequence, streams, supervised_streams, written_response

from prism_jax.streams import Event
from prism_jax.student.attention import no_branches
from prism_jax.student.prompting.packing import Sizes, decisions, pack, pad, sizes
from prism_jax.student.qwen3 import Tree

CONTEXT = 4096
SIZE = Sizes(trunk=128, branches=384, window=192, steps=3, candidates=9, responses=128)
ALONE = Sizes(trunk=128, branches=96, window=96, steps=1, candidates=1, responses=32)
SLOW_SIZE = Sizes(trunk=128, branches=576, window=192, steps=3, candidates=9, responses=256)
ROWS, ALONE_ROWS = 5, 12  # batches are padded to these sizes, so that few shapes are compiled


def fits(rows, size):
    needed = sizes(rows, multiple=1)
    return all(getattr(needed, name) <= getattr(size, name) for name in ("trunk", "window", "branches", "responses"))


def coarse_bounds(rows):
    """Bounds on the visible trunk for each window, rounded up to half of it, so that few programs are compiled."""
    stops = [np.pad(row.stop, (0, SIZE.branches - len(row.stop))).reshape(-1, SIZE.window) for row in rows]
    half = SIZE.trunk // 2
    return tuple((-(-np.max(stops, axis=(0, 2)) // half) * half).tolist())


def stack(rows, size=SIZE, token=0):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(pad(row, size, token) for row in rows))


@pytest.fixture(scope="module")
def read(slots):
    """A function from rows to the logits of both kinds of slots and the hidden states that predict responses."""

    def run(rows, size=SIZE, count=ROWS, token=0):
        filled = [*rows, *rows[:1] * (-len(rows) % count)]
        groups = [stack(filled[i : i + count], size, token) for i in range(0, len(filled), count)]
        parts = [slots(group, size.window, size.visible) for group in groups]
        return [np.concatenate(part)[: len(rows)] for part in zip(*parts, strict=True)]

    return run


@pytest.fixture(scope="module")
def read_plainly(model, params):
    """A function from plain causal sequences of ids, without branches, to final hidden states."""

    @jax.jit
    def hidden(tokens):
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        return model.hidden(params, tokens, positions, no_branches(*tokens.shape))

    def run(sequences):
        tokens = np.zeros((-(-len(sequences) // ALONE_ROWS), ALONE_ROWS, ALONE.trunk + ALONE.branches), np.int32)
        for row, ids in zip(tokens.reshape(-1, tokens.shape[2]), sequences, strict=False):
            row[: len(ids)] = ids
        return np.concatenate([hidden(part) for part in tokens])[: len(sequences)]

    return run


def packed_by(template, streams):
    return [pack(stream, template, CONTEXT) for stream in streams]


def check_packed(batch, template, model, params, read, read_plainly):
    """Each decision has the same logits packed with all others, packed alone, and as a plain causal sequence."""
    singles = [list(decisions(stream)) for stream in batch]
    packed, alone = (packed_by(template, streams) for streams in (batch, itertools.chain(*singles)))
    written = [sequence(single, template) for group in singles for single in group]
    plain = read_plainly([whole for _, _, whole in written])

    need_alone, accept_alone, _ = read(alone, ALONE, ALONE_ROWS)
    direction = np.asarray(model.head(params)[template.yes] - model.head(params)[template.no])
    slots = np.array([[len(need) - 1, len(accept) - 1] for need, accept, _ in written])
    z_plain = np.take_along_axis(plain, slots[..., None], axis=1) @ direction
    z_alone = np.concatenate([need_alone, accept_alone], axis=1)
    np.testing.assert_allclose(z_alone, z_plain, atol=1e-4, rtol=0)

    z_need, z_accept, hidden = read(packed, dataclasses.replace(SIZE, visible=coarse_bounds(packed)))
    z_packed = [
        np.stack([z_need[i][row.accept_step], z_accept[i][: len(row.accept_slot)]], axis=1)
        for i, row in enumerate(packed)
    ]
    np.testing.assert_allclose(np.concatenate(z_packed), z_alone, atol=1e-4, rtol=0)

    # Responses: the same hidden states predict the same tokens.
    sources = [(i, t) for i, (_, accept, whole) in enumerate(written) for t in range(len(accept), len(whole) - 1)]
    targets = np.concatenate([row.response_target for row in packed])
    assert targets.tolist() == [written[i][2][t + 1] for i, t in sources]
    if sources:
        packed_hidden = [hidden[i][: len(row.response_target)] for i, row in enumerate(packed)]
        np.testing.assert_allclose(np.concatenate(packed_hidden), plain[tuple(zip(*sources, strict=True))], atol=1e-4)


def test_packed_slots_equal_row_by_row_and_plain_causal(bushy, template, model, params, read, read_plainly):
    check_packed([bushy, bushy], template, model, params, read, read_plainly)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 12)
@given(batch=st.lists(streams(), min_size=1, max_size=ROWS))
def test_packed_slots_of_any_streams_equal_plain_causal(batch, template, model, params, read, read_plainly):
    assume(fits(packed_by(template, batch), SIZE))
    assume(fits(packed_by(template, itertools.chain(*map(decisions, batch))), ALONE))
    check_packed(batch, template, model, params, read, read_plainly)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(batch=st.lists(supervised_streams(), min_size=1, max_size=ROWS))
def test_slow_branches_beside_fast_ones_equal_plain_causal(batch, template, model, params, read, read_plainly):
    """Both slots, and the hidden states that predict the tokens of the fields and of the responses."""
    packed = [pack(stream, template, CONTEXT) for stream in batch]
    assume(fits(packed, SLOW_SIZE))
    singles = [list(decisions(stream)) for stream in batch]
    written = [[sequence(single, template) for single in group] for group in singles]
    assume(max(len(whole) for group in written for _, _, whole in group) <= ALONE.trunk + ALONE.branches)
    flat = iter(read_plainly([whole for group in written for _, _, whole in group]))
    direction = np.asarray(model.head(params)[template.yes] - model.head(params)[template.no])
    z_need, z_accept, hidden = read(packed, SLOW_SIZE)
    for i, (row, group) in enumerate(zip(packed, written, strict=True)):
        expected, seen = {}, set()
        for c, (need, accept, whole) in enumerate(group):
            plain, step = next(flat), row.accept_step[c]
            assert z_need[i][step] == pytest.approx(float(plain[len(need) - 1] @ direction), abs=1e-4)
            assert z_accept[i][c] == pytest.approx(float(plain[len(accept) - 1] @ direction), abs=1e-4)
            places = range(len(accept), len(whole) - 1)
            if step not in seen:
                places = [*field_places(singles[i][c], need, template), *places]
            seen.add(step)
            expected[c] = [(whole[place + 1], plain[place]) for place in places]
        tokens, states = zip(*itertools.chain(*expected.values(), [(-1, 0)]), strict=True)
        assert row.response_target.tolist() == list(tokens[:-1])
        for found, want in zip(hidden[i], states[:-1], strict=False):
            np.testing.assert_allclose(found, want, atol=1e-4, rtol=0)


def field_places(single, need, template):
    """Positions, in the ids of a decision, of the tokens that predict those of its fields; none on a fast branch."""
    (step,) = single.steps
    if not step.slow:
        return
    place = len(need) - len(template.need())
    fields = template.slow(step.rationale)
    place -= sum(len(name) + len(text) for name, text in fields)
    for name, text in fields:
        place += len(name)
        yield from range(place - 1, place + len(text) - 1)
        place += len(text)


def test_a_slot_reads_its_past_its_head_and_its_leaf_and_nothing_else(bushy, template, model, params):
    """Replaces each token in turn: exactly the slots that may attend to it change."""
    row = pack(bushy, template, CONTEXT)
    size = sizes([row])
    row = pad(row, size, 0)
    count = size.trunk + size.branches
    variants = np.tile(np.concatenate([row.trunk, row.tokens]), (count + 1, 1))
    variants[np.arange(1, count + 1), np.arange(count)] = (variants[0] + 1) % template.tokenizer.size

    @jax.jit
    def read(tokens):
        repeated = [jnp.tile(x, (len(tokens), 1)) for x in (row.positions, row.stop, row.branch, row.leaf)]
        tree = Tree(tokens[:, : size.trunk], tokens[:, size.trunk :], *repeated)
        hidden = model.branch_hidden(params, tree, size.window)
        places = jnp.tile(jnp.concatenate([row.need_slot, row.accept_slot]), (len(tokens), 1))
        return model.answers(params, hidden, places, template.yes, template.no)

    z = np.asarray(read(variants))
    changed = np.abs(z[1:] - z[0]) > 1e-5

    head, stops = len(template.head()), np.cumsum([len(template.system()), *event_lengths(bushy, template)])[1:]
    expected = np.zeros((count, 3 + 6), bool)
    branch_start, accept = size.trunk, 3
    for number, step in enumerate(bushy.steps):
        need, leaf_start = number, branch_start + head
        expected[: stops[step.event], need] = expected[branch_start:leaf_start, need] = True
        for candidate in step.candidates:
            length = len(template.leaf(candidate))
            expected[:, accept] = expected[:, need]
            expected[leaf_start : leaf_start + length, accept] = True
            leaf_start += length + max(0, len(written_response(candidate, template)) - 1)
            accept += 1
        branch_start = leaf_start
    np.testing.assert_array_equal(changed, expected)


def replaced(stream, step, candidate, **changes):
    """The stream with one candidate changed."""
    steps, offers = list(stream.steps), list(stream.steps[step].candidates)
    offers[candidate] = dataclasses.replace(offers[candidate], **changes)
    steps[step] = dataclasses.replace(steps[step], candidates=tuple(offers))
    return dataclasses.replace(stream, steps=tuple(steps))


def test_longer_texts_elsewhere_change_no_other_slot(bushy, template, read):
    """Unlike a replaced token, a longer text also moves everything after it in the row."""
    later = dataclasses.replace(
        bushy, events=(*bushy.events[:2], Event(time=180.0, text="Gives up and goes home."), *bushy.events[3:])
    )
    variants = {
        "a sibling's offer": (replaced(bushy, 1, 0, text="Rewrite it all."), (), (1,)),
        "a sibling's response": (replaced(bushy, 1, 1, response="Shall I do it?"), (), ()),
        "a later event": (later, (2,), (4, 5)),
        "an event after the last step": (
            dataclasses.replace(bushy, events=(*bushy.events[:3], Event(time=999.0, text="Whatever."))),
            (),
            (),
        ),
    }
    rows = [pack(stream, template, CONTEXT) for stream in (bushy, *(variant for variant, _, _ in variants.values()))]
    z_need, z_accept, _ = read(rows)
    for i, (what, (_, needs, accepts)) in enumerate(variants.items(), start=1):
        for z, moved, slots in ((z_need, needs, 3), (z_accept, accepts, 6)):
            distance = np.abs(z[i] - z[0])[:slots]
            still = np.delete(distance, list(moved))
            assert still.max() < 1e-5, what
            assert distance[list(moved)].min(initial=np.inf) > 1e-3, what


def test_padding_changes_nothing(bushy, template, read):
    """Logits depend neither on the amount and the token of the padding nor on other rows of the batch."""
    row = pack(bushy, template, CONTEXT)
    tight = sizes([row], multiple=1)
    assert (tight.trunk, len(row.tokens)) == (len(row.trunk), len(row.positions))
    exact = read([row], tight, count=1)
    beside = pack(replaced(bushy, 1, 0, text="Rewrite it all."), template, CONTEXT)
    for padded in (read([row]), read([row], token=7), read([row, beside])):
        for got, want in zip(padded, exact, strict=True):
            np.testing.assert_allclose(got[0, : want.shape[1]], want[0], atol=1e-5, rtol=0)
