"""Every public function refuses, by name, arrays of wrong values or lengths and those that NumPy would misread."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.decision import (
    budgets,
    calibration,
    curation,
    drift,
    gate,
    losses,
    metrics,
    surface,
    thinking,
    uncertainty,
    value_surface,
)
from prism_jax.decision.audbc import audbc, audbc_value, expected_cost
from prism_jax.decision.passes import Pass

P, Q, Y, Z = np.array([0.2, 0.8, 0.5, 0.6]), np.array([0.3, 0.7, 0.9, 0.4]), np.array([0, 1, 1, 0]), np.ones(4)
COSTS, D, BOTH = (1.0, 2.0), np.array([False, True, True, False]), (Pass(P, Q), Pass(P, Q))
MOVES = thinking.Moves(1.0, 0.5, 0.1)


def fit_grouped(p, y, weight):
    return plain(calibration.fit_grouped)(p, y, np.zeros(p.size), weight)


def rate_intervals(decision, y):
    return plain(uncertainty.rate_intervals)(decision, y, streams=None, resamples=9)


def paired_rates(first, second, y):
    return plain(uncertainty.paired_rates)(first, second, y, streams=None, resamples=9)


CALLS = {
    "intervene": (gate.intervene, (P, P * Q, *COSTS)),
    "threshold": (gate.threshold, (P, *COSTS)),
    "score": (gate.score, (P, Q)),
    "critical_ratio": (gate.critical_ratio, (P, Q)),
    "decide": (gate.decide, (P, Q, *COSTS)),
    "slow_band": (gate.slow_band, (P, Q, *COSTS, 0.1)),
    "decide_with_slow": (gate.decide_with_slow, (*BOTH, *COSTS, 0.1)),
    "flip_rate": (drift.flip_rate, (P, Q, *COSTS, 1.0, 0.0, Z)),
    "fit_moves": (thinking.fit_moves, (*BOTH, Z)),
    "value_of_thinking": (thinking.value_of_thinking, (P, Q, *COSTS, MOVES)),
    "decide_by_value": (thinking.decide_by_value, (*BOTH, *COSTS, MOVES, 0.1, 9.0)),
    "urgency": (budgets.urgency, ("margin", P, Q, *COSTS)),
    "threshold_at_rate": (budgets.threshold_at_rate, (P, 0.5)),
    "value_surface": (value_surface.value_surface, (*BOTH, Y, MOVES, 9.0, [1.0], [0.1])),
    "confusion": (metrics.confusion, (D, Y, Z)),
    "realised_cost": (metrics.realised_cost, (D, Y, Y, *COSTS, Z)),
    "expected_realised_cost": (metrics.expected_realised_cost, (D, P, P * Q, *COSTS)),
    "ece": (calibration.expected_calibration_error, (P, Y, Z)),
    "brier": (calibration.brier_score, (P, Y, Z)),
    "nll": (calibration.negative_log_likelihood, (P, Y, Z)),
    "reliability": (calibration.reliability_curve, (P, Y, Z)),
    "apply_temperature": (calibration.apply_temperature, (P, 1.5)),
    "fit_temperature": (calibration.fit_temperature, (P, Y, Z)),
    "fit_platt": (calibration.fit_platt, (P, Y, Z)),
    "fit_isotonic": (calibration.fit_isotonic, (P, Y, Z)),
    "fit_grouped": (fit_grouped, (P, Y, Z)),
    "control_surface": (surface.control_surface, (*BOTH, Y)),
    "expected_cost": (expected_cost, (BOTH[0], Y, Y)),
    "audbc_value": (audbc_value, (BOTH[0], Y)),
    "audbc": (lambda fast, y: plain(audbc)(fast, y, streams=np.arange(4)), (BOTH[0], Y)),
    "rate_intervals": (rate_intervals, (D, Y)),
    "paired_rates": (paired_rates, (D, ~D, Y)),
    "curation.score": (curation.score, (P, Q, Y, Y, Z)),
    "strata": (curation.strata, (Y, Y, Z)),
    "total_reward": (losses.total_reward, (P, Z, Y, Z)),
    "advantage_weights": (losses.advantage_weights, (P, Q, 1.0)),
    "mcnemar": (uncertainty.mcnemar, (D, ~D, Y)),
}
NUMBERS = {
    "fit_moves": ("_fast", "_slow"),
    "threshold_at_rate": ("urgency",),
    "total_reward": ("score",),
    "advantage_weights": ("reward", "value"),
}
"""Ends of the names of arrays of any finite numbers, beside those of probabilities, labels and weights."""


def second(value):
    return lambda array: np.where(np.arange(array.size) == 1, value, array * 1.0)


KINDS = {
    "masked": (lambda array: np.ma.array(array, mask=np.arange(array.size).reshape(array.shape) == 0), "masked array"),
    "complex": (lambda array: array + 0j, "dtype complex128"),
    "objects": (lambda array: array.astype(object), "dtype object"),
    "text": (lambda array: array.astype(str), "dtype <U"),
    "nan": (second(np.nan), "found nan|and nan at index 1"),
    "below": (second(-7.0), "found -7"),
    "above": (second(7.0), "found 7"),
    "short": (lambda array: array[:-1], "found [34] rows, expected [34] as in|found shapes that do not broadcast"),
    "zeros": (lambda array: 0.0 * array, "found only zeros"),
}


def may_be(name, array):
    """What an array may well be."""
    if array == "weight":
        return ("above",)
    if array == "tokens":
        return ("zeros", "above")
    return ("zeros", "below", "above") if array.endswith(NUMBERS.get(name, ())) else ("zeros",)


def plain(function):
    """The function without the type checker of the tests, as a user calls it."""
    return inspect.unwrap(function)


def names_of(function, arguments):
    """The name by which a message calls each array: of a pass, its signal, and which pass where there are two."""
    both = sum(isinstance(value, Pass) for value in arguments) > 1
    for name, value in zip(inspect.signature(plain(function)).parameters, arguments, strict=False):
        if isinstance(value, Pass):
            yield from (f"_{signal}_{name}" if both else f"p_{signal}" for signal in Pass._fields)
        elif isinstance(value, np.ndarray):
            yield name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_arrays_of_the_wrong_kind_values_or_length_are_refused_by_name(name, kind, monkeypatch):
    monkeypatch.setattr(drift, "decide", plain(drift.decide))  # as which flip_rate calls it
    function, arguments = CALLS[name]
    change, expected = KINDS[kind]
    leaves, structure = jax.tree.flatten(arguments)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
    plain(function)(*arguments)  # the arguments themselves are right
    for place, array in zip(places, names_of(function, arguments), strict=True):
        if kind in may_be(name, array) or (kind == "short" and len(places) == 1):
            continue
        changed = structure.unflatten(change(leaf) if at == place else leaf for at, leaf in enumerate(leaves))
        with pytest.raises(ValueError, match=expected) as caught:
            plain(function)(*changed)
        assert array in (str(caught.value) if kind == "short" else str(caught.value).split(":")[0]), array
    if kind == "short":
        empty = structure.unflatten(leaf[:0] if at in places else leaf for at, leaf in enumerate(leaves))
        with pytest.raises(ValueError, match="found an empty array"):
            plain(function)(*empty)


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
