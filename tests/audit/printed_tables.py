"""Writes tables as papers print them, from counts that are known."""

from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction

from studies.audit_tables.quantities import RATIOS

ROUNDING = {"rounded": (ROUND_HALF_EVEN, ROUND_HALF_UP), "truncated": (ROUND_DOWN,)}
HEADINGS = {name: name for name in RATIOS} | {"false alarm": "False-Alarm", "F1": "F1-Score ↑"}


def exact(counts, name, stabilised=False):
    """A rate as a fraction, with the official scorer's stabiliser if asked; None without a denominator."""
    part, whole = (sum(a * c for a, c in zip(side, counts, strict=True)) for side in RATIOS[name])
    if stabilised and name == "F1":
        p, r = exact(counts, "precision", True), exact(counts, "recall", True)
        return 2 * p * r / (p + r + Fraction(1, 10**8))
    if stabilised:
        return Fraction(part) / (whole + Fraction(1, 10**8))
    return Fraction(part, whole) if whole else None


def shown(value, decimals, how, percent=True):
    """A fraction as text; a blank for None."""
    if value is None:
        return "–"
    scaled = value * (100 if percent else 1)
    text = str((Decimal(scaled.numerator) / Decimal(scaled.denominator)).quantize(Decimal(1).scaleb(-decimals), how))
    return f"{text}%" if percent else text


def table(rows, names, decimals, how, *, percent=True, stabilised=False, steps=True):
    """A CSV of rates, one row per confusion, with a column N."""
    lines = [",".join(["name", *(HEADINGS[name] for name in names), *["N"] * steps])]
    for i, counts in enumerate(rows):
        cells = [shown(exact(counts, name, stabilised), decimals, how, percent) for name in names]
        lines.append(",".join([f"row {i}", *cells, *[str(sum(counts))] * steps]))
    return "\n".join(lines) + "\n"
