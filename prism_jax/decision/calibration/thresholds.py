"""A threshold on calibrated probabilities, as a rule on what the map was applied to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import scipy

from prism_jax.decision.calibration.calibrators import GroupedTemperature, Temperature
from prism_jax.decision.calibration.isotonic import Isotonic
from prism_jax.decision.calibration.maps import Map
from prism_jax.decision.calibration.platt import Platt


class Rule(NamedTuple):
    """The values of a score at which a gate offers.

    Attributes:
      offer: `at_least` and `at_most` the value, `always`, or `never`.
      value: The value; None for `always` and `never`.
    """

    offer: Literal["at_least", "at_most", "always", "never"]
    value: float | None = None

    def in_words(self) -> str:
        """The rule in a cell of a table, such as `≥ 6.213`."""
        if self.value is None:
            return self.offer
        return f"{'≥' if self.offer == 'at_least' else '≤'} {self.value:.5g}".replace("-", "−")

    def offers(self, score: np.ndarray) -> np.ndarray:
        """Whether the gate offers at each score."""
        if self.offer == "at_least":
            return np.asarray(score >= self.value)
        if self.offer == "at_most":
            return np.asarray(score <= self.value)
        return np.full(np.shape(score), self.offer == "always")

    def is_near(self, other: Rule) -> bool:
        """Whether two rules are equal, but for rounding."""
        if self.value is None or other.value is None or self.offer != other.offer:
            return self == other
        return math.isclose(self.value, other.value, rel_tol=1e-9)


def rule_of_map(fitted: Map | None, threshold: float) -> Rule:
    """Where a map reaches a threshold.

    Args:
      fitted: The map; None where the score is the probability itself. `rules_by_group` is for grouped temperatures.
      threshold: Offers are made where the calibrated probability is at least this, in [0, 1].

    Returns:
      The rule on the map's own input, a probability.

    Raises:
      TypeError: for a `GroupedTemperature`.
    """
    if isinstance(fitted, GroupedTemperature):
        raise TypeError("fitted: found a temperature per group, expected one map; `rules_by_group` has a rule for each")
    if threshold <= 0:
        return Rule("always")
    if fitted is None:
        return Rule("at_least", float(threshold))
    if isinstance(fitted, Isotonic):
        return _of_isotonic(fitted, threshold)
    scale, bias = (1 / fitted.temperature, 0.0) if isinstance(fitted, Temperature) else (fitted.scale, fitted.bias)
    log_odds = scipy.special.logit(threshold)
    if isinstance(fitted, Platt) and fitted.bound is not None:  # beyond it nothing changes any more
        least, most = sorted((bias - scale * fitted.bound, bias + scale * fitted.bound))
        if not least < log_odds <= most:
            return Rule("always" if log_odds <= least else "never")
    if scale == 0:
        return Rule("always" if bias >= log_odds else "never")
    return Rule("at_least" if scale > 0 else "at_most", float(scipy.special.expit((log_odds - bias) / scale)))


def rules_by_group(fitted: Map, threshold: float) -> Mapping[str, Rule]:
    """The rule of each group of a `GroupedTemperature`, `other` for those not seen; of another map, under no name."""
    if not isinstance(fitted, GroupedTemperature):
        return {"": rule_of_map(fitted, threshold)}
    groups = {str(name): temperature for name, temperature in fitted.temperatures.items()} | {"other": fitted.pooled}
    return {name: rule_of_map(Temperature(temperature), threshold) for name, temperature in groups.items()}


def _of_isotonic(fitted: Isotonic, threshold: float) -> Rule:
    """The smallest input at which a map that is linear between its knots reaches the threshold."""
    x, y = fitted.x, fitted.y
    if y[0] >= threshold:
        return Rule("always")
    if y[-1] < threshold:
        return Rule("never")
    after = int(np.argmax(y >= threshold))
    share = (threshold - y[after - 1]) / (y[after] - y[after - 1])
    return Rule("at_least", float(x[after - 1] + share * (x[after] - x[after - 1])))
