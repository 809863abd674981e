"""Published model sizes by name: Qwen3 (arXiv 2505.09388, table 1) and SmolLM2 (arXiv 2502.02737).

The numbers are those of each model's `config.json`. Other sizes come from a checkpoint's own file
(`prism_jax.student.weights`). Keywords change fields, as in `qwen3_8b(dtype="bfloat16")`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from prism_jax.student.model_config import StudentConfig

# Qwen3's norm_epsilon 1e-6, q/k norm and tied embedding are the defaults.
_QWEN3 = StudentConfig(
    vocab_size=151_936, num_heads=16, num_kv_heads=8, head_dim=128, rope_theta=1e6, max_positions=40_960
)
_SMOLLM2 = StudentConfig(
    vocab_size=49_152, head_dim=64, rope_theta=1e5, norm_epsilon=1e-5, qk_norm=False, tied=True, max_positions=8192
)


def _sized(family: StudentConfig, changes: dict[str, Any], **sizes: Any) -> StudentConfig:
    """A model of a family; `changes` override its sizes."""
    return dataclasses.replace(family, **(sizes | changes))


def qwen3_0_6b(**changes: Any) -> StudentConfig:
    """Qwen3-0.6B: 596 million parameters, tied."""
    return _sized(_QWEN3, changes, hidden_dim=1024, mlp_dim=3072, num_layers=28)


def qwen3_1_7b(**changes: Any) -> StudentConfig:
    """Qwen3-1.7B: 1.72 billion parameters, tied."""
    return _sized(_QWEN3, changes, hidden_dim=2048, mlp_dim=6144, num_layers=28)


def qwen3_4b(**changes: Any) -> StudentConfig:
    """Qwen3-4B: 4.02 billion parameters, tied."""
    return _sized(_QWEN3, changes, hidden_dim=2560, mlp_dim=9728, num_layers=36, num_heads=32)


def qwen3_8b(**changes: Any) -> StudentConfig:
    """Qwen3-8B: 8.19 billion parameters, untied."""
    return _sized(_QWEN3, changes, hidden_dim=4096, mlp_dim=12_288, num_layers=36, num_heads=32, tied=False)


def smollm2_135m(**changes: Any) -> StudentConfig:
    """SmolLM2-135M: 135 million parameters, Llama-shaped, 3 query heads per key head."""
    return _sized(_SMOLLM2, changes, hidden_dim=576, mlp_dim=1536, num_layers=30, num_heads=9, num_kv_heads=3)


def smollm2_360m(**changes: Any) -> StudentConfig:
    """SmolLM2-360M: 362 million parameters, Llama-shaped, 3 query heads per key head."""
    return _sized(_SMOLLM2, changes, hidden_dim=960, mlp_dim=2560, num_layers=32, num_heads=15, num_kv_heads=5)


def smollm2_1_7b(**changes: Any) -> StudentConfig:
    """SmolLM2-1.7B: 1.71 billion parameters, Llama-shaped, one key head per query head."""
    sizes = {"hidden_dim": 2048, "mlp_dim": 8192, "num_layers": 24, "num_heads": 32, "num_kv_heads": 32}
    return _sized(_SMOLLM2, changes, rope_theta=130_000.0, **sizes)
