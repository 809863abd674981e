"""What the audit reports, and how it prints numbers."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Literal

Level = Literal["impossible", "averages only", "last digit", "note"]
"""How certain a finding is.

impossible: no confusion can be printed so, and no average over classes or seeds. averages only: no confusion can, such
an average can. last digit: a confusion can, if digits were cut in different ways or one is off by one. note: worth
knowing, no finding.
"""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One check that failed, or a note."""

    table: str  # name of the file
    row: str  # name of the row, or of several
    check: str  # what was checked, in a few words
    level: Level  # how certain it is; notes are no findings
    arithmetic: str  # the calculation, which a reader can repeat by hand from the printed numbers


def percent(value: Fraction | float, decimals: int = 2) -> str:
    """A share in percent, without the sign."""
    return f"{100 * float(value):.{decimals}f}"


def percent_range(low: Fraction | float, high: Fraction | float, decimals: int = 2) -> str:
    """A range of shares in percent, as one number where both ends print alike."""
    first, last = percent(low, decimals), percent(high, decimals)
    return first if first == last else f"{first} to {last}"
