"""Conversion between a Hugging Face `config.json` and a StudentConfig; unsupported features are refused by name."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from prism_jax.runtime.schema import Loose, decode, positive
from prism_jax.student.model_config import StudentConfig

# model_type of a config.json, and the class that transformers uses for it.
ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}

# Head width that transformers assumes for Qwen3 where a file omits it; for Llama it divides the hidden width.
_QWEN3_HEAD_DIM = 128

Count = Annotated[int, positive]
Above = Annotated[float, positive]


def _whole(factor: float) -> float:
    if factor != 1:
        raise ValueError(f"found {factor:g}, expected 1: the student rotates whole heads")
    return factor


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rope(Loose):
    """What `rope_parameters` (transformers 5) and `rope_scaling` may say."""

    rope_type: Literal["default"] = "default"
    type: Literal["default"] = "default"
    partial_rotary_factor: Annotated[float, _whole] = 1.0
    rope_theta: Above = 0.0  # where it says none


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config(Loose):
    """A `config.json`; of what has only one value, the student supports no other."""

    model_type: Literal["qwen3", "llama"]
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    max_position_embeddings: Count
    rms_norm_eps: Above
    rope_theta: Above | None = None
    rope_parameters: _Rope | None = None
    rope_scaling: _Rope | None = None
    partial_rotary_factor: Annotated[float, _whole] = 1.0
    tie_word_embeddings: bool = False
    initializer_range: Above | None = None
    architectures: Any = None
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False
    layer_types: tuple[Literal["full_attention"], ...] | None = None
    quantization_config: None = None


def config_from_hf(content: Any, dtype: str, where: str = "config.json") -> StudentConfig:
    """Reads the student's config from a parsed `config.json`, in the spelling of transformers 4 or 5.

    Raises:
      ValueError: for another architecture, an unsupported feature (biases, scaled or partial RoPE, sliding windows,
        another activation, quantisation), or a field that is missing or malformed.
    """
    read: _Config = decode(_Config, content, where, ValueError)
    kind, width, heads = read.model_type, read.hidden_size, read.num_attention_heads
    if read.architectures not in (None, [ARCHITECTURES[kind]]):
        raise ValueError(f"{where}: architectures: found {read.architectures!r}, expected {[ARCHITECTURES[kind]]}")
    if kind == "llama" and read.head_dim is None and width % heads:
        words = f"expected a whole number, as hidden_size {width} is no multiple of {heads} heads"
        raise ValueError(f"{where}: head_dim: found nothing, {words}")
    try:
        return StudentConfig(
            vocab_size=read.vocab_size,
            hidden_dim=width,
            num_layers=read.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=read.num_key_value_heads or heads,
            head_dim=read.head_dim or (width // heads if kind == "llama" else _QWEN3_HEAD_DIM),
            mlp_dim=read.intermediate_size,
            rope_theta=_rope_theta(read, where),
            norm_epsilon=read.rms_norm_eps,
            qk_norm=kind == "qwen3",
            tied=read.tie_word_embeddings,
            initializer_range=read.initializer_range or 0.02,
            max_positions=read.max_position_embeddings,
            dtype=dtype,
            param_dtype=dtype,
        )
    except ValueError as error:  # The student's own checks do not know the file.
        message = str(error)
        raise ValueError(message if message.startswith(where) else f"{where}: {message}") from None


def _rope_theta(read: _Config, where: str) -> float:
    """The base of RoPE: `rope_parameters.rope_theta` (transformers 5), or `rope_theta` (transformers 4)."""
    ropes = [rope.rope_theta for rope in (read.rope_parameters, read.rope_scaling) if rope]
    bases = [base for base in (*ropes, read.rope_theta) if base]
    if len(set(bases)) != 1:
        expected = f"the {bases[0]} of rope_parameters" if bases else "a number above 0"
        raise ValueError(f"{where}: rope_theta: found {read.rope_theta or 'nothing'}, expected {expected}")
    return bases[0]


def config_to_hf(config: StudentConfig, dtype: str) -> dict[str, Any]:
    """Makes the content of a `config.json` that both transformers 4 and 5 read, beside tensors of a dtype."""
    kind = "qwen3" if config.qk_norm else "llama"
    only_qwen3 = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": config.num_layers}
    return {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.mlp_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied,
        "initializer_range": config.initializer_range,
        "use_cache": True,
        "dtype": dtype,
        "torch_dtype": dtype,
        **(only_qwen3 if config.qk_norm else {"mlp_bias": False}),
    }
