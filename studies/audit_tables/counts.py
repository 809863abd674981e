"""Which counts of N decisions can have produced a row, and if none can, which of its numbers is in the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from studies.audit_tables.cells import Printed, Reading
from studies.audit_tables.confusions import Solutions, coefficients_of, solve
from studies.audit_tables.findings import Finding, percent_range
from studies.audit_tables.quantities import COEFFICIENTS, COUNTS, RATIOS
from studies.audit_tables.reading import PrintedRow

READINGS: tuple[Reading, ...] = ("rounded", "truncated")
CHECKED = (*RATIOS, *COUNTS, *COEFFICIENTS)


@dataclasses.dataclass(frozen=True)
class Fit:
    """How a row can be read."""

    row: str
    # each number of decisions and reading for which counts exist, in the order in which they were tried
    ways: tuple[tuple[int, Reading], ...]
    own_steps: bool  # whether the number of decisions is the row's own
    solutions: Solutions  # the counts of the first way; where there is none, those with a last digit off by one, if any
    # smallest and largest TP, FP, FN and TN of all ways; None where there is none, or not all were counted
    box: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def fit_row(table: str, row: PrintedRow, steps: Sequence[int]) -> tuple[Fit | None, list[Finding]]:
    """How a row can be read, or None if it has no rates or no number of decisions is known; and what was found.

    Numbers of decisions are tried in order; a row's own N is used instead of `steps`.
    """
    cells = {name: row.cells[name] for name in CHECKED if name in row.cells}
    decision_counts = [row.steps] if row.steps else list(dict.fromkeys(steps))
    if not decision_counts or not cells:
        return None, []
    by_way = {(n, reading): solve(cells, n, reading) for n in decision_counts for reading in READINGS}
    ways = tuple(way for way, solutions in by_way.items() if solutions.number)
    if ways:
        return Fit(row.name, ways, bool(row.steps), by_way[ways[0]], _box([by_way[way] for way in ways])), []
    check = f"counts exist at {' or '.join(f'N = {n}' for n in decision_counts)}"
    for n in decision_counts:
        loose = solve(cells, n, "loose")
        if loose.number:
            words = f"none with all digits rounded or all truncated; with a last digit off by one: {_counts(loose)}"
            return Fit(row.name, (), bool(row.steps), loose), [Finding(table, row.name, check, "last digit", words)]
    words = f"none; {_culprits(cells, decision_counts)}"
    return Fit(row.name, (), bool(row.steps), Solutions(0)), [Finding(table, row.name, check, "averages only", words)]


def check_ways(table: str, fits: Sequence[Fit]) -> list[Finding]:
    """Whether one number of decisions and one way of cutting digits fit all rows that can be read at all."""
    fits = [fit for fit in fits if fit.ways]
    if not fits:
        return []
    decision_counts = {n for fit in fits if not fit.own_steps for n, _ in fit.ways} or {0}
    if any(all(_allows(fit, n, reading) for fit in fits) for n in decision_counts for reading in READINGS):
        return []
    one_reading = set.intersection(*({reading for _, reading in fit.ways} for fit in fits))
    groups: dict[str, list[str]] = {}
    for fit in fits:
        needs = " or ".join(f"N = {n} {reading}" for n, reading in fit.ways)
        groups.setdefault(needs, []).append(fit.row)
    words = "; ".join(f"{needs}: {', '.join(rows)}" for needs, rows in groups.items())
    names = f"{len(fits)} rows"
    if one_reading:
        return [Finding(table, names, "one number of decisions", "note", words)]
    return [Finding(table, names, "one way of cutting digits", "last digit", words)]


def _box(solutions: Sequence[Solutions]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if not all(part.complete for part in solutions):
        return None
    low = tuple(map(min, zip(*(part.lowest for part in solutions), strict=True)))
    return low, tuple(map(max, zip(*(part.highest for part in solutions), strict=True)))


def _allows(fit: Fit, steps: int, reading: Reading) -> bool:
    """Whether a row can be read so; a row with its own number of decisions needs no other one."""
    return any(way == reading and (fit.own_steps or n == steps) for n, way in fit.ways)


def _culprits(cells: dict[str, Printed], decision_counts: Sequence[int]) -> str:
    """For which single number the others fit, and what it would be then."""
    phrases = []
    for name in cells:
        remaining = {key: cell for key, cell in cells.items() if key != name}
        for n in decision_counts:
            for reading in READINGS:
                solved = solve(remaining, n, reading)
                if solved.number and len(remaining) > 1:
                    at = f" at N = {n}" if len(decision_counts) > 1 else ""
                    phrases.append(
                        f"without {name} {cells[name].text} there are{at}: {_counts(solved)}{_then(name, solved)}"
                    )
                    break
            else:
                continue
            break
    return "; ".join(phrases) or "and leaving out any one number does not help"


def in_words(low: Sequence[int], high: Sequence[int]) -> str:
    """Counts, or ranges of them."""
    ranges = zip(COUNTS, low, high, strict=True)
    return ", ".join(
        f"{name} {least}" if least == most else f"{name} {least} to {most}" for name, least, most in ranges
    )


def _counts(solutions: Solutions) -> str:
    counts = in_words(solutions.lowest, solutions.highest)
    return (
        counts
        if solutions.number == 1
        else f"{'' if solutions.complete else 'at least '}{solutions.number} fit, {counts}"
    )


def _then(name: str, solutions: Solutions) -> str:
    """What the number would be, where the counts are unique."""
    if solutions.number != 1:
        return ""
    if name in RATIOS:
        part, whole = (sum(a * c for a, c in zip(side, solutions.lowest, strict=True)) for side in RATIOS[name])
        return f" ({name} {percent_range(Fraction(part, whole), Fraction(part, whole))} %)" if whole else ""
    value = coefficients_of(np.array(solutions.lowest)[:, None]).get(name)
    return "" if value is None else f" ({name} {value[0]:.3f})"
