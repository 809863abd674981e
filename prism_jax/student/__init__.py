"""The language model: Qwen3 in Flax NNX, as pure functions over one pytree of parameters.

Belongs here: the architecture and its published sizes, attention and its masks, output heads, the KV cache and
decoding, sharding rules, and loading and saving weights. All of it works on tokens, positions and caches.
Does not belong here: slots, prompts, labels, losses on decisions, gates.
May import only `prism_jax.runtime`.

Where to change what:
- what the backward pass recomputes: `remat.py`; the names of the arrays in `layers.py`; what each takes, and the
  choice of `auto`, in `prism_jax/training/memory/estimate.py`
- how activations are split over a mesh: `pinned` in `sharding.py`; `Layout` in `heads.py`
- the model's architecture: `qwen3.py`, `layers.py`, sizes in `model_config.py`
- which parameter goes to which device: `sharding.py`
- after which block a student that starts from weights ends: `lowest` in `model_config.py`, `start_blocks` in
  `prism_jax/training/run_config.py`; how the nested study chooses it in `prism_jax/experiments/nested_student.py`
"""

from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3

__all__ = ["Qwen3", "StudentConfig"]
