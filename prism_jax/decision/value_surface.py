"""The control surface of the value of thinking: decisions at every cost ratio and every price of a slow token.

It is to `thinking.decide_by_value` what `surface.control_surface` is to `gate.decide_with_slow`. At one cost ratio a
step's VOI is one number, and the slow pass runs at the prices with price * tokens <= VOI: one histogram of positions
among the sorted prices gives the counts at every price, O(steps + prices) per cost ratio in O(steps) of memory. Over
cost ratios no such threshold exists: VOI may rise and fall with the ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Array, Reals, Scalar, Vector
from prism_jax.decision.costs.sweep import best_label
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.surface import Surface
from prism_jax.decision.thinking import Moves, value_of_thinking

__all__ = ["prices_reached", "value_surface"]


def value_surface(
    fast: Pass,
    slow: Pass,
    y: Vector,
    moves: Moves,
    tokens: Reals,
    cost_ratios: Sequence[Scalar] | Array,
    prices: Sequence[Scalar] | Array,
    *,
    slow_tokens: Vector | None = None,
    y_need: Vector | None = None,
    y_accept: Vector | None = None,
    y_slow: Vector | None = None,
    y_accept_slow: Vector | None = None,
    y_best: Vector | None = None,
    groups: Vector | None = None,
    num_groups: int | None = None,
) -> Surface:
    """Counts, slow passes and tokens of `thinking.decide_by_value` at every price and cost ratio, with C_FA = 1.

    Each cell equals `decide_by_value` at that cell exactly, in float64. Runs on the host, on concrete arrays:
    O((steps + groups * prices) * costs) time.

    Args:
      fast: Probabilities of the fast pass, one of each signal for each step.
      slow: Probabilities of the slow pass, known at every step.
      y: Gold labels y_need AND y_accept, 0 or 1.
      moves: Moves of the log-odds, numbers or one for each step.
      tokens: Expected tokens of a slow pass, above 0, by which the trigger decides; one number, or one for each step.
      cost_ratios: Cost ratios r >= 0, in any order.
      prices: Prices of one slow token >= 0, in units of C_FA, in any order. 0 thinks at every step.
      slow_tokens: Tokens that each step's slow pass spends, integers of at least 0; only counted.
      y_need: Need labels, 0 or 1; with `y_accept` they give the counts behind `Surface.realised_cost`.
      y_accept: Acceptance labels, 0 or 1.
      y_slow: Gold labels of the slow pass's candidates, which offers count with where it runs; None is `y`.
      y_accept_slow: Their acceptance labels; needed with `y_accept` and `y_slow`.
      y_best: Largest gold label of each step's candidates, for silence; None is the larger of `y` and `y_slow`.
      groups: Group of each step, integers from 0; every count gets a leading axis.
      num_groups: Number of groups; the largest group plus 1 by default.

    Raises:
      ValueError: for a value outside its range, NaN, unequal lengths, empty input, one of two labels without the other,
        or a `y_best` below another gold label of its step.
    """
    signals = BothPasses(fast, slow).named()
    labels = {"y": y, "y_need": y_need, "y_accept": y_accept, "y_slow": y_slow, "y_accept_slow": y_accept_slow}
    labels |= {"y_best": y_best}
    _check(signals, labels, slow_tokens)
    arrays.check_lengths(p_need_fast=fast.need, groups=groups, tokens=tokens if np.ndim(tokens) else None)
    arrays.check_range("tokens", tokens, 0.0, np.inf, "a finite number of tokens above 0", open_low=True)
    need, accept, need_slow, accept_slow = map(arrays.host, signals.values())
    ratios, kappas = _axis("cost_ratios", cost_ratios), _axis("prices", prices)
    order = np.argsort(kappas, kind="stable")
    group, number = (np.zeros(len(need), np.int64), 1) if groups is None else arrays.numbered(groups, num_groups)
    picked = (y, y_accept) if y_slow is None else (y_slow, y_accept_slow)
    best = best_label(y, y_slow, y_best)
    spent = {} if slow_tokens is None else {"slow_tokens": np.asarray(slow_tokens)}
    columns = []
    for ratio in map(float, ratios):
        value = np.asarray(value_of_thinking(need, accept, 1.0, ratio, moves))
        reach = prices_reached(value, tokens, kappas[order])
        without = _classes(np.asarray(gate.decide(need, accept, 1.0, ratio)), y, y_need, y_accept, best)
        offer = np.asarray(gate.decide(need_slow, accept_slow, 1.0, ratio))
        thinking = _classes(offer, picked[0], y_need, picked[1], best)
        thinking |= {"slow": np.ones(len(need), np.int64)} | spent
        columns.append(
            {
                name: _by_price(reach, without.get(name, np.zeros_like(of)), of, len(kappas), group, number)
                for name, of in thinking.items()
            }
        )
    counted: dict[str, Any] = dict.fromkeys(("slow_tokens", "rejected", "missed"))
    for name in columns[0]:
        counts = np.stack([column[name] for column in columns], axis=-1)[:, np.argsort(order)]
        counted[name] = counts[0] if groups is None else counts
    steps = len(need) if groups is None else np.bincount(group, minlength=number)
    return Surface(ratios, kappas, steps, **counted)


def prices_reached(
    value: Float[np.ndarray, " n"], tokens: Reals, prices: Float[np.ndarray, " prices"]
) -> Int[np.ndarray, " n"]:
    """At how many of the prices, from the lowest, `thinking.decide_by_value` runs the slow pass at each step.

    Args:
      value: VOI of each step, in the unit of the prices.
      tokens: Expected tokens of a slow pass, one number or one for each step.
      prices: Prices of one slow token in ascending order.
    """
    expected = np.broadcast_to(arrays.host(tokens), value.shape)
    reach = np.empty(len(value), np.int64)
    for number in np.unique(expected):
        rows = expected == number
        reach[rows] = np.searchsorted(prices * number, value[rows], side="right")
    return reach


def _check(signals: dict[str, Any], labels: dict[str, Any], slow_tokens: Any) -> None:
    arrays.check_lengths(**signals, **labels, slow_tokens=slow_tokens)
    for name, p in signals.items():
        arrays.check_probability(name, p)
    if (labels["y_need"] is None) != (labels["y_accept"] is None):
        raise ValueError("y_need, y_accept: found one of them, expected both or neither")
    if (labels["y_slow"] is None) != (labels["y_accept_slow"] is None) and labels["y_accept"] is not None:
        raise ValueError("y_slow, y_accept_slow: found one of them beside y_accept, expected both or neither")
    for name, label in labels.items():
        if label is not None:
            arrays.check_hard(name, label)
    if slow_tokens is not None:
        arrays.check_range("slow_tokens", slow_tokens, 0.0, np.inf, "an integer of at least 0")
        if not np.issubdtype(np.asarray(slow_tokens).dtype, np.integer):
            raise ValueError(f"slow_tokens: found dtype {np.asarray(slow_tokens).dtype}, expected integers")


def _axis(name: str, values: Sequence[Scalar] | Array) -> Float[np.ndarray, " K"]:
    axis = np.atleast_1d(arrays.host(values))
    if axis.ndim != 1:
        raise ValueError(f"{name}: found the shape {axis.shape}, expected a vector")
    arrays.check_range(name, axis, 0.0, np.inf, "a finite number of at least 0")
    return axis


def _classes(
    offer: Bool[np.ndarray, " n"], y: Vector, y_need: Vector | None, y_accept: Vector | None, best: Vector | None
) -> dict[str, Int[np.ndarray, " n"]]:
    """For each count, 1 at the steps that it counts."""
    gold = np.asarray(y) != 0
    misses = gold if best is None else np.asarray(best) != 0
    counted = {"tp": offer & gold, "fp": offer & ~gold, "fn": ~offer & misses, "tn": ~offer & ~misses}
    if y_need is not None and y_accept is not None:
        need, accept = np.asarray(y_need) != 0, np.asarray(y_accept) != 0
        counted |= {"rejected": offer & ~accept, "missed": ~offer & (need & accept if best is None else misses)}
    return {name: member.astype(np.int64) for name, member in counted.items()}


def _by_price(
    reach: Int[np.ndarray, " n"],
    fast: Int[np.ndarray, " n"],
    slow: Int[np.ndarray, " n"],
    prices: int,
    group: Int[np.ndarray, " n"],
    groups: int,
) -> Int[np.ndarray, "groups prices"]:
    """Sums at each sorted price: of `slow` over the steps whose `reach` exceeds its position, of `fast` elsewhere."""
    bins = groups * (prices + 1)
    moved = np.bincount(
        group * (prices + 1) + reach, slow.astype(np.float64) - fast, minlength=bins
    )  # exact below 2^53
    beyond = np.cumsum(moved.reshape(groups, -1)[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.bincount(group, fast, minlength=groups).astype(np.int64)[:, None] + beyond.astype(np.int64)
