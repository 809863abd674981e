"""Runs every check on one or several tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from studies.audit_tables.comparisons import check_nesting, check_pool, check_settings, repeats
from studies.audit_tables.counts import Fit, check_ways, fit_row
from studies.audit_tables.findings import Finding
from studies.audit_tables.identities import check_row
from studies.audit_tables.labels import check_labels
from studies.audit_tables.paired import check_paired
from studies.audit_tables.reading import Sheet


@dataclasses.dataclass(frozen=True)
class Audit:
    """The result for one table: how its rows can be read, and what was found."""

    sheet: Sheet
    fits: tuple[Fit, ...]
    findings: tuple[Finding, ...]


def audit(sheets: Sequence[Sheet], steps: Sequence[int] = (), same_labels: bool = False) -> list[Audit]:
    """Checks tables: one result each, in order; findings that concern several tables stand with the first.

    Any of `steps`, numbers of decisions, may fit a row without its own. `same_labels` says that the rows of each table
    were scored on the same steps with the same labels. Rows of the same setting are compared between tables.
    """
    between_tables = check_settings(sheets)
    results = []
    for sheet in sheets:
        fits: list[Fit] = []
        findings: list[Finding] = []
        for row in sheet.rows:
            findings += check_row(sheet.name, row)
            fit, row_findings = fit_row(sheet.name, row, steps)
            fits += [fit] if fit else []
            findings += row_findings
        findings += check_ways(sheet.name, fits)
        findings += check_pool(sheet, fits)
        findings += check_paired(sheet, max(steps, default=None))
        findings += check_labels(sheet, same_labels)
        findings += check_nesting(sheet)
        findings += [finding for finding in between_tables if finding.table == sheet.name]
        findings += repeats(sheet)
        results.append(Audit(sheet, tuple(fits), tuple(findings)))
    return results
