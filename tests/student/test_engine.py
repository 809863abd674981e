"""Batched live streams against a cold start on the tokens that each stream keeps."""

import dataclasses
import functools
import random
import re
import threading
from unittest import mock

import chex
import jax
import numpy as np
import pytest
from full_pass import next_logits
from student_sizes import small
from written import any_token

from prism_jax.student import dispatch, flash, kv_cache, start
from prism_jax.student.branches import Branch, lay_out
from prism_jax.student.constrained import DeviceAutomaton, Span
from prism_jax.student.engine import Engine, ReadRequest
from prism_jax.student.kv_cache import unstack_layers
from prism_jax.student.live_programs import read_rows
from prism_jax.student.pages import PAGE, enlarge, make_pool, page_bytes, table_of
from prism_jax.student.qwen3 import Qwen3

VOCABULARY = 32
ANSWERS = [5, 9]
SYSTEM = [1, 2, 3]

STUDENT = small(vocab_size=VOCABULARY, initializer_range=0.5)


@pytest.fixture(scope="module")
def model():
    return Qwen3(STUDENT)


@pytest.fixture(scope="module")
def params(model, draw_params):
    return draw_params(model)


def cold(model, params, ids, answers=ANSWERS):
    """Logits of the answers after `ids`, read from scratch."""
    return next_logits(model, params, ids, 1024)[answers]


def make(model, params, pages=7, **settings):
    """An engine whose pool has room for one trunk of the whole budget; one size of it compiles once for most tests."""
    settings = {"budget": 700, "batches": (1, 4), "longest": 64, "room": 16} | settings
    return Engine(model, params, ANSWERS, memory=pages * page_bytes(model.config), **settings)


def open_new(engine, names):
    for name in names:
        if name not in engine:
            engine.open(name, SYSTEM)


def ids_of(rng, count):
    return [rng.randrange(VOCABULARY) for _ in range(count)]


def branches_of(rng):
    return [
        Branch(tuple(ids_of(rng, 4)), tuple(tuple(ids_of(rng, rng.randint(1, 6))) for _ in range(rng.randint(1, 3))))
    ]


def check(model, params, engine, reading, logits):
    """Every marked place equals a cold start on the trunk and the branch's own tokens up to the place."""
    trunk = engine.tokens(reading.stream)
    for branch, rows in zip(reading.branches, logits, strict=True):
        parts = [list(branch.head), *([*branch.head, *leaf] for leaf in branch.leaves)]
        assert len(rows) == len(parts)
        for row, part in zip(rows, parts, strict=True):
            np.testing.assert_allclose(row, cold(model, params, [*trunk, *part]), atol=2e-4)


@pytest.mark.parametrize(
    ("pages", "changes"),
    [
        pytest.param(7, {}, id="parked often"),
        pytest.param(40, {"qk_norm": False, "tied": False}, id="all resident, as Llama", marks=pytest.mark.slow),
    ],
)
def test_every_reading_equals_a_cold_start(pages, changes, draw_params):
    """Random interleaving of seven streams, with long events, dropped ones and, in a small pool, parked streams."""
    model = Qwen3(dataclasses.replace(STUDENT, **changes))
    params = draw_params(model)
    engine, rng = make(model, params, pages), random.Random(pages)
    names = [f"s{i}" for i in range(7)]
    expected = {name: [SYSTEM] for name in names}
    open_new(engine, names)
    parked = False
    for turn in range(14):
        chosen = rng.sample(names, rng.randint(1, 6))
        readings = [ReadRequest(name, ids_of(rng, rng.choice([3, 30, 150])), branches_of(rng)) for name in chosen]
        for reading, logits in zip(readings, engine.read(readings), strict=True):
            events = [*expected[reading.stream], list(reading.event)]
            if sum(map(len, events)) > 700:
                while len(events) > 2 and sum(map(len, events)) > 350:
                    del events[1]
            expected[reading.stream] = events
            assert engine.tokens(reading.stream) == [token for event in events for token in event]
            if turn % 2:
                check(model, params, engine, reading, logits)
        parked |= 0 < engine.resident < len({name for name in names if len(expected[name]) > 1})
    assert parked == (pages == 7)
    assert max(len(events) for events in expected.values()) < 14, "some stream should have dropped events"


@pytest.mark.slow
def test_a_pool_that_grows_reads_writes_and_parks_as_one_that_is_whole_from_the_start(model, params, monkeypatch):
    """To the last bit, beyond its bound too, where streams are parked."""
    free = DeviceAutomaton(any_token(VOCABULARY))

    def run(smallest):
        monkeypatch.setattr("prism_jax.student.engine._SMALLEST", smallest)
        engine, rng, found, resident = make(model, params, 30), random.Random(4), [], []
        before = len(engine._pool[0].values)
        for turn in range(16):
            names = [f"s{rng.randrange(turn + 1)}" for _ in range(rng.randint(1, 6))]
            readings = []
            for name in dict.fromkeys(names):
                if name not in engine:
                    engine.open(name, SYSTEM)
                readings.append(ReadRequest(name, ids_of(rng, rng.choice([3, 30, 300])), branches_of(rng)))
            found += [logits for rows in engine.read(readings) for logits in rows]
            found += engine.write([(reading.stream, ids_of(rng, 5)) for reading in readings], [Span((7,), 4)], free)
            resident.append((engine.resident, len(engine)))
        return found, resident, (before, len(engine._pool[0].values))

    (grown, parked, sizes), (whole, also_parked, whole_sizes) = run(0), run(1 << 30)
    assert sizes == (7, 30) and whole_sizes == (30, 30)
    assert parked == also_parked and any(resident < streams for resident, streams in parked)
    chex.assert_trees_all_equal(grown, whole)


def test_a_pool_that_could_not_grow_to_its_end_is_grown_by_the_next_reading(model, params, monkeypatch):
    monkeypatch.setattr("prism_jax.student.engine._SMALLEST", 0)
    engine, rng = make(model, params, 30), random.Random(6)
    a, b = readings = [ReadRequest(name, ids_of(rng, 600), branches_of(rng)) for name in "ab"]
    for reading in readings:
        engine.open(reading.stream, SYSTEM)
    engine.read([a])
    fails = mock.Mock(side_effect=[enlarge(engine._pool[0], 30), MemoryError])
    with mock.patch("prism_jax.student.engine.enlarge", fails), pytest.raises(MemoryError):
        engine.read([b])
    assert [len(layer.values) for layer in engine._pool] == [30, 7]
    for reading in (b, a):
        again = reading._replace(event=())
        check(model, params, engine, again, engine.read([again])[0])
    assert [len(layer.values) for layer in engine._pool] == [30, 30]


def test_branches_leave_no_trace_and_need_no_event(model, params):
    engine, rng = make(model, params), random.Random(0)
    engine.open("a", SYSTEM)
    engine.read([ReadRequest("a", ids_of(rng, 20), ())])
    branches = branches_of(rng)
    first = engine.read([ReadRequest("a", (), branches)])
    engine.read([ReadRequest("a", (), branches_of(rng))])
    again = engine.read([ReadRequest("a", (), branches)])
    np.testing.assert_array_equal(first[0][0], again[0][0])
    check(model, params, engine, ReadRequest("a", (), branches), again[0])


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_text_is_written_after_each_streams_own_trunk(model, params, platform, monkeypatch):
    """Every token is the greedy one of a cold start, whatever else is in the batch, and nothing enters the engine.

    Both forms of the trunk run here: rows that were gathered once, as on a CPU, and pages of the pool, as on a GPU.
    """
    monkeypatch.setattr(start, "platform", lambda: platform)
    start._branch_off.clear_cache()  # which is not aware of the platform
    engine, rng = make(model, params, 12), random.Random(1)
    names = [f"s{i}" for i in range(6)]
    for name in names:
        engine.open(name, SYSTEM)
        engine.read([ReadRequest(name, ids_of(rng, rng.choice([10, 200])), ())])
    free = DeviceAutomaton(any_token(VOCABULARY))
    spans, before = [Span((7, 8), 3), Span((6,), 2)], {name: engine.tokens(name) for name in names}
    rows = [(name, ids_of(rng, 5)) for name in [*names, names[0]]]
    for (name, branch), written in zip(rows, engine.write(rows, spans, free), strict=True):
        ids = [*before[name], *branch]
        for span, tokens in zip(spans, written, strict=True):
            ids += span.forced
            assert len(tokens) == span.limit
            for token in tokens:
                logits = next_logits(model, params, ids, 1024)
                assert logits[token] > logits.max() - 1e-4
                ids.append(token)
    assert before == {name: engine.tokens(name) for name in names}


def test_a_parked_stream_that_is_written_twice_is_read_once(model, params):
    """Both texts of one batch follow the same trunk, which has to be read again first."""
    engine, rng = make(model, params), random.Random(3)
    free = DeviceAutomaton(any_token(VOCABULARY))
    for name in ("a", "b"):
        engine.open(name, SYSTEM)
    engine.read([ReadRequest("a", ids_of(rng, 200), ())])
    rows = [("a", ids_of(rng, 5)), ("a", ids_of(rng, 4))]
    before = engine.write(rows, [Span((7,), 4)], free)
    engine.read([ReadRequest("b", ids_of(rng, 650), ())])
    assert engine.resident == 1, "the first stream should be parked"
    assert engine.write(rows, [Span((7,), 4)], free) == before
    branches = branches_of(rng)
    check(model, params, engine, ReadRequest("a", (), branches), engine.read([ReadRequest("a", (), branches)])[0])


@pytest.mark.slow
@pytest.mark.parametrize("loaded", [pytest.param(False, marks=pytest.mark.slow), True])
def test_nothing_compiles_after_the_warm_up(model, params, all_compilations, loaded):
    """Whether parameters were made by a program or put on their device, as those of a file are."""
    if loaded:
        params = jax.device_put(params, jax.devices()[0])
    engine, rng = make(model, params, 30, budget=250, batches=(4,)), random.Random(2)
    free = DeviceAutomaton(any_token(VOCABULARY))
    spans = [Span((7, 8), 3), Span((6,), 2)]
    before = len(all_compilations)
    programs = engine.warm_up(free)
    assert len(all_compilations) - before <= programs  # two of them can be the same
    before = len(all_compilations)
    for turn in range(8):
        names = [f"t{i}" for i in range(rng.randint(1, 6))]
        open_new(engine, names)
        engine.read([ReadRequest(name, ids_of(rng, rng.choice([3, 40, 120])), branches_of(rng)) for name in names])
        engine.write([(name, ids_of(rng, 3 + turn)) for name in names], spans, free)
    assert len(all_compilations) == before


@pytest.mark.slow
def test_programs_are_compiled_behind_and_again_once_the_pool_has_grown(model, params, all_compilations, monkeypatch):
    monkeypatch.setattr("prism_jax.student.engine._SMALLEST", 0)
    engine, rng = make(model, params, 20, budget=250, batches=(4,), longest=32), random.Random(2)
    free = DeviceAutomaton(any_token(VOCABULARY))

    def behind():
        [thread] = [thread for thread in threading.enumerate() if thread.name == "programs"]
        thread.join()
        return len(all_compilations)

    def turn(names):
        open_new(engine, names)
        engine.read([ReadRequest(name, ids_of(rng, 100), branches_of(rng)) for name in names])
        engine.write([(name, ids_of(rng, 3)) for name in names], [Span((7, 8), 3)], free)

    engine.compile_behind(lambda: free)
    before = behind()
    turn(["a"])
    assert len(all_compilations) == before and len(engine.programs) == 2 * 4
    turn(["b", "c", "d"])
    before = behind()
    turn(["a", "b", "c", "d"])
    assert len(all_compilations) == before and len(engine.programs) == 2 * 2 * 4


def test_the_work_of_a_pass_grows_with_attention_alone(model, params):
    """Its operations are a constant plus, per cached position, the two products of attention."""
    row, stacked = lay_out([1] * 10, [Branch((1, 2, 3))], 16, 8), unstack_layers(params)
    batch = jax.tree.map(lambda leaf: leaf[None], row)

    def operations(width):
        pool = jax.eval_shape(lambda: make_pool(model.config, width + 1))
        table = table_of([list(range(1, width + 1))], width, 1)
        lowered = read_rows.lower(model, stacked, pool, table, np.array([5], np.int32), batch, np.array(ANSWERS))
        return lowered.cost_analysis()["flops"]

    small, middle, large = (operations(width) for width in (8, 16, 32))
    assert large - middle == pytest.approx(2 * (middle - small), rel=0.01)
    # The last block has queries only at the marked places.
    queries = (model.config.num_layers - 1) * row.tokens.size + row.places.size
    products = 4 * queries * model.config.num_heads * model.config.head_dim * 1024
    assert products < middle - small < 1.5 * products


def batch_of(config, width, rows):
    """Arguments of `read_rows`: full streams of the same `width` pages, an event and a branch of two leaves."""
    rng, pages = np.random.default_rng(0), range(1, width + 1)
    pool = jax.tree.map(
        lambda leaf: jax.device_put(rng.normal(size=leaf.shape).astype(leaf.dtype)),
        jax.eval_shape(lambda: make_pool(config, 1 + width)),
    )
    table = table_of([[*pages[row:], *pages[:row]] for row in range(rows)], width, rows)
    row = lay_out([1] * 5, [Branch((1, 2), ((3, 4, 5), (6,)))], 64, 8)
    batch, lengths = jax.tree.map(lambda leaf: np.stack([leaf] * rows), row), np.full(rows, width * PAGE - 60, np.int32)
    return pool, table, lengths, batch, np.array(ANSWERS)


def test_fused_attention_reads_the_same(model, params, monkeypatch):
    """The path of a GPU, with XLA's unfused implementation of the same function, against the one that runs here."""
    given = unstack_layers(params), *batch_of(model.config, 6, 4)
    expected = read_rows(model, *given)
    fused = mock.Mock(side_effect=lambda *args: flash.flash_cached(*args[:-1], "xla"))
    monkeypatch.setattr(kv_cache, "attention_path", lambda _: "cudnn")
    monkeypatch.setattr(kv_cache, "flash_cached", fused)
    got = jax.jit(functools.partial(read_rows.__wrapped__, model))(*given)
    fused.assert_called()
    chex.assert_trees_all_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_gpu_reads_without_scores_and_one_layers_pages_at_a_time(monkeypatch):
    """Lowered for CUDA without a GPU: no array of queries and keys but the mask, no page gathered outside its block."""
    from jax._src.cudnn import fused_attention_stablehlo

    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(dispatch, "platform", lambda: "cuda")
    model = Qwen3(dataclasses.replace(STUDENT, dtype="bfloat16", num_layers=3, head_dim=16))
    width = 4
    pool, *rest = batch_of(model.config, width, 2)
    given = jax.eval_shape(unstack_layers, model.abstract_params()), pool, *rest
    text = read_rows.trace(model, *given).lower(lowering_platforms=("cuda",)).as_text()
    assert set(re.findall(r"__cudnn\$(\w+)", text)) == {"fmhaScaleBiasSoftmax"}
    shapes = {tuple(map(int, found.split("x"))) for found in re.findall(r"tensor<([\dx]+)x(?:bf16|f32)>", text)}
    new, cached = 64, width * PAGE
    assert {shape for shape in shapes if shape[-2:] in [(new, cached), (new, cached + new)]} == {
        (2, 1, new, cached + new)
    }
    [program] = jax.make_jaxpr(read_rows, static_argnums=0)(model, *given).eqns
    outside = [e for e in program.params["jaxpr"].eqns if e.primitive.name == "gather"]
    paged = [e for e in outside if e.invars[0].aval.shape in {leaf.shape for leaf in jax.tree.leaves(pool)}]
    assert len(paged) == 2, "keys and values of the last block, which is no program of its own"


def test_a_closed_stream_frees_its_pages(model, params):
    engine = make(model, params)
    for turn in range(5):
        engine.open(f"s{turn}", SYSTEM)
        engine.read([ReadRequest(f"s{turn}", [4] * 600, ())])
        engine.close(f"s{turn}")
    assert len(engine) == engine.resident == 0
    with pytest.raises(ValueError, match="stream: found 's0', expected one of the 0 open streams"):
        engine.tokens("s0")


def test_keep_of_one_drops_only_what_must_go(model, params):
    engine = make(model, params, keep=1.0, budget=200)
    engine.open("a", SYSTEM)
    for token in range(15):
        engine.read([ReadRequest("a", [token] * 20, (), 15)])
        assert engine.tokens("a") == SYSTEM + [kept for kept in range(max(0, token - 8), token + 1) for _ in range(20)]


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        ([ReadRequest("a", [1], ()), ReadRequest("a", [2], ())], "readings: found stream 'a' twice"),
        ([ReadRequest("b", [1], ())], "stream: found 'b', expected one of the 1 open"),
        ([ReadRequest("a", [], ())], r"readings\[0\]: found neither event nor branch"),
        ([ReadRequest("a", [99], ())], r"readings\[0\].event: found token id 99"),
        ([ReadRequest("a", [1], [Branch((-1,))])], r"readings\[0\].branches\[0\]: found token id -1"),
        ([ReadRequest("a", [1] * 699, ())], r"readings\[0\].event: found 699 tokens after a system part"),
    ],
)
def test_bad_readings_change_nothing(model, params, readings, message):
    engine = make(model, params)
    engine.open("a", SYSTEM)
    engine.read([ReadRequest("a", [7], ())])
    with pytest.raises(ValueError, match=message):
        engine.read(readings)
    assert engine.tokens("a") == [*SYSTEM, 7]


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
