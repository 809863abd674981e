"""A training step as XLA compiles it for devices that are not present: memory, arithmetic, traffic and a roofline.

Does not belong here: what a step computes, and estimates that need no compiler (`prism_jax.training.memory`).
"""
