"""From streams to token ids: the tokenizer, the template with its two slots, and packing.

Lives here: what a model reads, and where in it a decision is read off.
May not live here: models, losses, probabilities, costs.
Imports `prism_jax.streams` and nothing else of prism_jax.
"""
