"""Identities and inequalities that the rates of one row must satisfy, whatever the number of decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from fractions import Fraction

from studies.audit_tables.cells import Printed, Reading
from studies.audit_tables.findings import Finding, Level, percent
from studies.audit_tables.quantities import COUNTS, RATIOS, SHARES, SHORT
from studies.audit_tables.reading import PrintedRow

COMPLEMENTS = (
    ("precision", "false alarm"),
    ("accept rate", "false alarm"),
    ("recall", "missed"),
    ("specificity", "false positive rate"),
)
Interval = tuple[Fraction, Fraction]


@dataclasses.dataclass(frozen=True)
class _Identity:
    """A check of some quantities.

    `holds` says for one reading whether one confusion can satisfy it, and `averaged` whether an average over classes or
    seeds can; `arithmetic` says in numbers why a confusion does not.
    """

    check: str
    holds: Callable[[Reading], bool]
    arithmetic: str
    averaged: Callable[[Reading], bool] = lambda reading: False


def check_row(table: str, row: PrintedRow) -> list[Finding]:
    """The identities that a row breaks.

    A row passes if it satisfies the identity with all digits rounded or all digits truncated. Where it does only if
    each digit may be off by one, the level is "last digit"; where only an average of several confusions does, it is
    "averages only".
    """
    findings = []
    for identity in _identities(row):
        if identity.holds("rounded") or identity.holds("truncated"):
            continue
        otherwise: Level = "averages only" if identity.averaged("loose") else "impossible"
        level: Level = "last digit" if identity.holds("loose") else otherwise
        findings.append(Finding(table, row.name, identity.check, level, identity.arithmetic))
    return findings


def _identities(row: PrintedRow) -> Iterator[_Identity]:
    cells = row.cells
    for name in (*RATIOS, *SHARES):
        if name in cells and not 0 <= cells[name].value <= 1:
            outside = f"{cells[name].text} is no share between 0 and 100 %"
            yield _Identity(f"0 ≤ {_short(name)} ≤ 1", lambda reading: False, outside)
    for rate, complement in COMPLEMENTS:
        if rate in cells and complement in cells:
            yield from _complement(cells[rate], cells[complement], rate, complement)
    precision = _precision(cells)
    recall = cells.get("recall")
    if "F1" in cells and precision and recall:
        yield _f1(cells["F1"], precision, recall)
    elif "F1" in cells and precision:
        yield _largest_f1(cells["F1"], precision, "P")
    elif "F1" in cells and recall:
        yield _largest_f1(cells["F1"], recall, "R")
    if "accuracy" in cells:
        yield from _smallest_accuracy(cells, precision, recall)
    if "ECE" in cells and "Brier" in cells:
        yield _brier(cells["ECE"], cells["Brier"])
    if "N" in cells and all(name in cells for name in COUNTS):
        values = [int(cells[name].value) for name in COUNTS]
        total = int(cells["N"].value)
        sums = f"{' + '.join(map(str, values))} = {sum(values)}, and N = {total}"
        yield _Identity("TP + FP + FN + TN = N", lambda reading: sum(values) == total, sums)


def _short(name: str) -> str:
    return SHORT.get(name, name)


def _precision(cells: dict[str, Printed]) -> Printed | None:
    """Precision as printed, or 1 minus the false-alarm column."""
    if "precision" in cells:
        return cells["precision"]
    if "false alarm" not in cells:
        return None
    alarm = cells["false alarm"]
    return dataclasses.replace(alarm, text=f"100 − {percent(alarm.value)}", value=1 - alarm.value, mirrored=True)


def _complement(a: Printed, b: Printed, name: str, complement_name: str) -> Iterator[_Identity]:
    """Two rates that sum to 1; in an average to less, where a part without a denominator counts as 0 in both."""

    def holds(reading: Reading) -> bool:
        (low, high), (other_low, other_high) = a.interval(reading), b.interval(reading)
        return low + other_low <= 1 <= high + other_high

    if a.value == b.value == 0:  # neither has a denominator: no offers, for example
        return
    total = f"{percent(a.value)} + {percent(b.value)} = {percent(a.value + b.value)}, not 100"
    below = a.value + b.value < 1
    yield _Identity(f"{_short(name)} + {_short(complement_name)} = 100 %", holds, total, lambda reading: below)


def _f1(printed: Printed, precision: Printed, recall: Printed) -> _Identity:
    """F1 of a confusion. It is concave in (P, R) and at least P + R - 1, so averages lie between these two."""

    def values(reading: Reading) -> Interval:
        (p, more_p), (r, more_r) = precision.interval(reading), recall.interval(reading)
        return _harmonic(p, r), _harmonic(min(more_p, Fraction(1)), min(more_r, Fraction(1)))

    def averaged(reading: Reading) -> bool:
        low, high = printed.interval(reading)
        least = precision.interval(reading)[0] + recall.interval(reading)[0] - 1
        return least <= high and low <= values(reading)[1]

    p, r = percent(precision.value), percent(recall.value)
    exact = _harmonic(precision.value, recall.value)
    words = f"2 × {p} × {r} / ({p} + {r}) = {percent(exact)}, printed {percent(printed.value)}"
    check = "F1 = 2PR / (P + R)"
    return _Identity(check, lambda reading: _meet(values(reading), printed.interval(reading)), words, averaged)


def _largest_f1(printed: Printed, rate: Printed, letter: str) -> _Identity:
    """F1 for the other rate at 1 is the largest that the known rate allows; concave, so averages keep to it too."""

    def holds(reading: Reading) -> bool:
        most = _harmonic(min(rate.interval(reading)[1], Fraction(1)), Fraction(1))
        return printed.interval(reading)[0] <= most

    value, other_letter = percent(rate.value), "R" if letter == "P" else "P"
    most = percent(_harmonic(rate.value, Fraction(1)))
    words = (
        f"{letter} = {rate.text.rstrip('%')} allows at most 2 × {value} / (100 + {value}) = {most} "
        f"(at {other_letter} = 100), printed {percent(printed.value)}"
    )
    return _Identity(f"F1 ≤ 2{letter} / (1 + {letter})", holds, words)


def _smallest_accuracy(
    cells: dict[str, Printed], precision: Printed | None, recall: Printed | None
) -> Iterator[_Identity]:
    """With F1 given, accuracy is smallest where nothing is correctly silent: (TP + 0) / N = F1 / (2 - F1).

    The accuracy beside an average over classes is that of all classes, which small ones among them hardly move.
    """
    accuracy = cells["accuracy"]

    def f1(reading: Reading) -> Interval:
        if precision and recall:
            (p, more_p), (r, more_r) = precision.interval(reading), recall.interval(reading)
            return _harmonic(p, r), _harmonic(more_p, more_r)
        return cells["F1"].interval(reading)

    if not (precision and recall) and "F1" not in cells:
        return
    value = _harmonic(precision.value, recall.value) if precision and recall else cells["F1"].value

    def holds(reading: Reading) -> bool:
        low = max(f1(reading)[0], Fraction(0))
        return accuracy.interval(reading)[1] >= low / (2 - low)

    source = "2PR / (P + R)" if precision and recall else "F1"
    words = (
        f"F1 = {source} = {percent(value)}, so accuracy is at least {percent(value)} / (200 − {percent(value)}) = "
        f"{percent(value / (2 - value))} (reached where TN = 0), printed {percent(accuracy.value)}"
    )
    yield _Identity("Acc ≥ F1 / (2 − F1)", holds, words, lambda reading: True)


def _brier(ece: Printed, brier: Printed) -> _Identity:
    """ECE <= mean |p - y| <= the root of mean (p - y)^2, by Jensen's inequality in each bin and over the rows."""

    def holds(reading: Reading) -> bool:
        return max(ece.interval(reading)[0], Fraction(0)) ** 2 <= brier.interval(reading)[1]

    root = 100 * float(brier.value) ** 0.5
    words = f"√({float(brier.value):.4f}) = {root:.2f} %, printed ECE {percent(ece.value)} %"
    return _Identity("ECE ≤ √Brier", holds, words)


def _harmonic(p: Fraction, r: Fraction) -> Fraction:
    p, r = max(p, Fraction(0)), max(r, Fraction(0))
    return 2 * p * r / (p + r) if p + r else Fraction(0)


def _meet(first: Interval, second: Interval) -> bool:
    return max(first[0], second[0]) <= min(first[1], second[1])
