"""Intervals of agreement, and of two systems' official rates (docs/maths.md, sections 8 and 10).

They are functions of counts of joint cells, so that leaving out or resampling a stream takes a few numbers. Where one
label is rare, raw agreement is high for any judge. Kappa and Matthews' coefficient are 0 for a constant or random one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from prism_jax.decision import arrays, metrics
from prism_jax.decision.arrays import Vector
from prism_jax.decision.uncertainty.bootstrap import UNDEFINED, Cells, Estimate, Method, count_cells, interval
from prism_jax.decision.uncertainty.jackknife import Bounds
from prism_jax.decision.uncertainty.rates import HEADLINE, rates_between, rates_of

PAIR_MEASURES = ("agreement", "kappa", "matthews", "base_rate", "judge_rate")
PANEL_MEASURES = ("agreement", "fleiss", "alpha")
_PAIR_BOUNDS = Bounds(np.array([0.0, -1.0, -1.0, 0.0, 0.0]), np.ones(5))
_PANEL_BOUNDS = Bounds(np.array([0.0, -1.0, -1.0]), np.ones(3))


def agreement_intervals(
    judge: Vector,
    reference: Vector,
    *,
    streams: Any | None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Agreement of a binary judge with a binary reference, with intervals.

    Args:
      judge: The judge's labels, 0 or 1.
      reference: The reference's labels of the same items.
      streams: Stream of each item; streams are the units. None treats items as independent.
      level: Nominal coverage, in (0, 1).
      resamples: Number of resamples.
      seed: Seed of the resamples.

    Returns:
      Raw agreement, Cohen's kappa, Matthews' coefficient, and the share of 1 of the reference and of the judge, by the
      names of `PAIR_MEASURES`. A measure that is undefined on the data is NaN.

    Raises:
      ValueError: as `uncertainty.interval`, and for unequal lengths or labels other than 0 and 1.
    """
    arrays.check_lengths(judge=judge, reference=reference, streams=streams)
    arrays.check_decision(judge=judge, reference=reference)
    code = 2 * np.asarray(reference).astype(np.intp) + np.asarray(judge).astype(np.intp)
    cells = count_cells(code, 4, streams)
    return _defined(cells, _pair_measures, PAIR_MEASURES, _PAIR_BOUNDS, level=level, resamples=resamples, seed=seed)


def _pair_measures(counts: Num[np.ndarray, "*r 4"]) -> Float[np.ndarray, "*r 5"]:
    """The measures of `PAIR_MEASURES`, from counts in the order tn, fp, fn, tp."""
    tn, fp, fn, tp = np.moveaxis(counts.astype(np.float64), -1, 0)
    rates = metrics.rates(metrics.Confusion(tp, fp, fn, tn))
    return np.stack(
        [
            rates.accuracy,
            _kappa(counts.reshape(*counts.shape[:-1], 2, 2)),
            rates.matthews,
            rates.prevalence,
            rates.speak_rate,
        ],
        axis=-1,
    )


def _kappa(table: Num[np.ndarray, "*tables labels labels"]) -> Float[np.ndarray, "*tables"]:
    """Cohen's kappa (1960), (observed - chance) / (1 - chance), of counts of each pair of labels.

    Chance comes from each judge's own label frequencies. NaN where both judges give one and the same label to every
    item. Whole counts stay exact up to the division, so that only the division rounds.
    """
    counts = table.astype(np.float64)
    items, agreed = counts.sum((-2, -1)), np.trace(counts, axis1=-2, axis2=-1)
    chance = (counts.sum(-2) * counts.sum(-1)).sum(-1)
    possible = items**2 - chance
    return np.where(possible == 0, np.nan, (items * agreed - chance) / np.where(possible == 0, 1.0, possible))


def panel_intervals(
    votes: Int[np.ndarray, "_n categories"],
    *,
    streams: Any | None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Agreement among the judges of a panel, with intervals.

    `votes` holds the number of judges that put each item in each category; items with fewer than 2 votes are left out.
    Other arguments are those of `agreement_intervals`.

    Returns:
      By the names of `PANEL_MEASURES`: the share of pairs of votes on one item that agree, averaged over items; Fleiss'
      kappa (1971) of the items with the largest number of votes; Krippendorff's alpha for nominal labels (Krippendorff
      2011, Computing Krippendorff's Alpha-Reliability). An undefined one is NaN.

    Raises:
      ValueError: as `uncertainty.interval`, and if no item has 2 votes.
    """
    paired = votes.sum(axis=1) >= 2
    if not paired.any():
        raise ValueError("votes: found no item with 2 votes, expected some")
    kinds, kind = np.unique(votes[paired], axis=0, return_inverse=True)
    cells = count_cells(kind.reshape(-1), len(kinds), None if streams is None else np.asarray(streams)[paired])
    table = kinds.astype(np.float64)

    def statistic(counts: Num[np.ndarray, "*r kinds"]) -> Float[np.ndarray, "*r 3"]:
        return _panel_measures(counts.astype(np.float64), table)

    return _defined(cells, statistic, PANEL_MEASURES, _PANEL_BOUNDS, level=level, resamples=resamples, seed=seed)


def _panel_measures(counts: Any, kinds: np.ndarray) -> np.ndarray:
    """The measures of `PANEL_MEASURES`, from the number of items of each kind; `kinds` holds the votes of each."""
    judges = kinds.sum(-1)
    agreeing = (kinds * (kinds - 1)).sum(-1) / (judges * (judges - 1))
    full = judges == judges.max()
    items = counts[..., full].sum(-1)
    share = _ratio(counts[..., full] @ kinds[full], (items * judges.max())[..., None])
    chance = (share**2).sum(-1)
    fleiss = _ratio(_ratio(counts[..., full] @ agreeing[full], items) - chance, 1 - chance)
    totals = counts @ kinds
    n = totals.sum(-1)
    observed = counts @ ((judges**2 - (kinds**2).sum(-1)) / (judges - 1)) / n
    expected = _ratio(n**2 - (totals**2).sum(-1), n * (n - 1))
    return np.stack([_ratio(counts @ agreeing, counts.sum(-1)), fleiss, 1 - _ratio(observed, expected)], axis=-1)


class PairedRate(NamedTuple):
    """A rate of two systems on the same steps, and the second's minus the first's."""

    first: Estimate
    second: Estimate
    difference: Estimate


def paired_official_rates(
    first_proposed: Vector,
    first_accepted: Vector,
    second_proposed: Vector,
    second_accepted: Vector,
    *,
    streams: Any | None,
    names: Sequence[str] = HEADLINE,
    level: float = 0.95,
    method: Method | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, PairedRate]:
    """ProactiveBench's own rates of two systems, and their differences, with paired intervals.

    Each system is judged on its own proposals, so the two may have different verdicts at one step. A step comes
    with the verdicts on both, so the variation that the systems share cancels in the difference.

    For each system, `proposed` says whether it proposed something at each step, and `accepted` whether the judge
    accepted that, silence included. Other arguments are those of `uncertainty.rate_intervals`.

    Raises:
      ValueError: as `uncertainty.interval`, and for unequal lengths, values other than 0 and 1, or an unknown name.
    """
    columns = (first_proposed, first_accepted, second_proposed, second_accepted)
    labels = ("first_proposed", "first_accepted", "second_proposed", "second_accepted")
    arrays.check_lengths(**dict(zip(labels, columns, strict=True)), streams=streams)
    arrays.check_decision(**dict(zip(labels, columns, strict=True)))
    first_offer, first_right, second_offer, second_right = (np.asarray(values).astype(np.intp) for values in columns)
    cells = count_cells(8 * first_offer + 4 * first_right + 2 * second_offer + second_right, 16, streams)

    def statistic(counts: Num[np.ndarray, "*r 16"]) -> Float[np.ndarray, "*r k"]:
        square = counts.reshape(*counts.shape[:-1], 4, 4)
        # From silence rejected and accepted, a proposal rejected and accepted to tn, fp, fn and tp.
        first, second = (rates_of(square.sum(axis)[..., [1, 2, 0, 3]], names, "official") for axis in (-1, -2))
        return np.concatenate([first, second, second - first], axis=-1)

    low, high = rates_between(names)
    free = np.full(len(names), np.inf)
    bounds = Bounds(np.concatenate([low, low, -free]), np.concatenate([high, high, free]))
    intervals = interval(cells, statistic, bounds=bounds, level=level, method=method, resamples=resamples, seed=seed)
    parts = [Estimate(*(field[index] for field in intervals)) for index in range(3 * len(names))]
    return {name: PairedRate(*parts[index :: len(names)]) for index, name in enumerate(names)}


def _ratio(part: Any, whole: Any) -> Any:
    """Part / whole, NaN where `whole` is 0, or as near as rounding brings a chance agreement of 1."""
    empty = np.abs(whole) < 1e-12
    return np.where(empty, np.nan, part / np.where(empty, 1.0, whole))


def _defined(
    cells: Cells,
    statistic: Callable[[np.ndarray], np.ndarray],
    names: Sequence[str],
    bounds: Bounds,
    **settings: Any,
) -> dict[str, Estimate]:
    """Intervals by name; those of measures that are undefined on the data are NaN."""
    defined = ~np.isnan(statistic(cells.totals()))
    between = Bounds(*(bound[defined] for bound in bounds))
    intervals = interval(cells, lambda counts: statistic(counts)[..., defined], bounds=between, **settings)
    place = np.cumsum(defined) - 1
    return {
        name: Estimate(*(field[place[index]] for field in intervals)) if defined[index] else UNDEFINED
        for index, name in enumerate(names)
    }
