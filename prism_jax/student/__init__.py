"""The language model: Qwen3 in Flax NNX, as pure functions over one pytree of parameters.

Belongs here: the architecture and its published sizes, attention and its masks, output heads, the KV cache and
decoding, sharding rules, and loading and saving weights. All of it works on tokens, positions and caches.
Does not belong here: slots, prompts, labels, losses on decisions, gates.
May import only `prism_jax.runtime`.
"""

from prism_jax.student.config import StudentConfig
from prism_jax.student.qwen3 import Qwen3

__all__ = ["Qwen3", "StudentConfig"]
