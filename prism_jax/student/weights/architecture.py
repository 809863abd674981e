"""Conversion between a Hugging Face `config.json` and a StudentConfig; unsupported features are refused by name."""

from __future__ import annotations

import math
from typing import Any

from prism_jax.student.model_config import StudentConfig

# model_type of a config.json, and the class that transformers uses for it.
ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}

# Head width that transformers assumes for Qwen3 where a file omits it; for Llama it divides the hidden width.
_QWEN3_HEAD_DIM = 128

# Fields that must be absent or have one of these values, because the student supports no others.
_ONLY = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "quantization_config": (None,),
}


class Fields:
    """The fields of a JSON object or a file's header, with errors that name the file and the field."""

    def __init__(self, fields: Any, where: str):
        if not isinstance(fields, dict):
            raise ValueError(f"{where}: found {type(fields).__name__}, expected a JSON object")
        self.fields, self.where = fields, where

    def error(self, field: str, expected: str) -> ValueError:
        """Makes an error that says what was found in a field and what was expected."""
        found = repr(self.fields[field]) if field in self.fields else "nothing"
        return ValueError(f"{self.where}: {field}: found {found}, expected {expected}")

    def count(self, field: str, default: int | None = None) -> int:
        """Reads a whole number above 0; an absent field or null gives the default."""
        value = self.fields.get(field)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(field, "a whole number above 0")
        return value

    def number(self, field: str, default: float | None = None) -> float:
        """Reads a finite number above 0; an absent field or null gives the default."""
        value = self.fields.get(field)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.error(field, "a number above 0")
        return float(value)

    def flag(self, field: str, default: bool) -> bool:
        """Reads true or false; an absent field gives the default."""
        value = self.fields.get(field, default)
        if not isinstance(value, bool):
            raise self.error(field, "true or false")
        return value


def config_from_hf(content: Any, dtype: str, where: str = "config.json") -> StudentConfig:
    """Reads the student's config from a parsed `config.json`, in the spelling of transformers 4 or 5.

    Raises:
      ValueError: for another architecture, an unsupported feature (biases, scaled or partial RoPE, sliding windows,
        another activation, quantisation), or a field that is missing or malformed.
    """
    fields = Fields(content, where)
    kind = _kind(fields)
    for field, values in _ONLY.items():
        if fields.fields.get(field, values[0]) not in values:
            raise fields.error(field, f"{values[0]!r}: the student supports no other value")
    layer_types = fields.fields.get("layer_types") or []
    if not isinstance(layer_types, list) or any(name != "full_attention" for name in layer_types):
        raise fields.error("layer_types", "full_attention in every layer: the student supports no other value")
    width, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if kind == "llama" and fields.fields.get("head_dim") is None and width % heads:
        raise fields.error("head_dim", f"a whole number, as hidden_size {width} is no multiple of {heads} heads")
    try:
        return StudentConfig(
            vocab_size=fields.count("vocab_size"),
            hidden_dim=width,
            num_layers=fields.count("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=fields.count("num_key_value_heads", heads),
            head_dim=fields.count("head_dim", width // heads if kind == "llama" else _QWEN3_HEAD_DIM),
            mlp_dim=fields.count("intermediate_size"),
            rope_theta=_rope_theta(fields),
            norm_epsilon=fields.number("rms_norm_eps"),
            qk_norm=kind == "qwen3",
            tied=fields.flag("tie_word_embeddings", default=False),
            initializer_range=fields.number("initializer_range", 0.02),
            max_positions=fields.count("max_position_embeddings"),
            dtype=dtype,
            param_dtype=dtype,
        )
    except ValueError as error:  # The student's own checks do not know the file.
        message = str(error)
        raise ValueError(message if message.startswith(where) else f"{where}: {message}") from None


def _kind(fields: Fields) -> str:
    """The model type, `qwen3` or `llama`."""
    kind = fields.fields.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise fields.error("model_type", " or ".join(ARCHITECTURES))
    if fields.fields.get("architectures") not in (None, [ARCHITECTURES[kind]]):
        raise fields.error("architectures", f"{[ARCHITECTURES[kind]]}")
    return kind


def _rope_theta(fields: Fields) -> float:
    """The base of RoPE: `rope_parameters.rope_theta` (transformers 5), or `rope_theta` (transformers 4)."""
    bases = []
    for field in ("rope_parameters", "rope_scaling"):
        if fields.fields.get(field) is None:
            continue
        rope = Fields(fields.fields[field], f"{fields.where}: {field}")
        for name in ("rope_type", "type"):
            if rope.fields.get(name, "default") != "default":
                raise rope.error(name, "'default': the student doesn't scale RoPE")
        if rope.fields.get("partial_rotary_factor", 1) != 1:
            raise rope.error("partial_rotary_factor", "1: the student rotates whole heads")
        if "rope_theta" in rope.fields:
            bases.append(rope.number("rope_theta"))
    if fields.fields.get("partial_rotary_factor", 1) != 1:
        raise fields.error("partial_rotary_factor", "1: the student rotates whole heads")
    if not bases or fields.fields.get("rope_theta") is not None:
        bases.append(fields.number("rope_theta"))
    if len(set(bases)) > 1:
        raise fields.error("rope_theta", f"the {bases[0]} of rope_parameters")
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
