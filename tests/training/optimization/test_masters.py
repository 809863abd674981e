"""Updates that are too small for bfloat16: which masters apply them, and what each kind of master stores."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from prism_jax.training.optimization import masters
from prism_jax.training.optimization.optimizer import Optimizer, schedule
from prism_jax.training.run_config import TrainingConfig

KINDS = ("none", "float32", "split", "stochastic")
FLOATS = arrays.arrays(np.float32, 64, elements=st.floats(-(2.0**100), 2.0**100, width=32))
PATTERNS = arrays.arrays(np.uint32, 64)
KEY = jax.random.key(0)


def bits(x):
    return np.asarray(x).view(np.uint16 if x.dtype == jnp.bfloat16 else np.uint32)


@given(PATTERNS)
def test_halves_join_to_the_same_bits(x):
    """Holds for all bits, including subnormal numbers, infinities and NaN."""
    high, low = masters.halve(jnp.asarray(x.view(np.float32)))
    assert (high.dtype, low.dtype) == (jnp.bfloat16, jnp.int16)
    np.testing.assert_array_equal(bits(masters.join(high, low)), x)


def test_halves_join_at_every_tie_and_at_the_ends_of_the_range():
    ends = [0.0, -0.0, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan]
    ties = ((np.arange(0x3F00, 0x4000, dtype=np.uint32) << 16) + 0x8000).view(np.float32)
    x = jnp.asarray(np.concatenate([np.array(ends, np.float32), ties, -ties]))
    np.testing.assert_array_equal(bits(masters.join(*masters.halve(x))), bits(x))
    assert jnp.isnan(masters.rounded(x[6:7])).all()


@given(FLOATS)
def test_the_upper_half_is_the_nearest_bfloat16(x):
    found = np.asarray(masters.rounded(jnp.asarray(x))).astype(np.float64)
    cast = np.asarray(jnp.asarray(x).astype(jnp.bfloat16)).astype(np.float64)  # the cast rounds ties to even
    np.testing.assert_array_equal(np.abs(found - x), np.abs(cast - x))


def test_stochastic_rounding_is_unbiased_and_returns_the_two_neighbours():
    """The mean of n draws is within five standard errors, where the upper one has share (x - low) / (high - low)."""
    draws = 40_000
    for value in (1.001, -1.001, 0.3, 1e-6, -7.7e8):
        x = jnp.full(draws, value, jnp.float32)
        found = np.asarray(masters.stochastic(x, KEY)).astype(np.float64)
        low, high = np.unique(found)
        exact = float(np.float32(value))
        assert low < exact < high and np.nextafter(np.float32(0), 1) < high - low <= 2**-7 * abs(exact)
        share = (exact - low) / (high - low)
        error = (high - low) * np.sqrt(share * (1 - share) / draws)
        assert abs(found.mean() - exact) < 5 * error


def test_stochastic_rounding_keeps_exact_values_and_depends_on_the_key():
    exact = jnp.arange(-128, 128, dtype=jnp.float32) / 64
    np.testing.assert_array_equal(masters.stochastic(exact, KEY).astype(jnp.float32), exact)
    x = jnp.linspace(0.1, 0.9, 256)
    one, other = (masters.stochastic(x, jax.random.key(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one, masters.stochastic(x, jax.random.key(1)))
    assert (np.asarray(one) != np.asarray(other)).any()


def descend(kind, steps=400, rate=1e-5, rows=64):
    """Updates bfloat16 weights of 1 with a gradient of 1, so that each of Adam's updates equals the learning rate."""
    config = TrainingConfig(
        steps=steps, learning_rate=rate, warmup=0.0, final_rate=1.0, weight_decay=0.0, clip=1e9, master=kind
    )
    optimizer = Optimizer(config)
    params = {"embedding": jnp.ones((rows, 128), jnp.bfloat16)}
    gradient = {"embedding": jnp.ones((rows, 128), jnp.float32)}

    def one(carry, step):
        params, state = carry
        return optimizer.update(gradient, state, params, step), None

    run = jax.jit(lambda carry: jax.lax.scan(one, carry, jnp.arange(steps))[0])
    params, state = run((params, optimizer.init(params)))
    expected = float(np.asarray(schedule(config)(np.arange(steps))).sum(dtype=np.float64))
    return params, masters.read(params, state.master, kind), expected


def test_plain_bfloat16_loses_small_updates():
    params, _, expected = descend("none")
    assert expected == pytest.approx(400e-5, rel=0.01)
    assert (np.asarray(params["embedding"]) == 1).all()


@pytest.mark.parametrize("kind", ["float32", "split"])
def test_a_master_moves_by_the_sum_of_its_updates(kind):
    params, values, expected = descend(kind)
    np.testing.assert_allclose(1 - np.asarray(values["embedding"]), expected, rtol=1e-2)
    np.testing.assert_array_equal(params["embedding"], masters.rounded(values["embedding"]))
    assert (np.asarray(params["embedding"]) < 1).all()


def test_stochastic_rounding_moves_by_the_sum_of_its_updates_on_average():
    """8192 weights walk 400 steps on the grid of bfloat16 below 1, of spacing 2^-8; bound: five standard errors."""
    params, _, expected = descend("stochastic")
    moved = 1 - np.asarray(params["embedding"]).astype(np.float64)
    assert moved.mean() == pytest.approx(expected, abs=5 * np.sqrt(expected * 2**-8 / moved.size))
    assert moved.std() > 0


@pytest.mark.slow
def test_the_split_master_equals_the_float32_master_bit_for_bit():
    """Compares parameters, masters and moments after fifty steps with weight decay and random gradients."""

    def run(kind):
        optimizer = Optimizer(TrainingConfig(steps=50, learning_rate=1e-3, weight_decay=0.1, master=kind))
        start = jax.random.normal(KEY, (64, 128), jnp.bfloat16)
        params = {"embedding": start, "final_norm": {"weight": jnp.ones(128, jnp.bfloat16)}}
        state = optimizer.init(params)
        update = jax.jit(optimizer.update)
        for step in range(50):
            drawn = jax.tree.map(lambda p, step=step: jax.random.normal(jax.random.key(step), p.shape), params)
            params, state = update(drawn, state, params, jnp.asarray(step))
        return params, masters.read(params, state.master, kind), state.moments

    one, other = run("float32"), run("split")
    assert (np.asarray(one[0]["embedding"]).astype(np.float32) != np.asarray(one[1]["embedding"])).any()
    chex.assert_trees_all_equal(one, other)


def test_the_state_that_each_kind_stores_beside_the_parameters():
    params = {"embedding": jnp.ones((4, 8), jnp.bfloat16)}
    kept = {kind: sum(leaf.nbytes for leaf in jax.tree.leaves(masters.init(params, kind))) for kind in KINDS}
    assert kept == {"none": 0, "float32": 4 * 32, "split": 2 * 32, "stochastic": 0}
    for kind in KINDS:
        np.testing.assert_array_equal(masters.read(params, masters.init(params, kind), kind)["embedding"], 1.0)
