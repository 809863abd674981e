"""Properties of the model's functions; `weights/test_parity.py` compares whole models with transformers."""

import dataclasses
import functools
import operator
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from full_pass import quick_jit as jit
from student_sizes import grouped

from prism_jax.student.attention import attend, no_branches, tree_mask
from prism_jax.student.layers import Block, RMSNorm, rotary_tables
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3, Tree, take

TINY = grouped()


def tokens_and_positions(config, rows=2, length=11, seed=0):
    tokens = np.random.default_rng(seed).integers(config.vocab_size, size=(rows, length))
    return jnp.asarray(tokens, jnp.int32), jnp.tile(jnp.arange(length), (rows, 1))


def causal_logits(model, params, tokens, positions):
    return model.logits(params, model.hidden(params, tokens, positions, no_branches(*tokens.shape)))


def test_norm_casts_before_it_weighs():
    """bfloat16 reveals the order: float32 statistics, cast, then the product in bfloat16, as in Qwen3."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of parity")
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=shape).astype(np.float32) for shape in ((64, 32), (32,)))
    theirs = Qwen3RMSNorm(32, eps=1e-6).to(torch.bfloat16)
    theirs.weight.data = torch.tensor(weight).to(torch.bfloat16)
    want = theirs(torch.tensor(x).to(torch.bfloat16)).detach().to(torch.float32).numpy()
    ours = RMSNorm(32, StudentConfig(param_dtype="bfloat16"))
    ours.weight[...] = jnp.asarray(weight, jnp.bfloat16)
    got = ours(jnp.asarray(x, jnp.bfloat16))
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got.astype(jnp.float32), want)


@pytest.fixture(scope="module")
def tiny(draw_params):
    model = Qwen3(TINY)
    return model, draw_params(model)


def test_only_distances_between_positions_matter(tiny):
    model, params = tiny
    tokens, positions = tokens_and_positions(TINY)
    logits = jit(causal_logits, static_argnums=0)
    at_zero, shifted = logits(model, params, tokens, positions), logits(model, params, tokens, positions + 100)
    np.testing.assert_allclose(shifted, at_zero, atol=1e-4)
    stretched = logits(model, params, tokens, 2 * positions)
    assert np.abs(stretched - at_zero).max() > 0.1


def tree_inputs(rows=2, trunk=6, length=8, window=4):
    """Two branches, one with a head and two leaves and one with only a head, and one position of padding."""
    rng = np.random.default_rng(0)
    columns = ([5] * 4 + [6] * 3 + [0], [1] * 4 + [2] * 3 + [0], [0, 0, 1, 2, 0, 0, 0, 0])
    stop, branch, leaf = (jnp.tile(jnp.asarray(column), (rows, 1)) for column in columns)
    positions = jnp.tile(jnp.asarray([5, 6, 7, 7, 6, 7, 8, 0]), (rows, 1))
    trunk_ids, ids = (jnp.asarray(rng.integers(TINY.vocab_size, size=(rows, n))) for n in (trunk, length))
    return Tree(trunk_ids, ids, positions, stop, branch, leaf), window


@pytest.mark.slow
def test_scan_over_layers_equals_a_loop_over_blocks(tiny):
    _, params = tiny
    tree, window = tree_inputs()
    trunk, ids, positions, stop, branch, leaf, _ = tree
    block = nnx.graphdef(nnx.eval_shape(lambda: Block(TINY, nnx.Rngs(0))))

    @jit
    def loop(params):
        x = params["embedding"][jnp.concatenate([trunk, ids], axis=1)]
        trunk_positions = jnp.tile(jnp.arange(trunk.shape[1]), (len(trunk), 1))
        rotary = rotary_tables(jnp.concatenate([trunk_positions, positions], axis=1), TINY.head_dim, TINY.rope_theta)
        see = functools.partial(attend, mask=tree_mask(stop, branch, leaf, trunk.shape[1], window))
        for i in range(TINY.num_layers):
            x = nnx.merge(block, jax.tree.map(operator.itemgetter(i), params["layers"]))(x, rotary, see)
        scale = jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + TINY.norm_epsilon)
        return (x / scale * params["final_norm"]["weight"])[:, trunk.shape[1] :]

    want = loop(params)
    for unroll in (1, 2):  # 2 does not divide the 3 layers
        model = Qwen3(dataclasses.replace(TINY, unroll=unroll))
        got = jit(model.branch_hidden, static_argnums=2)(params, tree, window)
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_blocks_share_one_rotary_table_when_compiled():
    """Otherwise XLA on CPU would recompute sines in each rotation of queries and keys, forward and backward."""
    model = Qwen3(dataclasses.replace(TINY, num_layers=2, unroll=2))
    tokens, positions = tokens_and_positions(TINY)

    def loss(params):
        return jnp.mean(causal_logits(model, params, tokens, positions) ** 2)

    compiled = jit(jax.grad(loss)).lower(model.abstract_params()).compile().as_text()
    assert [compiled.count(f" {name}(") for name in ("cosine", "sine")] == [1, 1]


@pytest.mark.parametrize("tied", [True, False])
def test_answers_are_differences_of_two_logits(tied, draw_params):
    model = Qwen3(dataclasses.replace(TINY, tied=tied))
    params = draw_params(model)
    hidden = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7, TINY.hidden_dim)), jnp.float32)
    places = jnp.asarray([[0, 6, 3], [5, 5, 1]])
    logits = take(model.logits(params, hidden), places)
    yes, no = 17, 4
    np.testing.assert_allclose(
        model.answers(params, hidden, places, yes, no), logits[..., yes] - logits[..., no], atol=1e-4
    )
    np.testing.assert_array_equal(take(hidden, places), np.asarray(hidden)[np.arange(2)[:, None], places])


def test_answers_never_read_the_whole_vocabulary(tiny, equations):
    model, params = tiny
    hidden, places = jnp.ones((2, 7, TINY.hidden_dim)), jnp.zeros((2, 3), jnp.int32)
    made = equations(lambda h: model.answers(params, h, places, 1, 2), hidden)
    assert not [e for e in made if any(TINY.vocab_size in v.aval.shape for v in e.outvars)]


@pytest.mark.slow
def test_fresh_parameters():
    """Norms are 1, matrices have the configured spread, the key determines all of them, and all layers differ."""
    model = Qwen3(dataclasses.replace(TINY, tied=False, hidden_dim=48, vocab_size=301))
    init = jit(model.init)
    params, again, others = (init(jax.random.key(seed)) for seed in (3, 3, 4))
    chex.assert_trees_all_equal_shapes_and_dtypes(params, model.abstract_params())
    chex.assert_trees_all_equal(params, again)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    for (path, leaf), other in zip(leaves, jax.tree.leaves(others), strict=True):
        if path[-1].key == "weight":
            assert (leaf == 1).all()
        else:
            np.testing.assert_allclose([leaf.mean() / 0.02, leaf.std() / 0.02], [0, 1], atol=0.1)
            assert (leaf != other).mean() > 0.99
        if path[0].key == "layers" and path[-1].key == "kernel":
            assert (leaf[0] != leaf[1]).mean() > 0.99


def test_the_static_half_is_hashable_and_compiles_once(tiny):
    _, params = tiny
    tokens, positions = tokens_and_positions(TINY)
    traced = jit(chex.assert_max_traces(causal_logits, n=1), static_argnums=0)
    chex.assert_trees_all_equal(
        traced(Qwen3(TINY), params, tokens, positions),
        traced(Qwen3(dataclasses.replace(TINY)), params, tokens, positions),
    )


@pytest.mark.slow
def test_activations_and_parameters_have_the_configured_dtypes():
    model = Qwen3(dataclasses.replace(TINY, dtype="bfloat16", param_dtype="float16"))
    params = model.abstract_params()
    tokens, positions = tokens_and_positions(TINY)
    low = jax.eval_shape(model.hidden, params, tokens, positions, no_branches(*tokens.shape))
    assert low.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float16")}
    assert jax.eval_shape(model.logits, params, low).dtype == jnp.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_dim": 0}, "hidden_dim: found 0, expected at least 1"),
        ({"vocab_size": -1}, "vocab_size: found -1, expected at least 0 (0 = the tokenizer's)"),
        ({"num_kv_heads": 3}, "num_kv_heads: found 3, expected a divisor of num_heads = 4"),
        ({"head_dim": 7}, "head_dim: found 7, expected an even number: RoPE rotates pairs"),
        ({"rope_theta": float("nan")}, "rope_theta: found nan, expected a number above 0"),
        ({"dtype": "float64"}, "dtype: found 'float64', expected one of float32, bfloat16, float16"),
    ],
)
def test_bad_sizes_are_named(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(TINY, **changes)


def test_a_model_needs_its_vocabulary():
    with pytest.raises(ValueError, match=r"^vocab_size: found 0, expected the tokenizer's size to be filled in$"):
        Qwen3(StudentConfig())
