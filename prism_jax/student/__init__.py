"""The language model: Qwen3 in Flax NNX, as pure functions over one pytree of parameters.

Lives here: the architecture and its published sizes, attention and its masks, output heads, the KV cache and decoding,
sharding rules, and loading and saving weights. It knows tokens, positions and caches.
May not live here: slots, prompts, labels, losses on decisions, gates.
May import only `prism_jax.runtime`.
"""

from prism_jax.student.config import StudentConfig
from prism_jax.student.qwen3 import Qwen3

__all__ = ["Qwen3", "StudentConfig"]
