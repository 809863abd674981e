"""The tables of an evaluation, which the terminal and the HTML report both show.

Costs are means over steps; rates are in percent. A dash marks an undefined ratio or an unknown number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import rich.console
import rich.text

from prism_jax.decision.uncertainty import LEAST_UNITS
from prism_jax.evaluation.policy_rows import ALL_POLICIES
from prism_jax.evaluation.results import Evaluation
from prism_jax.evaluation.rows import GroupRow, PolicyRow, RatioRow, SecondSignalRow, SignalRow, TriggerRow
from prism_jax.report.bounds import BOUND, Bounded, Format, bounded, scientific, signal_bounds, with_bounds
from prism_jax.report.numbers import DASH, number, percent
from prism_jax.report.table import Column, Row, Section, Table, print_all, wide_console
from prism_jax.runtime.shown_text import visible

ALONE = "p_accept alone"
"""What the title of every table says where there are no columns of need."""
SHOWN_ONLY = "of shown offers only"
"""What the titles add where the offers that were not made are left out."""
SECTIONS = {None: "References", "calibrated": "Calibrated", "raw": "Raw"}


def count(value: float | int) -> str:
    """Formats a count; a sum of weights that is no integer keeps one decimal."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"


LOW, HIGH = "Lower end of the interval of the number before it.", "Upper end of that interval."


MANY_UNITS = 20
"""With fewer, all tables say what their intervals cannot know (`studies coverage --of=few_units`)."""


def over_units(units: int, unit: str = "streams", level: float = 0.95, most: int | None = None) -> str:
    """Words for a table's intervals: how many units they have, to `most` where rows differ, or why there are none."""
    largest = units if most is None else most
    if largest < LEAST_UNITS:
        return f"no intervals: {largest} {unit}, at least {LEAST_UNITS} needed"
    number = f"{units}" if largest == units else f"{units} to {largest}"
    few = f" (below {MANY_UNITS}, they miss the truth much more often if a rare kind of unit is terrible)"
    return f"{100 * level:g} % intervals over {number} {unit}{few if units < MANY_UNITS else ''}"


UNEQUAL = (
    "An offer counts with its own candidate's label and silence with that of the step's best candidate, so rows differ "
    "in TP + FN, and their recalls in the denominator."
)
"""What stands at a table of recalls where steps have several candidates."""

OfPolicy = PolicyRow | RatioRow | Bounded
AnyRow = OfPolicy | SignalRow | TriggerRow | GroupRow

_COSTS: dict[str, tuple[Column, Format]] = {
    "realised_cost": (Column("realised cost", "Mean of C_FA for an offer not accepted, C_FN for help missed."), number),
    "gold_cost": (Column("gold cost", "Mean of C_FA for an offer that is not gold, C_FN for gold missed."), number),
    "expected_cost": (Column("expected cost", "Realised cost in expectation under the simulator's truth."), number),
    "regret": (Column("regret", "Expected cost beyond that of the Bayes decisions."), number),
    "gap_closed": (
        Column("gap closed", "Share of the expected cost between the better constant and Bayes that is saved.", "%"),
        percent,
    ),
    "gap_closed_realised": (Column("gap labels", "The same share, computed from realised costs.", "%"), percent),
    "speak_rate": (Column("speak rate", "Share of all steps with an offer.", "%"), percent),
    "false_alarms_per_step": (Column("FP per step", "Offers that were not gold, over all judged steps.", "%"), percent),
    "slow_rate": (Column("slow rate", "Share of all steps on which the slow pass ran.", "%"), percent),
}
_RATES: dict[str, tuple[Column, Format]] = {
    "recall": (Column("recall", "TP / (TP + FN).", "%"), percent),
    "precision": (Column("prec.", "Precision, TP / (TP + FP).", "%"), percent),
    "false_alarm": (
        Column("false alarm", "Offers not needed or not accepted, FP / (TP + FP) = 1 − precision.", "%"),
        percent,
    ),
    "dismissed": (Column("dismissed", "Offers not accepted, whether needed or not.", "%"), percent),
    "false_positive_rate": (Column("FPR", "False positive rate, FP / (FP + TN).", "%"), percent),
    "f1": (Column("F1", "Harmonic mean of recall and precision.", "%"), percent),
    "accuracy": (Column("acc.", "Accuracy, (TP + TN) / all.", "%"), percent),
    "mcc": (Column("MCC", "Matthews correlation coefficient."), lambda value: number(value, 3)),
    "tp": (Column("TP", "Offers where help was needed and accepted."), count),
    "fp": (Column("FP", "All other offers."), count),
    "fn": (Column("FN", "Silence where help was needed and would have been accepted."), count),
    "tn": (Column("TN", "All other silence."), count),
}
_INTERVALS: dict[str, tuple[Column, Format]] = {
    "realised_cost": (Column("realised cost", "Mean of C_FA for an offer not accepted, C_FN for help missed."), number),
    "realised_low": (Column("low", LOW), number),
    "realised_high": (Column("high", HIGH), number),
    "difference": (Column("minus ▸", "Realised cost minus that of the policy of the operating point."), number),
    "difference_low": (Column("low", LOW), number),
    "difference_high": (Column("high", HIGH), number),
}
_GROUPS: dict[str, tuple[Column, Format]] = {
    "streams": (Column("streams", "Number of streams."), count),
    "steps": (Column("steps", "Number of steps."), count),
    "judged": (Column("judged", "Number of steps with both labels, on which costs are computed."), count),
    "positive": (Column("gold", "Share of judged steps at which some offer would have helped.", "%"), percent),
    "realised_cost": (Column("realised cost", "Realised cost of the policy of the operating point."), number),
    "always": (Column("always", "Realised cost of an offer at every step."), number),
    "never": (Column("never", "Realised cost of silence."), number),
    "speak_rate": (Column("speak rate", "Share of steps with an offer.", "%"), percent),
    "ece_need": (Column("ECE need", "Partly debiased ECE of the signals of need that the policy decided on."), number),
    "ece_accept": (Column("ECE accept", "The same of its signals of acceptance, on the steps' offers."), number),
}
_RATIOS: dict[str, tuple[Column, Format]] = {
    "audbc": (Column("AUDBC", "Area under benefit over burden, divided by the oracle's."), number),
    "audbc_low": (Column("low", LOW), number),
    "audbc_high": (Column("high", HIGH), number),
    "audbc_rescaled": (
        Column("beyond chance", "AUDBC rescaled: 0 is a random ranking, 100 the oracle's.", "%"),
        percent,
    ),
    "mean_cost": (
        Column("mean cost", "Realised cost with costs scaled to C_FA + C_FN = 1, mean over log-uniform cost ratios."),
        number,
    ),
    "mean_cost_rescaled": (
        Column("mean closed", "Share of the mean cost between the better constant and clairvoyant that is saved.", "%"),
        percent,
    ),
}
_TRIGGERS: dict[str, tuple[Column, Format]] = {
    "slow_rate": (Column("slow rate", "Share of test steps that are thought about.", "%"), percent),
    "realised_cost": (Column("realised cost", "Mean realised cost, without the price of tokens."), number),
    "difference": (Column("minus margin", "Realised cost minus that of the margin at the same budget."), number),
    "difference_low": (Column("low", LOW), number),
    "difference_high": (Column("high", HIGH), number),
    "kept": (Column("kept", "Share of what always thinking saves over never thinking.", "%"), percent),
    "kept_low": (Column("low", LOW, "%"), percent),
    "kept_high": (Column("high", HIGH, "%"), percent),
    "expected_cost": (Column("expected cost", "Realised cost in expectation under the simulator's truth."), number),
    "tokens": (Column("slow tokens", "Mean tokens of the slow pass per step."), lambda value: number(value, 1)),
    "token_cost": (Column("price of tokens", "Their price per step; no cost includes it."), number),
}
TRIGGER_MEANINGS = {
    "never": "The fast pass decides every step.",
    "always": "The slow pass decides every step.",
    "margin": "Thinks where p_accept is nearest to the threshold.",
    "value": "Thinks where the slow pass is expected to save most.",
    "entropy": "Thinks where it is least certain whether an offer would be needed and accepted.",
    "random": "Thinks about steps at random, in expectation.",
}
"""The triggers of the slow pass, in the words of the table and the figure."""
_SIGNALS: dict[str, tuple[Column, Format]] = {
    "temperature": (Column("T", "Temperature: p becomes sigmoid(logit(p) / T)."), lambda value: number(value, 3)),
    "map": (Column("map", "What calibrates the signal, where it is not one temperature."), lambda value: value or DASH),
    "ece": (Column("ECE", "Expected calibration error, 15 bins of equal width."), number),
    "ece_debiased": (
        Column("partly debiased", "ECE minus an estimate of what the labels' noise adds to it, which is part of that."),
        number,
    ),
    "brier": (Column("Brier", "Mean of (p − y)² = MCB − DSC + UNC."), number),
    "miscalibration": (Column("MCB", "What isotonic recalibration would take off the Brier score (CORP)."), number),
    "discrimination": (Column("DSC", "What the recalibrated signal gains over the labels' mean (CORP)."), number),
    "uncertainty": (Column("UNC", "Brier score of the labels' mean (CORP)."), number),
    "nll": (Column("NLL", "Mean negative log-likelihood, in nats."), number),
    "distance": (Column("distance to truth", "Mean distance to the simulator's true probability."), number),
    "constant_distance": (
        Column("constant's distance", "Mean distance of the calibration split's base rate to the true probability."),
        number,
    ),
    "count": (Column("labels", "Number of known labels in the test split."), count),
}


def cost_table(evaluation: Evaluation) -> Table:
    """The costs of each policy's decisions, and how often it speaks."""
    columns = {name: column for name, column in _COSTS.items() if evaluation.has_need or name != "gold_cost"}
    return _policy_table("What decisions cost, per step", evaluation.policies, columns, _before(evaluation))


def rate_table(evaluation: Evaluation) -> Table:
    """Rates and counts of each policy's correct and wrong decisions."""
    table = _policy_table("What decisions got right", evaluation.policies, _RATES, _before(evaluation))
    positives = [row.tp + row.fn for row in evaluation.policies]
    same = max(positives) - min(positives) <= 1e-6 * max(positives)  # sums of weights
    return table if same else dataclasses.replace(table, note=UNEQUAL)


def interval_table(evaluation: Evaluation) -> Table:
    """Realised costs with intervals, and their paired differences to the policy of the operating point."""
    note = f"{_over_units(evaluation)}; differences are paired."
    before = [
        dataclasses.replace(row, difference=None, difference_low=None, difference_high=None)  # not paired
        for row in _before(evaluation)
    ]
    table = _policy_table("How certain the realised costs are", evaluation.policies, _INTERVALS, before)
    return dataclasses.replace(table, note=note)


def _over_units(evaluation: Evaluation) -> str:
    return over_units(evaluation.units, evaluation.unit, evaluation.ratios.level)


def group_tables(evaluation: Evaluation) -> tuple[Table, ...]:
    """The policy of the operating point by domain and by persona, where the scores have these columns."""
    columns = dict.fromkeys(row.column for row in evaluation.groups)
    chosen = _known(evaluation.groups, _GROUPS)
    tables = []
    for column in columns:
        rows = tuple(Row(row.value, _cells(row, chosen)) for row in evaluation.groups if row.column == column)
        note = (
            "The policy of the operating point; partly debiased ECE. Small groups have wide errors, see their streams."
        )
        tables.append(Table(f"By {column}", column, _columns(chosen), (Section("", rows),), note=note))
    return tuple(tables)


def second_signal_table(evaluation: Evaluation) -> Table:
    """The gate beside p_accept alone at equal speak rates: what the second signal saves."""

    def bound_of(row: SecondSignalRow) -> tuple[str, ...]:
        key = f"second_signal.{row.ratio:g}.accept_alone"
        return (scientific(evaluation.bounds.get(key)),) if evaluation.bounds else ()

    rows = tuple(
        Row(
            f"{row.ratio:g}",
            (
                percent(row.speak_rate),
                *(number(value) for value in (row.gate, row.accept_alone)),
                *bound_of(row),
                *(number(value) for value in (row.difference, row.low, row.high)),
            ),
        )
        for row in evaluation.second_signal
    )
    columns = (
        Column("speak rate", "Weighted share of judged steps with an offer, of both.", "%"),
        Column("gate", "Mean realised cost of the gate on both signals."),
        Column("p_accept alone", "Mean realised cost of as many offers, where p_accept is highest."),
        *([Column("± p_accept alone", BOUND)] if evaluation.bounds else []),
        Column("difference", "Cost of the gate minus that of p_accept alone: below 0 the second signal saves."),
        Column("low", LOW),
        Column("high", HIGH),
    )
    note = f"Calibrated signals of the fast pass at equal speak rates; {_over_units(evaluation)}."
    if evaluation.dependence is not None:
        note += f" {evaluation.dependence}"
    return Table("What the second signal is worth", "C_FN / C_FA", columns, (Section("", rows),), note=note)


def ratio_table(evaluation: Evaluation) -> Table:
    """AUDBC and mean cost over a range of cost ratios, for each policy that depends on the cost ratio."""
    across = evaluation.ratios
    note = (
        f"On {across.steps} judged test steps of {across.streams} {_streams(evaluation)}. Costs: log-uniform ratios "
        f"C_FN / C_FA from {across.low_ratio:g} to {across.high_ratio:g}, scaled so that C_FA + C_FN = 1."
    )
    if across.no_area is None:
        note += f" AUDBC: {_over_units(evaluation)}."
    before = [] if evaluation.base is None else [row for row in evaluation.base.ratios.rows if row.deployed]
    rows = [bounded(row, {"audbc": f"ratios.{row.policy}.{row.form}.audbc"}, evaluation) for row in across.rows]
    columns = with_bounds(_RATIOS, ("audbc",), evaluation)
    return dataclasses.replace(_policy_table("Across cost ratios", rows, columns, before), note=note)


def trigger_tables(evaluation: Evaluation) -> tuple[Table, ...]:
    """The triggers of the slow pass at equal budgets, where there is a slow pass."""
    compared = evaluation.triggers
    if compared is None:
        return ()
    chosen = _known(compared.rows, _TRIGGERS)
    sections = [
        Section(
            "Constant" if budget is None else f"{100 * budget:g} % of steps",
            tuple(
                Row(row.trigger, _cells(row, chosen), TRIGGER_MEANINGS[row.trigger])
                for row in compared.rows
                if row.budget == budget
            ),
        )
        for budget in dict.fromkeys(row.budget for row in compared.rows)
    ]
    note = (
        f"The policy dynamic on calibrated signals; thresholds chosen for each share on {compared.calibration_steps} "
        f"calibration steps. Always thinking saves {number(compared.gain)}"
    )
    if compared.gain_low is not None:
        note += f" [{number(compared.gain_low)}, {number(compared.gain_high)}]"
    note += f" per step; {_over_units(evaluation)}"
    return (Table("When to think", "trigger", _columns(chosen), tuple(sections), note=f"{note}."),)


def signal_table(evaluation: Evaluation) -> Table:
    """How well each signal is calibrated, raw and calibrated."""
    names = ("temperature", "miscalibration", "discrimination")
    signals = [bounded(row, signal_bounds(row), evaluation) for row in evaluation.signals]
    chosen = _known(signals, with_bounds(_SIGNALS, names, evaluation))
    sections = []
    need = "p_need, given that the offer is accepted" if evaluation.need_given_accept else "p_need"
    for signal, title in (("need", need), ("accept", "p_accept")):
        rows = [(f"{row.thinking}, {row.form}", row) for row in signals if row.signal == signal]
        if evaluation.base is not None:
            before = (row for row in evaluation.base.signals if row.signal == signal)
            rows += [(f"before training: {row.thinking}, {row.form}", row) for row in before]
        if rows:
            cells = tuple(Row(label, _cells(row, chosen)) for label, row in rows)
            sections.append(Section(title, cells))
    table = Table("How well the signals are calibrated", "signal", _columns(chosen), tuple(sections))
    return _titled(table, evaluation)


def decision_tables(evaluation: Evaluation) -> tuple[Table, ...]:
    """The tables about decisions: costs and rates, at the operating point, across ratios, by trigger and by group."""
    second = (second_signal_table,) if evaluation.has_need else ()
    tables = (cost_table, interval_table, rate_table, ratio_table, *second)
    further = *trigger_tables(evaluation), *group_tables(evaluation)
    return tuple(_titled(table, evaluation) for table in (*(make(evaluation) for make in tables), *further))


def all_tables(evaluation: Evaluation) -> tuple[Table, ...]:
    """All tables, in the order in which they are shown."""
    return *decision_tables(evaluation), signal_table(evaluation)


def print_tables(evaluation: Evaluation, console: rich.console.Console | None = None) -> None:
    """Prints any caution, a line about the test split, the tables, and a line for each measure that is switched off.

    By default they go to standard output, wide enough for every table.
    """
    shown = all_tables(evaluation)
    console = wide_console() if console is None else console
    costs = (
        f"C_FA = {evaluation.point.c_fa:g}, C_FN = {evaluation.point.c_fn:g}; ▸ is the policy of the operating point."
    )
    if evaluation.caution:
        console.print(rich.text.Text(evaluation.caution), soft_wrap=True)
    console.print(rich.text.Text(f"{what_was_measured(evaluation)} {costs}"), soft_wrap=True)
    print_all(shown, console)
    for line in evaluation.switched_off:
        console.print(rich.text.Text(visible(f"off: {line}"), style="dim"), soft_wrap=True)


def what_was_measured(evaluation: Evaluation) -> str:
    """Describes the test split and its masked steps in one sentence."""
    counts = evaluation.counts
    masked = counts.steps - counts.judged
    labels = "all judged" if masked == 0 else f"{counts.judged} judged and {masked} masked because a label is missing"
    rows = f"; {evaluation.population}" if evaluation.population else ""
    how = f"; {evaluation.calibrated}" if evaluation.calibrated else ""
    gold = f"{100 * counts.positive:.1f} % {'gold' if evaluation.has_need else 'accepted'}"
    fields = ""
    if counts.fields_correct is not None:
        fields = f"; the slow pass wrote all fields right at {100 * counts.fields_correct:.1f} % of the steps"
    alone = "" if evaluation.has_need else f"; {ALONE}"
    return f"{counts.steps} test steps of {streams_of(evaluation)}, {labels}; {gold}{fields}{alone}{rows}{how}."


def streams_of(evaluation: Evaluation) -> str:
    """How many streams there are, and of how many people, or days of one person."""
    counts, people = evaluation.counts, "days" if evaluation.unit == "days" else "people"
    of_people = "" if counts.people is None else f" of {counts.people} {people}"
    return f"{counts.streams} {_streams(evaluation)}{of_people}"


def _streams(evaluation: Evaluation) -> str:
    """What the streams are: days where one person has one of them a day."""
    return "days" if evaluation.unit == "days" and evaluation.counts.people is None else "streams"


def _titled(table: Table, evaluation: Evaluation) -> Table:
    """The table with a title that says what was evaluated, if not all rows or not both signals were."""
    words = ("" if evaluation.has_need else ALONE, evaluation.population)
    return dataclasses.replace(table, title=", ".join(filter(None, (table.title, *words))))


def _before(evaluation: Evaluation) -> list[PolicyRow]:
    """The deployed policy of the student before training, on calibrated and on raw signals; empty if not evaluated."""
    if evaluation.base is None:
        return []
    name = evaluation.base.deployed.policy
    return [row for row in evaluation.base.policies if row.policy == name]


def _policy_table(
    title: str,
    rows: Sequence[OfPolicy],
    columns: dict[str, tuple[Column, Format]],
    before: Sequence[OfPolicy] = (),
) -> Table:
    """A table of policies by form of the signals; `before` are rows of the student before training."""
    chosen = _known(rows, columns)
    sections = [
        Section(heading, tuple(_policy_row(row, chosen) for row in rows if row.form == form))
        for form, heading in SECTIONS.items()
    ]
    if before:
        sections.append(Section("Before training", tuple(_row_before(row, chosen) for row in before)))
    return Table(title, "policy", _columns(chosen), tuple(sections), mark="deployed")


def _policy_row(row: OfPolicy, chosen: dict[str, tuple[Column, Format]]) -> Row:
    policy = ALL_POLICIES[row.policy]
    return Row(policy.label, _cells(row, chosen), policy.meaning, row.deployed)


def _row_before(row: OfPolicy, chosen: dict[str, tuple[Column, Format]]) -> Row:
    """A row of the student before training, which is not the deployed one."""
    shown = _policy_row(row, chosen)
    return dataclasses.replace(shown, name=f"{shown.name}, {row.form}" if row.form else shown.name, strong=False)


def _known(rows: Sequence[AnyRow], columns: dict[str, tuple[Column, Format]]) -> dict[str, tuple[Column, Format]]:
    """The columns that have a value in at least one row."""
    return {name: column for name, column in columns.items() if any(getattr(row, name) is not None for row in rows)}


def _cells(row: AnyRow, chosen: dict[str, tuple[Column, Format]]) -> tuple[str, ...]:
    return tuple(show(getattr(row, name)) for name, (_, show) in chosen.items())


def _columns(chosen: dict[str, tuple[Column, Format]]) -> tuple[Column, ...]:
    return tuple(column for column, _ in chosen.values())
