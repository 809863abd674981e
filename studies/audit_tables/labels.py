"""What two rows say together if both were scored on the same steps with the same labels.

The unknowns are shares of steps: for each label, how often a baseline and another policy spoke (eight cells that sum to
1). Every printed rate is a linear inequality in them, so the smallest and largest flip rate, and share of positives,
that the printed rates allow are linear programs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import scipy

from studies.audit_tables.cells import Printed
from studies.audit_tables.findings import Finding, percent, percent_range
from studies.audit_tables.quantities import RATIOS
from studies.audit_tables.reading import PrintedRow, Sheet

_SLACK = 1e-9
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# Cells are (label, baseline speaks, policy speaks), the last one fastest. TP, FP, FN, TN of either are sums of them.
_LABEL, _BASE, _OTHER = (axis.ravel().astype(bool) for axis in np.indices((2, 2, 2)))
_ROUNDING = 1e-6  # what the solver may miss in an optimum
_LEAST_HITS = 1e-4  # a row whose rates allow fewer true positives contradicts itself, or has none
Range = tuple[float, float]


def check_labels(sheet: Sheet, same_labels: bool) -> list[Finding]:
    """Flip rates beyond their bounds, and shares of positives that differ between rows.

    `same_labels` says that the rows of the table were scored on the same steps with the same labels. Flip rates imply
    that, so a table with a column of them is checked in any case; its baseline is the first row with a flip rate of 0.
    """
    base = next((row for row in sheet.rows if "flip rate" in row.cells and row.cells["flip rate"].value == 0), None)
    findings = []
    if base is not None:
        for row in sheet.rows:
            if row is not base and "flip rate" in row.cells:
                findings += _check_flips(sheet.name, base, row)
    if same_labels:
        findings += _check_positives(sheet, base)
    return findings


def _check_flips(table: str, base: PrintedRow, row: PrintedRow) -> list[Finding]:
    nested = _nested(base, row)
    bounds = joint_range(base.cells, row.cells, _BASE != _OTHER, nested=nested)
    if bounds is None:
        words = f"no share of positives allows the rates of both {base.name} and {row.name}"
        return [Finding(table, row.name, "rates of one set of labels", "averages only", words)]
    low, high = (float(end) for end in row.cells["flip rate"].interval("loose"))
    if low <= bounds[1] + _ROUNDING and high >= bounds[0] - _ROUNDING:
        return []
    why = {
        0: f"whatever the share of positives, the rates of {base.name} and of this row allow flips of",
        1: f"at a lower threshold it speaks wherever {base.name} does, so flips are added offers only,",
        -1: f"at a higher threshold it is silent wherever {base.name} is, so flips are dropped offers only,",
    }[nested]
    words = f"{why} {percent_range(*bounds)} %, printed {percent(row.cells['flip rate'].value)} %"
    return [Finding(table, row.name, "bounds of the flip rate", "averages only", words)]


def _nested(base: PrintedRow, row: PrintedRow) -> int:
    """1 if the row speaks wherever the baseline does, -1 if only there, 0 if neither follows.

    At the same temperature a bias is subtracted from every threshold (docs/maths.md, section 7).
    """
    signs = []
    for name in ("temperature", "bias"):
        if name not in base.cells or name not in row.cells:
            return 0
        signs.append(row.cells[name].value - base.cells[name].value)
    if signs[0] != 0 or signs[1] == 0:
        return 0
    return 1 if signs[1] > 0 else -1


def _check_positives(sheet: Sheet, base: PrintedRow | None) -> list[Finding]:
    """The rows whose ranges of shares of positives lie furthest apart, where they do not meet."""
    ranges: dict[str, Range] = {}
    for row in sheet.rows:
        flips = row.cells.get("flip rate")
        if base is not None and row is not base and flips is not None:
            shares = joint_range(base.cells, row.cells, _LABEL, nested=_nested(base, row), flips=flips)
        else:
            shares = joint_range({}, row.cells, _LABEL)
        if shares is not None:
            ranges[row.name] = shares
    if not ranges:
        return []
    most = max(ranges, key=lambda name: ranges[name][0])
    least = min(ranges, key=lambda name: ranges[name][1])
    if ranges[most][0] <= ranges[least][1] + _ROUNDING:
        return []
    words = f"{least} needs {percent_range(*ranges[least])} % positives, {most} needs {percent_range(*ranges[most])} %"
    return [Finding(sheet.name, f"{least}; {most}", "rates of one set of labels", "averages only", words)]


def joint_range(
    base: Mapping[str, Printed],
    policy: Mapping[str, Printed],
    cells: np.ndarray,
    *,
    nested: int = 0,
    flips: Printed | None = None,
) -> Range | None:
    """The smallest and largest share of some of the eight cells that two rows of printed rates allow; None if none fit.

    `base` has the rates of the baseline and may be empty. `nested` is 1 if the policy speaks wherever the baseline
    does, -1 if only there. `flips` is the printed share of steps on which they differ.
    """
    rows = [*_inequalities(_rates(base), _BASE), *_inequalities(_rates(policy), _OTHER)]
    if flips is not None:
        low, high = (float(end) for end in flips.interval("loose"))
        differ = (_BASE != _OTHER).astype(float)
        rows += [differ - high, low - differ]
    bounds = [(0.0, 1.0)] * 8
    if nested:
        absent = (_BASE & ~_OTHER) if nested > 0 else (~_BASE & _OTHER)
        bounds = [(0.0, 0.0 if none else 1.0) for none in absent]
    least, rest = (_smallest(sign, rows, bounds) for sign in (cells, ~np.asarray(cells, bool)))
    return None if least is None or rest is None else (least, 1 - rest)


def _smallest(cells: np.ndarray, rows: Sequence[np.ndarray], bounds: Sequence[tuple[float, float]]) -> float | None:
    """The smallest sum of some cells, all of which are shares that sum to 1; None if no shares fit."""
    result = scipy.optimize.linprog(
        np.asarray(cells, float),
        A_ub=np.array(rows) if rows else None,
        b_ub=np.full(len(rows), _SLACK) if rows else None,
        A_eq=np.ones((1, 8)),
        b_eq=[1.0],
        bounds=bounds,
        options=_OPTIONS,
    )
    return float(result.fun) if result.status == 0 else None


@functools.lru_cache(maxsize=1024)
def _consistent(rates: tuple[tuple[str, Printed], ...]) -> Mapping[str, Printed]:
    """The rates of a row, or its recall and precision only where the others contradict these.

    Contradictory ratios leave only shares of 0 in their denominators, which would bound nothing rightly.
    """
    cells = dict(rates)
    rest = _smallest(~(_LABEL & _OTHER), _inequalities(cells, _OTHER), [(0.0, 1.0)] * 8)
    if rest is not None and 1 - rest > _LEAST_HITS:
        return cells
    kept = ("recall", "precision") if "precision" in cells else ("recall", "false alarm")
    return {name: cells[name] for name in kept if name in cells}


def _rates(cells: Mapping[str, Printed]) -> Mapping[str, Printed]:
    return _consistent(tuple((name, cells[name]) for name in RATIOS if name in cells))


def _inequalities(cells: Mapping[str, Printed], speaks: np.ndarray) -> list[np.ndarray]:
    """Rows a with a · shares <= 0 for every rate; a rate without a denominator satisfies its own."""
    counted = np.array([_LABEL & speaks, ~_LABEL & speaks, _LABEL & ~speaks, ~_LABEL & ~speaks], float)
    rows = []
    for name, (part, whole) in RATIOS.items():
        if name in cells:
            low, high = (float(end) for end in cells[name].interval("loose"))
            a, b = np.array(part) @ counted, np.array(whole) @ counted
            rows += [a - high * b, low * b - a]
    return rows
