import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.decision import arrays


def test_namespace_is_jax_as_soon_as_one_value_is():
    assert arrays.namespace(0.5, np.ones(2)) is np
    assert arrays.namespace(0.5, jnp.ones(2), np.ones(2)) is jnp
    seen = []
    jax.jit(lambda x: seen.append((arrays.namespace(x), arrays.is_traced(x))) or x)(1.0)
    assert seen == [(jnp, True)]
    assert not arrays.is_traced(jnp.ones(2), np.ones(2), 1.0, None)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_as_float_keeps_floating_precision(dtype):
    assert arrays.as_float(np.ones(2, dtype)).dtype == dtype


def test_as_float_makes_counts_and_truth_values_floating():
    assert arrays.as_float(np.ones(2, bool)).dtype == np.float64
    assert arrays.as_float(np.ones(2, np.int8)).dtype == np.float64
    assert arrays.as_float(jnp.ones(2, bool)).dtype == jnp.float32
    assert isinstance(arrays.as_float(True), float)
    # A scalar stays weak: it takes the precision of the array it meets.
    assert (arrays.as_float(np.int64(3)) * np.ones(2, np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([0.5, np.nan, 2.0]), r"p: found nan at index 1 \(2 of 3 values are bad\), expected a probability"),
        (np.array([0.5, -1e-12]), "p: found -1e-12 at index 1, expected"),
        (1.5, "p: found 1.5, expected"),
        (np.array([]), "p: found an empty array"),
        (jnp.array([0.2, jnp.inf]), "p: found inf at index 1"),
    ],
)
def test_check_probability_names_field_place_and_value(value, message):
    with pytest.raises(ValueError, match=message):
        arrays.check_probability("p", value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arrays.check_lengths(p=np.ones(3), y=np.ones(2)), "y: found 2 rows, expected 3 as in p"),
        (lambda: arrays.check_lengths(p=np.ones((3, 1))), r"p: found shape \(3, 1\), expected a vector"),
        (lambda: arrays.check_lengths(p=np.ones(0), y=np.ones(0)), "p: found an empty array"),
        (lambda: arrays.check_broadcast(a=np.ones(2), b=np.ones(3)), r"a \(2,\), b \(3,\): found shapes"),
        (lambda: arrays.check_hard("y", np.array([1.0, 0.5])), "y: found 0.5 at index 1, expected 0 or 1"),
        (lambda: arrays.check_weight("weight", np.zeros(2)), "weight: found only zeros"),
        (lambda: arrays.check_weight("weight", np.array([1.0, np.inf])), "weight: found inf at index 1"),
        (lambda: arrays.check_costs(0.0, 1.0), "c_fa: found 0.0, expected a finite cost above 0"),
        (lambda: arrays.check_costs(1.0, -1), "c_fn: found -1, expected a finite cost of at least 0"),
        (lambda: arrays.check_costs(1.0, float("nan")), "c_fn: found nan"),
        (lambda: arrays.check_finite("x", np.array([-np.inf])), "x: found -inf"),
        (lambda: arrays.check_choice("form", "x", ("a", "b")), "form: found 'x', expected one of 'a', 'b'"),
    ],
)
def test_checks_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_tracers_are_not_looked_at():
    def f(x):
        arrays.check_probability("p", x)
        arrays.check_hard("y", x)
        arrays.check_weight("weight", x)
        arrays.check_costs(x, x)
        return x

    assert jax.jit(f)(7.0) == 7.0


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, 0, 3, 5, 0], np.uint64),
        np.array([7, 900, 7, 8]),
        np.array([-1, 2, -1]),
        np.array(["b", "a", "b"]),
        np.array([0.5, 0.25, 0.5]),
        np.array([True, False, True]),
    ],
)
def test_numbers_in_order_are_those_of_sorting(values):
    names, number = np.unique(values, return_inverse=True)
    distinct, found = arrays.in_order(values)
    assert distinct == len(names)
    np.testing.assert_array_equal(found, number)
