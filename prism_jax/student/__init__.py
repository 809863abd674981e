"""The language model, Qwen3 in Flax NNX, as pure functions over one pytree of parameters; and how it is asked.

Belongs here: the architecture and its published sizes, attention and its masks, output heads, the KV cache and
decoding, sharding rules and weights, which work on tokens, positions and caches; above them `prompting` (the tokenizer,
the template with its slots, packing) and `scoring` (what a student says at a decision).
Does not belong here: labels, losses on decisions, gates.

Where to change what:
- the architecture: `qwen3.py`, `layers.py`, sizes in `model_config.py`; which parameter goes where: `sharding.py`
- what the backward pass recomputes: `remat.py`; the names of the arrays in `layers.py`; what each takes, and the
  choice of `auto`, in `prism_jax/training/memory.py`
- how activations are split over a mesh: `pinned` in `sharding.py`; `Layout` in `heads.py`
- after which block a student that starts from weights ends: `lowest` in `model_config.py`, `start_blocks` in
  `prism_jax/training/run_config.py`
"""
