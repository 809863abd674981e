"""Chunked attention of trunk and branches, compared with dense attention under a mask built position by position."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from full_pass import quick_jit as jit
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.student.attention import attend, no_branches, split_evenly, tree_mask
from prism_jax.student.flash import flash_masks, flash_tree

BATCH, HEAD_DIM = 2, 4
# Lengths of trunk, branches and window; numbers of query heads and key/value heads.
SHAPES = ((5, 12, 4, 4, 2), (3, 24, 12, 2, 2), (7, 8, 8, 3, 1))


@st.composite
def rows(draw, trunk, length, window):
    """Draws the three integers of each branch position of a row: branches of heads and leaves, then padding."""
    stop, branch, leaf = [], [], []
    for number in range(1, draw(st.integers(0, 6)) + 1):
        parts = draw(st.lists(st.integers(1, window), min_size=1, max_size=4))
        size = min(sum(parts), window, length - len(stop))
        if not size:
            break
        stop += [draw(st.integers(0, trunk))] * size
        branch += [number] * size
        leaf += np.repeat(np.arange(len(parts)), parts)[:size].tolist()
    padding = [0] * (length - len(stop))
    return [column + padding for column in (stop, branch, leaf)]


def dense_mask(stop, branch, leaf, trunk):
    """[L, L] of one row: whether a position (first axis) sees another one (second axis)."""
    length = trunk + len(stop)
    seen = np.zeros((length, length), bool)
    for q in range(length):
        for k in range(length):
            if q < trunk:
                seen[q, k] = k <= q
            elif k < trunk:
                seen[q, k] = k < stop[q - trunk]
            else:
                i, j = q - trunk, k - trunk
                shared = branch[i] == branch[j] > 0 and leaf[j] in (0, leaf[i])
                seen[q, k] = i == j or (shared and j < i)
    return seen


def dense_attend(q, k, v, seen):
    """Textbook attention under a [B, L, L] mask; query head n reads key/value head n // (N / K)."""
    groups = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k) / np.sqrt(q.shape[3])
    weights = jnp.where(seen[:, None], jnp.exp(scores - scores.max(axis=-1, keepdims=True)), 0)
    return jnp.einsum("bnqk,bknh->bqnh", weights / weights.sum(axis=-1, keepdims=True), v)


def draw_qkv(seed, length, heads, kv_heads):
    rng = np.random.default_rng(seed)
    shapes = [(BATCH, length, n, HEAD_DIM) for n in (heads, kv_heads, kv_heads)]
    return [jax.device_put(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def with_gradients(attention):
    """A function of (q, k, v), mask and cotangent: attention, and gradients of its product with the cotangent."""

    def product(qkv, mask, cotangent):
        out = attention(*qkv, mask)
        return jnp.sum(out * cotangent), out

    def run(qkv, mask, cotangent):
        (_, out), gradients = jax.value_and_grad(product, has_aux=True)(qkv, mask, cotangent)
        return out, gradients

    return run


@functools.partial(jit, static_argnums=(2, 3))
def tree(qkv, layout, trunk, window, cotangent):
    return with_gradients(attend)(qkv, tree_mask(*layout, trunk, window), cotangent)


dense = jit(with_gradients(dense_attend))


def assert_same(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=0), got, want)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=30)
@given(data=st.data())
def test_values_and_gradients_equal_dense_attention(shape, data):
    trunk, length, window, heads, kv_heads = shape
    layouts = np.array([data.draw(rows(trunk, length, window)) for _ in range(BATCH)], np.int32)
    qkv = draw_qkv(data.draw(st.integers(0, 2**32 - 1)), trunk + length, heads, kv_heads)
    cotangent = draw_qkv(1, trunk + length, heads, heads)[0]
    got = tree(qkv, tuple(layouts.swapaxes(0, 1)), trunk, window, cotangent)
    assert_same(got, dense(qkv, np.stack([dense_mask(*layout, trunk) for layout in layouts]), cotangent))


def long_layout(trunk, length, window):
    """Branches of up to one window each, ordered by their stops, then padding; and the bound of every chunk."""
    rng = np.random.default_rng(3)
    stop, branch, leaf = [], [], []
    while length - len(stop) > 30:
        parts = rng.integers(1, window // 4 + 1, size=4)
        size = min(int(parts.sum()), length - 10 - len(stop))
        stop += [int(trunk * (len(stop) + size) / length)] * size
        branch += [len(set(branch)) + 1] * size
        leaf += np.repeat(np.arange(4), parts)[:size].tolist()
    layout = [column + [0] * (length - len(column)) for column in (stop, branch, leaf)]
    return layout, tuple(np.array(layout[0]).reshape(-1, window).max(axis=1).tolist())


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        *(pytest.param(path, False, marks=pytest.mark.slow) for path in ("skipping", "flash", "flash, no bounds")),
        ("skipping", True),
        ("flash", True),
    ],
)
def test_long_rows_are_split_into_runs_that_skip_what_no_query_sees(path, shared):
    """Values and gradients equal dense attention; the flash path uses XLA's unfused implementation.

    In a row that two streams share, none sees positions before its own trunk.
    """
    trunk, length, window = (120, 160, 20) if shared else (300, 400, 20)
    layout, visible = long_layout(trunk, length, window)
    assert visible[0] < 0.2 * trunk and visible[-2] > 0.85 * trunk
    seen, begin = dense_mask(*layout, trunk), np.where(np.arange(trunk) < 56, 0, 56 * shared)
    own = np.concatenate([begin, begin[np.maximum(np.array(layout[0]) - 1, 0)]])
    seen[:, :trunk] &= np.arange(trunk) >= own[:, None]
    columns = tuple(np.array([column] * BATCH, np.int32) for column in (*layout, begin))
    qkv, cotangent = draw_qkv(0, trunk + length, 4, 2), draw_qkv(1, trunk + length, 4, 4)[0]

    @jit
    def run(qkv, columns, cotangent):
        mask = tree_mask(*columns[:3], trunk, window, columns[3] if shared else None)
        if path == "skipping":
            return with_gradients(functools.partial(attend, visible=visible))(qkv, mask, cotangent)
        masks = flash_masks(mask, None if path.endswith("no bounds") else visible)
        return with_gradients(lambda q, k, v, mask: flash_tree(q, k, v, masks, "xla"))(qkv, mask, cotangent)

    assert_same(run(qkv, columns, cotangent), dense(qkv, np.stack([seen] * BATCH), cotangent))


def test_bounds_save_work():
    """The compiled program has at least a fifth fewer operations."""
    trunk, length, window = 512, 2000, 20
    _, visible = long_layout(trunk, length, window)
    mask = jax.eval_shape(lambda: tree_mask(*jnp.zeros((3, 1, length), jnp.int32), trunk, window))
    q, k = (jax.ShapeDtypeStruct((1, trunk + length, n, 8), jnp.float32) for n in (4, 2))
    work = [
        jax.jit(functools.partial(attend, visible=bounds)).lower(q, k, k, mask).cost_analysis()["flops"]
        for bounds in (visible, None)
    ]
    assert work[0] < 0.8 * work[1]


@given(length=st.integers(1, 100).map(lambda x: 24 * x))
def test_runs_tile_the_positions_in_whole_windows(length):
    found = split_evenly(length, 24)
    assert [start for start, _ in found] == [0, *(stop for _, stop in found[:-1])] and found[-1][1] == length
    assert len(found) <= 4 and all(start < stop and start % 24 == stop % 24 == 0 for start, stop in found)


def shape_of_mask(trunk):
    """A mask without values, of two windows of 4."""
    return jax.eval_shape(lambda: tree_mask(*jnp.zeros((3, BATCH, 8), jnp.int32), trunk, 4))


def test_there_must_be_one_bound_per_chunk():
    with pytest.raises(ValueError, match=r"(?m)^visible: found 1 bounds, expected one for each of the 2 chunks$"):
        jax.eval_shape(functools.partial(attend, visible=(4,)), *draw_qkv(0, 12, 4, 2), shape_of_mask(4))


def test_the_fused_backward_pass_needs_even_lengths():
    with pytest.raises(ValueError, match=r"^attention: found a trunk of 5 and a window of 4, expected even numbers"):
        flash_masks(shape_of_mask(5))


@pytest.mark.slow
def test_without_branches_attention_is_causal():
    qkv = draw_qkv(0, 9, 4, 2)
    causal = np.tile(np.tril(np.ones((9, 9), bool)), (BATCH, 1, 1))
    ones = jnp.ones_like(qkv[0])
    got = jit(with_gradients(attend))(qkv, no_branches(BATCH, 9), ones)
    assert_same(got, dense(qkv, causal, ones))


def test_masked_positions_have_weight_zero_and_no_gradient():
    trunk, length, window, heads, kv_heads = SHAPES[0]
    layout = ([2] * 12, [1, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0], [0, 1, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0])
    seen = dense_mask(*layout, trunk)
    qkv = draw_qkv(0, trunk + length, heads, kv_heads)
    columns = tuple(np.array([column] * BATCH, np.int32) for column in layout)
    for query in range(trunk, trunk + length):
        cotangent = np.zeros(qkv[0].shape, np.float32)
        cotangent[:, query] = 1.0
        _, (_, to_keys, to_values) = tree(qkv, columns, trunk, window, cotangent)
        for gradient in (to_keys, to_values):
            assert not np.asarray(gradient)[:, ~seen[query]].any()
        assert np.asarray(to_values)[:, seen[query]].all()


def test_branches_must_fill_whole_windows():
    column = jnp.zeros((1, 6), jnp.int32)
    with pytest.raises(ValueError, match=r"^branches: found 6 positions, expected a multiple of the window 4$"):
        tree_mask(column, column, column, 3, 4)


def test_the_softmax_is_in_float32_whatever_the_inputs(equations):
    mask = jit(tree_mask, static_argnums=(3, 4))(*(np.full((BATCH, 4), x) for x in (3, 1, 0)), 3, 4)
    q, k, v = (x.astype(jnp.bfloat16) for x in draw_qkv(0, 7, 4, 2))
    assert jax.eval_shape(attend, q, k, v, mask).dtype == jnp.bfloat16
    types = [e.invars[0].aval.dtype for e in equations(attend, q, k, v, mask) if e.primitive.name == "exp"]
    assert len(types) >= 2 and set(types) == {jnp.dtype("float32")}  # the trunk's and the branches'
