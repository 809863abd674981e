"""How much of what an estimate needs a log can tell: overlap, effective sample size, the mass of large weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prism_jax.decision.off_policy.estimators import Logged, Rows

MOST_UNCOVERED = 0.01
"""Largest share of the target's offers that the log may be unable to show."""
LEAST_EFFECTIVE = 50.0
"""Smallest effective number of offers."""
LARGE = 20.0
"""Weights above this are counted as large."""


class OverlapError(ValueError):
    """A log that cannot say what the target policy would have cost; the message says why."""


class Support(NamedTuple):
    """What of the target's offers the log shows.

    Attributes:
      rows: Number of rows.
      offers: Number of offers that were made.
      target: Mean of pi, the share of rows at which the target offers.
      unknown: Share of the target's offers at rows without a propensity.
      impossible: Share of the target's offers at rows whose offer the logging policy could never make.
      effective: (sum w)^2 / sum w^2 of the weights w = A pi / e; 0 where no offer of the target was made.
      clipped: Share of the weights' sum above `LARGE`, which clipping would remove.
      everywhere: Whether every row has a propensity above 0, as the level of the cost needs.
    """

    rows: int
    offers: int
    target: float
    unknown: float
    impossible: float
    effective: float
    clipped: float
    everywhere: bool


def measure_support(target: Rows, logged: Logged) -> Support:
    """The support of a target policy in a log; see `Support`."""
    total = float(target.sum())
    e = logged.propensity
    unknown = float(target[np.isnan(e)].sum())
    impossible = float(target[e == 0].sum())
    shown = logged.offered & (target > 0) & (e > 0)
    weight = target[shown] / e[shown]
    mass = float(weight.sum())
    return Support(
        rows=len(target),
        offers=int(logged.offered.sum()),
        target=total / len(target),
        unknown=unknown / total if total else 0.0,
        impossible=impossible / total if total else 0.0,
        effective=mass**2 / float((weight**2).sum()) if mass else 0.0,
        clipped=float(np.maximum(weight - LARGE, 0).sum()) / mass if mass else 0.0,
        everywhere=bool((e > 0).all()),
    )


def check_support(
    found: Support, *, most_uncovered: float = MOST_UNCOVERED, least_effective: float = LEAST_EFFECTIVE
) -> None:
    """Refuses an estimate that the log cannot support. A target that never offers needs nothing.

    Raises:
      OverlapError: for offers of the target that the log could not show, or too few effective offers.
    """
    limit = f"expected at most {100 * most_uncovered:g} %"
    if found.unknown > most_uncovered:
        raise OverlapError(
            f"propensity: found none at {100 * found.unknown:.1f} % of the rows where the target policy offers, "
            f"{limit}; the log must give the probability of the offer at silent rows too, 0 where it could not be made"
        )
    if found.impossible > most_uncovered:
        raise OverlapError(
            f"overlap: found that {100 * found.impossible:.1f} % of the target policy's offers could never be made "
            f"under the logging policy, {limit}; nobody knows their answers"
        )
    if found.target > 0 and found.effective < least_effective:
        raise OverlapError(
            f"effective offers: found {found.effective:.1f} of {found.offers} offers, expected at least "
            f"{least_effective:g}; a few large weights would decide the estimate"
        )
