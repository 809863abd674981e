"""The paper's training pathways: which streams, targets and weights a run trains on.

Does not belong here: losses (`optimization`, `prism_jax.decision.losses`), packing (`input_pipeline`).
"""
