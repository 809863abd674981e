"""Every public function refuses arrays that NumPy would misread: masked, complex, of objects or of text."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.decision import budgets, calibration, gate, metrics, surface, thinking, value_surface
from prism_jax.decision.audbc import audbc, expected_cost
from prism_jax.decision.passes import Pass

P, Q, Y, Z = np.array([0.2, 0.8, 0.5, 0.6]), np.array([0.3, 0.7, 0.9, 0.4]), np.array([0, 1, 1, 0]), np.ones(4)
COSTS = (1.0, 2.0)
MOVES = thinking.Moves(1.0, 0.5, 0.1)
CALLS = {
    "intervene": (gate.intervene, (P, P * Q, *COSTS), 2),
    "threshold": (gate.threshold, (P, *COSTS), 1),
    "critical_ratio": (gate.critical_ratio, (P, Q), 2),
    "decide": (gate.decide, (P, Q, *COSTS), 2),
    "slow_band": (gate.slow_band, (P, Q, *COSTS, 0.1), 2),
    "decide_with_slow": (gate.decide_with_slow, (Pass(P, Q), Pass(P, Q), *COSTS, 0.1), 4),
    "fit_moves": (thinking.fit_moves, (Pass(P, Q), Pass(P, Q), Z), 5),
    "value_of_thinking": (thinking.value_of_thinking, (P, Q, *COSTS, MOVES), 2),
    "decide_by_value": (thinking.decide_by_value, (Pass(P, Q), Pass(P, Q), *COSTS, MOVES, 0.1, 9.0), 4),
    "threshold_at_rate": (budgets.threshold_at_rate, (P, 0.5), 1),
    "value_surface": (value_surface.value_surface, (Pass(P, Q), Pass(P, Q), Y, MOVES, 9.0, [1.0], [0.1]), 5),
    "confusion": (metrics.confusion, (Y.astype(bool), Y, Z), 3),
    "realised_cost": (metrics.realised_cost, (Y.astype(bool), Y, Y, *COSTS, Z), 3),
    "expected_realised_cost": (metrics.expected_realised_cost, (Y.astype(bool), P, P * Q, *COSTS), 3),
    "ece": (calibration.expected_calibration_error, (P, Y, Z), 3),
    "brier": (calibration.brier_score, (P, Y, Z), 3),
    "nll": (calibration.negative_log_likelihood, (P, Y, Z), 3),
    "reliability": (calibration.reliability_curve, (P, Y, Z), 3),
    "apply_temperature": (calibration.apply_temperature, (P, 1.5), 1),
    "fit_temperature": (calibration.fit_temperature, (P, Y, Z), 3),
    "fit_platt": (calibration.fit_platt, (P, Y, Z), 3),
    "fit_isotonic": (calibration.fit_isotonic, (P, Y, Z), 3),
    "control_surface": (surface.control_surface, (Pass(P, Q), Pass(P, Q), Y), 5),
    "expected_cost": (expected_cost, (Pass(P, Q), Y, Y), 4),
    "audbc": (audbc, (Pass(P, Q), Y), 3),
}
KINDS = {
    "masked": (lambda array: np.ma.array(array, mask=np.arange(array.size).reshape(array.shape) == 0), "masked array"),
    "complex": (lambda array: array + 0j, "dtype complex128"),
    "objects": (lambda array: array.astype(object), "dtype object"),
    "text": (lambda array: array.astype(str), "dtype <U"),
}


def plain(function):
    """The function without the type checker of the tests, as a user calls it."""
    return inspect.unwrap(function)


def names_of(function, arguments):
    """The name by which a message calls each array: of a pass, its signal, and which pass where there are two."""
    both = sum(isinstance(value, Pass) for value in arguments) > 1
    for name, value in zip(inspect.signature(plain(function)).parameters, arguments, strict=False):
        if isinstance(value, Pass):
            yield from (f"_{signal}_{name}" if both else f"p_{signal}" for signal in Pass._fields)
        else:
            yield name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_would_be_misread_are_refused_by_name(name, kind):
    function, arguments, arrays = CALLS[name]
    change, expected = KINDS[kind]
    keywords = {"streams": np.arange(4)} if name == "audbc" else {}
    names = list(names_of(function, arguments))
    leaves, structure = jax.tree.flatten(arguments)
    plain(function)(*arguments, **keywords)  # the arguments themselves are right
    for i in range(arrays):
        changed = structure.unflatten(change(value) if i == j else value for j, value in enumerate(leaves))
        with pytest.raises(ValueError, match=expected) as caught:
            plain(function)(*changed, **keywords)
        assert names[i] in str(caught.value).split(":")[0], names[i]


@pytest.mark.parametrize(
    ("dtype", "c_fa", "c_fn"),
    [
        (np.float16, 1e-9, 2e-9),
        (np.float16, 1e5, 1e5),
        (np.float32, 1e-50, 2e-50),
        (np.float32, 1.0, 1e39),
        (jnp.bfloat16, 1e-45, 1.0),
        (np.float64, 1e308, 1e308),
    ],
)
def test_costs_that_the_precision_cannot_hold_are_refused(dtype, c_fa, c_fn):
    p = jnp.asarray(P, dtype) if dtype == jnp.bfloat16 else P.astype(dtype)
    for call in (lambda: gate.decide(p, p, c_fa, c_fn), lambda: gate.threshold(p, c_fa, c_fn)):
        with pytest.raises(ValueError, match=r"^c_f[an]: found .*, expected .* scale both"):
            call()


def test_costs_within_the_precision_decide_as_before():
    for dtype in (np.float16, np.float32, np.float64):
        p = P.astype(dtype)
        np.testing.assert_array_equal(gate.decide(p, p, 1.0, 2.0), gate.decide(p, p, 100.0, 200.0))
    assert jax.jit(lambda p, c: gate.decide(p, p, c, 2.0))(P, 1.0).shape == (4,)


def test_token_sums_that_would_overflow_are_refused():
    tokens = np.full(4, 2**62)
    with pytest.raises(ValueError, match=r"tokens: found 1\.84467e\+19 in all, expected at most 9007199254740992"):
        surface.control_surface(Pass(P, Q), Pass(P, Q), Y, tokens=tokens)


def test_groups_that_would_ask_for_gigabytes_are_refused():
    with pytest.raises(ValueError, match="groups: found the number 60000000, expected less than 1000000"):
        surface.control_surface(Pass(P, Q), Pass(P, Q), Y, groups=np.array([0, 1, 2, 60_000_000]))
