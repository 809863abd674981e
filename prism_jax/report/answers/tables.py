"""What a log says of its score, its predictions, its people and its gates, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prism_jax.decision.off_policy import DOUBTED
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.answers.findings import GATE, Costs, Drawn, Facts, Group, Pair, Part
from prism_jax.evaluation.answers.logs import ONE_PERSON
from prism_jax.evaluation.answers.measures import CONSTANTS, MEANINGS, Measures
from prism_jax.evaluation.answers.own_score import OwnScore, Person
from prism_jax.report.answers.sentences import said_of_score, sentences
from prism_jax.report.numbers import DASH, number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import ALONE, SHOWN_ONLY, over_units

SHOWN_PEOPLE = 20
"""Number of people in the printed table; the files hold all."""


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


def by_answers_table(parts: Sequence[Part], pair: Pair) -> Table:
    """One row per number of answers seen before."""
    names = list(parts[0].brier)
    columns = (
        Column("answers", "Number of rows"),
        Column("people", "Number of people who gave them"),
        *(Column(name, f"Brier score. {MEANINGS[name]}") for name in names),
        Column(
            f"{pair.with_person} minus {pair.without}",
            "Difference of the two Brier scores on the same answers; below 0 the person layer gains.",
        ),
    )
    rows = []
    for part in parts:
        seen = str(part.low) if part.low == part.high else f"{part.low} to {part.high}"
        seen = f"{part.low} or more" if part.high is None else seen
        cells = (*(f"{part.brier[name]:.3f}" for name in names), _signed(part.difference))
        rows.append(Row(seen, (f"{part.answers:,}", str(part.people), *cells)))
    title = "Brier score by how many answers of the person had been seen"
    people = [part.people for part in parts]
    note = f"Of the difference, {over_units(min(people), 'people', most=max(people))}."
    return Table(title, "seen before", columns, (Section("", tuple(rows)),), note)


def _signed(difference: Estimate | None) -> str:
    """A difference and its interval, each with its sign; what rounds to 0 has none."""
    return (
        DASH if difference is None else show_estimate(Estimate(*(round(end, 3) for end in difference[:3])), sign=True)
    )


def group_table(title: str, column: str, groups: Sequence[Group], gate: str, unit: str = "people") -> Table:
    """One row per group; `gate` is what the gate is on, `unit` what intervals are over."""
    columns = (
        Column("answers", "Number of answers."),
        Column(unit, "Who gave them, or when."),
        Column("accepted", "Share of the answers that accepted.", "%"),
        Column("Brier", f"Of {gate}, on {unit} that it was not fitted on."),
        Column("offers", "Share of the offers that the gate would have made.", "%"),
        Column("gate minus always", "Its cost minus that of always offering, paired; below 0 is cheaper."),
    )
    rows = tuple(
        Row(
            group.name,
            (
                f"{group.answers:,}",
                f"{group.people:,}",
                percent(group.accepted),
                number(group.brier, 3),
                percent(group.speak_rate),
                DASH if group.gain is None else show_estimate(group.gain, sign=True),
            ),
        )
        for group in groups
    )
    note = f"The gate is on {gate}, the same for all; it is fitted on other {unit} and on every {column}."
    return Table(title, column, columns, (Section("", rows),), note)


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
