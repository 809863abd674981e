"""Audits printed tables of results.

    python -m studies.audit_tables FILE.csv [FILE.csv ...] --n=233

Checks whether rates agree with each other, whether counts of N decisions exist that print as each row, and what follows
between rows and tables (docs/paper.md). The exit status is 0 if nothing was found, 1 if something was, and 2 for an
input that cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from absl import flags
from etils import epath

from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.files import write_files
from studies.audit_tables.auditing import Audit, audit
from studies.audit_tables.confusions import MOST_STEPS
from studies.audit_tables.counts import Fit
from studies.audit_tables.quantities import COUNTS
from studies.audit_tables.reading import FalseAlarm, read_table


def audit_files(
    paths: Sequence[str],
    *,
    steps: Sequence[int] = (),
    decimals: int | None = None,
    false_alarm: FalseAlarm = "discovery",
    same_labels: bool = False,
    out: str | None = None,
) -> int:
    """Audits CSV files of tables, prints the result, and returns the number of findings; notes are not counted.

    `steps`, numbers of decisions, and `same_labels` are those of `audit`, the others those of `read_table`. The tables
    are written to the folder `out`, if there is one. Raises ValueError or OSError for files that are no tables.
    """
    sheets = [read_table(path, decimals=decimals, false_alarm=false_alarm) for path in paths]
    audits = audit(sheets, steps, same_labels)
    tables = [table for table in (columns_table(audits), fits_table(audits), findings_table(audits)) if table]
    if out:
        names = {table.title: name for table, name in zip(tables, _names(audits), strict=True)}
        folder = epath.Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        encoded = (table.encoded(names[table.title]) for table in tables)
        write_files({folder / file: text for files in encoded for file, text in files.items()})
    print_all(tables)
    findings = [finding for result in audits for finding in result.findings]
    counted = sum(finding.level != "note" for finding in findings)
    print(f"{counted} findings and {len(findings) - counted} notes in {len(audits)} tables")
    return counted


def columns_table(audits: Sequence[Audit]) -> Table:
    """How each column was understood."""
    sections = []
    for result in audits:
        rows = [
            Row(heading, (quantity, "percent" if percent else "as printed"))
            for heading, quantity, percent in result.sheet.columns
        ]
        rows += [Row(heading, ("ignored", "")) for heading in result.sheet.ignored]
        sections.append(Section(result.sheet.name, tuple(rows)))
    columns = (Column("read as", text=True), Column("scale", text=True))
    return Table("How the columns were read", "column", columns, tuple(sections))


def fits_table(audits: Sequence[Audit]) -> Table | None:
    """The counts behind each row; None if no number of decisions is known."""
    sections = [
        Section(result.sheet.name, tuple(_fit_row(fit) for fit in result.fits)) for result in audits if result.fits
    ]
    if not sections:
        return None
    columns = (
        Column("fits", "Numbers of decisions N, and ways of cutting digits, for which counts exist", text=True),
        Column("solutions", "Number of confusions for the first of these"),
        *(Column(name) for name in COUNTS),
    )
    note = "Counts are those of the first fit; in parentheses, those with a last digit off by one."
    return Table("Counts that the printed rates allow", "row", columns, tuple(sections), note)


def findings_table(audits: Sequence[Audit]) -> Table | None:
    """Findings and notes, in the order of the tables; None if there are none."""
    sections = [
        Section(
            result.sheet.name,
            tuple(Row(finding.row, (finding.level, finding.check, finding.arithmetic)) for finding in result.findings),
        )
        for result in audits
        if result.findings
    ]
    if not sections:
        return None
    columns = (Column("level", text=True), Column("check", text=True), Column("arithmetic", text=True))
    note = (
        "impossible: no confusion prints so, and no average. averages only: no confusion prints so, an average over "
        "classes or seeds may. last digit: one confusion does, if digits were cut in different ways. A note is no "
        "finding."
    )
    return Table("Findings", "row", columns, tuple(sections), note)


def _names(audits: Sequence[Audit]) -> list[str]:
    fits, findings = any(result.fits for result in audits), any(result.findings for result in audits)
    return ["columns", *["counts"] * fits, *["findings"] * findings]


def _fit_row(fit: Fit) -> Row:
    solutions = fit.solutions
    ways = ", ".join(f"{n} {reading}" for n, reading in fit.ways) or "none"
    if not solutions.number:
        return Row(fit.row, (ways, "0", *[""] * len(COUNTS)))
    number = f"{'' if solutions.complete else '≥ '}{solutions.number}"
    cells = [
        str(low) if low == high else f"{low} to {high}"
        for low, high in zip(solutions.lowest, solutions.highest, strict=True)
    ]
    if not fit.ways:
        number, cells = f"({number})", [f"({cell})" for cell in cells]
    return Row(fit.row, (ways, number, *cells))


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_multi_integer("n", [], "Number of decisions; may be repeated.", lower_bound=1, upper_bound=MOST_STEPS)
    flags.DEFINE_integer("decimals", None, "Decimals of all numbers; by default those printed.", 0, 20)
    choices = get_args(FalseAlarm)
    flags.DEFINE_enum("false_alarm", choices[0], choices, "Meaning of false alarm: FP/(TP+FP), or FP/(FP+TN).")
    flags.DEFINE_bool("same_labels", False, "The rows of a table were scored on the same steps with the same labels.")
    flags.DEFINE_string("workdir", None, "Folder for the tables as CSV, Markdown and LaTeX.")
    refuse_empty("workdir")


def main(paths: Sequence[str]) -> int:
    """Audits the files."""
    options = flags.FLAGS
    findings = audit_files(
        paths,
        steps=options.n,
        decimals=options.decimals,
        false_alarm=options.false_alarm,
        same_labels=options.same_labels,
        out=options.workdir,
    )
    return 1 if findings else 0


if __name__ == "__main__":
    define_flags()
    command.start(main, arguments="FILE.csv", trouble=2)
