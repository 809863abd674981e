"""Checks between rows: of one table by the names of policies, and of several tables by a shared setting."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from prism_jax.published.cells import Printed
from prism_jax.published.findings import Finding, percent
from prism_jax.published.quantities import RATIOS, may_be_percentage
from prism_jax.published.reading import PrintedRow, Sheet

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
    named: dict[str, PrintedRow] = {}
    for row in sheet.rows:
        for policy, pattern in reversed(_POLICY.items()):
            if re.search(pattern, row.name.lower()) and "recall" in row.cells:
                named.setdefault(policy, row)
                break
    findings = []
    for wide, narrow in itertools.combinations([policy for policy in _ORDER if policy in named], 2):
        more, less = named[wide].cells["recall"], named[narrow].cells["recall"]
        if more.value + more.unit < less.value - less.unit:
            words = (
                f"if these are gates on one signal, {wide} speaks wherever {narrow} does, so its recall is at least "
                f"{percent(less.value)}, printed {percent(more.value)}"
            )
            findings.append(
                Finding(sheet.name, f"{named[wide].name}; {named[narrow].name}", "nested policies", "note", words)
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
            if _differ(reference.cells[name], cell):
                pair = (reference_sheet.name, reference.name, sheet.name, row.name, row.setting)
                different.setdefault(pair, []).append(_both(name, reference.cells[name], cell))
    findings = []
    for (table, row_name, other_table, other_name, setting), words in different.items():
        place = other_name if table == other_table else f"{other_name} ({other_table})"
        arithmetic = f"{setting}: {'; '.join(words)}"
        findings.append(Finding(table, f"{row_name}; {place}", "one setting, one result", "impossible", arithmetic))
    return findings


def _differ(one: Printed, other: Printed) -> bool:
    return abs(one.value - other.value) > max(one.unit, other.unit)


def _both(name: str, one: Printed, other: Printed) -> str:
    if may_be_percentage(name):
        return f"{name} {percent(one.value)} and {percent(other.value)}"
    return f"{name} {one.text} and {other.text}"


def repeats(sheet: Sheet) -> list[Finding]:
    """Notes rows with different names that agree in all of at least three numbers, or in all but one of four rates."""
    findings = []
    for first, second in itertools.combinations(sheet.rows[:_MOST_COMPARED], 2):
        shared = [name for name in first.cells if name in second.cells and name != "N"]
        rest = [name for name in shared if first.cells[name].value != second.cells[name].value]
        rates = [name for name in shared if name in RATIOS]
        if (len(shared) >= 3 and not rest) or (len(rates) >= 4 and len(rest) == 1 and rest[0] in RATIOS):
            words = f"the same {', '.join(name for name in shared if name not in rest)}" + (
                f"; {rest[0]} {first.cells[rest[0]].text} and {second.cells[rest[0]].text}" if rest else ""
            )
            findings.append(Finding(sheet.name, f"{first.name}; {second.name}", "equal rows", "note", words))
    return findings
