"""Losses of streams or people under an ordered family of rules, all rules in one pass (docs/maths.md, section 14).

The rules are numbered from the most silent to the most talkative, and each offers wherever the one before it does. So
one number describes a step, the first rule that offers at it; with a slow margin, two more say at which rules the slow
pass decides. The family must be fixed beforehand or on other units than those that certify it.

Axes: n steps, U units (streams or people), G rules.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int64, Real, Shaped

from prism_jax.decision import arrays, gate
from prism_jax.decision.costs.sweep import best_label
from prism_jax.decision.passes import Pass

MOST_RULES = 1_000
"""Bound of the number of rules, and so of the memory: 8 bytes per unit and rule."""


@dataclasses.dataclass(frozen=True)
class Risk:
    """What a step contributes to the loss of its unit, which is the mean over the unit's steps."""

    meaning: str  # the loss of a unit in words
    # whether the loss never falls as rules become more talkative (True), never rises (False), or either (None)
    grows: bool | None
    # what an offer or silence is judged by: `gold`, need and acceptance together, or `accept` alone
    label: Literal["gold", "accept"] = "gold"


RISKS: dict[str, Risk] = {
    "false_alarms": Risk("offers that are not gold, per step", grows=True),
    "burden": Risk("offers per step", grows=True),
    "missed_help": Risk("silence where some offer would be gold, per step", grows=False),
    "false_discovery": Risk("share of offers that are not gold, both counted per step", grows=None),
    "dismissals": Risk("share of offers that are not accepted, both counted per step", grows=None, label="accept"),
}
"""The risks that can be promised. An offer is gold where help is needed and the offer would be accepted."""


@dataclasses.dataclass(frozen=True)
class Promise:
    """That the mean of a risk over new units is at most a limit."""

    risk: str  # one of `RISKS`
    limit: float  # the limit alpha, in (0, 1)

    def __post_init__(self) -> None:
        arrays.check_choice("risk", self.risk, tuple(RISKS))
        if not 0 < self.limit < 1:
            raise ValueError(f"{self.risk}: found the limit {self.limit}, expected a number above 0 and below 1")

    @classmethod
    def parse(cls, text: str) -> Promise:
        """Reads a promise such as "false_alarms<=0.05" or "dismissals<=20%".

        Raises:
          ValueError: for another form, an unknown risk, or a limit outside (0, 1).
        """
        match = re.fullmatch(r"\s*(\w+)\s*<=\s*([\d.]+(?:e-?\d+)?)\s*(%?)\s*", text)
        if match is None or match[1] not in RISKS:
            names = ", ".join(RISKS)
            raise ValueError(
                f"promise: found {text!r}, expected RISK<=LIMIT of {names}, such as false_alarms<=0.05 or "
                "dismissals<=20%"
            )
        try:
            limit = float(match[2])
        except ValueError:
            raise ValueError(f"promise: found the limit {match[2]!r}, expected a number above 0 and below 1") from None
        if match[3]:
            limit = float(f"{limit / 100:.12g}")  # 0.07 and not 7 / 100 with its rounding
        return cls(match[1], limit)

    def __str__(self) -> str:
        return f"{self.risk}<={self.limit:g}"

    @property
    def grows(self) -> bool | None:
        """Whether the loss grows as rules become more talkative; None where it may do either."""
        return RISKS[self.risk].grows

    @property
    def label(self) -> Literal["gold", "accept"]:
        """What an offer or silence is judged by."""
        return RISKS[self.risk].label


def first_rule(score: Real[np.ndarray, "n"], thresholds: Float[np.ndarray, "G"]) -> Int64[np.ndarray, "n"]:
    """The first of the rules "offer where score >= threshold" that offers at each step; G where none does.

    Raises:
      ValueError: for NaN, more than `MOST_RULES` thresholds, or thresholds that do not descend.
    """
    arrays.check_lengths(score=score)
    arrays.check_not_nan("score", score)
    _check_order("thresholds", thresholds, descending=True)
    return np.searchsorted(-np.asarray(thresholds, np.float64), -arrays.host(score), side="left").astype(np.int64)


def first_gate(
    p_need: Float[np.ndarray, "n"], p_accept: Float[np.ndarray, "n"], cost_ratios: Float[np.ndarray, "G"]
) -> Int64[np.ndarray, "n"]:
    """The first cost ratio r = C_FN / C_FA at which the gate offers at each step; G where it offers at none.

    The ratios ascend, from silent to talkative. The comparison is the gate's own (`gate.intervene`) at C_FA = 1, ties
    included. For the gate on acceptance alone, `p_need` is 1 everywhere.
    """
    arrays.check_lengths(p_need=p_need, p_accept=p_accept)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    arrays.check_range("cost_ratios", cost_ratios, 0.0, np.inf, "a finite ratio of at least 0")
    _check_order("cost_ratios", cost_ratios, descending=False)
    p_both = np.asarray(p_accept * p_need)
    return _first_where(
        lambda ratio: _no_dearer(p_accept, p_both, ratio, strict=False) & (p_both > 0), len(p_both), cost_ratios
    )


class Slow(NamedTuple):
    """At which rules the slow pass decides at each step, and what it decides about."""

    start: Int[np.ndarray, "n"]  # the first rule at which the slow pass runs, at most `stop`
    stop: Int[np.ndarray, "n"]  # one past the last rule at which it runs
    y: Real[np.ndarray, "n"]  # label of the slow pass's candidate, in [0, 1]


def first_gate_with_slow(
    fast: Pass,
    slow: Pass,
    cost_ratios: Float[np.ndarray, "G"],
    margin: float,
) -> tuple[Int64[np.ndarray, "n"], Int64[np.ndarray, "n"], Int64[np.ndarray, "n"]]:
    """The first cost ratio at which the gate with a slow margin offers, and the ratios at which the slow pass runs.

    At one margin the decisions of a step are again nested in the ratio: silence before the slow pass begins to run, the
    slow signals' decisions while it runs, and offers after it (docs/maths.md, section 3). The comparisons are those of
    `gate.decide_with_slow` at C_FA = 1, ties included. `fast` and `slow` are the probabilities of each pass; the ratios
    ascend.

    Returns:
      The first ratio that offers; the first at which the slow pass runs; one past the last at which it runs. G is none.
    """
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    first, first_slow = first_gate(*fast, cost_ratios), first_gate(*slow, cost_ratios)
    arrays.check_lengths(p_accept_fast=first, p_accept_slow=first_slow)
    if margin == 0:
        return first, first, first
    p_need, p_accept = (np.asarray(p, np.float64) for p in fast)
    high, low = p_accept + margin, p_accept - margin
    start = _first_where(lambda ratio: _no_dearer(high, high * p_need, ratio, strict=False), len(p_accept), cost_ratios)
    stop = _first_where(lambda ratio: _no_dearer(low, low * p_need, ratio, strict=True), len(p_accept), cost_ratios)
    return np.clip(first_slow, start, stop), start, stop


def _no_dearer(p_accept: Any, both: Any, ratio: Any, *, strict: bool) -> Any:
    """Whether an offer costs no more than silence at C_FA = 1 and C_FN = ratio, or less where `strict`."""
    offer, silence = gate.expected_costs(p_accept, both, 1.0, ratio)
    return offer < silence if strict else offer <= silence


def _first_where(
    holds: Callable[[Float[np.ndarray, "n"]], Any], steps: int, cost_ratios: Float[np.ndarray, "G"]
) -> Int64[np.ndarray, "n"]:
    """The index of the first ratio from which on `holds` is true at each step; G where it never is."""
    low, high = np.zeros(steps, np.int64), np.full(steps, len(cost_ratios), np.int64)
    for _ in range(len(cost_ratios).bit_length()):  # halves the range in which the first ratio lies
        middle = np.minimum((low + high) // 2, len(cost_ratios) - 1)
        true = holds(cost_ratios[middle])
        high = np.where(true & (low < high), middle, high)
        low = np.where(~true & (low < high), middle + 1, low)
    return low


def unit_losses(
    first: Int[np.ndarray, "n"],
    y: Real[np.ndarray, "n"],
    unit: Shaped[np.ndarray, "n"],
    rules: int,
    promise: Promise,
    slow: Slow | None = None,
    y_best: Real[np.ndarray, "n"] | None = None,
    count: Real[np.ndarray, "n"] | None = None,
) -> Float[np.ndarray, "U G"]:
    """The loss of every unit under every rule, in [0, 1]; units are in the order of `np.unique`.

    With a_t and s_t the loss of an offer and of silence at step t, a unit's loss is the mean over its steps: a = 1 - y
    and s = 0 for false alarms; a = 1 and s = 0 for burden; a = 0 and s = y for missed help. For false discovery and
    dismissals it is alpha + mean((1 - y - alpha) * offer), whose mean over units is at most alpha exactly where false
    alarms per step are at most alpha times the offers per step. Where the slow pass runs, the y of an offer is that of
    its candidate. The y of silence is that of the step's best candidate, so missed help never rises.

    Args:
      first: The first rule that offers at each step, from `first_gate` or `first_rule`; `rules` where none does.
      y: Label by which the risk judges each step (`Risk.label`), in [0, 1].
      unit: The stream or person of each step. Steps of one unit may depend on each other in any way.
      rules: The number G of rules, at most `MOST_RULES`.
      promise: Its limit enters the loss of false discovery and of dismissals.
      slow: Where the slow pass decides, and about which label; None for rules without a slow pass.
      y_best: Largest gold label of each step's candidates, which silence misses; None is the larger of `y`, `slow.y`.
      count: How many steps with the same rules each entry stands for, whose labels are their means; None is one.

    Raises:
      ValueError: where every unit has a single step (rows are no units), for a slow pass that does not begin at or
        before the first offer and end at or after it, a `y_best` below another label of its step, or an argument
        outside its range.
    """
    arrays.check_lengths(first=first, y=y, unit=unit)
    arrays.check_label("y", y)
    if not 1 <= rules <= MOST_RULES:
        raise ValueError(f"rules: found {rules}, expected 1 to {MOST_RULES}")
    arrays.check_range("first", first, 0.0, float(rules), f"the index of a rule, or {rules} where none offers")
    names, code = np.unique(unit, return_inverse=True)
    count = np.ones(len(code)) if count is None else np.asarray(count, np.float64)
    arrays.check_lengths(first=first, count=count)
    if len(names) == count.sum():
        raise ValueError(
            f"unit: found {len(names)} units with one step each, expected streams or people with several: a promise "
            "made on rows breaks where the rows of one person depend on each other"
        )
    best = best_label(y, None if slow is None else slow.y, y_best)
    missed = np.asarray(y if best is None else best, np.float64)
    offer, silence, shift = _step_losses(np.asarray(y, np.float64), missed, promise)
    changes = [(first, offer - silence)]
    if slow is not None:  # from its own `stop` on, an offer is again the fast pass's
        _check_slow(first, slow, rules)
        offer_slow, _, _ = _step_losses(np.asarray(slow.y, np.float64), missed, promise)
        changes = [(first, offer_slow - silence), (slow.stop, offer - offer_slow)]
    width = rules + 1
    change_UxG = np.zeros((len(names), rules))
    for index, change in changes:
        flat = np.bincount(code * width + index, weights=change * count, minlength=len(names) * width)
        change_UxG += flat.reshape(len(names), width)[:, :rules]
    total_UxG = np.cumsum(change_UxG, axis=1) + np.bincount(code, weights=silence * count)[:, None]
    loss_UxG = total_UxG / np.bincount(code, weights=count)[:, None] + shift
    return np.clip(loss_UxG, 0.0, 1.0)  # removes rounding only


def _check_slow(first: Int[np.ndarray, "n"], slow: Slow, rules: int) -> None:
    arrays.check_lengths(first=first, start=slow.start, stop=slow.stop, y_slow=slow.y)
    arrays.check_label("y_slow", slow.y)
    right = (slow.start >= 0) & (slow.start <= first) & (first <= slow.stop) & (slow.stop <= rules)
    if not right.all():
        row = int((~right).argmax())
        raise ValueError(
            f"slow: step {row}: found the slow pass from rule {slow.start[row]} to {slow.stop[row]} and the first "
            f"offer at {first[row]}, expected it in between"
        )


def _step_losses(y: Float[np.ndarray, "n"], missed: Float[np.ndarray, "n"], promise: Promise) -> tuple[Any, Any, float]:
    """Loss of an offer and of silence at each step, and what is added to a unit's mean."""
    zeros, ones = np.zeros_like(y), np.ones_like(y)
    table = {
        "false_alarms": (1 - y, zeros, 0.0),
        "burden": (ones, zeros, 0.0),
        "missed_help": (zeros, missed, 0.0),
        "false_discovery": (1 - y - promise.limit, zeros, promise.limit),
        "dismissals": (1 - y - promise.limit, zeros, promise.limit),
    }
    return table[promise.risk]


def _check_order(name: str, values: Float[np.ndarray, "G"], *, descending: bool) -> None:
    arrays.check_lengths(**{name: values})
    arrays.check_not_nan(name, values)
    if len(values) > MOST_RULES:
        raise ValueError(f"{name}: found {len(values)} rules, expected at most {MOST_RULES}")
    steps = np.diff(np.asarray(values, np.float64))
    if ((steps >= 0) if descending else (steps <= 0)).any():
        raise ValueError(f"{name}: found values out of order, expected {'de' if descending else 'a'}scending ones")
