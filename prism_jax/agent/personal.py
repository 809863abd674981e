"""The person in front of the agent: what is known at a decision, what the gate makes of it, and what is kept for later.

The calibrated p_accept of a pass is that of the population. For a known person it moves by what their answers have said
so far (`prism_jax.decision.person`), and where silence is cheap the gate gives an offer the benefit of the doubt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.agent.signals import Signals
from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.person import Belief, Population, bonus, clipped_log_odds, predict, threshold_on_predicted
from prism_jax.people.exports import population_from


class KnownPerson(NamedTuple):
    """What is known of a person at one event."""

    population: Population  # parameters of the person layer; scale and bias follow the recalibration, where it is on
    belief: Belief  # mean and variance of the person's own rate, in log-odds
    answers: int  # number of the person's answers so far
    optimistic: bool  # whether doubt about the person counts in favour of an offer

    def predicted(self, signals: Signals) -> Signals:
        """The signals of a pass with this person's p_accept, which stays a calibrated probability."""
        return signals._replace(accept=tuple(sigmoid(self._log_odds(signals)).tolist()))

    def optimistic_prediction(self, signals: Signals, cost_ratio: float) -> Signals:
        """The signals with the p_accept that the gate compares: c standard deviations above `predicted`, in log-odds.

        The cost ratio is r = C_FN / C_FA.
        """
        return signals._replace(accept=tuple(sigmoid(self._log_odds(signals) + self._bonus(cost_ratio)).tolist()))

    def threshold_on_predicted(self, threshold: float, cost_ratio: float) -> float:
        """The threshold on `predicted` that is as high as this one is on `optimistic_prediction`."""
        return threshold_on_predicted(threshold, self._bonus(cost_ratio))

    def record(self) -> dict[str, Any]:
        """What is known, as keys of a decision record."""
        return {
            "answers": self.answers,
            "mean": self.belief.mean,
            "variance": self.belief.variance,
            "optimistic": self.optimistic,
            "population": self.population._asdict(),
        }

    def _log_odds(self, signals: Signals) -> Float64[np.ndarray, " candidates"]:
        return np.asarray(predict(self.belief, clipped_log_odds(signals.accept), self.population), np.float64)

    def _bonus(self, cost_ratio: float) -> float:
        return bonus(self.belief, cost_ratio) if self.optimistic else 0.0


class Prediction(NamedTuple):
    """What was predicted of an offer's acceptance, kept until its answer comes."""

    person: str
    content: float  # calibrated p_accept of the offer, for the population
    p_accept: float  # the same for the person, as the gate had it
    threshold: float  # the least p_accept at which the gate offers, at most 1


def known_person_from(tree: Mapping[str, Any]) -> KnownPerson | None:
    """Reads what `KnownPerson.record` wrote, with the person's name beside it; None where there is the name alone.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    if "answers" not in tree:
        return None
    belief = Belief(float(tree["mean"]), float(tree["variance"]))
    if not (math.isfinite(belief.mean) and 0 < belief.variance < math.inf):
        raise ValueError(
            f"person: found a mean of {belief.mean} and a variance of {belief.variance}, expected a belief"
        )
    population = population_from(tree["population"], "person.population")
    return KnownPerson(population, belief, int(tree["answers"]), bool(tree["optimistic"]))


def prediction_from(record: Mapping[str, Any]) -> Prediction | None:
    """What was predicted of an offer of a decision record; None for silence, without a person or without signals."""
    person = record.get("person")
    if person is None or not record["spoke"] or "unanswered" in record:
        return None
    used = record["fast"] if record["slow"] is None else record["slow"]
    threshold = 1.0 if record["threshold"] is None else min(record["threshold"], 1.0)
    content = used["calibrated"]["p_accept"][record["chosen"]]
    return Prediction(person["name"], content, record["p_accept"], threshold)
