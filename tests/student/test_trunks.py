"""Batched live streams against a cold start on the tokens that each stream keeps."""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.attention import no_branches
from prism_jax.student.branches import Branch
from prism_jax.student.constrained import DeviceAutomaton, Span, make_automaton
from prism_jax.student.pages import page_bytes
from prism_jax.student.trunks import Reading, Trunks

pytestmark = pytest.mark.usefixtures("compile_quickly")

VOCABULARY = 32
ANSWERS = [5, 9]
SYSTEM = [1, 2, 3]


@pytest.fixture(scope="module")
def model():
    sizes = dict(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
    return Qwen3(StudentConfig(vocab_size=VOCABULARY, **sizes, initializer_range=0.5))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(5))


@functools.partial(jax.jit, static_argnums=0)
def all_logits(model, params, tokens):
    positions = jnp.arange(tokens.shape[1])[None]
    return model.logits(params, model.hidden(params, tokens, positions, no_branches(*tokens.shape)))


def cold(model, params, ids, answers=ANSWERS):
    """Logits of the answers after `ids`, read from scratch."""
    tokens = jnp.array([ids + [0] * (1024 - len(ids))])
    return np.array(all_logits(model, params, tokens)[0, len(ids) - 1])[answers]


def make(model, params, pages=40, **settings):
    settings = {"budget": 700, "batches": (1, 4), "longest": 64, "room": 16} | settings
    return Trunks(model, params, ANSWERS, memory=pages * page_bytes(model.config), **settings)


def ids_of(rng, count):
    return [rng.randrange(VOCABULARY) for _ in range(count)]


def branches_of(rng):
    return [
        Branch(tuple(ids_of(rng, 4)), tuple(tuple(ids_of(rng, rng.randint(1, 6))) for _ in range(rng.randint(1, 3))))
    ]


def check(model, params, trunks, reading, logits):
    """Every marked place equals a cold start on the trunk and the branch's own tokens up to the place."""
    trunk = trunks.tokens(reading.stream)
    for branch, rows in zip(reading.branches, logits, strict=True):
        parts = [list(branch.head), *([*branch.head, *leaf] for leaf in branch.leaves)]
        assert len(rows) == len(parts)
        for row, part in zip(rows, parts, strict=True):
            np.testing.assert_allclose(row, cold(model, params, [*trunk, *part]), atol=2e-4)


@pytest.mark.parametrize("pages", [7, pytest.param(40, marks=pytest.mark.slow)], ids=["parked often", "all resident"])
def test_every_reading_equals_a_cold_start(model, params, pages):
    """Random interleaving of seven streams, with long events, dropped ones and, in a small pool, parked streams."""
    trunks, rng = make(model, params, pages), random.Random(pages)
    names = [f"s{i}" for i in range(7)]
    expected = {name: [SYSTEM] for name in names}
    for name in names:
        trunks.open(name, SYSTEM)
    parked = False
    for turn in range(14):
        chosen = rng.sample(names, rng.randint(1, 6))
        readings = [Reading(name, ids_of(rng, rng.choice([3, 30, 150])), branches_of(rng)) for name in chosen]
        for reading, logits in zip(readings, trunks.read(readings), strict=True):
            events = [*expected[reading.stream], list(reading.event)]
            if sum(map(len, events)) > 700:
                while len(events) > 2 and sum(map(len, events)) > 350:
                    del events[1]
            expected[reading.stream] = events
            assert trunks.tokens(reading.stream) == [token for event in events for token in event]
            if turn % 2:
                check(model, params, trunks, reading, logits)
        parked |= 0 < trunks.resident < len({name for name in names if len(expected[name]) > 1})
    assert parked == (pages == 7)
    assert max(len(events) for events in expected.values()) < 14, "some stream should have dropped events"


def test_branches_leave_no_trace_and_need_no_event(model, params):
    trunks, rng = make(model, params), random.Random(0)
    trunks.open("a", SYSTEM)
    trunks.read([Reading("a", ids_of(rng, 20), ())])
    branches = branches_of(rng)
    first = trunks.read([Reading("a", (), branches)])
    trunks.read([Reading("a", (), branches_of(rng))])
    again = trunks.read([Reading("a", (), branches)])
    np.testing.assert_array_equal(first[0][0], again[0][0])
    check(model, params, trunks, Reading("a", (), branches), again[0])


def test_text_is_written_after_each_streams_own_trunk(model, params):
    """Every token is the greedy one of a cold start, whatever else is in the batch, and nothing enters the trunks."""
    trunks, rng = make(model, params, 12), random.Random(1)
    names = [f"s{i}" for i in range(6)]
    for name in names:
        trunks.open(name, SYSTEM)
        trunks.read([Reading(name, ids_of(rng, rng.choice([10, 200])), ())])
    free = DeviceAutomaton(make_automaton(np.zeros((1, VOCABULARY), np.int8), np.full(VOCABULARY, -1), [True]))
    spans, before = [Span((7, 8), 3), Span((6,), 2)], {name: trunks.tokens(name) for name in names}
    rows = [(name, ids_of(rng, 5)) for name in [*names, names[0]]]
    for (name, branch), written in zip(rows, trunks.write(rows, spans, free), strict=True):
        ids = [*before[name], *branch]
        for span, tokens in zip(spans, written, strict=True):
            ids += span.forced
            assert len(tokens) == span.limit
            for token in tokens:
                logits = np.array(
                    all_logits(model, params, jnp.array([ids + [0] * (1024 - len(ids))]))[0, len(ids) - 1]
                )
                assert logits[token] > logits.max() - 1e-4
                ids.append(token)
    assert before == {name: trunks.tokens(name) for name in names}


def test_a_parked_stream_that_is_written_twice_is_read_once(model, params):
    """Both texts of one batch follow the same trunk, which has to be read again first."""
    trunks, rng = make(model, params, 7), random.Random(3)
    free = DeviceAutomaton(make_automaton(np.zeros((1, VOCABULARY), np.int8), np.full(VOCABULARY, -1), [True]))
    for name in ("a", "b"):
        trunks.open(name, SYSTEM)
    trunks.read([Reading("a", ids_of(rng, 200), ())])
    rows = [("a", ids_of(rng, 5)), ("a", ids_of(rng, 4))]
    before = trunks.write(rows, [Span((7,), 4)], free)
    trunks.read([Reading("b", ids_of(rng, 650), ())])
    assert trunks.resident == 1, "the first stream should be parked"
    assert trunks.write(rows, [Span((7,), 4)], free) == before
    branches = branches_of(rng)
    check(model, params, trunks, Reading("a", (), branches), trunks.read([Reading("a", (), branches)])[0])


@pytest.mark.parametrize("loaded", [False, True])
def test_nothing_compiles_after_the_warm_up(model, params, all_compilations, loaded):
    """Whether parameters were made by a program or put on their device, as those of a file are."""
    if loaded:
        params = jax.device_put(params, jax.devices()[0])
    trunks, rng = make(model, params, 30, budget=250, batches=(4,)), random.Random(2)
    free = DeviceAutomaton(make_automaton(np.zeros((1, VOCABULARY), np.int8), np.full(VOCABULARY, -1), [True]))
    spans = [Span((7, 8), 3), Span((6,), 2)]
    before = len(all_compilations)
    programs = trunks.warm_up(free)
    assert len(all_compilations) - before <= programs  # two of them can be the same
    before = len(all_compilations)
    for turn in range(8):
        names = [f"t{i}" for i in range(rng.randint(1, 6))]
        for name in names:
            if name not in trunks:
                trunks.open(name, SYSTEM)
        trunks.read([Reading(name, ids_of(rng, rng.choice([3, 40, 120])), branches_of(rng)) for name in names])
        trunks.write([(name, ids_of(rng, 3 + turn)) for name in names], spans, free)
    assert len(all_compilations) == before


def test_a_closed_stream_frees_its_pages(model, params):
    trunks = make(model, params, 8)
    for turn in range(5):
        trunks.open(f"s{turn}", SYSTEM)
        trunks.read([Reading(f"s{turn}", [4] * 600, ())])
        trunks.close(f"s{turn}")
    assert len(trunks) == trunks.resident == 0
    with pytest.raises(ValueError, match="stream: found 's0', expected one of the 0 open streams"):
        trunks.tokens("s0")


def test_keep_of_one_drops_only_what_must_go(model, params):
    trunks = make(model, params, keep=1.0, budget=100)
    trunks.open("a", SYSTEM)
    for token in range(10):
        trunks.read([Reading("a", [token] * 20, ())], reserve=15)
    assert trunks.tokens("a") == SYSTEM + [token for token in (6, 7, 8, 9) for _ in range(20)]


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        ([Reading("a", [1], ()), Reading("a", [2], ())], "readings: found stream 'a' twice"),
        ([Reading("b", [1], ())], "stream: found 'b', expected one of the 1 open"),
        ([Reading("a", [], ())], r"readings\[0\]: found neither event nor branch"),
        ([Reading("a", [99], ())], r"readings\[0\].event: found token id 99"),
        ([Reading("a", [1], [Branch((-1,))])], r"readings\[0\].branches\[0\]: found token id -1"),
        (
            [Reading("a", [1] * 699, ())],
            r"readings\[0\].event: found 699 tokens after a system part",
        ),
    ],
)
def test_bad_readings_change_nothing(model, params, readings, message):
    trunks = make(model, params)
    trunks.open("a", SYSTEM)
    trunks.read([Reading("a", [7], ())])
    with pytest.raises(ValueError, match=message):
        trunks.read(readings)
    assert trunks.tokens("a") == [*SYSTEM, 7]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "budget: found 0"),
        ({"keep": 1.5}, "keep: found 1.5"),
        ({"batches": ()}, r"batches: found \(\)"),
        ({"longest": 0}, "longest: found 0"),
        ({"pages": 3}, "memory: found .* bytes, expected at least .* for one trunk of 700 tokens"),
    ],
)
def test_bad_settings(model, params, settings, message):
    with pytest.raises(ValueError, match=message):
        make(model, params, **settings)
