"""Packing must change nothing but the cost: every slot of a packed stream reads what its decision would read alone."""

import dataclasses
import itertools
import os
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prism_jax.prompting.packing import Packed, Sizes, decisions, pack, pad, sizes
from prism_jax.prompting.template import PromptConfig, Template, make_tokenizer
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.attention import no_branches
from prism_jax.student.qwen3 import take

CONTEXT = 4096
SIZE = Sizes(trunk=128, branches=384, window=192, steps=3, candidates=9, responses=128)
ALONE = Sizes(trunk=128, branches=96, window=96, steps=1, candidates=1, responses=32)
ROWS, ALONE_ROWS = 5, 12  # batches are filled up to these, so that little is compiled

odd = st.sampled_from(["<|im_end|>", "\n", "  x ", "ﬁ", "é", "日本", "yes", "Needed:", "🙂", "0"])
text = (odd | st.text(max_size=2)).map(lambda words: f"a{words}")
label = st.none() | st.sampled_from([0.0, 0.25, 1.0])


@st.composite
def candidates(draw):
    logged = draw(st.none() | st.booleans())
    return Candidate(
        text=draw(st.none() | text),
        y_accept=None if logged is False else draw(label),
        logged=logged,
        propensity=draw(st.none() | st.sampled_from([0.1, 0.5])),
        response=draw(st.none() | text),
    )


@st.composite
def streams(draw):
    """Streams with a step at any of their events, some candidates at each, and texts that hold anything."""
    gaps = draw(st.lists(st.sampled_from([0.0, 5.0, 100.0, 1e5]), min_size=1, max_size=3))
    events = tuple(Event(time=time, text=draw(text)) for time in np.cumsum(gaps).tolist())
    where = draw(st.sets(st.integers(0, len(events) - 1), min_size=1))
    steps = tuple(
        Step(event=i, candidates=tuple(draw(st.lists(candidates(), min_size=1, max_size=3))), y_need=draw(label))
        for i in sorted(where)
    )
    return Stream(id="s", events=events, steps=steps)


@pytest.fixture(scope="module")
def model(template):
    config = StudentConfig(
        vocabulary_size=template.tokenizer.size,
        width=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        ffn=48,
    )
    return Qwen3(config)


@pytest.fixture(scope="module")
def params(model, draw_params):
    return draw_params(model)


def fits(rows, size):
    needed = sizes(rows, multiple=1)
    return all(getattr(needed, name) <= getattr(size, name) for name in ("trunk", "window", "branches", "responses"))


def stack(rows, size=SIZE, token=0):
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *(pad(row, size, token) for row in rows))


@pytest.fixture(scope="module")
def read(model, params, template):
    """Logits of both kinds of slots and hidden states at the response's places, of a list of rows of static sizes."""

    def slots(batch, window):
        hidden = model.branch_hidden(
            params, batch.trunk, batch.tokens, batch.positions, batch.stop, batch.branch, batch.leaf, window
        )
        answers = [
            model.answers(params, hidden, place, template.yes, template.no)
            for place in (batch.need_slot, batch.accept_slot)
        ]
        return *answers, take(hidden, batch.response_source)

    compiled = jax.jit(slots, static_argnums=1)

    def run(rows, size=SIZE, count=ROWS, token=0):
        filled = [*rows, *rows[:1] * (-len(rows) % count)]
        parts = [compiled(stack(filled[i : i + count], size, token), size.window) for i in range(0, len(filled), count)]
        return [np.concatenate(part)[: len(rows)] for part in zip(*parts, strict=True)]

    return run


@pytest.fixture(scope="module")
def read_plainly(model, params):
    """Final hidden states of plain causal sequences of ids, without a tree."""

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


def written_response(candidate, template):
    """What follows the accept slot, the end of the turn included; nothing where there is no response."""
    return [] if candidate.response is None else list(itertools.chain(*template.response(candidate.response)))


def sequence(stream, template):
    """One decision, written out: the ids up to the need slot, up to the accept slot, and with the response if any."""
    (step,) = stream.steps
    ids = template.system()
    for before, event in zip((None, *stream.events), stream.events[: step.event + 1], strict=False):
        ids += template.event(event, before)
    need = [*ids, *template.head()]
    accept = [*need, *template.leaf(step.candidates[0])]
    return need, accept, [*accept, *written_response(step.candidates[0], template)]


@settings(max_examples=30)
@given(batch=st.lists(streams(), min_size=1, max_size=ROWS))
def test_packed_slots_equal_row_by_row_and_plain_causal(batch, template, model, params, read, read_plainly):
    """Three readings of each decision agree: packed with all others, packed alone, and a plain causal sequence."""
    packed = [pack(stream, template, CONTEXT) for stream in batch]
    singles = [list(decisions(stream)) for stream in batch]
    alone = [pack(single, template, CONTEXT) for group in singles for single in group]
    assume(fits(packed, SIZE) and fits(alone, ALONE))
    written = [sequence(single, template) for group in singles for single in group]
    plain = read_plainly([whole for _, _, whole in written])

    need_alone, accept_alone, _ = read(alone, ALONE, ALONE_ROWS)
    direction = np.asarray(model.head(params)[template.yes] - model.head(params)[template.no])
    slots = np.array([[len(need) - 1, len(accept) - 1] for need, accept, _ in written])
    z_plain = np.take_along_axis(plain, slots[..., None], axis=1) @ direction
    z_alone = np.concatenate([need_alone, accept_alone], axis=1)
    np.testing.assert_allclose(z_alone, z_plain, atol=1e-4, rtol=0)

    z_need, z_accept, hidden = read(packed)
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


@pytest.fixture(scope="module")
def bushy():
    """Three steps with one to three candidates, one of which has a response, and a last event that no step sees."""
    events = tuple(
        Event(time=90.0 * i, text=text) for i, text in enumerate(("Logs in.", "It crashes.", "Waits.", "Ok."))
    )
    steps = (
        Step(event=0),
        Step(event=1, candidates=(Candidate(text="A"), Candidate(text="B", response="Yes?"), Candidate())),
        Step(event=2, candidates=(Candidate(text="C"), Candidate(text="D"))),
    )
    return Stream(id="bushy", events=events, steps=steps)


def test_a_slot_reads_its_past_its_head_and_its_leaf_and_nothing_else(bushy, template, model, params):
    """Each token is replaced in turn: exactly the slots that may see it change."""
    row = pack(bushy, template, CONTEXT)
    size = sizes([row])
    row = pad(row, size, 0)
    count = size.trunk + size.branches
    variants = jnp.tile(jnp.concatenate([row.trunk, row.tokens]), (count + 1, 1))
    other = (variants[0] + 1) % template.tokenizer.size
    variants = variants.at[jnp.arange(1, count + 1), jnp.arange(count)].set(other)

    @jax.jit
    def read(tokens):
        repeated = [jnp.tile(x, (len(tokens), 1)) for x in (row.positions, row.stop, row.branch, row.leaf)]
        hidden = model.branch_hidden(params, tokens[:, : size.trunk], tokens[:, size.trunk :], *repeated, size.window)
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


def event_lengths(stream, template):
    befores = zip((None, *stream.events), stream.events, strict=False)
    return [len(template.event(event, before)) for before, event in befores]


def replaced(stream, step, candidate, **changes):
    """The stream with one candidate changed."""
    steps, offers = list(stream.steps), list(stream.steps[step].candidates)
    offers[candidate] = dataclasses.replace(offers[candidate], **changes)
    steps[step] = dataclasses.replace(steps[step], candidates=tuple(offers))
    return dataclasses.replace(stream, steps=tuple(steps))


def test_longer_texts_elsewhere_change_no_other_slot(bushy, template, read):
    """Unlike a replaced token, a longer text also moves what lies behind it in the row."""
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
    """Neither its amount, nor its token; nor do the rows beside."""
    row = pack(bushy, template, CONTEXT)
    tight = sizes([row], multiple=1)
    assert (tight.trunk, len(row.tokens)) == (len(row.trunk), len(row.positions))
    exact = read([row], tight, count=1)
    beside = pack(replaced(bushy, 1, 0, text="Rewrite it all."), template, CONTEXT)
    for padded in (read([row]), read([row], token=7), read([row, beside])):
        for got, want in zip(padded, exact, strict=True):
            np.testing.assert_allclose(got[0, : want.shape[1]], want[0], atol=1e-5, rtol=0)


def one_step(**fields):
    return Stream(id="s", events=(Event(time=0.0, text="a"),), steps=(Step(event=0, **fields),))


@pytest.mark.parametrize(
    ("y_accept", "logged", "weight", "offered"),
    [
        (1.0, None, 1, 1),  # judged, nothing logged: as good as offered
        (None, None, 0, 0),  # nothing known
        (0.25, True, 1, 1),  # offered and seen
        (None, True, 0, 1),  # offered, the outcome lost
        (None, False, 1, 0),  # not offered: weighs in the mean over the log, with inverse propensity 0
    ],
)
def test_what_an_acceptance_weighs(y_accept, logged, weight, offered, template):
    candidate = Candidate(y_accept=y_accept, logged=logged, propensity=None if logged is None else 0.5)
    row = pack(one_step(candidates=(candidate,)), template, 64)
    assert row.accept_weight.tolist() == [weight]
    assert row.logged.tolist() == [offered]
    assert row.y_accept.tolist() == [y_accept or 0.0]
    assert row.propensity.tolist() == [1.0 if logged is None else 0.5]


@pytest.mark.parametrize(("y_need", "weight"), [(None, 0), (0.0, 1), (0.75, 1)])
def test_what_a_need_weighs(y_need, weight, template):
    row = pack(one_step(y_need=y_need), template, 64)
    assert (row.y_need.tolist(), row.need_weight.tolist()) == ([y_need or 0.0], [weight])


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
    for name in (
        "trunk",
        "tokens",
        "positions",
        "stop",
        "branch",
        "leaf",
        "need_slot",
        "accept_slot",
        "response_target",
    ):
        np.testing.assert_array_equal(getattr(labelled, name), getattr(unlabelled, name))
    slots = labelled.tokens[np.concatenate([labelled.need_slot, labelled.accept_slot])]
    assert not {template.yes, template.no} & set(slots.tolist())


@given(stream=streams())
def test_the_layout_of_a_row(stream, template):
    """Branches lie one after another, count their positions from their trunk, and are numbered as their steps are."""
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
    # Slots and what predicts a response lie on leaves of the branch they belong to.
    np.testing.assert_array_equal(row.branch[row.accept_slot], row.accept_step + 1)
    assert (row.leaf[row.accept_slot] > 0).all() and (row.leaf[row.response_source] > 0).all()


@given(stream=streams())
def test_decisions_are_each_candidate_with_what_it_saw(stream):
    singles = list(decisions(stream))
    pairs = [(step, candidate) for step in stream.steps for candidate in step.candidates]
    assert len(singles) == len(pairs)
    for single, (step, candidate) in zip(singles, pairs, strict=True):
        assert single.events == stream.events[: step.event + 1]
        assert single.steps == (dataclasses.replace(step, candidates=(candidate,)),)
        assert single.id == stream.id


def test_a_stream_longer_than_the_context_is_named(bushy, template):
    # The last token of a response, the end of the turn, is predicted but never read.
    longest = max(
        len(whole) - (whole != accept) for _, accept, whole in (sequence(s, template) for s in decisions(bushy))
    )
    assert pack(bushy, template, longest).branch.max() == 3
    with pytest.raises(ValueError) as error:
        pack(bushy, template, longest - 1)
    assert re.fullmatch(
        rf"stream 'bushy', steps\[\d\]: found {longest} tokens up to the end of the decision, expected at most the "
        rf"context of {longest - 1}; raise data\.context or shorten the stream",
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
        "responses": (max(1, *(len(row.response_target) for row in rows)), multiple),
    }
    for name, (count, unit) in needed.items():
        assert count <= getattr(size, name) < count + unit, name
    for row in rows:
        padded = pad(row, size, 3)
        for name in Packed._fields:
            before, after = getattr(row, name), getattr(padded, name)
            if name == "row":
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


def test_a_stream_without_steps_is_all_trunk(template):
    row = pack(Stream(id="s", events=(Event(time=0.0, text="a"),), steps=()), template, 64)
    assert len(row.tokens) == len(row.need_slot) == 0
    padded = pad(row, sizes([row]), 0)
    assert padded.need_weight.tolist() == padded.accept_weight.tolist() == [0.0]


PROACTIVEBENCH = pathlib.Path(
    os.environ.get("PRISM_PROACTIVEBENCH", pathlib.Path(__file__).parents[3] / "shared" / "proactivebench")
)


@pytest.mark.skipif(
    not (PROACTIVEBENCH / "dataset").is_dir(),
    reason=f"no ProactiveBench data: {PROACTIVEBENCH}/dataset is missing (PRISM_PROACTIVEBENCH names another folder)",
)
def test_packing_reads_proactivebench_with_a_tenth_of_the_tokens(tmp_path, capsys):
    from prism_jax.streams.proactivebench import load

    judged = load(PROACTIVEBENCH, tmp_path)
    config = PromptConfig()
    template = Template(make_tokenizer(judged, config), config)

    def tokens(rows):
        return sum(len(row.trunk) + len(row.tokens) for row in rows)

    packed = tokens(pack(stream, template, CONTEXT) for stream in judged)
    alone = tokens(pack(single, template, CONTEXT) for stream in judged for single in decisions(stream))
    with capsys.disabled():
        print(f"\nProactiveBench: {alone:,} tokens decision by decision, {packed:,} packed: {alone / packed:.1f} times")
    assert alone / packed > 8
