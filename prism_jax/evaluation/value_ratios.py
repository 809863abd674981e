"""The policy `slow_on_value` across cost ratios: AUDBC and mean cost of its own decisions at each ratio.

Which steps it thinks about at one ratio says nothing about another, so a step has no critical ratio. The policy decides
every step at each ratio of a grid instead, with C_FA = 1 (docs/maths.md, section 12): O(steps) for each of at most
2 * `RATIOS` ratios, in O(steps + streams * RATIOS) of memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Shaped

from prism_jax.decision import gate
from prism_jax.decision.audbc import HIGH_RATIO, LOW_RATIO, Audbc, ExpectedCost, expected_cost
from prism_jax.decision.thinking import Moves, decide_by_value
from prism_jax.decision.uncertainty import SHARE, Cells, interval
from prism_jax.evaluation.intervals import LEVEL, RESAMPLES, SEED

RATIOS = 128
"""Largest number of cost ratios behind the area, and number of those behind the mean cost."""

Steps = Float64[np.ndarray, "judged"]


class ByValue(NamedTuple):
    """The policy on the judged steps."""

    policy: str
    # probabilities: need and acceptance of the fast pass, need and acceptance of the slow pass
    signals: tuple[Steps, Steps, Steps, Steps]
    need: Steps  # need labels
    accept: Steps  # acceptance labels of the fast pass's candidates
    thought: Steps  # those of the slow pass's candidates
    best: Steps  # those of each step's best candidates, with which silence counts
    moves: Moves  # moves of the log-odds, one for each step
    tokens: Steps  # expected tokens of a slow pass
    price: float  # price of a slow token in units of C_FA

    def decide(self, ratio: float) -> tuple[Bool[np.ndarray, "judged"], Steps]:
        """The offers at one cost ratio, and the acceptance labels of the candidates decided about."""
        offer, slow = decide_by_value(*self.signals, 1.0, ratio, self.moves, self.price, self.tokens)
        return np.asarray(offer), np.where(slow, self.thought, self.accept)

    def area_and_cost(
        self, weight: Steps, streams: Shaped[np.ndarray, "judged"] | None
    ) -> tuple[Audbc | None, ExpectedCost]:
        """Its AUDBC, None without streams, and its mean cost over ratios."""
        return None if streams is None else self._area(weight, streams), self._mean_cost(weight)

    def _mean_cost(self, weight: Steps) -> ExpectedCost:
        """Mean cost over log-uniform ratios, at the middle of equal intervals; the constants are those of all rows."""
        middle = (np.arange(RATIOS) + 0.5) / RATIOS
        total = 0.0
        for ratio in map(float, LOW_RATIO * (HIGH_RATIO / LOW_RATIO) ** middle):
            offer, accept = self.decide(ratio)
            costs = np.where(offer, 1 - accept, ratio * self.need * self.best) / (1 + ratio)
            total += float(np.average(costs, weights=weight)) / RATIOS
        labels = (self.need, self.accept, self.need, self.accept)
        reference = expected_cost(*labels, low=LOW_RATIO, high=HIGH_RATIO, weight=weight, y_accept_best=self.best)
        constant = min(float(reference.always), float(reference.never))
        gap = constant - float(reference.oracle)
        return reference._replace(cost=total, rescaled=(constant - total) / gap if gap > 0 else np.nan)

    def _area(self, weight: Steps, streams: Shaped[np.ndarray, "judged"]) -> Audbc:
        """Trapezoids between the points of burden and benefit, in the order of the ratios."""
        names, stream = np.unique(streams, return_inverse=True)

        def by_stream(values: Steps) -> Float64[np.ndarray, "streams"]:
            return np.bincount(stream, weight * values, minlength=len(names))

        burdens, benefits = [], []
        for ratio in self._turning_ratios():
            offer, accept = self.decide(ratio)
            gold = self.need * accept
            burdens.append(by_stream(offer * 1.0))
            benefits.append(by_stream(offer * gold))
        everywhere = by_stream(np.ones(len(weight)))
        burdens.append(everywhere)
        benefits.append(by_stream(gold))  # the curve ends with an offer at every step
        best = self.need * self.best
        units = np.stack([*burdens, *benefits, by_stream(best)], axis=1)
        cells = Cells(units, np.ones(len(names), np.int64))
        area = interval(cells, _area_of, bounds=SHARE, level=LEVEL, resamples=RESAMPLES, seed=SEED)
        end, most = (float(sums.sum() / everywhere.sum()) for sums in (benefits[-1], units[:, -1]))
        chance = end / (2 * most - most**2)
        rescaled = (area.estimate - chance) / (1 - chance) if chance < 1 else np.nan
        numbers = (area.estimate, area.low, area.high, area.standard_error, chance, rescaled)
        return Audbc(*map(float, numbers))

    def _turning_ratios(self) -> list[float]:
        """Ratios among which most decisions turn: quantiles of the critical ratios of both passes."""
        need, accept, need_slow, accept_slow = self.signals
        critical = np.concatenate([gate.critical_ratio(need, accept), gate.critical_ratio(need_slow, accept_slow)])
        finite = critical[np.isfinite(critical) & (critical < _LARGEST)]
        if len(finite) == 0:
            return [1.0]
        return [float(ratio) for ratio in np.unique(np.quantile(finite, np.linspace(0, 1, RATIOS)))]


_LARGEST = 1e15
"""Cost ratios above this one are left out: costs of 1 and more are then far from the limits of a float."""


def _area_of(totals: Float64[np.ndarray, "*resamples cells"]) -> Float64[np.ndarray, "*resamples"]:
    """The normalised area of sums of burden and benefit at each ratio, and of the best ranking's benefit."""
    points = (totals.shape[-1] - 1) // 2
    mass, best = totals[..., points - 1, None], totals[..., -1]
    burden, benefit = totals[..., :points] / mass, totals[..., points:-1] / mass
    start = np.zeros((*burden.shape[:-1], 1))
    area = np.trapezoid(np.concatenate([start, benefit], -1), np.concatenate([start, burden], -1), axis=-1)
    most = best / mass[..., 0]
    oracle = most - most**2 / 2
    return np.asarray(np.where(oracle == 0, np.nan, area / np.where(oracle == 0, 1.0, oracle)))
