"""From streams to token ids: the tokenizer, the template with its two slots, and packing.

Contains: the model's input, and the positions in it (slots) at which decisions are read.
May not contain: models, losses, probabilities, costs.
Imports `prism_jax.streams` and `prism_jax.runtime` and nothing else of prism_jax.
"""
