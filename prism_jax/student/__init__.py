"""The language model: Qwen3 in Flax NNX, as pure functions over one pytree of parameters.

Lives here: the architecture, its published sizes, attention, its masks, output heads, sharding rules, weights in and
out. It knows tokens, positions and caches.
May not live here: slots, prompts, labels, losses on decisions, gates.
Imports nothing else of prism_jax.
"""

from prism_jax.student.config import StudentConfig
from prism_jax.student.qwen3 import Qwen3

__all__ = ["Qwen3", "StudentConfig"]
