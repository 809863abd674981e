"""Which tensors hold NaN or infinity: a number that overflows its dtype is bad input, not a weight."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.student.weights.names import Parameter


def not_finite(parameter: Parameter, dtype: str) -> list[str]:
    """Names of the parameter's tensors with a number that is not finite in a dtype; found on the devices."""
    finite = _all_finite(parameter.leaf, dtype, 1 if parameter.stacked else 0)
    return [name for name, good in zip(parameter.tensors, np.atleast_1d(finite), strict=True) if not good]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _all_finite(leaf: jax.Array, dtype: str, first_axis: int) -> jax.Array:
    """One answer, or one a layer where axis 0 counts layers."""
    return jnp.isfinite(leaf.astype(dtype)).all(axis=tuple(range(first_axis, leaf.ndim)))
