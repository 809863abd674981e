"""Tables about judges: agreement, their errors, two systems under each panel, and metrics corrected for the errors.

The numbers come from `agreements` and `robustness` in `prism_jax.labelling.judges`. An interval has a nominal
coverage of 95 % and is over streams; a dash marks what is undefined.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

from prism_jax.decision.uncertainty import Estimate
from prism_jax.labelling.judges.agreements import HUMAN, KINDS, Agreements, Kind, PairRow
from prism_jax.labelling.judges.robustness import CorrectedRow
from prism_jax.report.numbers import DASH, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units

_PAIR_COLUMNS = (
    Column("items", "Things that both raters labelled."),
    Column("base rate", "Share that the second rater accepts.", "%"),
    Column("judge's rate", "Share that the first rater accepts.", "%"),
    Column("agreement", "Share of items with the same label.", "%"),
    Column("Cohen's κ", "Agreement beyond chance; 0 for a constant or random judge."),
    Column("MCC", "Matthews' correlation coefficient."),
    Column("constant judge", "Agreement of the better constant judge with the second rater; its κ is 0.", "%"),
)
_ERROR_COLUMNS = (
    Column("items", "Things that both labelled."),
    Column("sensitivity", "Share of what people accept that the judge accepts.", "%"),
    Column("specificity", "Share of what people reject that the judge rejects.", "%"),
)
_PANEL_COLUMNS = (
    Column("judges", "Number of judges."),
    Column("items", "Things with at least two verdicts."),
    Column("complete", "Things with a verdict of every judge."),
    Column("ties", "Things with equally many verdicts for and against; people's majority is no label there."),
    Column("agreement", "Share of the pairs of verdicts on one thing that agree.", "%"),
    Column("Fleiss' κ", "Agreement beyond chance, on the things with the most verdicts."),
    Column("Krippendorff's α", "Agreement beyond chance, on all things with two verdicts or more."),
)
_TITLES: dict[Kind, str] = {"offers": "Offers", "silences": "Silences"}
METHOD_WORDS = {
    "judge_only": ("the judges' labels, uncorrected", "Takes the panel's labels for the truth."),
    "rectified": ("rectified by the human labels", "Assumes nothing about the judges' errors."),
    "inversion_by_decision": ("error rates by decision inverted", "Errors may differ between offers and silences."),
    "inversion": ("error rates inverted", "Errors are the same at offers and at silences."),
    "human_only": ("the human labels alone", "Uses no judge."),
}


def agreement_tables(agreements: Agreements) -> tuple[Table, ...]:
    """The tables of agreement: pairs of raters, panels, and each judge's errors where people voted."""
    tables = []
    if agreements.pairs:
        sections = tuple(section for kind in KINDS if (section := _pair_section(agreements.pairs, kind)).rows)
        over = _over([row.measures for row in agreements.pairs])
        note = f"{over} The constant judge gives every item the more frequent label of the second rater."
        tables.append(Table("Agreement of two raters", "judge and reference", _PAIR_COLUMNS, sections, note))
    if agreements.panels:
        note = f"{_over([row.measures for row in agreements.panels])} A tie of people is no label."
        tables.append(Table("Agreement among judges", "panel", _PANEL_COLUMNS, _panel_sections(agreements), note))
    with_human = [row for row in agreements.pairs if row.reference == HUMAN and not math.isnan(row.sensitivity.value)]
    if with_human:
        sections = tuple(
            Section(_TITLES[kind], tuple(_error_row(row) for row in with_human if row.kind == kind)) for kind in KINDS
        )
        note = _over([{"sensitivity": row.sensitivity, "specificity": row.specificity} for row in with_human])
        tables.append(Table("Judges' errors against people", "judge", _ERROR_COLUMNS, _filled(sections), note))
    return tuple(tables)


def corrected_table(rows: Iterable[CorrectedRow], system: str) -> Table:
    """A system's numbers under each panel, corrected for the panel's errors in several ways."""
    shown = ("prevalence", "precision", "recall", "f1", "cost")
    columns = tuple(
        Column(label, meaning, unit)
        for label, meaning, unit in (
            ("offer is right", "Share of the steps at which an offer is right.", "%"),
            ("precision", "", "%"),
            ("recall", "", "%"),
            ("F1", "", "%"),
            ("cost", "Mean cost of rejected proposals and rejected silences.", ""),
        )
    )
    rows = list(rows)
    sections = []
    for panel in dict.fromkeys(row.panel for row in rows):
        panel_rows = [row for row in rows if row.panel == panel]
        lines = []
        for row in panel_rows:
            label, meaning = METHOD_WORDS[row.method]
            if row.numbers is None:
                lines.append(Row(label, (DASH,) * len(shown), row.problem))
                continue
            cells = [_show(row.numbers[name], share=name != "cost") for name in shown]
            lines.append(Row(label, tuple(cells), meaning, row.method == "rectified"))
        sections.append(
            Section(f"{panel}: {panel_rows[0].steps} steps, {panel_rows[0].human} with human labels", tuple(lines))
        )
    over = _over([row.numbers for row in rows if row.numbers])
    note = f"{over} They carry the estimation of the judges' errors, except in the uncorrected rows."
    return Table(
        f"{system}, corrected for judges' errors", "labels", columns, tuple(sections), note, mark="recommended"
    )


def _over(rows: Iterable[Mapping[str, Estimate]]) -> str:
    """Words for the intervals of some rows, with their numbers of streams."""
    numbers = {max((int(interval.units) for interval in row.values()), default=0) for row in rows} or {0}
    words = over_units(min(numbers), most=max(numbers))
    return f"{words[0].upper()}{words[1:]}, in brackets."


def _pair_section(pairs: Iterable[PairRow], kind: Kind) -> Section:
    rows = []
    for row in pairs:
        if row.kind == kind:
            measures = row.measures
            cells = (
                str(row.items),
                percent(measures["base_rate"].value),
                percent(measures["judge_rate"].value),
                _show(measures["agreement"]),
                _show(measures["kappa"], share=False),
                _show(measures["matthews"], share=False),
                percent(row.constant),
            )
            rows.append(Row(f"{row.judge} / {row.reference}", cells))
    return Section(_TITLES[kind], tuple(rows))


def _panel_sections(agreements: Agreements) -> tuple[Section, ...]:
    sections = []
    for kind in KINDS:
        rows = [
            Row(
                row.panel,
                (
                    str(row.judges),
                    str(row.items),
                    str(row.complete),
                    str(row.ties),
                    _show(row.measures["agreement"]),
                    _show(row.measures["fleiss"], share=False),
                    _show(row.measures["alpha"], share=False),
                ),
            )
            for row in agreements.panels
            if row.kind == kind
        ]
        sections.append(Section(_TITLES[kind], tuple(rows)))
    return _filled(sections)


def _error_row(row: PairRow) -> Row:
    return Row(row.judge, (str(row.items), _show(row.sensitivity), _show(row.specificity)))


def _filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.rows)


def _show(estimate: Estimate, *, share: bool = True, sign: bool = False) -> str:
    """An estimate with its interval, in percent or as a number; the estimate alone where there is no interval."""
    return show_estimate(estimate, 2, sign=sign, form=functools.partial(percent, sign=sign) if share else None)
