"""What makes a log's own score a probability of acceptance, and the gate as a rule on that score."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64

from prism_jax.decision import arrays
from prism_jax.decision.calibration import (
    CalibrationWarning,
    Map,
    Rule,
    Temperature,
    apply_map,
    certain,
    fit_platt,
    fit_temperature,
    rule_of_map,
)

SCORE, TEMPERATURE, PLATT = "score", "score, temperature", "score, Platt"
EDGE = 1e-6
"""Distance from 0 and 1 that a score keeps before its log-odds are taken."""


class Scale(NamedTuple):
    """How a score enters the maps: as the probability score / width, or by the log-odds (score - middle) / width."""

    middle: float | None = None  # mean of the scores; None for a probability
    width: float = 1.0  # their standard deviation, above 0; of a probability 1, or 100 in percent

    def in_unit(self, unit: str) -> Scale:
        """The scale of scores that were read in a unit: `%`, or none."""
        return self._replace(width=100.0) if unit == "%" else self

    @property
    def sign(self) -> str:
        """What stands after a score: ` %`, or nothing."""
        return " %" if self.middle is None and self.width == 100 else ""

    def unit(self, score: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """The score between 0 and 1, increasing in it; away from both ends, but where it is a probability of 0 or 1."""
        z = (score - (self.middle or 0.0)) / self.width
        unit = z if self.middle is None else scipy.special.expit(z)
        inside = np.clip(unit, EDGE, 1 - EDGE)
        return inside if self.middle is not None else np.where(certain(unit), unit, inside)

    def on_score(self, rule: Rule) -> Rule:
        """A rule between 0 and 1 as one on the score."""
        if rule.value is None:
            return rule
        if self.middle is None:
            return rule._replace(value=self.width * rule.value)
        if not 0 < rule.value < 1:  # beyond every number: a map with a scale close to 0
            return Rule("never" if (rule.value >= 1) == (rule.offer == "at_least") else "always")
        return Rule(rule.offer, float(self.middle + self.width * scipy.special.logit(rule.value)))


class ScoreColumn(NamedTuple):
    """A score of one's own that a gate decides on (`prism_jax.Gate`)."""

    column: str  # its name
    scale: Scale

    def read(self, score: Any) -> Any:
        """One score as a float, or some as an array; ValueError for what is none, or outside the unit."""
        if isinstance(score, str | bool | np.bool_) or score is None:
            raise ValueError(f"score: found {score!r:.80}, expected {self._expected}")
        values = float(score) if np.ndim(score) == 0 else arrays.column("score", score)
        if not np.size(values):
            raise ValueError(f"score: found an empty array, expected {self._expected}")
        most = np.inf if self.scale.middle is not None else self.scale.width
        bad = ~np.isfinite(values) | (np.abs(values) > most) | ((self.scale.middle is None) & (np.asarray(values) < 0))
        if bad.any():
            where = f"[{int(bad.argmax())}]" if np.ndim(values) else ""
            raise ValueError(f"score{where}: found {np.ravel(values)[bad.argmax()]:.6g}, expected {self._expected}")
        return values

    @property
    def _expected(self) -> str:
        ends = "" if self.scale.middle is not None else f" from 0 to {self.scale.width:g}{self.scale.sign}"
        return f"a number{ends}, as {self.column} has"

    def to_dict(self, rule: Rule) -> dict[str, Any]:
        """The block of gate.json, with the rule that its map and costs make."""
        unit = self.scale.sign.strip()
        return {"column": self.column, "unit": unit, **self.scale._asdict(), **rule._asdict()}


def scale_of(score: Float64[np.ndarray, " rows"], probability: bool) -> Scale:
    """The scale of scores without NaN, at least one unless they are probabilities; it depends on no answer."""
    return Scale() if probability else Scale(float(score.mean()), float(score.std()) or 1.0)


@dataclasses.dataclass(frozen=True)
class ScoreMap:
    """A map from scores to probabilities of acceptance."""

    scale: Scale
    fitted: Map | None  # None where the score is taken as the probability itself

    def __call__(self, score: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Probabilities of acceptance of known scores."""
        return (
            score / self.scale.width
            if self.fitted is None
            else np.asarray(apply_map(self.fitted, self.scale.unit(score)))
        )

    def rule(self, threshold: float) -> Rule:
        """The scores at which the probability is at least the threshold."""
        return self.scale.on_score(rule_of_map(self.fitted, threshold))


def maps_of_units(
    scale: Scale,
    unit: Float64[np.ndarray, " rows"],
    accepted: Float64[np.ndarray, " rows"],
    weight: Float64[np.ndarray, " rows"],
) -> Mapping[str, ScoreMap]:
    """The maps that a log is compared on, by their names in the tables, fitted on answers of both kinds.

    Scores are as `Scale.unit` gives them; of one that is not read as a probability, Platt's map alone makes one.
    """
    maps = {}
    if scale.middle is None:
        maps[SCORE] = ScoreMap(scale, None)
        with warnings.catch_warnings():
            # A temperature at its bound says that the score misleads, which is what the row is there to show.
            warnings.simplefilter("ignore", CalibrationWarning)
            maps[TEMPERATURE] = ScoreMap(scale, Temperature(fit_temperature(unit, accepted, weight)))
    platt = fit_platt(unit, accepted, weight)
    if scale.middle is not None:  # no certainty is stated: `Scale.unit` alone keeps scores from the ends
        platt = dataclasses.replace(platt, bound=None)
    return maps | {PLATT: ScoreMap(scale, platt)}


def simplest_best(errors: Mapping[str, float]) -> str:
    """The map with the lowest Brier score, of equal ones the first; the simplest stand first."""
    return min(errors, key=errors.__getitem__)
