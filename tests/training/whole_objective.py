"""The whole objective of a batch at once, as the training step without microbatches has it."""

from prism_jax.training.optimization.objective import term_sums, total


def objective(params, batch, slots, config, point, width):
    """Returns the total loss and a dictionary of its parts."""
    return total(term_sums(params, batch, slots, config, point, width), config)
