"""How numbers and estimates are written in tables and figures."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from prism_jax.decision.uncertainty import Estimate

DASH = "–"
"""An undefined ratio or an unknown number."""


def number(value: float | None, digits: int = 4, *, sign: bool = False) -> str:
    """Formats a number with `digits` decimals; None and NaN become a dash. With `sign`, positive ones begin with +."""
    if value is None or math.isnan(value):
        return DASH
    plus = "+" if sign and value > 0 else ""
    if math.isinf(value):
        return f"{plus}∞" if value > 0 else "−∞"
    return plus + f"{value + 0.0:.{digits}f}".replace("-", "−")


def percent(value: float | None, *, sign: bool = False) -> str:
    """Formats a share in percent, without the percent sign."""
    return number(None if value is None else 100 * value, 1, sign=sign)


def show_estimate(
    estimate: Estimate, digits: int = 3, *, sign: bool = False, form: Callable[[float], str] | None = None
) -> str:
    """Formats an estimate with its interval as "0.139 [0.107, 0.171]"; alone where there is no interval.

    With `sign`, positive numbers have one, as differences need it. `form` formats each of the three numbers in another
    way; `digits` and `sign` then have no effect.
    """
    write = form or functools.partial(number, digits=digits, sign=sign)
    value, low, high = (write(float(end)) for end in estimate[:3])
    return value if math.isnan(estimate.low) else f"{value} [{low}, {high}]"
