"""Checks between rows: of one table by the names of policies, and of several tables by a shared setting."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from studies.audit_tables.cells import Printed
from studies.audit_tables.counts import Fit, in_words
from studies.audit_tables.findings import Finding, percent
from studies.audit_tables.quantities import RATIOS, may_be_percentage
from studies.audit_tables.reading import PrintedRow, Sheet

_POOLED = re.compile(r"(?:^|[\W_])(?:average|avg|overall|all|total|pooled|mean)(?:$|[\W_])")


def check_pool(sheet: Sheet, fits: Sequence[Fit]) -> list[Finding]:
    """Notes the one row whose name says that it pools the others, where its N is the sum of theirs but it does not.

    It passes if its counts can be the sums of the others' counts, or its rates the means of theirs, weighted by N or
    not.
    """
    pooled = [row for row in sheet.rows if _POOLED.search(row.name.lower())]
    other_rows = [row for row in sheet.rows if row not in pooled]
    if len(pooled) != 1 or len(other_rows) < 2 or any(row.steps is None for row in sheet.rows):
        return []
    (total,) = pooled
    if total.steps != sum(row.steps or 0 for row in other_rows):
        return []
    boxes = {fit.row: fit.box for fit in fits}
    parts = [boxes.get(row.name) for row in other_rows]
    pooled_box = boxes.get(total.name)
    if pooled_box is None or len({row.name for row in sheet.rows}) < len(sheet.rows):
        return []
    low = [sum(column) for column in zip(*(part[0] for part in parts if part), strict=True)]
    high = [sum(column) for column in zip(*(part[1] for part in parts if part), strict=True)]
    if None in parts or all(a <= d and c <= b for a, b, c, d in zip(low, high, *pooled_box, strict=True)):
        return []
    if _is_mean(total, other_rows, [1] * len(other_rows)) or _is_mean(
        total, other_rows, [row.steps or 0 for row in other_rows]
    ):
        return []
    words = (
        f"the other rows' {total.steps} decisions have {in_words(low, high)}; this row has {in_words(*pooled_box)}, "
        "and its rates are no means of theirs either"
    )
    return [Finding(sheet.name, total.name, "pooled row", "note", words)]


def _is_mean(total: PrintedRow, other_rows: Sequence[PrintedRow], weights: Sequence[int]) -> bool:
    """Whether every rate is the weighted mean of the others', up to the digits that were cut."""
    names = [name for name in RATIOS if name in total.cells and all(name in row.cells for row in other_rows)]
    return all(_mean_meets(name, total.cells, other_rows, weights) for name in names)


def _mean_meets(name: str, pooled_cells: Mapping, other_rows: Sequence[PrintedRow], weights: Sequence[int]) -> bool:
    ends = [row.cells[name].interval("loose") for row in other_rows]
    low, high = (
        sum((weight * end[side] for weight, end in zip(weights, ends, strict=True)), Fraction(0)) / sum(weights)
        for side in (0, 1)
    )
    pooled_ends = pooled_cells[name].interval("loose")
    return low <= pooled_ends[1] and pooled_ends[0] <= high


_POLICY = {
    "always": r"\balways\b",
    "static": r"\bstatic\b",
    "dynamic": r"\bdynamic\b",
    "never": r"\b(never|always[- ]silent)\b",
}
_ORDER = ("always", "static", "dynamic", "never")
"""Policies on the same probabilities and costs: each speaks wherever a later one does, since p_need <= 1 makes the
static threshold C_FA / (C_FA + C_FN) the smallest of the dynamic ones C_FA / (C_FA + p_need C_FN)."""

_MOST_COMPARED = 300  # rows that are compared with each other


def check_nesting(sheet: Sheet) -> list[Finding]:
    """Notes recalls that are not in the order of policies that speak on nested sets of steps.

    Rows are recognised by the words always, static, dynamic and never in their names, which may mean something else.
    """
    policy_rows: dict[str, PrintedRow] = {}
    for row in sheet.rows:
        for policy, pattern in reversed(_POLICY.items()):
            if re.search(pattern, row.name.lower()) and "recall" in row.cells:
                policy_rows.setdefault(policy, row)
                break
    findings = []
    for wide, narrow in itertools.combinations([policy for policy in _ORDER if policy in policy_rows], 2):
        wide_recall, narrow_recall = policy_rows[wide].cells["recall"], policy_rows[narrow].cells["recall"]
        if wide_recall.value + wide_recall.unit < narrow_recall.value - narrow_recall.unit:
            words = (
                f"if these are gates on one signal, {wide} speaks wherever {narrow} does, so its recall is at least "
                f"{percent(narrow_recall.value)}, printed {percent(wide_recall.value)}"
            )
            findings.append(
                Finding(
                    sheet.name,
                    f"{policy_rows[wide].name}; {policy_rows[narrow].name}",
                    "nested policies",
                    "note",
                    words,
                )
            )
    return findings


def check_settings(sheets: Sequence[Sheet]) -> list[Finding]:
    """Rows that say they have the same setting must print the same numbers, to the last digit of the coarser one.

    Every number is compared with the first one of its setting; the finding stands with that one's table.
    """
    first: dict[tuple[str, str], tuple[Sheet, PrintedRow]] = {}
    different: dict[tuple[str, str, str, str, str], list[str]] = {}
    rows = [(sheet, row) for sheet in sheets for row in sheet.rows if row.setting]
    for sheet, row in rows:
        for name, cell in row.cells.items():
            reference_sheet, reference = first.setdefault((row.setting, name), (sheet, row))
            if abs(reference.cells[name].value - cell.value) > max(reference.cells[name].unit, cell.unit):
                pair = (reference_sheet.name, reference.name, sheet.name, row.name, row.setting)
                different.setdefault(pair, []).append(_both(name, reference.cells[name], cell))
    findings = []
    for (table, row_name, other_table, other_name, setting), words in different.items():
        place = other_name if table == other_table else f"{other_name} ({other_table})"
        arithmetic = f"{setting}: {'; '.join(words)}"
        findings.append(Finding(table, f"{row_name}; {place}", "one setting, one result", "impossible", arithmetic))
    return findings


def _both(name: str, first: Printed, second: Printed) -> str:
    if may_be_percentage(name):
        return f"{name} {percent(first.value)} and {percent(second.value)}"
    return f"{name} {first.text} and {second.text}"


def repeats(sheet: Sheet) -> list[Finding]:
    """Notes rows with different names that agree in all of at least three numbers, or in all but one of four rates."""
    findings = []
    for first, second in itertools.combinations(sheet.rows[:_MOST_COMPARED], 2):
        shared = [name for name in first.cells if name in second.cells and name != "N"]
        unequal = [name for name in shared if first.cells[name].value != second.cells[name].value]
        rates = [name for name in shared if name in RATIOS]
        if (len(shared) >= 3 and not unequal) or (len(rates) >= 4 and len(unequal) == 1 and unequal[0] in RATIOS):
            words = f"the same {', '.join(name for name in shared if name not in unequal)}" + (
                f"; {unequal[0]} {first.cells[unequal[0]].text} and {second.cells[unequal[0]].text}" if unequal else ""
            )
            findings.append(Finding(sheet.name, f"{first.name}; {second.name}", "equal rows", "note", words))
    return findings
