"""How much of what an estimate needs a log can tell: overlap, effective numbers of offers and people.

All of it is judged by the design of the log, which is its probabilities, and never by the offers that were drawn: where
offers with a large weight are rare, most logs have none of them, and look harmless (docs/maths.md, section 15).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.decision.off_policy.estimators import Logged, Rows, covered
from prism_jax.decision.off_policy.intervals import LEAST_PEOPLE

MOST_UNCOVERED = 0.01
"""Largest share of the target's offers that the log may be unable to show."""
LEAST_EFFECTIVE = 50.0
"""Smallest effective number of the target's offers."""
LEAST_CHANGES = 40.0
"""Smallest effective number of offers that tell the policies apart."""
LEAST_EFFECTIVE_PEOPLE = 7.0
"""Smallest effective number of people; `LEAST_PEOPLE` of about equal weight have it."""
LARGE = 20.0
"""Weights above this are counted as large."""
EXPLORATION = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Probabilities of an offer that are tried as what would have been enough."""
_MOST_WEIGHT = 1e150


class OverlapError(ValueError):
    """A log that cannot say what the target policy would have cost; the message says why."""


class Support(NamedTuple):
    """What of the target's offers the log shows."""

    rows: int
    offers: int  # those that were made
    target: float  # mean of pi, the share of rows at which the target offers
    unknown: float  # share of the target's offers at rows without a propensity
    impossible: float  # share of the target's offers at rows whose offer the logging policy could never make
    effective: float  # effective number of the target's offers, (sum pi)^2 / sum(pi^2 / e)
    # effective number of offers that tell the policies apart, (sum e c^2)^2 / sum(e c^4) with c = pi / e - 1; infinite
    # where the policies agree everywhere
    changes: float
    large: float  # share of the target's offers at rows whose weight pi / e is above `LARGE`
    people: int
    # (sum v)^2 / sum(v^2) over people, the smaller one of v = their rows and v = their sum of e c^2
    effective_people: float
    everywhere: bool  # whether every row has a propensity above 0, as the level of the cost needs


def measure_support(target: Rows, logged: Logged, person: Int[np.ndarray, " rows"]) -> Support:
    """The support of a target policy, which offers with probability pi, in a log.

    Of the log, only the propensities and the number of offers are looked at. People are numbered from 0 without gaps.
    """
    total, e = float(target.sum()), logged.propensity
    shown = covered(logged)
    pi, e_shown = target[shown], e[shown]
    with np.errstate(over="ignore"):
        weight = np.minimum(pi / e_shown, _MOST_WEIGHT)
    change = weight - 1
    largest = float(np.abs(change).max(initial=0.0))
    change = change / largest if largest > 1e-12 else 0 * change  # the effective numbers have no scale
    people = int(person.max(initial=-1)) + 1
    squares = np.bincount(person[shown], e_shown * change**2, people)
    return Support(
        rows=len(target),
        offers=int(logged.offered.sum()),
        target=total / len(target),
        unknown=float(target[np.isnan(e)].sum()) / total if total else 0.0,
        impossible=float(target[e == 0].sum()) / total if total else 0.0,
        effective=float(pi.sum()) ** 2 / float(pi @ weight) if pi.any() else 0.0,
        changes=_effective(float(squares.sum()), float(e_shown @ change**4)),
        large=float(pi[weight > LARGE].sum()) / total if total else 0.0,
        people=people,
        effective_people=min(
            _effective(float(weights.sum()), float(weights @ weights))
            for weights in (np.bincount(person) * 1.0, squares)
        ),
        everywhere=bool(shown.all()),
    )


def check_support(
    target: Rows,
    logged: Logged,
    person: Int[np.ndarray, " rows"],
    *,
    most_uncovered: float = MOST_UNCOVERED,
    least_effective: float = LEAST_EFFECTIVE,
    least_changes: float = LEAST_CHANGES,
) -> Support:
    """The support of a target policy, or an error where the log cannot say what it would have cost.

    `most_uncovered` bounds the share of the target's offers that the log may be unable to show, `least_effective` the
    effective number of its offers, and `least_changes` that of the offers that tell the policies apart.

    Raises:
      OverlapError: for offers of the target that the log could not show, too few effective offers, or too few people.
        The message says how much exploration would have been enough.
    """
    limits = {"most_uncovered": most_uncovered, "least_effective": least_effective, "least_changes": least_changes}
    support = measure_support(target, logged, person)
    reason = refusal(support, **limits)
    if reason is None:
        return support
    if not support.unknown > most_uncovered and support.people >= LEAST_PEOPLE:
        enough = enough_exploration(target, logged, person, **limits)
        reason += (
            "; no exploration would have been enough for a log of this length and this target"
            if enough is None
            else f"; a probability of at least {enough:g} for each of the target's offers would have been enough"
        )
    raise OverlapError(reason)


def enough_exploration(target: Rows, logged: Logged, person: Int[np.ndarray, " rows"], **limits: float) -> float | None:
    """The smallest of `EXPLORATION` that would have let the log answer, had every offer of the target at least had it.

    None if no probability is enough, as the log is too short or its people are too few; limits as in `check_support`.
    """
    e = np.nan_to_num(logged.propensity)
    for least in EXPLORATION:
        explored: Float64[np.ndarray, " rows"] = np.where(target > 0, np.maximum(e, least), logged.propensity)
        support = measure_support(target, logged._replace(propensity=explored), person)
        if refusal(support, **limits) is None:
            return least
    return None


def refusal(
    found: Support,
    *,
    most_uncovered: float = MOST_UNCOVERED,
    least_effective: float = LEAST_EFFECTIVE,
    least_changes: float = LEAST_CHANGES,
) -> str | None:
    """Why a log with this support cannot answer; None if it can. Limits are those of `check_support`."""
    limit = f"expected at most {100 * most_uncovered:g} %"
    if found.people < LEAST_PEOPLE:
        return f"people: found {found.people}, expected at least {LEAST_PEOPLE}, as intervals resample people"
    if found.unknown > most_uncovered:
        return (
            f"propensity: found none at {100 * found.unknown:.1f} % of the rows where the target policy offers, "
            f"{limit}; the log must give the probability of the offer at silent rows too, 0 where it could not be made"
        )
    if found.impossible > most_uncovered:
        return (
            f"overlap: found that {100 * found.impossible:.1f} % of the target policy's offers could never be made "
            f"under the logging policy, {limit}; nobody knows their answers"
        )
    if found.target > 0 and found.effective < least_effective:
        return (
            f"effective offers: found {found.effective:.1f}, expected at least {least_effective:g}; by the "
            "probabilities of the log, a few large weights decide the estimate"
        )
    if found.target > 0 and found.changes < least_changes:
        return (
            f"effective changes: found {found.changes:.1f}, expected at least {least_changes:g}; by the "
            "probabilities of the log, a few rare offers decide the difference between the policies"
        )
    if found.effective_people < LEAST_EFFECTIVE_PEOPLE:
        return (
            f"effective people: found {found.effective_people:.1f} of {found.people}, expected at least "
            f"{LEAST_EFFECTIVE_PEOPLE:g}; a few people decide the estimate"
        )
    return None


def _effective(total: float, squares: float) -> float:
    return total**2 / squares if squares else np.inf
