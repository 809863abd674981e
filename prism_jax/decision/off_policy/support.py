"""How much of what an estimate needs a log can tell: overlap, effective numbers of offers and people.

All of it is judged by the design of the log, which is its probabilities, and never by the offers that were drawn: where
offers with a large weight are rare, most logs have none of them, and look harmless (docs/maths.md, section 15).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

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
_ROUNDING = 1e-12
"""Changes pi / e - 1 up to this are rounding: the policies agree."""


class OverlapError(ValueError):
    """A log that cannot say what the target policy would have cost; the message says why."""


@dataclasses.dataclass(frozen=True)
class EstimateSettings:
    """Costs, limits and resampling."""

    c_fa: float = 1.0  # cost of an offer that is not accepted
    c_fn: float = 2.0  # cost of silence where help was needed and an offer would have been accepted
    # largest share of the target's offers that the log may be unable to show
    most_uncovered: float = MOST_UNCOVERED
    least_effective: float = LEAST_EFFECTIVE  # smallest effective number of the target's offers
    # smallest effective number of offers that tell the policies apart
    least_changes: float = LEAST_CHANGES
    resamples: int = 2000  # bootstrap resamples of people
    seed: int = 0  # seed of the resamples

    @property
    def limits(self) -> dict[str, float]:
        """The limits of `check_support`."""
        return {name: getattr(self, name) for name in ("most_uncovered", "least_effective", "least_changes")}


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
    sums, changes = support_sums(target, logged, largest_change(target, logged))
    of_people = np.bincount(person) * 1.0, np.bincount(person, changes)
    numbers = (effective_number(float(values.sum()), float(values @ values)) for values in of_people)
    return support_of(sums, len(of_people[0]), min(numbers))


def largest_change(target: Rows, logged: Logged) -> float:
    """The largest |pi / e - 1| over the rows whose e is known and above 0; 0 without such rows."""
    shown = covered(logged)
    return float(np.abs(_weight(target[shown], logged.propensity[shown]) - 1).max(initial=0.0))


def support_sums(target: Rows, logged: Logged, scale: float) -> tuple[dict[str, int | float], Rows]:
    """What the support is made of: sums over rows, which add up over the parts of a log, and e c^2 of every row.

    `scale` divides every c = pi / e - 1, so that their fourth powers are finite: `largest_change` of the whole log, or
    a bound of it. The effective numbers do not depend on it.
    """
    e, shown = logged.propensity, covered(logged)
    pi, e_shown = target[shown], e[shown]
    weight = _weight(pi, e_shown)
    change = np.where(np.abs(weight - 1) > _ROUNDING, weight - 1, 0.0) / (scale or 1.0)
    squares = np.zeros_like(target)
    squares[shown] = e_shown * change**2
    return {
        "rows": len(target),
        "offers": int(logged.offered.sum()),
        "target": float(target.sum()),
        "unknown": float(target[np.isnan(e)].sum()),
        "impossible": float(target[e == 0].sum()),
        "shown": float(pi.sum()),
        "weighted": float((pi * weight).sum()),
        "large": float(pi[weight > LARGE].sum()),
        "squares": float(squares.sum()),
        "fourth": float((e_shown * change**4).sum()),
        "hidden": int((~shown).sum()),
    }, squares


def support_of(sums: Mapping[str, int | float], people: int, effective_people: float) -> Support:
    """The support of a log from its `support_sums`, its number of people, and the effective one.

    `effective_people` is the smaller `effective_number` of two: of the people's rows, and of their e c^2.
    """
    total = sums["target"]
    share = {name: sums[name] / total if total else 0.0 for name in ("unknown", "impossible", "large")}
    return Support(
        rows=int(sums["rows"]),
        offers=int(sums["offers"]),
        target=total / sums["rows"],
        unknown=share["unknown"],
        impossible=share["impossible"],
        effective=sums["shown"] ** 2 / sums["weighted"] if sums["shown"] else 0.0,
        changes=effective_number(sums["squares"], sums["fourth"]),
        large=share["large"],
        people=people,
        effective_people=effective_people,
        everywhere=not sums["hidden"],
    )


def effective_number(total: float, squares: float) -> float:
    """(sum v)^2 / sum(v^2) from both sums; infinite where nothing varies."""
    return total**2 / squares if squares else np.inf


def _weight(pi: Rows, e: Rows) -> Rows:
    with np.errstate(over="ignore"):
        return np.minimum(pi / e, _MOST_WEIGHT)


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
    check(support, lambda: enough_exploration(target, logged, person, **limits), **limits)
    return support


def check(support: Support, enough: Callable[[], float | None], **limits: float) -> None:
    """Raises the error of `check_support` for a log with this support, if it cannot answer.

    `enough` finds the exploration that would have been enough, None if none would; it is asked only where that helps.
    """
    reason = refusal(support, **limits)
    if reason is None:
        return
    if not support.unknown > limits.get("most_uncovered", MOST_UNCOVERED) and support.people >= LEAST_PEOPLE:
        least = enough()
        reason += (
            "; no exploration would have been enough for a log of this length and this target"
            if least is None
            else f"; a probability of at least {least:g} for each of the target's offers would have been enough"
        )
    raise OverlapError(reason)


def enough_exploration(target: Rows, logged: Logged, person: Int[np.ndarray, " rows"], **limits: float) -> float | None:
    """The smallest of `EXPLORATION` that would have let the log answer, had every offer of the target at least had it.

    None if no probability is enough, as the log is too short or its people are too few; limits as in `check_support`.
    """
    for least in EXPLORATION:
        if refusal(measure_support(target, explored(target, logged, least), person), **limits) is None:
            return least
    return None


def explored(target: Rows, logged: Logged, least: float) -> Logged:
    """The log, had every offer of the target had at least this probability."""
    e = np.maximum(np.nan_to_num(logged.propensity), least)
    return logged._replace(propensity=np.where(target > 0, e, logged.propensity))


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
