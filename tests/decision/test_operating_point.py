import dataclasses

import jaxtyping
import pytest

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.training.loss_config import LossConfig


def test_defaults_are_the_papers_operating_point_but_for_the_trigger():
    point = OperatingPoint()
    assert (point.c_fa, point.c_fn, point.margin, point.policy) == (1.0, 2.0, 0.10, "dynamic")
    assert (point.trigger, point.price) == ("auto", 1e-4)
    assert point.cost_ratio == 2


def test_the_price_of_a_slow_token_is_that_of_the_training_loss():
    assert OperatingPoint().price == LossConfig().slow


def test_training_prices_the_margin_under_both_triggers():
    assert OperatingPoint(trigger="value", margin=0.2).slow_margin == 0.2
    assert OperatingPoint(trigger="value", policy="static").slow_margin == 0


def test_an_operating_point_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        OperatingPoint().c_fa = 2.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"c_fa": 0.0}, r"c_fa: found 0.0, expected a cost from 1e-15 to 1e\+15"),
        ({"c_fa": 1e-46}, "c_fa: found 1e-46"),
        ({"c_fa": 1e308}, r"c_fa: found 1e\+308"),
        ({"c_fn": 1e-46}, "c_fn: found 1e-46, expected 0 or a cost"),
        ({"c_fn": 1e308}, r"c_fn: found 1e\+308"),
        ({"c_fa": float("inf")}, "c_fa: found inf"),
        ({"c_fn": -1.0}, "c_fn: found -1.0"),
        ({"c_fn": float("nan")}, "c_fn: found nan"),
        ({"margin": 1.5}, "margin: found 1.5"),
        ({"margin": float("nan")}, "margin: found nan"),
        ({"fixed_threshold": -0.1}, "fixed_threshold: found -0.1"),
        ({"price": -1e-4}, r"price: found -0.0001, expected a price of one token from 0 to 1e\+15"),
        ({"price": float("inf")}, "price: found inf"),
        ({"price": float("nan")}, "price: found nan"),
        (
            {"policy": "guess"},
            "policy: found 'guess', expected one of 'fixed', 'static', 'dynamic', 'product', 'al",
        ),
        ({"trigger": "guess"}, "trigger: found 'guess', expected one of 'auto', 'margin', 'value'"),
    ],
)
def test_bad_values_are_refused_by_name(changes, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # which would refuse other words before us
    with pytest.raises(ValueError, match=message):
        OperatingPoint(**changes)
