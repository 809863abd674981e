"""The search of a cost grid, compiled by XLA for many steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
from numpy.typing import DTypeLike

from prism_jax.decision.costs.cost_grid import CostGrid, decision_index, slow_range

jax.tree_util.register_dataclass(CostGrid, data_fields=["costs", "starts", "origin"], meta_fields=["shift", "steps"])


compiled_decision_index = jax.jit(decision_index)
compiled_slow_range = jax.jit(slow_range)  # compiled separately, so that XLA computes the indices only once


@contextmanager
def host_precision(dtype: DTypeLike) -> Iterator[None]:
    """A context in which this thread's JAX uses float64 exactly if `dtype` is float64, and the CPU if there is one."""
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS names accelerators only
        device = None
    with jax.enable_x64(np.dtype(dtype) == np.float64), jax.default_device(device):
        yield
