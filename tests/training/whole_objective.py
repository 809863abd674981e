"""The whole objective of a batch at once, as the training step without microbatches has it."""

import jax

from prism_jax.training.optimization.objective import term_sums, total

sums = jax.jit(term_sums, static_argnums=(2, 3, 4))
"""The sums of every term, as one program: operation by operation, they take longer to compile."""


def objective(params, batch, slots, config, point, width):
    """Returns the total loss and a dictionary of its parts."""
    return total(sums(params, batch, slots, config, point, width), config)
