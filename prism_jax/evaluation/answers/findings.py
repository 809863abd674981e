"""What a log of answers says, in one record: how it was found does not matter to the tables and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from prism_jax.decision.person import Population
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.answers.curves import Curves
from prism_jax.evaluation.answers.measures import Measures, as_json
from prism_jax.evaluation.answers.own_score import OwnScore, Person
from prism_jax.evaluation.intervals import known

SEEN = ((0, 0), (1, 4), (5, 19), (20, None))
"""Numbers of earlier answers of the person, from and to, that are compared."""
GATE = "the gate"
"""Its name beside the policies of --target."""


class Question(NamedTuple):
    """What is asked of a log."""

    c_fa: float  # cost of an offer that is not accepted, above 0
    c_fn: float  # cost of silence where the offer would have been accepted, at least 0
    context: Sequence[str] = ()  # columns that were known at the moment of the offer
    weighted: bool = False  # whether fits and measures weigh answers by their clipped inverse propensities
    seed: int = 0  # of the folds and of the resampling
    group: str = ""  # the column by whose kinds the offers are divided

    @property
    def threshold(self) -> float:
        """The probability of acceptance from which on to offer."""
        return self.c_fa / (self.c_fa + self.c_fn)


class Facts(NamedTuple):
    """What a log holds, and how it was studied."""

    rows: int
    answers: int
    people: int  # who answered, or of one person the number of their days or answers
    accepted: float  # share of the answers that accepted, by the weights of the study
    score_missing: int | None  # number of answered offers without a score; None of a log without scores
    not_made: int  # number of offers that were not made
    shown_only: bool  # whether these were left out
    timed: bool  # whether the log says when offers were made
    folds: int
    unequal: bool  # whether answers have weights other than 1
    unit: str = "people"  # what intervals and folds are over
    doubted: bool = False  # whether offers were not quite drawn with the propensities that weigh them

    @property
    def whose(self) -> str:
        """Whose the answers are."""
        if self.unit == "people":
            return f"{self.people:,} people"
        return "one person" + (f" on {self.people:,} days" if self.unit == "days" else "")


class Pair(NamedTuple):
    """Two predictions that are compared."""

    with_person: str
    without: str


class Part(NamedTuple):
    """The answers before which some number of their person's answers had been seen."""

    low: int
    high: int | None  # None where there is no largest number
    answers: int
    people: int
    brier: Mapping[str, float]  # Brier score of each prediction
    difference: Estimate | None  # that of the pair, negative where the person layer gains; None for a single person

    def as_dict(self, pair: Pair) -> dict[str, Any]:
        """JSON values."""
        difference = None if self.difference is None else as_json(self.difference)
        return {
            "from": self.low,
            "to": self.high,
            "answers": self.answers,
            "people": self.people,
            "brier": dict(self.brier),
            "difference": {"row": pair.with_person, "minus": pair.without, "brier": difference},
        }


def pair_of(names: Sequence[str]) -> Pair:
    """The best of the named predictions that knows the person, and the one below it that does not."""
    if "context+person" in names:
        return Pair("context+person", "context")
    return Pair("score+person", "score, Platt") if "score+person" in names else Pair("person", "constant")


class Group(NamedTuple):
    """The answers of one surface or kind."""

    name: str
    answers: int
    people: int
    accepted: float  # share of the answers that accepted
    brier: float  # of the prediction that the gate is on
    speak_rate: float  # share of the offers that the gate would have made
    gain: Estimate | None  # the gate's cost minus that of always offering; None of one person

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return self._asdict() | {"gain": None if self.gain is None else as_json(self.gain)}


class Costs(NamedTuple):
    """What the gate on one prediction would have cost; intervals are over people.

    An offer that is not accepted costs C_FA, silence where it would have been accepted C_FN. Need is certain, so that
    p_accept is also the probability of need and acceptance (docs/maths.md, section 2).
    """

    speak_rate: float  # share of the offers that it would have made
    wrong: float  # share of these that are not accepted; NaN where it makes none
    cost: Estimate  # mean realised cost per offer of the log
    gain: Estimate  # that cost minus the better constant's, paired
    against: Mapping[str, Estimate]  # the same of either constant

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        costs = {"cost": as_json(self.cost), "minus_constant": as_json(self.gain)}
        costs |= {f"minus_{constant}": as_json(gain) for constant, gain in self.against.items()}
        return {"speak_rate": self.speak_rate, "wrong_offers": known(self.wrong), **costs}


class Drawn(NamedTuple):
    """A policy beside what is done today, by the probabilities with which offers were made (docs/counterfactual.md)."""

    speak_rate: float  # share of the log's rows at which it offers
    cost: Estimate | None  # per row; None where the log does not tell it
    gain: Estimate | None  # its cost minus that of the policy that made the log; None where the log does not tell it
    unknown: str = ""  # why it does not

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        cost, gain = (None if value is None else as_json(value) for value in (self.cost, self.gain))
        return {"speak_rate": self.speak_rate, "cost": cost, "minus_today": gain, "unknown": self.unknown or None}


class Findings(NamedTuple):
    """What a log says of a question."""

    facts: Facts
    populations: Sequence[Population]  # those of each fold
    measured: Mapping[str, Measures]  # of each prediction
    compared: Mapping[str, Estimate] | None  # the score beside the constant; None where it is no probability
    parts: Sequence[Part]
    pair: Pair
    own: OwnScore | None
    groups: Sequence[Group]  # of the offers, where a column has the role
    curves: Curves | None  # of the score
    people: Sequence[Person]
    costs: Mapping[str, Costs]
    drawn: Mapping[str, Drawn] = MappingProxyType({})  # the gate and --target beside what is done today
    left_out: Mapping[str, str] = MappingProxyType({})  # files that could not be read, with the reason of each
    bounds: Mapping[str, float] | None = None  # how far the AUROC of a prediction can be off; None where all is exact
