"""Whether the offers of a log were drawn with the propensities that it states: mean(A / e) = 1, wherever one looks.

It is looked at over all rows and over each fifth of a score, and so are the offers made for each expected one, which
tell where the probability of what was done stands in place of that of an offer. Sums over rows and people suffice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int

from prism_jax.decision.off_policy.estimators import Rows
from prism_jax.decision.uncertainty import Estimate

FIFTHS = ("the lowest fifth", "the second fifth", "the middle fifth", "the fourth fifth", "the highest fifth")
DOUBTED = "with propensities that do not quite fit its offers"
"""What titles say of a log that is doubted and not refused."""
MOST_OFF = 0.05
"""How far from 1 a mean may be, with any certainty, before a log is refused: propensities may be rounded."""
_MOST_UNKNOWN = 0.01
"""Largest share of rows without a propensity; with more, nobody knows which offers were left out."""
_CHANCE = 0.001
"""How often a right log is doubted, over all its means together."""
_GROUPS = len(FIFTHS) + 1
Totals = Float64[np.ndarray, "groups 7"]
OfPeople = Float64[np.ndarray, "people groups 3"]


class Drawn(NamedTuple):
    """What some rows say of their propensities; both numbers are 1 where offers were drawn with them."""

    where: str
    weight: Estimate  # mean of A / e
    offers: Estimate  # offers made for each that was expected, sum(A) / sum(e)
    reach: float  # standard errors within which both are by chance


def edges_of(score: Rows) -> Float64[np.ndarray, "edges"]:
    """Where the fifths of a score begin, without the lowest."""
    known = score[~np.isnan(score)]
    return np.quantile(known, (0.2, 0.4, 0.6, 0.8)) if len(known) else np.zeros(len(FIFTHS) - 1)


def drawn_sums(
    offered: Bool[np.ndarray, " rows"],
    propensity: Rows,
    score: Rows,
    edges: Float64[np.ndarray, "edges"],
    person: Int[np.ndarray, " rows"],
    people: int,
) -> tuple[Totals, OfPeople]:
    """What `drawn` needs of some rows: totals of each group, and sums over each person; both add up over parts.

    A row counts if its propensity is above 0. Groups are the fifths of the score that begin at `edges`, and the rows
    without a score.
    """
    shown = propensity > 0  # and known
    e = np.where(shown, propensity, 1.0)
    group = np.where(np.isnan(score), _GROUPS - 1, np.searchsorted(edges, score, side="right"))
    inverse = np.where(offered, 1 / e, 0.0)
    residuals = np.stack([np.ones(len(e)), inverse - 1, offered - e], axis=1) * shown[:, None]
    rest = np.stack([e, 1 / e - 1, e * (1 - e)], axis=1) * shown[:, None]
    columns = np.column_stack([residuals, rest, np.isnan(propensity)])
    totals = np.stack([np.bincount(group, column, _GROUPS) for column in columns.T], axis=1)
    place = person * _GROUPS + group
    sums = [np.bincount(place, column, people * _GROUPS).reshape(people, _GROUPS) for column in residuals.T]
    return totals, np.stack(sums, axis=2)


def drawn(totals: Totals, spread: OfPeople, people: int) -> list[Drawn]:
    """All rows, then each fifth of the score; empty where too many rows have no propensity, or all offers are certain.

    `spread` has each person's sums, or deviations of resamples whose squares add up to the variance of the totals.
    Standard errors are the larger of two: what drawing with the propensities gives, and what people vary by.
    """
    rows = totals[:, 0].sum()
    if not totals[:, 4].sum() or totals[:, 6].sum() > _MOST_UNKNOWN * (rows + totals[:, 6].sum()):
        return []
    names = [*(f"{fifth} of the score" for fifth in FIFTHS), "the rows without a score"]
    parts = [(names[i], totals[i], spread[:, i]) for i in range(_GROUPS) if totals[i, 0]]
    parts = [("all rows", totals.sum(axis=0), spread.sum(axis=1)), *(parts if len(parts) > 1 else [])]
    reach = -float(scipy.special.stdtrit(max(people - 1, 1), _CHANCE / (4 * len(parts))))
    found = []
    for where, (n, weight, offers, expected, of_weight, of_offers, _), units in parts:
        of_units = [units[:, i] - units[:, 0] * (total / n) for i, total in ((1, weight), (2, offers))]
        errors = [np.sqrt(max(by, float(of @ of))) for by, of in zip((of_weight, of_offers), of_units, strict=True)]
        means = (_estimate(1 + weight / n, errors[0] / n), _estimate(1 + offers / expected, errors[1] / expected))
        found.append(Drawn(where, *means, reach))
    return found


def doubt(found: list[Drawn], most_off: float = 0.0) -> str | None:
    """Why offers cannot have been drawn with the propensities; None where they can.

    A mean is doubted where its distance from 1 is beyond chance by more than `most_off`.
    """
    for of in found:
        for words, mean in (
            ("mean(A/e) of", of.weight),
            ("the offers made for each expected one, sum(A)/sum(e), of", of.offers),
        ):
            if abs(mean.value - 1) > most_off + of.reach * mean.standard_error:
                return (
                    f"propensity: found {words} {of.where} to be {mean.value:.3g} [{mean.low:.3g}, {mean.high:.3g}], "
                    "expected 1: offers were not drawn with these probabilities; log that of an offer on every row, as "
                    "the policy had it, not 1 / options and not that of what was done"
                )
    return None


def _estimate(value: float, error: float) -> Estimate:
    return Estimate(value, value - 1.96 * error, value + 1.96 * error, error)
