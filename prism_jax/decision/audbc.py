"""AUDBC, the area under benefit over burden, with its interval (docs/maths.md, section 9).

The curves are defined in `costs.curves`, the costs in `costs.cost_curves` and the paper's own areas in
`costs.paper_audbc`; users import all of them from this module. AUDBC measures how well the gate's scalar ranks steps
and does not depend on calibration; `expected_cost` does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Scalar, Vector
from prism_jax.decision.costs.cost_curves import (
    HIGH_RATIO,
    LOW_RATIO,
    CostLabels,
    ExpectedCost,
    expected_cost,
    mean_cost_unchecked,
)
from prism_jax.decision.costs.curves import (
    BurdenBenefitCurve,
    Events,
    burden_benefit_curve,
    offers_and_switches,
    rank,
    trace_events,
)
from prism_jax.decision.costs.paper_audbc import PaperAudbc, audbc_appendix_paper, audbc_main_paper
from prism_jax.decision.costs.sweep import (
    CriticalRatio,
    best_label,
    check_gold,
    check_signals,
    policy_signals,
    policy_signals_unchecked,
)
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.uncertainty.bootstrap import Cells, Method, interval
from prism_jax.decision.uncertainty.jackknife import SHARE

__all__ = [
    "HIGH_RATIO",
    "LOW_RATIO",
    "Audbc",
    "BurdenBenefitCurve",
    "CostLabels",
    "CriticalRatio",
    "Events",
    "ExpectedCost",
    "PaperAudbc",
    "audbc",
    "audbc_appendix_paper",
    "audbc_main_paper",
    "audbc_value",
    "best_label",
    "burden_benefit_curve",
    "check_signals",
    "expected_cost",
    "mean_cost_unchecked",
    "offers_and_switches",
    "policy_signals",
    "policy_signals_unchecked",
]


class Audbc(NamedTuple):
    """An area with its interval.

    Attributes:
      value: The area divided by the oracle's, pi - pi^2 / 2: 1 for a ranking with every positive step first. Where
        steps have several candidates, pi is the share of steps at which one is positive: the oracle picks the best.
      low: Lower end of the interval.
      high: Upper end.
      standard_error: Its standard error.
      chance: c = 1 / (2 - pi), the value of a random ranking; with several candidates, of one that offers those which
        the policy offers at the highest ratio.
      rescaled: (value - c) / (1 - c): 0 for a random ranking, 1 for the oracle's; NaN where all steps are positive.
    """

    value: float
    low: float
    high: float
    standard_error: float
    chance: float
    rescaled: float


def audbc_value(
    fast: Pass,
    y: Vector,
    *,
    slow: Pass | None = None,
    margin: Scalar = 0.0,
    weight: Vector | None = None,
    y_slow: Vector | None = None,
    y_best: Vector | None = None,
) -> Floats:
    """The `value` of `audbc` without its interval; may be traced. Arguments and errors are those of `audbc`.

    Labels without a positive raise ValueError; inside `jit` they give NaN.
    """
    signals = check_signals(fast, slow, margin)
    best = _best(signals, y, y_slow, y_best, weight)
    events = offers_and_switches(signals, margin, y, y_slow, best, weight)
    return trace_events(events).normalised_area(events.prevalence)


def audbc(
    fast: Pass,
    y: Vector,
    *,
    streams: Any | None,
    slow: Pass | None = None,
    margin: Scalar = 0.0,
    weight: Vector | None = None,
    y_slow: Vector | None = None,
    y_best: Vector | None = None,
    level: float = 0.95,
    method: Method | None = None,
    resamples: int = 1000,
    seed: int = 0,
    max_ranks: int | None = 4096,
) -> Audbc:
    """Area under benefit over burden, divided by the oracle's, with an interval.

    The cost ratio is swept through every value that the scores distinguish. Burden is the share of steps with an
    intervention, benefit the share with a gold-positive one. The area depends only on the order of the gate's scalar: a
    common monotone map of the scalar does not change it, and neither does repeating all data. Runs on the host.

    Args:
      fast: Probabilities of the fast pass, one of each signal for each step.
      y: Gold labels, 0 or 1, not all 0.
      streams: Stream of each step. Whole streams are the units, since the steps of one stream depend on each other.
        None, which must be given explicitly, treats steps as independent; the interval is too narrow if they are not.
      slow: Probabilities of the slow pass; needed with a margin.
      margin: Slow margin delta; above 0 the curve follows the policy with the slow pass at each ratio.
      weight: Importance of each step; None is 1.
      y_slow: Gold labels of the slow pass's candidates, which count where it runs; None is `y`.
      y_best: Largest gold label of each step's candidates, which the oracle offers; None: the larger of `y`, `y_slow`.
      level: Nominal coverage of the interval, in (0, 1).
      method: As in `uncertainty.interval`; None is its rule.
      resamples: Number of resamples.
      seed: Seed of the resamples.
      max_ranks: Largest number of ranks behind the interval. Neighbouring ranks are merged into groups of equal mass,
        and the area is shifted by the change that merging makes to the value on the data. The value stays exact, and
        the ends move by far less than the interval's width. None keeps every distinct score.

    Raises:
      ValueError: for a value outside its range, unequal lengths, empty input, a margin without slow signals, labels
        without a positive, `y_slow` at margin 0, or a `y_best` below another label of its step.
    """
    signals = check_signals(fast, slow, margin)
    signals = BothPasses(*(Pass(*map(np.asarray, of)) for of in signals))
    best = _best(signals, y, y_slow, y_best, weight)
    arrays.check_lengths(p_need=fast.need, streams=streams)
    gold, gold_slow, gold_best = (None if label is None else np.asarray(label) for label in (y, y_slow, best))
    mass = None if weight is None else arrays.host(weight)
    events = offers_and_switches(signals, margin, gold, gold_slow, gold_best, mass)
    order, last = rank(events.at)
    curve = trace_events(events, (order, last))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = _dense_ranks(last, max_ranks)
    cells = _cells(ranks, events, streams, weighted=mass is not None)
    pi = float(events.prevalence)
    value, chance = float(curve.normalised_area(pi)), float(curve.benefit[-1]) / (2 * pi - pi**2)
    shift = value - float(_area(cells.totals()))
    resampling: dict[str, Any] = {"level": level, "method": method, "resamples": resamples, "seed": seed}
    shifted = interval(cells, lambda counts: _area(counts) + shift, bounds=SHARE, **resampling)
    rescaled = (value - chance) / (1 - chance) if chance < 1 else np.nan
    return Audbc(value, float(shifted.low), float(shifted.high), float(shifted.standard_error), chance, float(rescaled))


def _best(signals: BothPasses, y: Any, y_slow: Any, y_best: Any, weight: Any) -> Any:
    """The label of each step's best candidate; checks the labels, of which one is positive."""
    check_gold(signals, y, weight, positive=False)
    best = best_label(y, y_slow, y_best)
    best = y if best is None else best
    check_gold(signals, best, weight, positive=True)
    return best


def _dense_ranks(last: Int[np.ndarray, " n"], max_ranks: int | None) -> Int[np.ndarray, " n"]:
    """Ranks 0, 1, ... in the order of intervention, from the last tied position of each position (see `rank`)."""
    n = len(last)
    if max_ranks is not None:
        if max_ranks < 1:
            raise ValueError(f"max_ranks: found {max_ranks}, expected at least 1, or None")
        if np.count_nonzero(last == np.arange(n)) > max_ranks:
            last = last * max_ranks // n
    return np.cumsum(np.diff(last, prepend=last[:1]) != 0)


def _cells(ranks: np.ndarray, events: Events, streams: Any | None, *, weighted: bool) -> Cells:
    """Units over the cells (rank, burden or benefit), with the latter varying fastest, and the oracle's benefit."""
    steps, number = len(events.best), 2 * (int(ranks.max()) + 1)
    columns = [values.reshape(-1, steps) for values in (ranks, events.mass, events.gold, events.best)]
    unit = np.arange(steps) if streams is None else arrays.in_order(streams)[1]
    multiplicity = np.ones(int(unit.max()) + 1, np.int64)
    if streams is None and not weighted:  # equal steps are units of one type
        kinds, multiplicity = np.unique(np.concatenate(columns).astype(np.int64), axis=1, return_counts=True)
        columns, unit = np.split(kinds, np.cumsum([len(c) for c in columns])[:-1]), np.arange(len(multiplicity))
    rank, mass, gold, best = (values.reshape(-1) for values in columns)
    cell = np.concatenate([2 * rank, 2 * rank + 1, np.full(len(best), number)])
    content = np.concatenate([mass, gold, best]).astype(np.float64)
    place = np.tile(unit, len(cell) // len(unit)), cell
    return Cells(scipy.sparse.csr_array((content, place), shape=(len(multiplicity), number + 1)), multiplicity)


def _area(changes: Float[np.ndarray, "*resamples cells"]) -> Float[np.ndarray, "*resamples"]:
    """The normalised area of changes over (rank, burden or benefit) and the oracle's benefit; NaN where that is 0."""
    changes, positives = changes[..., :-1], changes[..., -1]
    offers, gold = changes[..., 0::2], changes[..., 1::2]
    benefit = np.cumsum(gold, axis=-1)
    area = (offers * (benefit - gold / 2)).sum(axis=-1)
    total = offers.sum(axis=-1)
    oracle = positives * total - positives**2 / 2
    return np.asarray(np.where(positives == 0, np.nan, area / np.where(positives == 0, 1.0, oracle)))
