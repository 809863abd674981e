"""The answer of a log in its own words: from which score to offer, for everybody and for each person."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64, Int

from prism_jax.decision.calibration import Map, Rule, rules_by_group
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import Belief, Population, predict
from prism_jax.decision.score_maps import PLATT, SCORE, TEMPERATURE, Scale, ScoreColumn, ScoreMap
from prism_jax.decision.uncertainty import Estimate
from prism_jax.gate import Gate
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import prequential
from prism_jax.report.numbers import number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table

SHOWN_PEOPLE = 20
"""Number of people in the printed table; the files hold all."""
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


def said_of_score(own: OwnScore, compared: Mapping[str, Estimate] | None) -> str:
    """Whether the score is a probability, in a sentence with its numbers; `compared` is None where it cannot be one."""
    if compared is None:
        return f"{own.column} is no probability: it goes from {own.low:.5g} to {own.high:.5g}; Platt's map makes one."
    lower, said, accepted = compared["correction"], own.means["said"], own.means["accepted"]
    if lower.low > 0:
        verdict, apart = f"{own.column} is no probability of acceptance as it is", ""
    else:
        verdict = f"{own.column} can be taken as the probability of acceptance"
        apart = "" if lower.high < 0 else ", which is not told apart from 0"
    return (
        f"{verdict}: it says {said:.1%} on average where {accepted:.1%} were accepted, and Platt's map, fitted on "
        f"other people, lowers its Brier score by {show_estimate(lower)}{apart}."
    )


def sentences(own: OwnScore, measured: str = "") -> list[str]:
    """What to deploy on the score, why by this map, and what the other maps would say.

    `measured` are words for the offers and weights of Brier scores, where these are not all offers alike.
    """
    rule = own.rule
    lines = [f"On your own score: {deployed(own.column, rule, own.low, own.high, sign=own.sign)}"]
    others = [f"{own.brier[name]:.3f} ({MAPS[name]})" for name in own.maps if name != own.best]
    lines.append(
        f"That is where {MAPS[own.best]}, fitted on everybody, "
        f"{'is' if own.best == SCORE else 'makes the probability of acceptance'} {own.threshold:.4g} or more."
    )
    if others:
        lines.append(
            f"On people that it was not fitted on, its Brier score{measured} is {own.brier[own.best]:.3f}, "
            f"the lowest; the others: {', '.join(others)}."
        )
    if own.certain:
        lines.append(
            f"Scores that are exactly 0 or 1: {own.certain:,}. No temperature moves them, and they are left out of its "
            "fit; for Platt's map they count as the largest other log-odds, and at least as those of 1 label in 22."
        )
    if own.brier[own.best] >= own.brier["constant"]:
        lines.append(
            f"The constant rate of acceptance is at least as good ({own.brier['constant']:.3f} against "
            f"{own.brier[own.best]:.3f}): this score does not tell who accepts."
        )
    return lines


def deployed(column: str, rule: Rule, low: float | None = None, high: float | None = None, sign: str = "") -> str:
    """A rule as an instruction, with what it means between the smallest and the largest score that are known."""
    if rule.value is None:
        return f"{rule.offer} offer; no value of {column} changes the decision at these costs."
    words = f"offer where {column} {rule.in_words()}{sign}."
    if rule.offer == "at_most":
        words += " A higher score goes with fewer acceptances here."
    if low is not None and high is not None:
        ends = rule.offers(np.array([low, high]))
        if ends.all():
            words += " Every score of the log is on that side, so this always offers."
        elif not ends.any():
            words += " No score of the log is on that side, so this never offers."
    return words


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


def people_table(people: Sequence[Person], own: OwnScore | None, threshold: float, most: int | None = None) -> Table:
    """One row per person, under their number.

    `own` is None without a score. Of `most` rows, half have the lowest and half the highest rates; None shows all, by
    number.
    """
    columns = (
        Column("answers", "Number of answers."),
        Column("accepted", "Share of the answers that accepted.", "%"),
        Column("95 % interval", "Wilson's interval of that share, as if answers were independent.", "%"),
        Column("next offer", "Probability that they accept their next offer, at an average score."),
        Column(
            "offer if the score is" if own else "offer",
            f"Where the person layer on Platt's map reaches {threshold:.4g} at their next offer.",
            text=True,
        ),
    )
    shown = list(people)
    if most is not None and len(people) > most:
        by_rate = sorted(people, key=lambda person: (person.accepted, person.number))
        shown = by_rate[: most // 2] + by_rate[-(most // 2) :]
    rows = tuple(
        Row(
            f"p{person.number}",
            (
                f"{person.answers:,}",
                percent(person.accepted),
                f"{percent(person.low)} to {percent(person.high)}",
                number(person.p, 3),
                own.cell(person.rule) if own else person.rule.offer,
            ),
        )
        for person in shown
    )
    rates = [person.accepted for person in people]
    note = (
        f"People are numbered as the log first mentions them. Their rates go from {percent(min(rates))} to "
        f"{percent(max(rates))} %; with few answers a rate is far off by chance alone, and the gate moves less than "
        "the rate."
    )
    if most is not None and len(shown) < len(people):
        note += f" The {most // 2} lowest and highest rates of {len(people):,} people; people_by_number.csv has all."
    return Table("How people differ", "person", columns, (Section("", rows),), note)


def as_dicts(people: Sequence[Person]) -> list[dict[str, Any]]:
    """One JSON object per person."""
    return [person._asdict() | {"rule": person.rule._asdict()} for person in people]


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.959964
    middle, room = share + z * z / (2 * count), z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return max(0.0, (middle - room) / (1 + z * z / count)), min(1.0, (middle + room) / (1 + z * z / count))


def promised(fitted: Map, ratio: float, scale: Scale | None = None, column: str = "p_accept_fast") -> dict[str, Any]:
    """The gate that keeps a promise on acceptance alone, as a rule on the score that the table was made of.

    The gate offers where p_accept by the certified map is at least 1 / (1 + ratio), with ratio = C_FN / C_FA. `scale`
    says how a log's score became `p_accept_fast` (`log_scores.scale_of_log`); None where that column is the score
    itself.

    Returns:
      `sentences` to print, and for JSON `column` and `rules`: the rule of each group of a map by domain, or the one
      rule under no name.
    """
    scale = Scale() if scale is None else scale
    rules = {name: scale.on_score(rule) for name, rule in rules_by_group(fitted, 1 / (1 + ratio)).items()}
    lines = [
        f"On your own score{f', in {name}' if name else ''}: {deployed(column, rule, sign=scale.sign)}"
        for name, rule in rules.items()
    ]
    lines.append(f"That is where the calibrated probability of acceptance is {1 / (1 + ratio):.4g} or more.")
    return {
        "sentences": lines,
        "column": column,
        "rules": {name: rule._asdict() for name, rule in rules.items()},
    }
