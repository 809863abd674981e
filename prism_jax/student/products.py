"""Matrix products of the student with operands in bfloat16, for CPUs that multiply it faster than float32.

With `student.compute = bfloat16`, the operands of products with weights are rounded, in the forward and the backward
pass, and summed in float32; all else stays in float32. So do few rows, where memory is the limit.

Dimensions: n rows, i inner width, o outer width.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Float

Compute = Literal["float32", "bfloat16"]

FEWEST = 256
"""Rows from which the time to round weights for one product is less than what it saves."""


def contract(
    spec: str, compute: Compute, x: Float[Array, "..."], y: Float[Array, "..."], dtype: DTypeLike | None = None
) -> Float[Array, "..."]:
    """Computes jnp.einsum(spec, x, y) in `dtype`, by default that of x, with the operands rounded to `compute`.

    XLA on CPU multiplies in bfloat16 only if the last axis of x is summed over, and fails if it gives the result
    another order of axes in memory: the layouts are therefore fixed.
    """
    dtype = dtype or x.dtype
    if compute == "float32":
        return jnp.einsum(spec, x, y.astype(x.dtype), preferred_element_type=dtype)
    first, second, out = spec.replace("->", ",").split(",")
    (summed,) = {*first} & {*second} - {*out}
    x = x.astype(jnp.bfloat16)
    if first[-1] != summed:
        x = _row_major(jnp.moveaxis(x, first.index(summed), -1))
        first = first.replace(summed, "") + summed
    spec = f"{first},{second}->{out}"
    return _row_major(jnp.einsum(spec, x, y.astype(jnp.bfloat16), preferred_element_type=dtype))


def _row_major(x: Array) -> Array:
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def product(
    x: Float[Array, "n i"], kernel: Float[Array, "i o"], compute: Compute, rounded: Float[Array, "i o"] | None = None
) -> Float[Array, "n o"]:
    """Computes x @ kernel in the dtype of x; `rounded` is the kernel in bfloat16, where it is kept."""
    if compute == "float32" or len(x) < (FEWEST if rounded is None else 2):
        return x @ kernel.astype(x.dtype)
    return _rounded(x, kernel if rounded is None else rounded)


@jax.custom_vjp
def _rounded(x: Float[Array, "n i"], kernel: Float[Array, "i o"]) -> Float[Array, "n o"]:
    return contract("ni,io->no", "bfloat16", x, kernel)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    narrow = x.astype(jnp.bfloat16)
    return contract("ni,io->no", "bfloat16", narrow, kernel, x.dtype), (narrow, kernel)


def _backward(saved: tuple[Array, Array], by_out: Float[Array, "n o"]) -> tuple[Array, Array]:
    x, kernel = saved
    by_kernel = contract("ni,no->io", "bfloat16", x, by_out, by_out.dtype)
    return contract("no,io->ni", "bfloat16", by_out, kernel), by_kernel.astype(kernel.dtype)


_rounded.defvjp(_forward, _backward)
