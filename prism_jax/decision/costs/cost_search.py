"""The search of a cost grid as XLA runs it, and the costs between which the slow pass runs.

The comparison is that of `gate.intervene` at C_FA = 1. It is repeated here because the search must be traced by
`jax.jit` and evaluates it at one grid point per row. Tests check that its result equals `gate.decide` bit for bit at
every grid point, ties included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int
from numpy.typing import DTypeLike

from prism_jax.decision.arrays import Array
from prism_jax.decision.costs.cost_grid import CostGrid

jax.tree_util.register_dataclass(CostGrid, data_fields=["costs", "starts", "origin"], meta_fields=["shift", "steps"])


def first_index(
    a: Float[Array, "*rows"], b: Float[Array, "*rows"], grid: CostGrid, *, strict: bool = False
) -> Int[Array, "*rows"]:
    """The first index j with a <= b * costs[j], or a < b * costs[j] if `strict`; K if there is none, or if b <= 0.

    `a` is 1 - p for probabilities p, so 0 or well above the smallest normal number; a negative value acts as 0.
    """
    eps = jnp.finfo(grid.costs.dtype).eps
    # Costs that lie below the quotient by more than rounding can explain are skipped; the others are compared.
    quotient = jnp.where(b > 0, a / b, jnp.inf) * (1 - 4 * eps)
    key = lax.bitcast_convert_type(quotient, grid.origin.dtype) >> grid.shift
    last = jnp.asarray(grid.starts.shape[0] - 1, key.dtype)
    index = _take(jnp.asarray(grid.starts), jnp.clip(key - grid.origin, 0, last))
    costs = jnp.asarray(grid.costs)
    for step in reversed(range(grid.steps)):
        stride = 1 << step
        cost = _take(costs, jnp.minimum(index + (stride - 1), len(grid.costs) - 1) if stride > 1 else index)
        below = b * cost <= a if strict else b * cost < a
        index = index + stride * below.astype(index.dtype)
    return index


def decision_index(
    p_need: Float[Array, "*rows"], p_accept: Float[Array, "*rows"], grid: CostGrid
) -> Int[Array, "*rows"]:
    """The index of the first cost at which the gate intervenes, as it does at every later one; K if at none."""
    return first_index(1 - p_accept, p_accept * p_need, grid)


def slow_range(
    p_need: Float[Array, " n"],
    p_accept: Float[Array, " n"],
    fast: Int[Array, " n"],
    margins: Float[Array, " M"],
    grid: CostGrid,
) -> tuple[Int[Array, "M n"], Int[Array, "M n"]]:
    """The first cost at which the slow pass runs, and one past the last, for every margin and step.

    The slow pass runs from the first cost at which the gate would intervene at p_accept + margin, up to the last at
    which, at p_accept - margin, it would not intervene or the costs would be equal (docs/maths.md, section 3;
    `gate.slow_band`). A step's first intervening cost is that of the slow signals, clipped to this range. At margin 0
    the range is empty and lies at `fast`, the `decision_index` of the same signals.
    """
    delta = margins[:, None]
    high, low = p_accept + delta, p_accept - delta
    from_ = jnp.where(high >= 1, 0, first_index(1 - high, high * p_need, grid))
    to = first_index(1 - low, jnp.maximum(low, 0) * p_need, grid, strict=True)
    return jnp.where(delta > 0, from_, fast), jnp.where(delta > 0, to, fast)


def _take(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[index]` for indices known to be in bounds."""
    return table.at[index].get(mode="promise_in_bounds")


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
