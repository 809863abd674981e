"""The student's architecture as one frozen dataclass: Qwen3, or Llama-shaped models when `qk_norm` is off."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax.numpy as jnp
from jax.typing import DTypeLike

from prism_jax.runtime.dataclass_config import check, check_at_least
from prism_jax.student.products import Compute
from prism_jax.student.remat import Remat

DTYPES = ("float32", "bfloat16", "float16")
AttentionPath = Literal["auto", "xla", "cudnn"]


def dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype; raises ValueError for any but those in DTYPES."""
    try:
        name = jnp.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype: found {name!r}, expected one of {', '.join(DTYPES)}")
    return name


@dataclasses.dataclass(frozen=True)
class StudentConfig:
    """Sizes and switches of the model; the names in brackets are those of a Hugging Face `config.json`."""

    vocab_size: int = 0  # number of rows of the embedding; 0 takes the tokenizer's size
    hidden_dim: int = 96  # width of the residual stream (hidden_size)
    num_layers: int = 3  # number of blocks (num_hidden_layers)
    num_heads: int = 4  # number of query heads (num_attention_heads)
    num_kv_heads: int = 2  # number of key and value heads, a divisor of `num_heads` (num_key_value_heads)
    head_dim: int = 24  # width of one head, even; need not be hidden_dim / num_heads
    mlp_dim: int = 256  # inner width of the SwiGLU layer (intermediate_size)
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    norm_epsilon: float = 1e-6  # constant added inside the root of RMSNorm (rms_norm_eps)
    qk_norm: bool = True  # whether RMSNorm is applied to each query and key head before RoPE, as in Qwen3
    tied: bool = True  # whether the embedding is also the output head (tie_word_embeddings)
    initializer_range: float = 0.02  # standard deviation of fresh weights
    # longest sequence that the weights are meant for (max_position_embeddings); exported with them
    max_positions: int = 32_768
    dtype: str = "float32"  # dtype of activations: float32, bfloat16 or float16
    param_dtype: str = "float32"  # dtype of parameters: float32, bfloat16 or float16
    # dtype to which operands of matrix products are rounded: `bfloat16`, with a `dtype` of float32, is for CPUs with
    # avx512_bf16 or amx_bf16 (`prism_jax.student.products`); GPUs and TPUs multiply in bfloat16 with that `dtype`
    compute: Compute = "float32"
    # implementation of attention in training and reading: `cudnn` is flash attention on NVIDIA GPUs, in float16 or
    # bfloat16; `xla` runs anywhere; `auto` uses cudnn where it can run. With `cudnn`, one GPU also writes by kernels of
    # the project, which no GPU has run yet; `auto` writes by XLA
    attention: AttentionPath = "auto"
    # what the backward pass keeps of each block instead of recomputing it (`prism_jax.student.remat`): `full` keeps
    # nothing, `none` everything; `auto` keeps as much as fits the devices
    remat: Remat = "none"
    # number of layers per iteration of the scan; more take longer to compile and, for small models on CPU, run faster
    unroll: int = 1

    def __post_init__(self) -> None:
        sizes = ("unroll", "hidden_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim", "mlp_dim")
        check_at_least(self, 1, *sizes, "max_positions")
        check(self, "vocab_size", self.vocab_size >= 0, "at least 0 (0 = the tokenizer's)")
        divides = self.num_heads % self.num_kv_heads == 0
        check(self, "num_kv_heads", divides, f"a divisor of num_heads = {self.num_heads}")
        check(self, "head_dim", self.head_dim % 2 == 0, "an even number: RoPE rotates pairs")
        for name in ("rope_theta", "norm_epsilon", "initializer_range"):
            check(self, name, getattr(self, name) > 0, "a number above 0")
        for name in ("dtype", "param_dtype"):
            check(self, name, getattr(self, name) in DTYPES, f"one of {', '.join(DTYPES)}")
        check(self, "compute", "float32" in (self.compute, self.dtype), f"float32 with student.dtype = {self.dtype}")

    def lowest(self, blocks: int) -> StudentConfig:
        """The config of the model that ends after its lowest blocks, 0 for all; ValueError if it has not so many."""
        if not 0 <= blocks <= self.num_layers:
            raise ValueError(
                f"blocks: found {blocks}, expected 0 (all) to {self.num_layers}, the model's number of blocks"
            )
        return dataclasses.replace(self, num_layers=blocks) if blocks else self
