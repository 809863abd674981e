"""Checks of tables that put two systems, their difference and its interval side by side."""

from __future__ import annotations

import math
from fractions import Fraction

import scipy

from studies.audit_tables.findings import Finding, percent
from studies.audit_tables.quantities import quantity_of
from studies.audit_tables.reading import PrintedRow, Sheet

LEVEL = 0.05
_PER_STEP = {"accuracy": "N", "recall": "at most N", "missed": "at most N", "specificity": "at most N"}
_NARROWEST = 0.95  # resampling makes an interval's width uncertain by a few percent


def check_paired(sheet: Sheet, steps: int | None) -> list[Finding]:
    """Differences, their intervals and their p-values.

    The number of decisions of both systems gives the width of intervals; None if it is unknown.
    """
    findings = []
    for row in sheet.rows:
        if {"baseline", "ours", "difference"} <= row.cells.keys():
            findings += _check_difference(sheet.name, row)
        if {"low", "high"} <= row.cells.keys():
            findings += _check_interval(sheet.name, row)
            if steps is not None and "difference" in row.cells:
                findings += _check_width(sheet.name, row, row.steps or steps)
    return findings + _check_mirror(sheet)


def _check_difference(table: str, row: PrintedRow) -> list[Finding]:
    base, ours, printed = (row.cells[name] for name in ("baseline", "ours", "difference"))
    points = ours.value - base.value
    unit = max(printed.unit, base.unit, ours.unit)
    if abs(abs(printed.value) - abs(points)) <= unit and printed.value * points >= 0:
        return []
    words = f"{percent(ours.value)} − {percent(base.value)} = {percent(points)} points"
    relative = Fraction(points, base.value) if base.value else None
    if relative is not None:
        words += f", or {percent(relative)} % of {percent(base.value)}"
        if abs(abs(printed.value) - abs(relative)) <= max(printed.unit, unit / base.value):
            return [
                Finding(table, row.name, "difference", "note", f"{words}; printed {printed.text}, the relative one")
            ]
    words += f"; printed {printed.text}, which is neither"
    return [Finding(table, row.name, "difference", "impossible", words)]


def _check_interval(table: str, row: PrintedRow) -> list[Finding]:
    low, high = row.cells["low"], row.cells["high"]
    findings = []
    if low.value > high.value:
        words = f"the interval ends at {high.text}, below its start {low.text}"
        findings.append(Finding(table, row.name, "order of the interval's ends", "impossible", words))
    estimate, p = row.cells.get("difference"), row.cells.get("p-value")
    if estimate and not low.value - low.unit <= estimate.value <= high.value + high.unit:
        words = f"{estimate.text} lies outside [{low.text}, {high.text}]"
        findings.append(Finding(table, row.name, "interval holds its estimate", "impossible", words))
    if p:
        without_zero = low.value - low.unit > 0 or high.value + high.unit < 0
        with_zero = low.value + low.unit < 0 < high.value - high.unit
        small = p.value + p.unit < Fraction(1, 20) or (p.text.startswith("<") and p.value <= Fraction(1, 20))
        if (without_zero and p.value - p.unit > LEVEL) or (with_zero and small):
            words = f"[{low.text}, {high.text}] {'leaves out' if without_zero else 'holds'} 0, and p = {p.text}"
            findings.append(Finding(table, row.name, "95 % interval and p-value agree", "impossible", words))
    return findings


def _check_width(table: str, row: PrintedRow, steps: int) -> list[Finding]:
    """A paired difference d of shares of n has b - c = dn discordant pairs, so b + c >= |d|n bounds its variance."""
    quantity = quantity_of(row.name)
    if quantity not in _PER_STEP:
        return []
    low, high, estimate = (row.cells[name] for name in ("low", "high", "difference"))
    d = max(float(abs(estimate.value) - estimate.unit), 0.0)
    width = float(high.value - low.value + low.unit + high.unit)
    least = narrowest_width(d, steps)
    if width >= _NARROWEST * least:
        return []
    words = (
        f"even if the better system is never wrong where the other is right, a difference of {estimate.text} on "
        f"{_PER_STEP[quantity]} = {steps} has a 95 % interval at least {percent(least)} points wide; "
        f"[{low.text}, {high.text}] is {percent(high.value - low.value)}"
    )
    return [Finding(table, row.name, "width of the paired interval", "averages only", words)]


def narrowest_width(difference: float, steps: int) -> float:
    """The least width of a 95 % interval of a paired difference d of shares, in [-1, 1], over n steps.

    The variance of the mean of n values in {-1, 0, 1} with mean d is at least (|d| - d²)/n, reached where none is of
    the other sign. Of the normal interval and the percentile interval at that minimum the narrower one counts.
    """
    d = abs(difference)
    normal = 2 * scipy.stats.norm.ppf(1 - LEVEL / 2) * math.sqrt(d * (1 - d) / steps)
    ends = scipy.stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], steps, d)
    return min(normal, float(ends[1] - ends[0]) / steps)


def _check_mirror(sheet: Sheet) -> list[Finding]:
    """The false-alarm column is 1 - precision, so its difference and interval are those of precision, mirrored."""
    rows = {quantity_of(row.name): row for row in sheet.rows}
    precision, false_alarm = rows.get("precision"), rows.get("false alarm")
    if (
        precision is None
        or false_alarm is None
        or not {"low", "high"} <= precision.cells.keys() & false_alarm.cells.keys()
    ):
        return []
    pairs = [(precision.cells["low"], false_alarm.cells["high"]), (precision.cells["high"], false_alarm.cells["low"])]
    if all(abs(a.value + b.value) <= a.unit + b.unit for a, b in pairs):
        return []
    ends = f"[{percent(-precision.cells['high'].value)}, {percent(-precision.cells['low'].value)}]"
    printed = f"[{percent(false_alarm.cells['low'].value)}, {percent(false_alarm.cells['high'].value)}]"
    words = f"FA = 1 − P in every resample, so its interval is {ends}, printed {printed}"
    return [Finding(sheet.name, f"{precision.name}; {false_alarm.name}", "mirrored interval", "impossible", words)]
