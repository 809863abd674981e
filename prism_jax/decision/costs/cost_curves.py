"""Realised cost over cost ratios: the summary that depends on calibration (docs/maths.md, section 9).

Costs are normalised to C_FA + C_FN = 1, so that different ratios can be compared: at ratio r an offer that is not
accepted costs 1 / (1 + r), and a miss costs r / (1 + r). The oracle is the gate on the labels themselves: with hard
labels its cost is 0, and with true probabilities as labels it is the Bayes policy. (Cost curves: Drummond and Holte
2006. Their mean: the Brier curves of Hernandez-Orallo, Flach and Ferri 2011.)
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Floats, Scalar, Vector
from prism_jax.decision.costs.sweep import (
    best_label,
    check_rows,
    check_signals,
    check_slow_labels,
    critical_ratio,
    slow_ratios,
)
from prism_jax.decision.passes import BothPasses, Pass

LOW_RATIO, HIGH_RATIO = 0.5, 4.0
"""The default range of cost ratios."""


class ExpectedCost(NamedTuple):
    """Costs per step, averaged over log-uniform cost ratios.

    Attributes:
      cost: Cost of the policy.
      always: Cost of always intervening.
      never: Cost of always staying silent.
      oracle: Cost of deciding on the labels.
      rescaled: The share of the gap from the better constant policy (0) to the oracle (1) that the policy closes. It is
        negative if the policy costs more than that constant, and NaN if that constant costs as little as the oracle.
    """

    cost: Floats
    always: Floats
    never: Floats
    oracle: Floats
    rescaled: Floats


def expected_cost(
    fast: Pass,
    y_need: Vector,
    y_accept: Vector,
    *,
    low: Scalar = LOW_RATIO,
    high: Scalar = HIGH_RATIO,
    y_both: Vector | None = None,
    slow: Pass | None = None,
    margin: Scalar = 0.0,
    weight: Vector | None = None,
    y_accept_slow: Vector | None = None,
    y_accept_best: Vector | None = None,
) -> ExpectedCost:
    """Mean of the realised cost over log-uniform cost ratios in [low, high], in closed form.

    Below its critical ratio a step pays for a miss, and above it for a refused offer. Over log r the integral of
    r / (1 + r) is log(1 + r) and that of 1 / (1 + r) is -log(1 + 1 / r), so no grid is needed.

    Args:
      fast: Probabilities of the fast pass, one of each signal for each step.
      y_need: Need labels in [0, 1]; soft ones are probabilities.
      y_accept: Acceptance labels in [0, 1].
      low: Smallest cost ratio, above 0.
      high: Largest cost ratio, above `low`.
      y_both: Labels of need AND acceptance, where they are not the product; at most `y_accept`.
      slow: Probabilities of the slow pass; needed with a margin.
      margin: Slow margin delta; above 0 the slow pass takes part.
      weight: Importance of each step; None is 1.
      y_accept_slow: Acceptance labels of the candidates that the slow pass picks, where these may differ; they count
        where the slow pass runs. None is `y_accept`. The constants decide about the candidates of `y_accept`.
      y_accept_best: Largest acceptance label of each step's candidates: with it silence counts whichever pass decides,
        and the oracle chooses that candidate. None is the larger of `y_accept` and `y_accept_slow`.

    Raises:
      ValueError: for a value outside its range, unequal lengths, empty input, a margin without slow signals, or
        `y_accept_slow` at margin 0, `y_accept_slow` or `y_accept_best` with `y_both`, or a `y_accept_best` below
        another acceptance label of its step.
    """
    if not 0 < low < high < np.inf:
        raise ValueError(f"low, high: found {low} and {high}, expected 0 < low < high, both finite")
    signals = check_signals(fast, slow, margin)
    labels = _labels(signals, y_need, y_accept, y_both, weight)
    of_slow = _slow_labels(signals, margin, y_need, y_accept_slow, y_both, weight)
    best = _best_labels(signals, y_need, y_accept, y_accept_slow, y_accept_best, y_both, weight) or labels
    xp = labels.xp
    cost = mean_cost_unchecked(signals, margin, labels, of_slow, best, low, high)
    always, never = (_mean_cost(xp.asarray(end), labels, best, low, high) for end in (low, high))
    oracle = _mean_cost(gate.critical_ratio(*best.as_signals), best, best, low, high)
    constant = xp.minimum(always, never)
    gap = constant - oracle
    closed = gap <= 0
    rescaled = xp.where(closed, xp.nan, (constant - cost) / xp.where(closed, 1.0, gap))[()]
    return ExpectedCost(cost, always, never, oracle, rescaled)


class CostLabels(NamedTuple):
    """The weighted cost of each step under either decision: `refused` if intervening, r * `wanted` if silent."""

    xp: Any
    refused: Any
    wanted: Any
    total: Any
    as_signals: Pass

    @classmethod
    def of(cls, need: Any, accept: Any, weight: Any) -> CostLabels:
        """Of checked float64 labels and weights of NumPy."""
        return cls(np, weight * (1 - accept), weight * (need * accept), weight.sum(), Pass(need, accept))


def mean_cost_unchecked(
    signals: BothPasses,
    margin: Scalar,
    labels: CostLabels,
    of_slow: CostLabels | None,
    best: CostLabels,
    low: Scalar,
    high: Scalar,
) -> Any:
    """The `cost` of `expected_cost` without checks, by the labels of the two passes' candidates and of the best."""
    critical = critical_ratio(signals, margin).ratio
    if of_slow is None:
        return _mean_cost(critical, labels, best, low, high)
    # The slow pass's candidate is offered up to `stop`, the fast pass's from there on.
    (missed, offered), (_, offered_fast) = (
        _integrals(labels.xp, ratio, low, high) for ratio in (critical, slow_ratios(signals, margin)[1])
    )
    offers = of_slow.refused * (offered - offered_fast) + labels.refused * offered_fast
    return (best.wanted * missed + offers).sum() / (labels.total * np.log(high / low))


def _mean_cost(ratio: Any, offer: CostLabels, best: CostLabels, low: Scalar, high: Scalar) -> Any:
    """Mean cost of a policy whose steps intervene from these ratios."""
    missed, offered = _integrals(offer.xp, ratio, low, high)
    costs = best.wanted * missed + offer.refused * offered
    return costs.sum() / (offer.total * np.log(high / low))


def _integrals(xp: Any, ratio: Any, low: Scalar, high: Scalar) -> tuple[Any, Any]:
    """Integrals over log r within the range: of r / (1 + r) up to these ratios, and of 1 / (1 + r) from them on."""
    inside = xp.clip(ratio, low, high)
    return xp.log1p(inside) - np.log1p(low), xp.log1p(1 / inside) - np.log1p(1 / high)


def _slow_labels(
    signals: BothPasses, margin: Scalar, y_need: Any, y_accept_slow: Any, y_both: Any, weight: Any
) -> CostLabels | None:
    """The costs of the slow pass's candidates; None where they are the fast pass's."""
    if y_accept_slow is None:
        return None
    check_slow_labels(margin, y_accept_slow=y_accept_slow)
    if y_both is not None:
        raise ValueError("y_accept_slow: found it with y_both, expected one of them")
    check_rows(signals, y_accept_slow=y_accept_slow)
    arrays.check_label("y_accept_slow", y_accept_slow)
    return _labels(signals, y_need, y_accept_slow, None, weight)


def _best_labels(
    signals: BothPasses, y_need: Any, y_accept: Any, y_accept_slow: Any, y_accept_best: Any, y_both: Any, weight: Any
) -> CostLabels | None:
    """The costs of each step's best candidate; None where steps have one candidate."""
    best = best_label(y_accept, y_accept_slow, y_accept_best, "y_accept")
    if best is not None and y_both is not None:
        raise ValueError("y_accept_best: found it with y_both, expected one of them")
    return None if best is None else _labels(signals, y_need, best, None, weight)


def _labels(signals: BothPasses, y_need: Any, y_accept: Any, y_both: Any, weight: Any) -> CostLabels:
    """Checked labels as costs, and as the (need, accept) signals on which the gate acts as the oracle."""
    y_need, y_accept, y_both, weight = (arrays.as_array(value) for value in (y_need, y_accept, y_both, weight))
    check_rows(signals, y_need=y_need, y_accept=y_accept, y_both=y_both, weight=weight)
    for name, value in (("y_need", y_need), ("y_accept", y_accept), ("y_both", y_both)):
        if value is not None:
            arrays.check_label(name, value)
    arrays.check_weight("weight", weight)
    vectors = [value for value in (y_need, y_accept, y_both, weight) if value is not None]
    xp = arrays.namespace(*signals.arrays, *vectors)
    floating = np.float64 if xp is np else sys.modules["jax"].dtypes.canonicalize_dtype(signals.fast.need.dtype)
    whole = all(not np.issubdtype(value.dtype, np.floating) for value in vectors)
    dtype = int if whole else floating  # sums of hard labels stay exact where JAX uses float32
    need, accept = xp.asarray(y_need, dtype), xp.asarray(y_accept, dtype)
    wanted = need * accept
    if y_both is not None:
        wanted = xp.asarray(y_both, dtype)
        if not arrays.is_traced(wanted, accept) and (wanted > accept).any():
            index = int((wanted > accept).argmax())
            raise ValueError(
                f"y_both: found {wanted[index]} at index {index}, above y_accept = {accept[index]}; expected a "
                f"probability of need AND acceptance"
            )
        need = xp.where(accept > 0, wanted / xp.where(accept > 0, accept, 1), 0)
    mass = xp.ones_like(accept) if weight is None else xp.asarray(weight, dtype)
    as_signals = Pass(need.astype(floating), accept.astype(floating))
    return CostLabels(xp, mass * (1 - accept), mass * wanted, mass.sum(), as_signals)
