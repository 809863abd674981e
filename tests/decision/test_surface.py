"""The control surface against brute force in exact rationals, and against the gate bit for bit."""

import itertools
import operator
import sys
from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.decision import gate, metrics, surface
from prism_jax.decision.costs import cost_grid, cost_search, surface_counts
from prism_jax.decision.passes import Pass
from prism_jax.decision.surface import control_surface

QUARTERS = np.array([0.25, 0.75])
EIGHTHS = [Fraction(k, 8) for k in range(9)]
EXACT_COSTS = [Fraction(c) for c in (1, 0, 8, 2, Fraction(1, 2), 3, Fraction(1, 7 * 8), 1)]
EXACT_MARGINS = [Fraction(m) for m in (Fraction(1, 8), 0, Fraction(3, 8), 1, Fraction(1, 2), Fraction(3, 2))]


def floats(values, dtype=np.float64):
    return np.array([float(value) for value in values], dtype)


def intervenes(p_need, p_accept, r):
    """Paper Eq. 1 in rationals."""
    return p_need * p_accept > 0 and p_accept >= 1 / (1 + p_need * r)


def thinks(p_need, p_accept, r, margin):
    """The slow band of docs/maths.md, section 3 in rationals."""
    return margin > 0 and abs(p_accept - 1 / (1 + p_need * r)) <= margin


def random_steps(seed, n, dtype=np.float32, decimals=None, two=False, third=False):
    """Random signals and consistent labels; with few decimals, many signals are equal or tie with thresholds.

    With `two`, the slow pass picks a candidate of its own; with `third`, silence may miss a candidate of neither pass.
    """
    rng = np.random.default_rng(seed)
    signals = rng.random((4, n))
    if decimals is not None:
        signals = signals.round(decimals)
    y_need, y_accept = rng.random(n) < signals[0], rng.random(n) < signals[1]
    labels = {"y": y_need & y_accept, "y_need": y_need, "y_accept": y_accept}
    other, best = rng.random((2, n)) < 0.5
    if two:
        labels |= {"y_slow": y_need & other, "y_accept_slow": other}
    if third:
        labels["y_best"] = labels["y"] | labels.get("y_slow", False) | best
    return {"fast": Pass(*signals[:2].astype(dtype)), "slow": Pass(*signals[2:].astype(dtype))} | labels


def brute_force(steps, cost_ratios, margins, tokens):
    """Every cell computed by the gate, [margin, cost]; costs and margins are already in the signals' dtype."""
    y, accept = steps["y"], steps["y_accept"]
    y_slow, accept_slow = steps.get("y_slow", y), steps.get("y_accept_slow", accept)
    best = steps.get("y_best", y | y_slow)
    fields = ("tp", "fp", "fn", "tn", "slow", "slow_tokens", "rejected", "missed")
    table = {name: np.zeros((len(margins), len(cost_ratios)), np.int64) for name in fields}
    for m, c in itertools.product(range(len(margins)), range(len(cost_ratios))):
        one = cost_ratios.dtype.type(1)
        decision, slow = gate.decide_with_slow(steps["fast"], steps["slow"], one, cost_ratios[c], margins[m])
        gold, taken = np.where(slow, y_slow, y), np.where(slow, accept_slow, accept)
        cell = [decision & gold, decision & ~gold, ~decision & best, ~decision & ~best, slow]
        cell += [np.where(slow, tokens, 0), decision & ~taken, ~decision & best]
        for name, values in zip(fields, cell, strict=True):
            table[name][m, c] = values.sum()
    return table


def assert_same_table(found, expected):
    for name, counts in expected.items():
        np.testing.assert_array_equal(getattr(found, name), counts, err_msg=name)


def test_equals_brute_force_in_exact_rationals_ties_and_edges_included():
    fast_pairs = list(itertools.product(EIGHTHS, repeat=2))
    slow_pairs = list(itertools.product([Fraction(0), Fraction(1, 2), Fraction(7, 8), Fraction(1)], repeat=2))
    steps = [(*fast, *slow) for fast in fast_pairs for slow in slow_pairs]
    y, found = np.arange(len(steps)) % 3 == 0, []
    for convert, dtype in ((np.asarray, np.float32), (np.asarray, np.float64), (jnp.asarray, np.float32)):
        columns = [convert(floats(column, dtype)) for column in zip(*steps, strict=True)]
        passes = Pass(*columns[:2]), Pass(*columns[2:])
        found.append(control_surface(*passes, convert(y), floats(EXACT_COSTS), floats(EXACT_MARGINS)))
    ties = 0
    for (m, margin), (c, r) in itertools.product(enumerate(EXACT_MARGINS), enumerate(EXACT_COSTS)):
        by_fast, by_slow = (np.array([intervenes(*p, r) for p in pairs]) for pairs in (fast_pairs, slow_pairs))
        slow = np.array([thinks(*p, r, margin) for p in fast_pairs])
        decision = np.where(slow[:, None], by_slow, by_fast[:, None]).ravel()
        cell = (decision & y, decision & ~y, ~decision & y, ~decision & ~y, np.repeat(slow, len(slow_pairs)))
        for table in found:
            counts = (table.tp, table.fp, table.fn, table.tn, table.slow)
            assert [int(x.sum()) for x in cell] == [int(x[m, c]) for x in counts], (margin, r)
        ties += sum(abs(p - 1 / (1 + q * r)) in (0, margin) for q, p in fast_pairs)
    assert ties > 100, "the grid must hold ties"


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 400),
    decimals=st.sampled_from([None, 1, 2]),
    dtype=st.sampled_from([np.float32, np.float64]),
    cost_ratios=st.lists(st.floats(0, 50) | st.sampled_from([0.0, 1.0, 2.0, 1 / 1.2]), min_size=1, max_size=12),
    margins=st.lists(st.floats(0, 1.5) | st.sampled_from([0.0, 0.1, 0.3, 1.0]), min_size=1, max_size=10),
    two=st.booleans(),
    third=st.booleans(),
)
def test_equals_the_gate_bit_for_bit(seed, n, decimals, dtype, cost_ratios, margins, two, third):
    steps = random_steps(seed, n, dtype, decimals, two, third)
    tokens = np.random.default_rng(seed).integers(0, 500, n)
    found = control_surface(**steps, cost_ratios=cost_ratios, margins=margins, tokens=tokens)
    assert found.cost_ratios.dtype == found.settings.dtype == dtype
    assert_same_table(found, brute_force(steps, found.cost_ratios, found.settings, tokens))


@pytest.mark.parametrize(
    "cost_ratios",
    [
        np.geomspace(0.1, 10, 256),
        np.linspace(0, 4, 256),
        1 + np.arange(40) * np.finfo(np.float32).eps,  # neighbouring floats, all in one bucket
        np.concatenate([[0, 0, 1e-40, 1e-30], np.geomspace(1e-6, 1e6, 30), [1e37]]),
        [0.0],
        [1.0] * 5,
    ],
    ids=["log", "linear", "neighbours", "wide", "zero", "equal"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_grid_of_costs_is_searched_exactly(cost_ratios, dtype):
    steps = random_steps(7, 3000, dtype, decimals=2)
    margins = np.array([0, 0.07, 0.5], dtype)
    found = control_surface(**steps, cost_ratios=cost_ratios, margins=margins)
    ratios = np.asarray(cost_ratios, dtype)
    expected = brute_force(steps, ratios, margins, np.zeros(3000, int))
    del expected["slow_tokens"]
    assert_same_table(found, expected)


def test_index_search_is_exact_next_to_every_quotient():
    """Costs within a few ulps of r*; a comparison with the rounded quotient would give wrong indices for some."""
    rng = np.random.default_rng(0)
    need, accept = rng.random(2000, np.float32), rng.random(2000, np.float32)
    ratios = (1 - accept) / (accept * need)
    wrong = 0
    for ulps in (-2, -1, 0, 1, 2):
        costs = np.sort((ratios.view(np.int32) + ulps).view(np.float32))
        grid = cost_grid.cost_grid(costs)
        index = np.asarray(cost_grid.decision_index(need, accept, grid))
        assert np.all((1 - accept)[index > 0] > (accept * need * costs[index - 1])[index > 0])
        inside = index < len(costs)
        assert np.all((1 - accept)[inside] <= (accept * need * np.append(costs, np.float32(np.inf))[index])[inside])
        wrong += np.count_nonzero(index != np.searchsorted(costs, ratios))
    assert wrong > 0, "the costs must include some that the quotient misplaces"


@pytest.mark.parametrize("by_numpy", [True, False])
def test_blocks_and_tails_count_every_step_once(monkeypatch, by_numpy):
    if by_numpy:  # without XLA, whose module cannot be imported then
        monkeypatch.setitem(sys.modules, "prism_jax.decision.costs.cost_search", None)
        monkeypatch.delattr("prism_jax.decision.costs.cost_search")
    else:
        monkeypatch.setattr(surface_counts, "_FEW", 0)
    n = surface_counts._CHUNK + 777  # one whole block of steps and a padded one
    steps, tokens = random_steps(3, n), np.arange(n) % 300
    margins = np.linspace(0, 0.6, surface_counts._MARGINS + 3).astype(np.float32)
    cost_ratios = np.float32([0.5, 1, 2, 4])
    found = control_surface(**steps, cost_ratios=cost_ratios, margins=margins, tokens=tokens)
    assert_same_table(found, brute_force(steps, cost_ratios, margins, tokens))


class BothWaysOfCounting(chex.TestCase, parameterized.TestCase):
    """Counting by XLA, as in `jit` and on accelerators, gives the same integers as the host."""

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(  # each two of the options in all four ways
        (False, False, False), (False, True, True), (True, False, True), (True, True, False)
    )
    def test_jit_equals_host(self, grouped, accepts, two):
        steps, with_tokens = random_steps(5, 500, decimals=2, two=two, third=two != grouped), accepts != grouped
        if not accepts:
            steps = {name: of for name, of in steps.items() if name not in ("y_need", "y_accept", "y_accept_slow")}
        extra = {"groups": np.arange(500) % 3} if grouped else {}
        extra |= {"tokens": np.arange(500) * 7} if with_tokens else {}

        def count(arguments):
            return control_surface(
                **arguments,
                cost_ratios=(4.0, 0.5, 1.0, 1 / 1.2),
                margins=(0.0, 0.1, 2.0),
                num_groups=3 if grouped else None,
            )

        host = count(steps | extra)
        traced = self.variant(count)(jax.tree.map(jnp.asarray, steps | extra))
        chex.assert_trees_all_equal_structs(host, traced)
        for name, on_host, by_xla in zip(surface.Surface._fields, host, traced, strict=True):
            if on_host is not None:
                self.assertIsInstance(by_xla, jax.Array)
                np.testing.assert_array_equal(on_host, by_xla, err_msg=name)
        chex.assert_trees_all_close(np.float32(host.slow_rate()), np.asarray(traced.slow_rate()))

    @chex.variants(with_jit=True)
    def test_jit_equals_host_on_long_axes(self):
        steps = random_steps(19, 400)
        axes = {"cost_ratios": np.geomspace(0.05, 20, 300), "margins": np.linspace(0, 1, 7)}
        host = control_surface(**steps, **axes)
        traced = self.variant(lambda arguments: control_surface(**arguments, **axes))(jax.tree.map(jnp.asarray, steps))
        chex.assert_trees_all_equal(tuple(host[2:7]), jax.tree.map(np.asarray, tuple(traced[2:7])))

    @pytest.mark.slow
    def test_vmap_counts_each_batch(self):
        batches = [random_steps(seed, 50) for seed in range(3)]
        stacked = jax.tree.map(lambda *values: jnp.stack(values), *batches)
        found = jax.vmap(lambda steps: control_surface(**steps).tp)(stacked)
        np.testing.assert_array_equal(found, np.stack([control_surface(**batch).tp for batch in batches]))

    def test_same_shapes_compile_once(self):
        count = jax.jit(chex.assert_max_traces(lambda steps: control_surface(**steps).tp, n=1))
        for seed in range(3):
            count(jax.tree.map(jnp.asarray, random_steps(seed, 64)))


def test_host_blocks_compile_few_programs(monkeypatch):
    monkeypatch.setattr(surface_counts, "_FEW", 0)
    cost_search.compiled_slow_range.clear_cache()
    for n in (5000, 6000, 8000):
        control_surface(**random_steps(n, n))
    assert cost_search.compiled_slow_range._cache_size() == 1


@pytest.mark.parametrize("two", [False, True])
def test_groups_partition_the_surface(two):
    steps, tokens = random_steps(11, 1000, two=two, third=two), np.arange(1000)
    groups = np.random.default_rng(0).integers(0, 4, 1000)
    groups[groups == 2] = 0  # a group without steps
    whole = control_surface(**steps, tokens=tokens)
    parts = control_surface(**steps, tokens=tokens, groups=groups)
    assert parts.tp.shape == (4, *whole.tp.shape)
    for name in ("steps", "tp", "fp", "fn", "tn", "slow", "slow_tokens", "rejected", "missed"):
        np.testing.assert_array_equal(getattr(parts, name).sum(axis=0), getattr(whole, name), err_msg=name)
    for group in (0, 1, 3):
        rows = groups == group
        alone = control_surface(**jax.tree.map(operator.itemgetter(rows), steps), tokens=tokens[rows])
        for name in ("tp", "fn", "slow", "slow_tokens", "rejected"):
            np.testing.assert_array_equal(getattr(parts, name)[group], getattr(alone, name), err_msg=name)
    assert np.isnan(parts.speak_rate()[2]).all() and not np.isnan(parts.speak_rate()[[0, 1, 3]]).any()


def test_realised_cost_is_the_metric_of_each_cell():
    steps = random_steps(13, 400)
    found = control_surface(**steps)
    signals = steps["fast"], steps["slow"]
    for (m, margin), (c, r) in itertools.product(enumerate(found.settings), enumerate(found.cost_ratios)):
        decision, _ = gate.decide_with_slow(*signals, np.float32(1), r, margin)
        expected = metrics.realised_cost(decision, steps["y_need"], steps["y_accept"], 3.0, 3.0 * float(r))
        np.testing.assert_allclose(found.realised_cost(c_fa=3.0)[m, c], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="found no acceptance counts, expected y_need and y_accept"):
        control_surface(*signals, steps["y"]).realised_cost()


def test_a_log_replays_only_where_it_holds_the_slow_signals():
    steps = random_steps(17, 500, np.float64)
    ran = gate.slow_band(*steps["fast"], 1.0, 2.0, 0.10)
    log = steps | {"slow": Pass(*(np.where(ran, value, np.nan) for value in steps["slow"]))}
    replay = {"cost_ratios": [2.0], "margins": [0.0, 0.04, 0.10]}
    assert_same_table(
        control_surface(**log, **replay), control_surface(**steps, **replay)._asdict() | {"slow_tokens": None}
    )
    with pytest.raises(ValueError, match=r"margins: found 0\.11, which runs the slow pass where"):
        control_surface(**log, cost_ratios=[2.0], margins=[0.0, 0.11])
    with pytest.raises(ValueError, match=r"margins: found 0\.1, which runs"):
        control_surface(**log, cost_ratios=[2.0, 1.0], margins=[0.10])
    log["slow"] = log["slow"]._replace(need=steps["slow"].need)
    with pytest.raises(ValueError, match="expected two probabilities, or NaN in both"):
        control_surface(**log)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.array([0.0, 0.5])}, "y: found 0.5 at index 1, expected 0 or 1"),
        ({"y_need": np.array([1, 0])}, "found one of them, expected both or neither"),
        ({"groups": np.array([0, -1])}, "groups: found -1 at index 1"),
        ({"groups": np.array([0, 5]), "num_groups": 5}, r"groups: found 5 at index 1, expected an integer in \[0, 4\]"),
        ({"tokens": np.array([0.5, 1])}, "tokens: found dtype float64, expected integers"),
        ({"cost_ratios": [1.0, -1.0]}, "cost_ratios: found -1.0 at index 1"),
        ({"cost_ratios": [np.inf]}, "cost_ratios: found inf"),
        ({"cost_ratios": []}, "cost_ratios: found an empty array"),
        ({"margins": np.array([[0.1]])}, "margins: found shape"),
        ({"margins": np.array([np.nan])}, "margins: found nan"),
    ],
)
def test_bad_input_is_named(change, message):
    steps = {"fast": Pass(QUARTERS, QUARTERS), "slow": Pass(QUARTERS, QUARTERS), "y": np.array([0, 1])}
    with pytest.raises(ValueError, match=message):
        control_surface(**steps | change)


def test_traced_axes_are_refused():
    quarters = Pass(jnp.array([0.25, 0.75]), jnp.array([0.25, 0.75]))
    steps = {"fast": quarters, "slow": quarters, "y": jnp.array([0, 1])}
    with pytest.raises(ValueError, match="margins: found a traced value"):
        jax.jit(lambda margin: control_surface(**steps, margins=margin[None]).tp)(jnp.array(0.1))


def test_token_totals_that_jax_cannot_hold_are_refused():
    n = 3
    half = Pass(jnp.full(n, 0.5), jnp.full(n, 0.5))
    steps = {"fast": half, "slow": half, "y": jnp.ones(n, int)}
    tokens = jnp.full(n, 2**30)
    with pytest.raises(ValueError, match="tokens: found a total of 3221225472, expected at most 2147483647"):
        control_surface(**steps, tokens=tokens, margins=[1.0])
    exact = control_surface(**jax.tree.map(np.asarray, steps), tokens=np.asarray(tokens), margins=[1.0])
    assert np.all(exact.slow_tokens == 3 * 2**30)
