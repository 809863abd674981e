"""A threshold on calibrated probabilities as a rule on the raw ones, for every map."""

import numpy as np
import pytest

from prism_jax.decision.calibration import (
    GroupedTemperature,
    Isotonic,
    Platt,
    Rule,
    Temperature,
    apply_map,
    rule_of_map,
    rules_by_group,
)

MAPS = [
    None,
    Temperature(0.4),
    Temperature(7.0),
    Platt(1.3, -0.7),
    Platt(-0.8, 0.2),
    Platt(0.0, 0.3),
    Platt(1.3, -0.7, 1.5),
    Platt(-0.8, 0.2, 1.5),
    Isotonic(np.array([0.1, 0.3, 0.6, 0.9]), np.array([0.2, 0.2, 0.5, 0.8])),
    Isotonic(np.array([0.5]), np.array([0.4])),
]


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.2, 0.35, 0.5, 0.77, 0.9, 1.0])
@pytest.mark.parametrize("fitted", MAPS, ids=str)
def test_a_rule_decides_as_the_map_does(fitted, threshold):
    rule = rule_of_map(fitted, threshold)
    p = np.array([*np.linspace(0.001, 0.999, 1009), 1.0])
    mapped = p if fitted is None else apply_map(fitted, p)
    apart = np.abs(mapped - threshold) > 1e-9  # rounding decides at the threshold itself,
    apart[-1] = True  # but not at 1
    np.testing.assert_array_equal(rule.offers(p)[apart], (mapped >= threshold)[apart])


def test_temperatures_of_groups_have_a_rule_each():
    fitted = GroupedTemperature({"code": 2.0, "mail": 0.5}, 1.0)
    rules = rules_by_group(fitted, 0.8)
    assert rules["other"].value == pytest.approx(0.8)
    assert rules["mail"].value == pytest.approx(2 / 3) and rules["code"].value == pytest.approx(16 / 17)
    assert rules_by_group(Temperature(1.0), 0.8) == {"": Rule("at_least", pytest.approx(0.8))}
    with pytest.raises(TypeError, match="`rules_by_group` has a rule for each"):
        rule_of_map(fitted, 0.8)
