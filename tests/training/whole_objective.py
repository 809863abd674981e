"""The whole objective of a batch at once, as the training step without microbatches has it."""

import jax

from prism_jax.training.optimization.objective import Objective

_sums = jax.jit(Objective.sums, static_argnums=0)  # operation by operation, they take longer to compile
_total = jax.jit(Objective.total, static_argnums=0)


def sums(params, batch, slots, config, point, width):
    """Returns the sums of every term, by one program."""
    return _sums(Objective(slots, config, point), params, batch, width)


def objective(params, batch, slots, config, point, width):
    """Returns the total loss and a dictionary of its parts."""
    return _total(Objective(slots, config, point), sums(params, batch, slots, config, point, width))
