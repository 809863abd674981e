"""Products with operands in bfloat16: what is rounded, what is not, and where they are refused."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from student_sizes import grouped

from prism_jax.student import dispatch
from prism_jax.student.attention import no_branches
from prism_jax.student.dispatch import check_compute
from prism_jax.student.heads import token_cross_entropy
from prism_jax.student.layers import join
from prism_jax.student.products import FEWEST, product
from prism_jax.student.qwen3 import Qwen3

TINY = grouped(hidden_dim=16, num_layers=1)
ROUNDED = dataclasses.replace(TINY, compute="bfloat16")


def rounded(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16), np.float64)


def draw(*shape):
    return jnp.asarray(np.random.default_rng(shape).normal(size=shape), jnp.float32)


def test_operands_are_rounded_in_the_forward_and_the_backward_pass():
    x, kernel, by_out = draw(FEWEST, 12), draw(12, 5), draw(FEWEST, 5)
    out, backward = jax.vjp(lambda *args: product(*args, "bfloat16"), x, kernel)
    by_x, by_kernel = backward(by_out)
    assert {out.dtype, by_x.dtype, by_kernel.dtype} == {jnp.dtype("float32")}
    np.testing.assert_allclose(out, rounded(x) @ rounded(kernel), atol=1e-5)
    np.testing.assert_allclose(by_x, rounded(by_out) @ rounded(kernel).T, atol=1e-5)
    np.testing.assert_allclose(by_kernel, rounded(x).T @ rounded(by_out), atol=1e-4)


def test_few_rows_are_rounded_only_where_a_rounded_kernel_is_kept():
    """One row is bound by memory."""
    layer = jax.tree.map(lambda leaf: draw(*leaf.shape[1:]), Qwen3(TINY).abstract_params()["layers"])
    plain, both = join(layer, "float32"), join(layer, "bfloat16")
    for part, names in (("attention", ("qkv_proj", "o_proj")), ("mlp", ("gate_up_proj", "down_proj"))):
        for name in names:
            kept = both[part][name]
            assert {*plain[part][name]} == {"kernel"}
            np.testing.assert_array_equal(kept["rounded"], kept["kernel"].astype(jnp.bfloat16))
    kernel, x = kept["kernel"], draw(FEWEST - 1, 40)
    np.testing.assert_array_equal(product(x, kernel, "bfloat16"), product(x, kernel, "float32"))
    np.testing.assert_array_equal(product(x[:1], **kept, compute="bfloat16"), product(x[:1], kernel, "float32"))
    out = product(x[:2], **kept, compute="bfloat16")
    np.testing.assert_allclose(out, rounded(x[:2]) @ rounded(kernel), atol=1e-5)


def test_a_training_step_rounds_all_products_with_weights(monkeypatch):
    """Seven of a block and that of the head, forward and to the gradients of inputs and of weights."""
    monkeypatch.setattr(dispatch, "processor_features", lambda: "flags : fpu avx512_bf16")
    model, tokens = Qwen3(ROUNDED), jax.ShapeDtypeStruct((1, FEWEST), jnp.int32)

    def loss(params, tokens):
        hidden = model.hidden(params, tokens, tokens, no_branches(*tokens.shape))[0]
        return token_cross_entropy(model.head(params), hidden, tokens[0], jnp.ones(FEWEST), compute="bfloat16")[0]

    text = jax.jit(jax.grad(loss)).lower(model.abstract_params(), tokens).as_text()
    dots = [dot for dot in re.findall(r"dot_general.*: \((.*)\) ->", text) if dot.count("x") <= 6]  # not attention's
    assert len(dots) == 24 and all(dot.count("bf16") == 2 for dot in dots)


def test_it_is_refused_where_nothing_is_gained(monkeypatch):
    def refused(on, *features, devices=1):
        monkeypatch.setattr(dispatch, "processor_features", lambda: " ".join(("flags :", *features)))
        mesh = jax.sharding.AbstractMesh((devices,), ("data",))
        with jax.sharding.use_abstract_mesh(mesh), pytest.raises(ValueError, match="'bfloat16'") as found:
            check_compute("bfloat16", on)
        return str(found.value)

    message = "student.compute (--compute): found 'bfloat16', which can't run here: {}; use 'float32'"
    reason = "the platform is cuda, which multiplies in bfloat16 with student.dtype=bfloat16"
    assert refused("cuda", "avx512_bf16") == message.format(reason)
    reason = "the mesh has 4 devices, each of which would compute what all compute"
    assert refused("cpu", "amx_bf16", devices=4) == message.format(reason)
    reason = "the features of this processor in /proc/cpuinfo are without avx512_bf16 and amx_bf16"
    assert refused("cpu", "fpu") == message.format(reason)
    tokens = jnp.zeros((1, 4), jnp.int32)
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(reason))}"):
        jax.eval_shape(Qwen3(ROUNDED).hidden, Qwen3(ROUNDED).abstract_params(), tokens, tokens, no_branches(1, 4))
    check_compute("float32")
    with pytest.raises(ValueError, match=r"^compute: found 'bfloat16', expected float32 with student.dtype"):
        dataclasses.replace(ROUNDED, dtype="bfloat16")
