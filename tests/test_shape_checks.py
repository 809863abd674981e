"""The run-time checks of types and shapes: on in the package, and as strict as jaxtyping's own decorator."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import shape_checks
from beartype import beartype
from jaxtyping import Float, TypeCheckError, jaxtyped

from prism_jax.decision.metrics import realised_cost


def scaled(x: "Float[np.ndarray, 'n m']", by: "Float[np.ndarray, ' m']", *, cut: int = 0) -> "Float[np.ndarray, 'n m']":
    return (x * by)[:, cut:]


def rows(x: "Float[np.ndarray, 'n m']") -> "Iterator[Float[np.ndarray, ' m']]":
    yield from x


@dataclasses.dataclass
class Pair:
    one: "Float[np.ndarray, ' n']"
    other: "Float[np.ndarray, ' n']"


X, Y = np.ones((2, 3)), np.ones(3)


@pytest.mark.parametrize(
    ("thing", "arguments", "given", "valid"),
    [
        (scaled, (X, Y), {}, True),
        (scaled, (X, np.ones(1)), {}, False),  # NumPy would broadcast it
        (scaled, (X, Y.astype(np.float32)), {}, True),
        (scaled, (X.astype(int), Y), {}, False),
        (scaled, (X, Y), {"cut": 1}, False),  # the result has another shape
        (scaled, (X, Y), {"cut": 0.0}, False),
        (scaled, ([[1.0]], Y), {}, False),
        (rows, (X,), {}, True),
        (rows, (Y,), {}, False),
        (Pair, (Y, Y), {}, True),
        (Pair, (Y, np.ones(2)), {}, False),
    ],
)
def test_calls_are_accepted_as_by_jaxtypings_own_decorator(thing, arguments, given, valid):
    def copied():
        return type("Pair", (Pair,), {"__init__": Pair.__init__}) if thing is Pair else thing

    for decorator in (shape_checks._jaxtyped, jaxtyped):
        checked = decorator(copied(), typechecker=beartype)
        if valid:
            checked(*arguments, **given)
        else:
            with pytest.raises(TypeCheckError):
                checked(*arguments, **given)


@pytest.mark.slow  # where the shapes of the package's functions are checked
def test_the_package_is_checked():
    y = np.ones(3)
    assert realised_cost(y == 1, y, y, 1.0, 2.0) == 0
    with pytest.raises(TypeCheckError):
        realised_cost("yes", y, y, 1.0, 2.0)
