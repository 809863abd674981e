"""Finds tensors that hold NaN or infinity, as numbers that overflow their dtype become."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.student.weights.names import Parameter


def not_finite(parameter: Parameter, dtype: str) -> list[str]:
    """The names of the parameter's tensors that are not finite everywhere in a dtype; computed on the devices."""
    finite = _all_finite(parameter.leaf, dtype, 1 if parameter.stacked else 0)
    return [name for name, good in zip(parameter.tensors, np.atleast_1d(finite), strict=True) if not good]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _all_finite(leaf: jax.Array, dtype: str, first_axis: int) -> jax.Array:
    """Whether all numbers are finite; one value, or one per layer if `first_axis` is 1."""
    return jnp.isfinite(leaf.astype(dtype)).all(axis=tuple(range(first_axis, leaf.ndim)))
