"""A printed number, and the exact values for which it may stand."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal
from fractions import Fraction
from typing import Literal

Reading = Literal["rounded", "truncated", "loose"]
"""How digits were cut: all rounded to the nearest, all cut off, or (loose) each off by up to one unit of its last."""

STABILISER = Fraction(3, 10**8)
"""How far a ratio may lie above its print, because scorers add 1e-8 to the denominators of precision, recall and F1.

It matters where a ratio is exact: 1/2 becomes 0.499999995 in a scorer that does so, and 49.99 % once it is truncated.
"""
BLANK = {"", "-", "--", "–", "—", "−", "n/a", "na", "nan", "none", "null"}
_NUMBER = re.compile(
    r"[<~≈]?\s*([+-]?(?:\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d*)?(?:e[+-]?\d{1,2})?)\s*(%|ms|s)?", re.I | re.A
)
_MOST_CHARACTERS = 60


@dataclasses.dataclass(frozen=True)
class Printed:
    """A number as it was printed."""

    text: str  # the cell's text
    value: Fraction  # the number; of a percentage its hundredth part
    unit: Fraction  # one unit of its last printed digit, on the same scale
    mirrored: bool = False  # whether 1 minus the number was printed, so that its digits were cut from the other side

    def interval(self, reading: Reading) -> tuple[Fraction, Fraction]:
        """Both ends of the values that print as this number; closed, and wider above by `STABILISER`.

        Of a mirrored number they are 1 minus those of what was printed, so it is wider below.
        """
        if self.mirrored:
            low, high = dataclasses.replace(self, value=1 - self.value, mirrored=False).interval(reading)
            return 1 - high, 1 - low
        below, above = {
            "rounded": (self.unit / 2, self.unit / 2),
            "truncated": (Fraction(0), self.unit) if self.value >= 0 else (self.unit, Fraction(0)),
            "loose": (self.unit, self.unit),
        }[reading]
        return self.value - below, self.value + above + STABILISER


def parse(text: str, decimals: int | None = None) -> tuple[Printed, bool] | None:
    r"""Reads one cell, such as "78.81%", "0.7881", "+3.1", "1,800" or "<0.001"; None for a cell without a number.

    Asterisks and a backslash before the percent sign are ignored; "ms" and "s" after a number are its unit. `decimals`
    is the number of decimals that the number was computed to, where its text may have lost final zeros. Returns the
    number, not yet divided by 100, and whether it had a percent sign; raises ValueError for anything else.
    """
    plain = text.replace("*", "").replace("\\%", "%").replace("−", "-").strip()
    if plain.lower() in BLANK or text.strip().lower() in BLANK:
        return None
    match = _NUMBER.fullmatch(plain) if len(plain) <= _MOST_CHARACTERS else None
    if match is None:
        raise ValueError(f"found {text[:_MOST_CHARACTERS]!r}, expected a number such as 0.92 or 92.4%")
    number = Decimal(match[1].replace(",", ""))
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    unit = Fraction(10) ** min(exponent, 0 if decimals is None else -decimals)
    return Printed(text.strip(), Fraction(number), unit), match[2] == "%"


def as_percentage(printed: Printed) -> Printed:
    """The number divided by 100."""
    return Printed(printed.text, printed.value / 100, printed.unit / 100)
