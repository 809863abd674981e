"""The answer of a log in its own words: from which score to offer, for everybody and for each person."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64, Int

from prism_jax.decision.calibration import Rule
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import Belief, Population, predict
from prism_jax.decision.score_maps import PLATT, SCORE, TEMPERATURE, ScoreColumn, ScoreMap
from prism_jax.gate import Gate
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import prequential

MAPS = {SCORE: "the score as it is", TEMPERATURE: "one temperature", PLATT: "Platt's map"}


@dataclasses.dataclass(frozen=True)
class OwnScore:
    """The gate of a log as a rule on its own score."""

    column: str  # name of the score's column
    threshold: float  # the probability of acceptance from which on to offer
    maps: Mapping[str, ScoreMap]  # every map, fitted on all people with an answer and a score
    best: str  # the map with the lowest Brier score on people that it was not fitted on
    brier: Mapping[str, float]  # these Brier scores where the score is known, and that of the constant rate
    low: float  # smallest score of the answered offers
    high: float  # largest score of the answered offers
    means: Mapping[str, float]  # of the scores, `said`, and of their answers, `accepted`
    rules: Mapping[int, Rule]  # of the best map by the people outside each fold, on the score as it was read
    missing: Mapping[int, bool]  # whether these rules offer where the score is missing
    certain: int = 0  # number of these scores that are probabilities of exactly 0 or 1

    @property
    def rule(self) -> Rule:
        """The rule of the best map."""
        return self.maps[self.best].rule(self.threshold)

    @property
    def sign(self) -> str:
        """What stands after a score."""
        return self.maps[self.best].scale.sign

    def cell(self, rule: Rule) -> str:
        """A rule in a table: `always` and `never` also where all scores of the log are on one side of the value."""
        ends = rule.offers(np.array([self.low, self.high]))
        return "always" if ends.all() else "never" if not ends.any() else rule.in_words() + self.sign

    def offers(
        self, score: Float64[np.ndarray, " rows"], fold: Int[np.ndarray, " rows"]
    ) -> Float64[np.ndarray, " rows"]:
        """1 where the gate offers, by the rule of the row's fold."""
        found = np.zeros(len(score))
        for number_of_fold, rule in self.rules.items():
            held = fold == number_of_fold
            found[held] = np.where(np.isnan(score[held]), self.missing[number_of_fold], rule.offers(score[held]))
        return found

    @property
    def named(self) -> str:
        """The gate by its rule."""
        cell = self.cell(self.rule)
        return f"the gate: {cell}" if cell in ("always", "never") else f"{self.column} {cell}"

    def gate(self, c_fa: float, c_fn: float) -> Gate:
        """The gate of the best map, which decides on the score at these costs."""
        best, useless = self.maps[self.best], self.brier[self.best] >= self.brier["constant"]
        caution = f"{self.column} does not tell who accepts: a constant is at least as good." if useless else ""
        score = ScoreColumn(self.column, best.scale)
        return Gate(OperatingPoint(c_fa=c_fa, c_fn=c_fn), best.fitted, caution=caution, score=score)

    def as_dict(self) -> dict[str, Any]:
        """The rules as JSON values."""
        rules = {name: fitted.rule(self.threshold)._asdict() for name, fitted in self.maps.items()}
        found = {
            "column": self.column,
            "unit": self.sign.strip(),
            "best": self.best,
            "brier": dict(self.brier),
            "rules": rules,
        }
        return found | ({"certain": self.certain} if self.certain else {})


class Person(NamedTuple):
    """What a log says of one person."""

    number: int  # number in the order in which the log first mentions people, as in an exported scores file
    answers: int
    accepted: float  # share of the answers that accepted
    low: float  # lower end of Wilson's 95 % interval of that share, for answers that are independent
    high: float  # upper end of the interval
    p: float  # probability that they accept their next offer, at an average score
    rule: Rule  # the gate at their next offer: on the score, or `always` and `never` of a log without one


class Beliefs(NamedTuple):
    """What the person layer knows of people after all of their answers."""

    population: Population
    belief: Belief
    log_odds: float  # of an average score


def described(
    numbers: Int[np.ndarray, " people"],
    counts: Int[np.ndarray, " people"],
    shares: Float64[np.ndarray, " people"],
    known: Beliefs,
    fitted: ScoreMap | None,
    threshold: float,
) -> list[Person]:
    """Everybody, by number, with how many answered and which share accepted, and what the person layer knows of each.

    `fitted` is Platt's map on the score, None of a log without; from the threshold on, an offer is made.
    """
    population, belief = known.population, known.belief
    wider = (1 + (np.pi / 8) * belief.variance) ** 0.5
    p = scipy.special.expit(predict(belief, np.full(len(numbers), known.log_odds), population))
    people = []
    for i, number_of_person in enumerate(numbers.tolist()):
        rule = Rule("always" if p[i] >= threshold else "never")
        if fitted is not None and 0 < threshold < 1:
            at_threshold = scipy.special.logit(threshold) * wider[i] - population.bias - belief.mean[i]
            rule = fitted.rule(float(scipy.special.expit(at_threshold / population.scale)))
        low, high = _wilson(float(shares[i]), int(counts[i]))
        people.append(Person(number_of_person, int(counts[i]), float(shares[i]), low, high, float(p[i]), rule))
    return sorted(people, key=lambda person: person.number)


def latest_beliefs(
    population: Population,
    log_odds: Float64[np.ndarray, " rows"],
    accepted: Float64[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    time: Float64[np.ndarray, " rows"],
    answered: Float64[np.ndarray, " rows"] | None,
) -> tuple[Int[np.ndarray, " people"], Belief]:
    """The people in ascending order, and what is known of each after their last answer."""
    # One more offer to everybody, after all answers, whose own answer is never seen.
    codes = np.unique(person)
    last, nothing = np.full(len(codes), np.inf), np.zeros(len(codes))
    everybody = np.append(person, codes)
    places = lanes(everybody, np.append(time, last), None if answered is None else np.append(answered, last))
    run = prequential(
        np.append(log_odds, nothing),
        np.append(accepted, nothing),
        everybody,
        population,
        answered=np.append(np.ones(len(accepted), bool), np.zeros(len(codes), bool)),
        places=places.padded(),  # parts of a log share a compiled scan
    )
    return codes, Belief(*(part[len(accepted) :] for part in run.belief))


def as_dicts(people: Sequence[Person]) -> list[dict[str, Any]]:
    """One JSON object per person."""
    return [person._asdict() | {"rule": person.rule._asdict()} for person in people]


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.959964
    middle, room = share + z * z / (2 * count), z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return max(0.0, (middle - room) / (1 + z * z / count)), min(1.0, (middle + room) / (1 + z * z / count))
