"""The choice between NumPy and JAX, and the checks at the public boundary.

If any input of a function of `prism_jax.decision` is a JAX array or tracer, the result is computed by `jax.numpy` and
can be jitted, mapped and differentiated. Otherwise NumPy computes it on the host in the precision of the inputs
(float64 by default). Python scalars take the precision of the arrays that they are combined with.

Checks read values, so a concrete JAX array is copied to the host for them. Of a tracer, only the shape is checked; a
bad value then gives whatever the formula gives, possibly NaN. An axis named `_n` in an annotation documents that all
arguments share this length; `check_lengths` enforces it.

Nothing here loads JAX: whoever passes a JAX array has loaded it, and a decision on two numbers needs none.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Real

Array = Any
"""A NumPy or JAX array; annotations check its shape and dtype."""
Scalar = bool | int | float | np.number | np.bool_
"""A Python or NumPy scalar."""
Number = Scalar | Real[Array, ""]
"""One number, which may be traced."""
Reals = Scalar | Real[Array, "..."] | Bool[Array, "..."]
"""Numbers of any kind and shape; arguments of elementwise functions broadcast."""
Floats = float | np.floating | Float[Array, "..."]
"""Floating-point results; a NumPy scalar where every argument was a scalar."""
Booleans = bool | np.bool_ | Bool[Array, "..."]
"""Boolean results; a NumPy scalar where every argument was a scalar."""
Vector = Real[Array, "_n"] | Bool[Array, "_n"]
"""One number for each row."""


_PLAIN = (float, int, bool, np.ndarray)
"""Exact types that are never JAX's, asked for first."""


def is_jax(value: Any) -> bool:
    """Whether `value` is a JAX array or tracer."""
    return type(value) not in _PLAIN and isinstance(value, getattr(sys.modules.get("jax"), "Array", ()))


def namespace(*values: Any) -> ModuleType:
    """`jax.numpy` if any of `values` is a JAX array or tracer, else `numpy`."""
    return sys.modules["jax"].numpy if any(map(is_jax, values)) else np


def special(xp: ModuleType) -> ModuleType:
    """The special functions of a namespace: SciPy's, or JAX's of the same names."""
    return importlib.import_module("scipy.special" if xp is np else "jax.scipy.special")


def is_traced(*values: Any) -> bool:
    """Whether any of `values` is a tracer, whose numbers are not known yet."""
    return any(is_jax(value) and isinstance(value, sys.modules["jax"].core.Tracer) for value in values)


def is_floating(dtype: np.dtype) -> bool:
    """Whether a dtype is one of floating-point numbers, bfloat16 and the like among them."""
    if dtype.kind != "V":
        return dtype.kind == "f"
    from jax import numpy as jnp

    return jnp.issubdtype(dtype, jnp.floating)


def finfo(dtype: np.dtype) -> Any:
    """The limits of a floating-point dtype, bfloat16 and the like among them."""
    if dtype.kind == "f":
        return np.finfo(dtype)
    from jax import numpy as jnp

    return jnp.finfo(dtype)


def as_float(value: Any) -> Any:
    """`value` in floating point; integer and boolean arrays get the default dtype, scalars become Python floats."""
    if isinstance(value, (float, int, np.generic)):
        return value if type(value) is float or isinstance(value, np.floating) else float(value)
    if is_jax(value):
        xp = namespace(value)
        return value if is_floating(value.dtype) else value.astype(xp.result_type(float))
    value = np.asarray(value)
    return value if is_floating(value.dtype) else value.astype(np.float64)


def as_array(value: Any) -> Any:
    """A list as a NumPy array; arrays, tracers and None unchanged."""
    return value if value is None or isinstance(value, np.ndarray) or is_jax(value) else np.asarray(value)


def column(name: str, values: Any) -> np.ndarray:
    """A list, an array or a column of a data frame (pandas, polars) as float64, with NaN for None and missing values.

    Raises ValueError for what is no number, naming its index.
    """
    if isinstance(values, np.ma.MaskedArray):
        check_kind(name, values)
    try:
        array = np.asarray(values)
    except ValueError:  # a list of lists
        raise ValueError(f"{name}: found rows of several lengths, expected one number for each row") from None
    if array.ndim != 1:
        raise ValueError(f"{name}: found shape {array.shape}, expected a vector (one number for each row)")
    if array.dtype.kind in "biuf" or is_floating(array.dtype):
        return array.astype(np.float64)
    return np.array([_number(f"{name}[{i}]", value) for i, value in enumerate(np.array(values, object))])


def _number(place: str, value: Any) -> float:
    """An object as a number; None, and the NA of pandas, are NaN."""
    if value is None or type(value).__name__ == "NAType":
        return math.nan
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{place}: found {value!r:.80}, expected a number, or None where there is none")


def as_floats(*values: Any) -> tuple[Any, ...]:
    """The namespace of `values`, then each of them as floating point (see `as_float`)."""
    return namespace(*values), *(as_float(value) for value in values)


def sigmoid(z: Any) -> Any:
    """1 / (1 + exp(-z)) in the namespace of z, without overflow."""
    if is_jax(z):
        return sys.modules["jax"].nn.sigmoid(z)
    tail = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, tail) / (1 + tail)


def log_odds(p: Any, least: float = 0.0) -> Any:
    """log(p) - log(1 - p) in the namespace of p, infinite for 0 and 1.

    Probabilities nearer to 0 or 1 than `least` count as this near.
    """
    xp = namespace(p)
    inside = xp.clip(p, least, 1 - least) if least else p
    with np.errstate(divide="ignore"):
        return xp.log(inside) - xp.log1p(-inside)


def host(value: Any) -> np.ndarray:
    """`value` as a float64 NumPy array on the host; a tracer raises jax.errors.TracerArrayConversionError."""
    return np.asarray(value, dtype=np.float64)


def check_lengths(**named: Any) -> None:
    """Raises ValueError unless all arguments that are not None are vectors of one length of at least 1."""
    shapes = {name: np.shape(value) for name, value in named.items() if value is not None}
    first, shape = next(iter(shapes.items()))
    for name, actual in shapes.items():
        if len(actual) != 1:
            raise ValueError(f"{name}: found shape {actual}, expected a vector (one value for each row)")
        if actual != shape:
            raise ValueError(f"{name}: found {actual[0]} rows, expected {shape[0]} as in {first}")
    if shape == (0,):
        raise ValueError(f"{first}: found an empty array, expected at least one row")


def check_index(**named: Any) -> None:
    """Raises ValueError where series of pandas have different indices, as rows are matched by their order."""
    indices = {name: value.index for name, value in named.items() if hasattr(value, "loc")}
    first = next(iter(indices), "")
    for name, index in indices.items():
        if not index.equals(indices[first]):
            raise ValueError(f"{name}: found another index than {first}, expected the same rows in the same order")


def check_broadcast(**named: Any) -> None:
    """Raises ValueError unless all arguments that are not None broadcast to one shape that is not empty."""
    if _same_shape(named.values()):
        return
    shapes = {name: np.shape(value) for name, value in named.items() if value is not None}
    try:
        shape = np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{listed}: found shapes that do not broadcast, expected equal lengths or scalars") from None
    if 0 in shape:
        empty = next(name for name, actual in shapes.items() if 0 in actual)
        raise ValueError(f"{empty}: found an empty array, expected at least one value")


def _same_shape(values: Iterable[Any]) -> bool:
    """Whether all values that are no scalars are arrays of one shape that is not empty."""
    shape: tuple[int, ...] = ()
    for value in values:
        if type(value) is float or value is None:
            continue
        actual = value.shape if type(value) is np.ndarray else np.shape(value)
        if actual and shape and actual != shape:
            return False
        shape = actual or shape
    return 0 not in shape


def check_kind(name: str, value: Any) -> None:
    """Raises ValueError unless `value` holds real numbers or booleans, none of them masked.

    NumPy would otherwise drop the mask or the imaginary part, or compare objects one by one.
    """
    if isinstance(value, np.ma.MaskedArray):
        hidden = int(np.ma.getmaskarray(value).sum())
        raise ValueError(
            f"{name}: found a masked array ({hidden} of {value.size} entries masked), expected an array of the rows "
            "that count"
        )
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if not (dtype.kind in "biuf" or is_floating(dtype)):
        raise ValueError(f"{name}: found values of the dtype {dtype}, expected real numbers")


def check_range(name: str, value: Any, low: float, high: float, expected: str, *, open_low: bool = False) -> None:
    """Raises ValueError unless every number lies in [low, high], or in (low, high] with `open_low`.

    NaN and infinity always raise. Tracers are not checked. `expected` describes the accepted values in the message.
    """
    ends = _ends(value)
    if ends is None:
        check_kind(name, value)
        if is_traced(value):
            return
        array = np.asarray(value)
        if array.size == 0:
            raise ValueError(f"{name}: found an empty array, expected {expected}")
        ends = float(array.min()), float(array.max())
    lowest, highest = ends
    # Both ends are NaN if any entry is NaN, and then every comparison is false.
    if (lowest > low if open_low else lowest >= low) and highest <= high and highest < math.inf:
        return
    array = np.asarray(value)
    good = ((array > low) if open_low else (array >= low)) & (array <= high) & (array < np.inf)
    index = int(np.argmin(good))
    place = f" at index {index}" if array.ndim == 1 else ""
    count = int(array.size - np.count_nonzero(good))
    more = f" ({count} of {array.size} values are bad)" if count > 1 else ""
    raise ValueError(f"{name}: found {array.reshape(-1)[index]}{place}{more}, expected {expected}")


def _ends(value: Any) -> tuple[float, float] | None:
    """The least and the largest number of a float or of a NumPy array of floats; None for all that is neither."""
    if type(value) is float:
        return value, value
    if type(value) is np.ndarray and value.dtype.kind == "f" and value.size:
        return float(np.minimum.reduce(value, axis=None)), float(np.maximum.reduce(value, axis=None))
    return None


def check_probability(name: str, p: Any) -> None:
    """Raises ValueError unless every number is a probability in [0, 1]."""
    check_range(name, p, 0.0, 1.0, "a probability in [0, 1]")


def check_label(name: str, y: Any) -> None:
    """Raises ValueError unless every number is a label in [0, 1]; values between 0 and 1 are soft labels."""
    check_range(name, y, 0.0, 1.0, "a label in [0, 1]")


def check_finite(name: str, value: Any) -> None:
    """Raises ValueError unless every number is finite."""
    check_range(name, value, -np.inf, np.inf, "a finite number", open_low=True)


def check_not_nan(name: str, value: Any) -> None:
    """Raises ValueError for NaN; infinity passes."""
    check_kind(name, value)
    if is_traced(value):
        return
    array = np.asarray(value)
    missing = np.isnan(array)
    if missing.any():
        place = f" at index {int(missing.argmax())}" if array.ndim == 1 else ""
        raise ValueError(f"{name}: found nan{place}, expected a number")


def numbered(groups: Any, num_groups: int | None) -> tuple[np.ndarray, int]:
    """Groups as an array on the host and their number, by default the largest plus 1.

    Raises ValueError unless they are integers from 0, below that number.
    """
    group = np.asarray(groups)
    if not np.issubdtype(group.dtype, np.integer):
        raise ValueError(f"groups: found dtype {group.dtype}, expected integers")
    number = int(group.max()) + 1 if num_groups is None else num_groups
    check_range("groups", group, 0.0, float(number - 1), f"an integer in [0, {number - 1}]")
    return group, number


def in_order(values: Any) -> tuple[int, np.ndarray]:
    """How many distinct values there are, and the number of each in ascending order; small integers are not sorted."""
    array = np.asarray(values)
    small = array.dtype.kind in "iu" and array.ndim == 1 and array.size > 0
    if not small or array.min() < 0 or array.max() >= 2 * array.size:
        names, number = np.unique(array, return_inverse=True)
        return len(names), number
    place = np.cumsum(np.bincount(array.astype(np.int64, copy=False)) > 0)
    return int(place[-1]), place[array] - 1


def check_hard(name: str, y: Any) -> None:
    """Raises ValueError unless every number is 0 or 1."""
    check_kind(name, y)
    if is_traced(y) or np.asarray(y).dtype == np.bool_:
        return
    check_label(name, y)
    array = np.asarray(y)
    hard = (array == 0) | (array == 1)
    if not hard.all():
        index = int(np.argmin(hard))
        raise ValueError(f"{name}: found {array.reshape(-1)[index]} at index {index}, expected 0 or 1")


def check_decision(**named: Any) -> None:
    """Raises ValueError unless every decision is True or False (or 1 or 0), so that a probability is not accepted."""
    for name, decision in named.items():
        check_hard(name, decision)


def check_weight(name: str, weight: Any) -> None:
    """Raises ValueError unless every weight is finite and at least 0, and at least one is above 0."""
    if weight is None or is_traced(weight):
        return
    check_range(name, weight, 0.0, np.inf, "a finite weight of at least 0")
    if not np.any(np.asarray(weight) > 0):
        raise ValueError(f"{name}: found only zeros, expected at least one weight above 0")


def check_scored_rows(p: Any, y: Any, weight: Any) -> None:
    """Raises ValueError unless p, y and weight (or None) are probabilities, labels and weights of one length."""
    check_lengths(p=p, y=y, weight=weight)
    check_probability("p", p)
    check_label("y", y)
    check_weight("weight", weight)


def check_costs(c_fa: Any, c_fn: Any, *combined: Any) -> None:
    """Raises ValueError unless C_FA > 0 and C_FN >= 0, both finite also in the precision in which they are used.

    For Python scalars that is the dtype of the arrays that they are `combined` with.
    """
    check_range("c_fa", c_fa, 0.0, np.inf, "a finite cost above 0", open_low=True)
    check_range("c_fn", c_fn, 0.0, np.inf, "a finite cost of at least 0")
    if is_traced(c_fa, c_fn):
        return
    dtypes = {value.dtype for value in (c_fa, c_fn, *combined) if _has_precision(value)}
    floating = set(filter(is_floating, dtypes))
    if not floating:
        return
    low, high, held = _cost_limits(_promoted(floating))
    for name, cost in (("c_fa", c_fa), ("c_fn", c_fn)):
        if type(cost) is float and (low <= cost <= high or cost == 0):
            continue
        costs = np.asarray(cost, np.float64)
        if ((costs > high) | ((costs > 0) & (costs < low))).any():
            bad = costs[(costs > high) | ((costs > 0) & (costs < low))].reshape(-1)[0]
            raise ValueError(
                f"{name}: found {bad:g}, expected {low:.1e} to {high:.1e}, what {held} (the precision of the "
                "other arguments) can compute with; only the ratio of the costs matters, so scale both"
            )


def _has_precision(value: Any) -> bool:
    """Whether a value sets the precision of the scalars that it is combined with."""
    return value.ndim > 0 if isinstance(value, np.ndarray) else is_jax(value)


def _promoted(dtypes: set[np.dtype]) -> np.dtype:
    """The dtype to which JAX promotes floating-point dtypes."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    from jax import numpy as jnp

    return jnp.result_type(*dtypes)


@functools.lru_cache(maxsize=64)
def _cost_limits(dtype: np.dtype) -> tuple[float, float, str]:
    """The least and the largest cost that a precision computes with, and its name."""
    held = finfo(dtype)
    # A sum of two costs must be finite, and no cost may round to 0.
    return float(held.smallest_subnormal), float(held.max) / 2, str(held.dtype)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}: found {value!r}, expected one of {', '.join(map(repr, choices))}")


def effective_count(weight: np.ndarray) -> float:
    """Kish's effective sample size (sum w)^2 / sum w^2; 0 without rows."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0
