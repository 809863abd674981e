"""The published sizes that the student is trained at, by name.

Qwen3 (arXiv 2505.09388, table 1) and SmolLM2 (arXiv 2502.02737), with the numbers of their `config.json`; any other
size comes from a checkpoint's own file (`prism_jax.student.weights`). Keywords change fields, as in
`qwen3_8b(dtype="bfloat16")`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from prism_jax.student.config import StudentConfig

_QWEN3 = StudentConfig(
    vocabulary_size=151_936,
    kv_heads=8,
    heads=16,
    head_dim=128,
    rope_theta=1e6,
    norm_epsilon=1e-6,
    qk_norm=True,
    tied=True,
    max_positions=40_960,
)
_SMOLLM2 = StudentConfig(
    vocabulary_size=49_152,
    head_dim=64,
    rope_theta=1e5,
    norm_epsilon=1e-5,
    qk_norm=False,
    tied=True,
    max_positions=8192,
)


def qwen3_0_6b(**changes: Any) -> StudentConfig:
    """Qwen3-0.6B: 596 million parameters, tied."""
    return dataclasses.replace(_QWEN3, **({"width": 1024, "ffn": 3072, "layers": 28} | changes))


def qwen3_1_7b(**changes: Any) -> StudentConfig:
    """Qwen3-1.7B: 1.72 billion parameters, tied."""
    return dataclasses.replace(_QWEN3, **({"width": 2048, "ffn": 6144, "layers": 28} | changes))


def qwen3_4b(**changes: Any) -> StudentConfig:
    """Qwen3-4B: 4.02 billion parameters, tied."""
    return dataclasses.replace(_QWEN3, **({"width": 2560, "ffn": 9728, "layers": 36, "heads": 32} | changes))


def qwen3_8b(**changes: Any) -> StudentConfig:
    """Qwen3-8B: 8.19 billion parameters, with a head of its own."""
    sizes = {"width": 4096, "ffn": 12_288, "layers": 36, "heads": 32, "tied": False}
    return dataclasses.replace(_QWEN3, **(sizes | changes))


def smollm2_135m(**changes: Any) -> StudentConfig:
    """SmolLM2-135M: 135 million parameters, Llama-shaped, 3 query heads a key."""
    sizes = {"width": 576, "ffn": 1536, "layers": 30, "heads": 9, "kv_heads": 3}
    return dataclasses.replace(_SMOLLM2, **(sizes | changes))


def smollm2_360m(**changes: Any) -> StudentConfig:
    """SmolLM2-360M: 362 million parameters, Llama-shaped, 3 query heads a key."""
    sizes = {"width": 960, "ffn": 2560, "layers": 32, "heads": 15, "kv_heads": 5}
    return dataclasses.replace(_SMOLLM2, **(sizes | changes))


def smollm2_1_7b(**changes: Any) -> StudentConfig:
    """SmolLM2-1.7B: 1.71 billion parameters, Llama-shaped, as many key heads as query heads."""
    sizes = {"width": 2048, "ffn": 8192, "layers": 24, "heads": 32, "kv_heads": 32, "rope_theta": 130_000.0}
    return dataclasses.replace(_SMOLLM2, **(sizes | changes))
