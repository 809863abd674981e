"""Adapters of the student: fresh ones change nothing, merged ones compute the same, and dropout is what it says."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from full_pass import all_logits
from student_sizes import small

from prism_jax.student.lora import TARGETS, Adapter, LoraConfig, own
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.sharding import partition_spec

STUDENT = small(vocab_size=19, num_layers=3, initializer_range=0.2)
_DRAWN = np.random.default_rng(9).integers(19, size=(2, 7), dtype=np.int32)
_DRAWN[:, 1] = 4, 2  # both answers occur
IDS = jax.device_put(_DRAWN)
HEADS = [("frozen", ()), ("slots", (4, 2)), ("all", ())]


def made(config, student=STUDENT, scale=0.1):
    """A model with adapters that are not zero, its parameters, and those of its base."""
    base = Qwen3(student).init(jax.random.key(0))
    model = Qwen3(student, config)
    params = model.adapted(base, jax.random.key(1))
    flat = traverse_util.flatten_dict(params, sep="/")
    ours = traverse_util.flatten_dict(model.own(params), sep="/")
    for number, name in enumerate(ours):
        flat[name] += scale * jax.random.normal(jax.random.key(number), flat[name].shape)
    return model, traverse_util.unflatten_dict(flat, sep="/"), base


def logits(model, params, key=None):
    return all_logits(model, params, IDS, key=key)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "tokens"), HEADS)
@pytest.mark.parametrize("tied", [True, False])
def test_merged_parameters_compute_the_same(head, tokens, tied):
    student = dataclasses.replace(STUDENT, tied=tied)
    model, params, base = made(LoraConfig(rank=2, head=head, tokens=tokens), student)
    plain = model.plain(jax.tree.map(jnp.copy, params))
    assert jax.tree.structure(plain) == jax.tree.structure(base)
    expected = logits(model, params)
    np.testing.assert_allclose(logits(Qwen3(student), plain), expected, atol=1e-5)
    assert jnp.abs(expected - logits(Qwen3(student), base)).max() > 0.01
    if tokens:
        pair = model.answers(params, jnp.ones((1, 1, 16)), jnp.zeros((1, 1), int), *tokens)
        np.testing.assert_allclose(
            pair, Qwen3(student).answers(plain, jnp.ones((1, 1, 16)), jnp.zeros((1, 1), int), *tokens), atol=1e-6
        )


@pytest.mark.slow
@pytest.mark.parametrize(("head", "tokens"), HEADS)
def test_fresh_adapters_change_nothing(head, tokens):
    config = LoraConfig(rank=2, head=head, tokens=tokens)
    model, params, base = made(config, scale=0.0)
    np.testing.assert_allclose(logits(model, params), logits(Qwen3(STUDENT), base), atol=2e-6)  # XLA fuses otherwise
    before = jax.device_get(base)
    jax.tree.map(np.testing.assert_array_equal, model.plain(params), before)


@pytest.mark.slow
def test_what_trains_is_float32_beside_a_base_in_bfloat16():
    student = dataclasses.replace(STUDENT, param_dtype="bfloat16", dtype="bfloat16", tied=False)
    model, params, base = made(LoraConfig(rank=2, head="all"), student)
    part = traverse_util.flatten_dict(model.own(params), sep="/")
    assert {leaf.dtype.name for leaf in part.values()} == {"float32"}
    assert {name for name in part if "/lora/" not in name} == {"head/kernel"}
    assert len(part) == 2 * len(TARGETS) + 1
    rest = traverse_util.flatten_dict(params, sep="/")
    assert {leaf.dtype.name for name, leaf in rest.items() if name not in part} == {"bfloat16"}
    assert logits(model, params).shape == logits(Qwen3(student), base).shape
    assert {leaf.dtype.name for leaf in jax.tree.leaves(model.plain(params))} == {"bfloat16"}


def test_only_the_targets_have_adapters():
    config = LoraConfig(rank=3, targets=("v_proj", "up_proj"))
    model = Qwen3(STUDENT, config)
    part = traverse_util.flatten_dict(own(model.abstract_params(), config, tied=True), sep="/")
    assert {name: leaf.shape for name, leaf in part.items()} == {
        "layers/attention/v_proj/lora/a": (3, 16, 3),
        "layers/attention/v_proj/lora/b": (3, 3, 8),
        "layers/mlp/up_proj/lora/a": (3, 16, 3),
        "layers/mlp/up_proj/lora/b": (3, 3, 32),
    }


@pytest.mark.slow
def test_dropout_keeps_the_mean_and_differs_by_layer_and_matrix():
    from flax import nnx

    adapter = Adapter(512, 4, LoraConfig(rank=2, alpha=2.0, dropout=0.25), nnx.Rngs(0))
    adapter.a[...], adapter.b[...] = jnp.ones((512, 2)), jnp.ones((2, 4))
    x = jnp.ones((64, 512))
    dropped = adapter(x, jax.random.key(0))[:, 0] / 1024  # mean of kept / (1 - dropout) over the inputs
    assert abs(float(dropped.mean()) - 1) < 4 * (0.25 / 0.75 / 512 / 64) ** 0.5
    np.testing.assert_allclose(float(dropped.std()), (0.25 / 0.75 / 512) ** 0.5, rtol=0.3)
    np.testing.assert_array_equal(adapter(x, None), 1024.0)
    model, params, _ = made(LoraConfig(rank=2, dropout=0.5))
    first, again, other = (logits(model, params, jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert jnp.abs(first - other).max() > 1e-3
    np.testing.assert_array_equal(logits(*made(LoraConfig(rank=2))[:2]), logits(model, params))


def test_each_layer_and_matrix_draws_its_own_dropout(monkeypatch, draw_params):
    keys = []

    def note(self, x, key):
        jax.debug.callback(lambda data: keys.append(tuple(np.asarray(data))), jax.random.key_data(key))
        return jnp.zeros((len(x), self.b.shape[-1]))

    monkeypatch.setattr(Adapter, "__call__", note)
    model = Qwen3(STUDENT, LoraConfig(rank=2, dropout=0.5))
    params = draw_params(model)
    jax.block_until_ready(jax.jit(lambda key: logits(model, params, key))(jax.random.key(0)))
    jax.effects_barrier()
    assert len(keys) == len(set(keys)) == STUDENT.num_layers * len(TARGETS)


def test_every_parameter_of_an_adapter_is_sharded_by_name():
    for tied in (True, False):
        for head, tokens in HEADS:
            model = Qwen3(dataclasses.replace(STUDENT, tied=tied), LoraConfig(rank=2, head=head, tokens=tokens))
            for name, leaf in traverse_util.flatten_dict(model.abstract_params(), sep="/").items():
                assert len(partition_spec(name, leaf.ndim)) == leaf.ndim
