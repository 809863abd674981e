"""The streaming engine, compared with cold starts: a causal forward pass over all tokens that a place sees."""

import dataclasses
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.attention import no_branches
from prism_jax.student.branches import Branch, bucket
from prism_jax.student.engine import Engine, _capacity
from prism_jax.student.kv_cache import unstack_layers
from prism_jax.student.sampler import generate
from prism_jax.student.sampling import make_sampling

pytestmark = pytest.mark.usefixtures("compile_quickly")

VOCABULARY = 61
QWEN3 = StudentConfig(
    vocab_size=VOCABULARY,
    hidden_dim=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_dim=40,
    rope_theta=100.0,
    tied=False,
)
LLAMA = dataclasses.replace(QWEN3, qk_norm=False, num_kv_heads=1)
BUDGET, LONGEST = 72, 128
SYSTEM = [1, 2, 3]


class Case:
    """A model, its parameters, an engine, and the oracle."""

    def __init__(self, config, params):
        self.model, self.params = Qwen3(config), params
        self.engine = Engine(self.model, params, budget=BUDGET)
        self.names = iter(range(1_000_000))
        self._cold = jax.jit(self._logits)

    def _logits(self, tokens):
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        hidden = self.model.hidden(self.params, tokens, positions, no_branches(*tokens.shape))
        return self.model.logits(self.params, hidden)

    def cold(self, ids):
        """[len(ids), V]: logits of one sequence read separately."""
        padded = np.zeros((1, LONGEST), np.int32)
        padded[0, : len(ids)] = ids
        return np.asarray(self._cold(padded))[0, : len(ids)]

    def cold_branch(self, trunk, branch):
        """Logits at the marked places of a branch, with every leaf in a separate sequence."""
        head = self.cold([*trunk, *branch.head])[len(trunk) :]
        leaves = [self.cold([*trunk, *branch.head, *leaf])[len(trunk) + len(branch.head) :] for leaf in branch.leaves]
        return np.concatenate([head, *leaves])[list(branch.marked)]

    def open(self, system=SYSTEM):
        name = f"stream {next(self.names)}"
        self.engine.open(name, system)
        return name


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def case(request, draw_params):
    config = {"qwen3": QWEN3, "llama": LLAMA}[request.param]
    return Case(config, draw_params(Qwen3(config), seed=8))


@pytest.fixture(scope="module")
def qwen3(draw_params):
    return Case(QWEN3, draw_params(Qwen3(QWEN3), seed=8))


tokens = st.integers(0, VOCABULARY - 1)
parts = st.lists(tokens, min_size=1, max_size=3).map(tuple)


@st.composite
def branches(draw):
    branch = Branch(draw(parts), tuple(draw(st.lists(parts, max_size=2))))
    places = st.lists(st.integers(0, len(branch.ids) - 1), min_size=1, max_size=3).map(tuple)
    return dataclasses.replace(branch, places=draw(st.none() | places))


asked = st.lists(branches(), min_size=1, max_size=2)
events = st.sampled_from([1, 30]).flatmap(lambda count: st.lists(tokens, min_size=count, max_size=count))
step = st.tuples(st.integers(0, 2), st.none() | events, st.none() | asked, st.sampled_from([None, [7, 50]]))


@pytest.mark.parametrize("case", ["qwen3", pytest.param("llama", marks=pytest.mark.slow)], indirect=True)
@settings(max_examples=10)
@given(steps=st.lists(step, min_size=1, max_size=12))
def test_answers_equal_cold_starts_whatever_came_before(case, steps):
    """Three streams side by side with events in any order, including evictions: logits agree to 1e-4."""
    streams = [case.open(), case.open([9] * 20), case.open([4])]
    for stream, event, wanted, answers in steps:
        name = streams[stream]
        if wanted is None:
            if event is not None:
                case.engine.append(name, event)
            continue
        got = case.engine.score(name, wanted, answers, event or ())
        trunk = case.engine.trunk(name)
        for branch, logits in zip(wanted, got, strict=True):
            want = case.cold_branch(trunk, branch)
            np.testing.assert_allclose(logits, want if answers is None else want[:, answers], atol=1e-4, rtol=0)
    for name in streams:
        case.engine.close(name)


@settings(max_examples=40)
@given(system=st.lists(tokens, min_size=1, max_size=30), arriving=st.lists(events, max_size=12))
def test_eviction_follows_its_rule(qwen3, system, arriving):
    """Oldest events first, only when the budget is exceeded, down to half of it; system part and newest event stay."""
    name, kept = qwen3.open(system), []
    for event in arriving:
        before = len(kept)
        if len(system) + sum(map(len, kept)) + len(event) > BUDGET:
            while kept and len(system) + sum(map(len, kept)) + len(event) > BUDGET / 2:
                kept = kept[1:]
        assert qwen3.engine.append(name, event) == before - len(kept)
        kept.append(event)
        assert qwen3.engine.trunk(name) == [*system, *itertools.chain(*kept)]
    qwen3.engine.close(name)


def test_branches_leave_no_trace(qwen3):
    """Neither scoring nor generation changes the cache or a later answer, bit for bit."""
    name, branch = qwen3.open(), Branch((5, 6), ((7,), (8, 9)))
    qwen3.engine.append(name, [10, 11, 12])

    def cache():
        return jax.device_get(qwen3.engine._streams[name].cache)

    before, first = cache(), qwen3.engine.score(name, [branch])[0]
    qwen3.engine.score(name, [Branch((20,) * 40), branch])
    qwen3.engine.generate(name, [30, 31], 25)
    jax.tree.map(np.testing.assert_array_equal, cache(), before)
    np.testing.assert_array_equal(qwen3.engine.score(name, [branch])[0], first)
    assert qwen3.engine.trunk(name) == [*SYSTEM, 10, 11, 12]


def test_generation_equals_a_cold_start(case):
    name = case.open()
    for event in ([10] * 30, [11, 12, 13]):
        case.engine.append(name, event)
    unstacked = unstack_layers(case.params)
    for branch, limit, sampling in (
        ([20, 21], 14, None),
        ([22], 12, make_sampling(1, 1.2, 20, 0.95, seed=8)),
    ):
        prompt = case.engine.trunk(name) + branch
        want = generate(case.model, unstacked, [prompt], limit, sampling or make_sampling(1))[0]
        assert case.engine.generate(name, branch, limit, sampling) == want
        assert len(set(want.ids)) > 3
    stop = case.engine.generate(name, [20, 21], 14).ids[5]
    stopped = case.engine.generate(name, [20, 21], 14, stop=[stop])
    assert stopped.stopped and stop not in stopped.ids


def test_a_trunk_longer_than_a_chunk_is_read_in_several_passes(draw_params):
    config = dataclasses.replace(QWEN3, tied=True)
    case = Case(config, draw_params(Qwen3(config), seed=8))
    case.engine = Engine(case.model, case.params, budget=2000)
    name, ids = case.open(), np.random.default_rng(0).integers(VOCABULARY, size=1100).tolist()
    branch = Branch((5, 6), ((7,), (8, 9)))
    got = case.engine.score(name, [branch], event=ids)[0]
    whole = jnp.asarray([[*SYSTEM, *ids, 5, 6, 8, 9]])
    np.testing.assert_allclose(got[2], np.asarray(case._logits(whole))[0, -1], atol=1e-4)


class Counting(Qwen3):
    """Counts how often a forward pass is traced."""

    traces = 0

    def head(self, params):
        type(self).traces += 1
        return super().head(params)


def test_an_event_compiles_nothing_unless_the_cache_has_grown(qwen3):
    engine = Engine(Counting(QWEN3), qwen3.params, budget=2000)
    engine.open("a", SYSTEM)
    Counting.traces = 0
    for number in range(60):  # 603 tokens: capacities of 128, 256, 384, 512 and 640
        event = [number % VOCABULARY] * (9 + number % 3)
        engine.score("a", [Branch((1, 2, 3), ((4,), (5,)))], [7, 8], event)
    assert Counting.traces == 5
    engine.open("b", SYSTEM)
    for number in range(30):
        engine.score("b", [Branch((3, 3), ((4, 5),)), Branch((9,))], [1, 2], [number] * 10)
    assert Counting.traces == 5  # the second stream uses the programs that the first one compiled


def test_the_work_of_an_event_grows_with_attention_alone(qwen3):
    """The operations of one pass are a constant plus, per cached position, the two products of attention."""
    from prism_jax.student import engine as engine_module
    from prism_jax.student.branches import lay_out
    from prism_jax.student.kv_cache import empty

    row = lay_out([1] * 10, [Branch((1, 2, 3))])

    def operations(capacity):
        cache = empty(QWEN3, 1, capacity)
        lowered = engine_module._read_row.lower(
            qwen3.model, unstack_layers(qwen3.params), cache, np.int32(5), row, np.array([7, 8], np.int32)
        )
        return lowered.cost_analysis()["flops"]

    small, middle, large = (operations(capacity) for capacity in (1024, 2048, 4096))
    assert large - middle == pytest.approx(2 * (middle - small), rel=0.01)
    # The last block has queries only at the marked places.
    queries = (QWEN3.num_layers - 1) * row.tokens.size + row.places.size
    products = 4 * queries * QWEN3.num_heads * QWEN3.head_dim * 1024
    assert products < middle - small < 1.5 * products


@pytest.mark.parametrize("smallest", [8, 128])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 127, 500, 513, 1025, 4097])
def test_buckets_are_large_enough_and_little_larger(count, smallest):
    assert count <= bucket(count, smallest) < max(count + smallest, 1.25 * count + 1)
    assert bucket(bucket(count, smallest), smallest) == bucket(count, smallest)


def test_a_cache_grows_in_few_steps():
    steps = [128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096]
    assert sorted({_capacity(positions) for positions in range(1, 4097)}) == steps


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.open("a", SYSTEM), "stream: found 'a' open already, expected a new one"),
        (lambda e: e.open("b", []), "system: found no token ids, expected at least one"),
        (lambda e: e.open("b", [1] * 73), "system: found 73 tokens, expected at most the budget of 72"),
        (lambda e: e.append("b", [1]), "stream: found 'b', expected one of the 1 open streams"),
        (lambda e: e.close("b"), "stream: found 'b', expected one of the 1 open streams"),
        (lambda e: e.append("a", []), "event: found no token ids, expected at least one"),
        (lambda e: e.append("a", [61]), "event: found token id 61, expected ids in [0, 61)"),
        (
            lambda e: e.append("a", [1] * 70),
            "event: found 70 tokens after a system part of 3, expected at most the budget of 72 in all",
        ),
        (
            lambda e: e.append("a", np.array([2.5])),
            "event: found np.float64(2.5), expected token ids, which are integers",
        ),
        (lambda e: e.append("a", np.array([True])), "event: found np.True_, expected token ids, which are integers"),
        (lambda e: e.score("a", []), "branches: found none, expected at least one"),
        (
            lambda e: e.score("a", [Branch((1,)), Branch((2, -1))]),
            "branches[1]: found token id -1, expected ids in [0, 61)",
        ),
        (lambda e: e.score("a", [Branch((1,))], [61]), "answers: found token id 61, expected ids in [0, 61)"),
        (lambda e: e.generate("a", [], 5), "branch: found no token ids, expected at least one"),
        (lambda e: e.generate("a", [1], 0), "limit: found 0, expected at least 1"),
        (lambda _: Branch((1,), ((2,), ())), "branch.leaves[1]: found no token ids, expected at least one"),
        (lambda _: Branch((1, 2), places=(2,)), "branch.places: found (2,), expected some indices in [0, 2)"),
        (lambda _: Branch((1, 2), places=()), "branch.places: found (), expected some indices in [0, 2)"),
    ],
)
def test_bad_requests_are_named_and_change_nothing(qwen3, call, message):
    engine = Engine(qwen3.model, qwen3.params, budget=BUDGET)
    engine.open("a", SYSTEM)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(engine)
    assert engine.trunk("a") == SYSTEM


def test_arrays_of_ids_are_taken_as_lists_are(qwen3):
    """By every method alike, and a trunk holds plain integers."""
    branch, event = Branch((5, 6)), [10, 11, 12]
    engines = [Engine(qwen3.model, qwen3.params, budget=BUDGET) for _ in range(2)]
    answers = []
    for engine, convert in zip(engines, (list, np.asarray), strict=True):
        engine.open("a", convert(SYSTEM))
        engine.append("a", convert(event))
        answers.append(engine.score("a", [branch], convert([7, 8]), convert(event))[0])
        assert all(type(token) is int for token in engine.trunk("a"))
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": 0}, "budget: found 0, expected at least 1"),
        ({"budget": float("nan")}, "budget: found nan, expected an integer of at least 1"),
        ({"budget": 1.5}, "budget: found 1.5, expected an integer of at least 1"),
        ({"keep": 0.0}, "keep: found 0.0, expected a number in (0, 1]"),
    ],
)
def test_bad_budgets_are_named(qwen3, changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Engine(qwen3.model, qwen3.params, **changes)
