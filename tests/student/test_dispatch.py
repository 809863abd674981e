"""The choice between XLA's and cuDNN's attention."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest
from student_sizes import grouped

from prism_jax.student import dispatch
from prism_jax.student.attention import no_branches
from prism_jax.student.dispatch import chosen_path
from prism_jax.student.qwen3 import Qwen3, Tree

TINY = grouped(num_layers=1)


@pytest.fixture
def logged(monkeypatch):
    """The lines that dispatch logs, with no earlier choice cached."""
    lines = []
    monkeypatch.setattr(dispatch.logging, "info", lambda text, *args: lines.append(text % args))
    chosen_path.cache_clear()
    return lines


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("auto", "bfloat16", 128, "cuda"), "cudnn"),
        (("cudnn", "float16", 64, "cuda"), "cudnn"),
        (("xla", "bfloat16", 128, "cuda"), "xla"),
        (("auto", "float32", 128, "cuda"), "xla"),
        (("auto", "bfloat16", 12, "cuda"), "xla"),
        (("auto", "bfloat16", 256, "cuda"), "xla"),
        (("auto", "bfloat16", 128, "rocm"), "xla"),
        (("auto", "bfloat16", 128, "cpu"), "xla"),
    ],
)
def test_the_path_is_the_requested_one_or_the_best(logged, arguments, path):
    assert [chosen_path(*arguments) for _ in range(3)] == [path] * 3
    assert len(logged) == 1 and logged[0].startswith(f"attention: {path} (requested: {arguments[0]}")
    assert ("; " in logged[0]) == (arguments[0] == "auto" and path == "xla")  # then the line gives the reason


@pytest.mark.parametrize(
    ("dtype", "head_dim", "platform", "reason"),
    [
        ("bfloat16", 128, "cpu", "the platform is cpu, expected cuda"),
        ("float32", 128, "cuda", "student.dtype is float32, expected one of float16, bfloat16"),
        ("float16", 20, "cuda", "student.head_dim is 20, expected a multiple of 8, at most 128"),
    ],
)
def test_a_requested_path_that_cannot_run_says_why(dtype, head_dim, platform, reason):
    message = f"student.attention: found 'cudnn', which can't run here: {reason}; use 'auto' or 'xla'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        chosen_path("cudnn", dtype, head_dim, platform)


def test_the_model_uses_dispatch():
    model = Qwen3(dataclasses.replace(TINY, attention="cudnn"))
    tokens = jnp.zeros((1, 4), jnp.int32)
    with pytest.raises(ValueError, match=r"^student.attention: found 'cudnn', which can't run here: the platform is"):
        jax.eval_shape(model.hidden, model.abstract_params(), tokens, tokens, no_branches(1, 4))


def test_the_cudnn_path_lowers_to_fused_calls_and_makes_no_scores(monkeypatch):
    """The gradient of a packed row, lowered for CUDA without a GPU: the only quadratic array is the mask."""
    from jax._src.cudnn import fused_attention_stablehlo

    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(dispatch, "platform", lambda: "cuda")
    config = dataclasses.replace(TINY, num_layers=2, head_dim=16, dtype="bfloat16", attention="cudnn")
    model, rows, trunk, length, window = Qwen3(config), 2, 256, 320, 20
    column = jnp.zeros((rows, length), jnp.int32)

    def loss(params):
        hidden = model.branch_hidden(params, Tree(jnp.zeros((rows, trunk), jnp.int32), *[column] * 5), window)
        return jnp.mean(hidden.astype(jnp.float32))

    traced = jax.jit(jax.grad(loss)).trace(model.abstract_params())
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert set(re.findall(r"__cudnn\$(\w+)", text)) == {
        "fmhaSoftmax", "fmhaScaleBiasSoftmax", "fmhaSoftmaxBackward", "fmhaScaleBiasSoftmaxBackward",
    }  # fmt: skip
    shapes = {tuple(map(int, found.split("x"))) for found in re.findall(r"tensor<([\dx]+)x(?:bf16|f32)>", text)}
    piece = length // 2  # of the branches, over the trunk, itself and the window before it
    quadratic = {shape for shape in shapes if len(shape) > 2 and min(shape[-2:]) >= piece}
    assert quadratic == {(rows, 1, piece, trunk + piece + window)}
