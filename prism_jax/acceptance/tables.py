"""What a gate on a log's score saves, how good the log's predictions are, and what a gate on each would have cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from prism_jax.acceptance.logs import ONE_PERSON
from prism_jax.acceptance.measures import CONSTANTS, MEANINGS, Measures, as_json
from prism_jax.acceptance.own_score import OwnScore, said_of_score, sentences
from prism_jax.decision.off_policy import DOUBTED
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.intervals import known
from prism_jax.report.numbers import DASH, number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import ALONE, SHOWN_ONLY, over_units

GATE = "the gate"
"""Its name beside the policies of --target."""


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


def savings_table(
    facts: Facts,
    costs: Mapping[str, Costs],
    own: OwnScore | None,
    compared: Mapping[str, Estimate] | None,
    drawn: Mapping[str, Drawn],
) -> Table:
    """What the gate on the score saves, of a log without one that on people's own rates; the first thing to read.

    `drawn` has the gate and the policies of --target, by name, where the log tells their costs beside today's.
    """
    gate, words = ("person", "each person's own rate") if own is None else (own.best, own.named)
    gate, words = (gate, words) if gate in costs else ("constant", "the rate of the other answers")
    always = "always, as today" if not facts.not_made or facts.shown_only else "always"
    today = [] if always != "always" else ["today"]
    columns = (
        Column("offers", "Share of the log's offers that would have been made.", "%"),
        Column("realised cost", "Mean of C_FA for an offer not accepted, C_FN for silence where it would have been."),
        *(Column(f"minus {name}", "Paired; below 0 is cheaper.") for name in (always, "never", *today)),
    )

    def cells(rate: float, cost: Estimate | None, gains: Mapping[str, Estimate | None]) -> tuple[str, ...]:
        shown = [DASH if cost is None else show_estimate(cost)]
        for gain in map(gains.get, (*CONSTANTS, *today)):
            shown.append(DASH if gain is None else show_estimate(gain, sign=True))
        return (percent(rate), *shown)

    rows = []
    for name in (*CONSTANTS, gate):
        row, beside = costs[name], drawn.get(GATE) if name == gate else None
        gains: dict[str, Estimate | None] = {other: row.against[other] for other in CONSTANTS if other != name}
        gains["today"] = None if beside is None else beside.gain
        rows.append(Row(words if name == gate else name, cells(row.speak_rate, row.cost, gains), strong=name == gate))
    for name, of_target in drawn.items():
        if name != GATE:
            beside_today = {"today" if today else "always": of_target.gain}
            rows.append(Row(name, cells(of_target.speak_rate, of_target.cost, beside_today)))
    measured = " on shown offers" if facts.not_made else ""
    measured = " by inverse propensities" if facts.unequal else measured
    measured += " where the score is known" if facts.score_missing else ""
    note = ["The log has no score."] if own is None else [said_of_score(own, compared), *sentences(own, measured)]
    if facts.score_missing:
        note.append(
            "Where the score is missing, the gate decides by the rate of the other answers, and a condition on it in "
            "--target does not hold; gate.json refuses a missing score."
        )
    if today and any(one.gain for one in drawn.values()):
        note.append("Today is the policy that made the log; costs beside it are by inverse propensities.")
    note += [
        f"What {name} would save against today is unknown: {one.unknown}." for name, one in drawn.items() if one.unknown
    ]
    title = titled("What the gate saves, per offer", facts)
    return Table(title, "policy", columns, (Section("", tuple(rows)),), "\n".join(note), mark="the gate")


def prediction_table(
    facts: Facts,
    measured: Mapping[str, Measures],
    compared: Mapping[str, Estimate] | None,
    bounds: Mapping[str, float] | None = None,
    left_out: int = 0,
) -> Table:
    """How each prediction ranks and how far it is from a probability.

    `compared` is the score beside the constant where the score is known; None where it is no probability. `bounds` say
    how far an AUROC can be off; None where it is exact. `left_out` is the number of files that could not be read.
    """
    columns = (
        Column("Brier", "Mean of (p − y)², the lower the better."),
        Column("ECE", "Expected calibration error, 15 bins of equal width."),
        Column("AUROC", "Share of pairs of an accepted and a rejected offer that are ranked right."),
        Column("within person", "The same over the pairs that belong to one person."),
    )
    rows = tuple(
        Row(
            name,
            tuple(
                DASH if value is None else show_estimate(value)
                for value in (measures.brier, measures.ece, measures.auroc, measures.within_person)
            ),
            MEANINGS[name],
        )
        for name, measures in measured.items()
    )
    notes = _notes(facts, compared)
    if left_out:
        notes.append(f"Files that could not be read and are left out: {left_out}.")
    if bounds is not None:
        widest = max(bounds, key=bounds.__getitem__)
        notes.append(f"AUROC comes from histograms, with an error of at most {bounds[widest]:.1g} (row {widest}).")
    title = titled("Is the score a probability", facts)
    return Table(title, "prediction", columns, (Section("", rows),), " ".join(notes))


def _notes(facts: Facts, compared: Mapping[str, Estimate] | None) -> list[str]:
    """What the predictions were measured on, and what that says of the score."""
    notes = [
        f"{facts.answers:,} answers of {facts.whose}, {facts.accepted:.1%} accepted; "
        f"{facts.folds} folds of {'whole ' * (facts.unit != 'answers')}{facts.unit}"
        f"{', every prediction before its answer' * (facts.unit == 'people')}.",
        f"{over_units(facts.people, facts.unit)}.",
    ]
    if facts.unit != "people":
        notes.append(
            f"{ONE_PERSON.format(facts.unit)} What depends on other people is not known: a person's own rate, and how "
            "an answer of theirs moves it."
        )
    if facts.unit == "answers":
        notes.append("Intervals take answers for independent; times of several days would give intervals over days.")
    if facts.unequal:
        notes.append("Fits and measures weigh answers by clipped inverse propensities.")
    elif facts.not_made:
        notes.append(f"Of shown offers only, without weights; offers that were not made: {facts.not_made:,}.")
    if facts.score_missing:
        notes.append(f"The score is missing on {facts.score_missing:,} rows, which take the constant.")
    if compared is not None:
        worse = compared["difference"]
        verdict = "worse than" if worse.low > 0 else "better than" if worse.high < 0 else "not told apart from"
        notes.append(
            f"Read as a probability, where it is known, the score is {verdict} a constant: Brier "
            f"{number(compared['score'].value, 3)} against {number(compared['constant'].value, 3)}, difference "
            f"{show_estimate(worse, sign=True)}."
        )
    elif facts.score_missing is None:
        notes.append("The log has no score.")
    else:
        notes.append("The score has values outside [0, 1], so it is no probability before Platt's map.")
    return notes


def gate_table(facts: Facts, costs: Mapping[str, Costs], own: OwnScore | None, c_fa: float, c_fn: float) -> Table:
    """What the gate would have cost, and where each map puts it on the score."""
    columns = (
        Column("offers", "Share of the log's offers that would have been made.", "%"),
        Column("withheld", "Share of them that would not have been made.", "%"),
        Column("wrong offers", "Share of the offers that would have been made which are not accepted.", "%"),
        Column("realised cost", "Mean of C_FA for an offer not accepted, C_FN for silence where it would have been."),
        Column("minus the better constant", "Cost minus that of the better of always and never, paired."),
        *([] if own is None else [Column("offer if the score is", "By the map fitted on everybody.", text=True)]),
    )
    rules = {} if own is None else {name: own.cell(fitted.rule(own.threshold)) for name, fitted in own.maps.items()}
    rows = tuple(
        Row(
            name,
            (
                percent(row.speak_rate),
                percent(max(0.0, 1 - row.speak_rate)),
                percent(row.wrong),
                show_estimate(row.cost),
                show_estimate(row.gain, sign=True),
                *([] if own is None else [rules.get(name, DASH)]),
            ),
            MEANINGS.get(name, ""),
            strong=own is not None and name == own.best,
        )
        for name, row in costs.items()
    )
    threshold = c_fa / (c_fa + c_fn)
    note = f"C_FA = {c_fa:g}, C_FN = {c_fn:g}: offer where p_accept ≥ C_FA / (C_FA + C_FN) = {threshold:.4g}."
    title = titled("What the gate would have cost, per offer", facts)
    return Table(title, "gate on", columns, (Section("", rows),), note, mark="the best map out of fold")


def titled(words: str, facts: Facts) -> str:
    """A title that says whose costs these are."""
    said = {SHOWN_ONLY: facts.shown_only, DOUBTED: facts.doubted}
    return ", ".join([words, ALONE, *(word for word, holds in said.items() if holds)])
