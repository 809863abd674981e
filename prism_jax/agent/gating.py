"""The decisions of a batch: trigger, gate and threshold of many events at once, each under its own terms.

The comparisons are those of `prism_jax.decision.gate` without its checks: costs and other terms were checked when they
were stated, probabilities when they were calibrated, and checking again would cost more than deciding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.agent.explore import flip_loss
from prism_jax.agent.settings import Terms
from prism_jax.agent.signals import Signals
from prism_jax.decision import gate
from prism_jax.decision.policies import POLICIES
from prism_jax.decision.thinking import Moves, value_unchecked


class Gated(NamedTuple):
    """What the gate says at one event."""

    offers: bool  # whether it would offer
    threshold: float  # the least p_accept at which it would; infinite where none suffices
    loss: float  # expected loss of the other decision; infinite where exploration is off


def check_trigger(terms: Terms) -> None:
    """Raises ValueError if the trigger needs to know what the slow pass does, and the export does not say."""
    if terms.point.trigger == "value" and terms.thinking is None:
        raise ValueError(
            "trigger: found 'value', expected 'margin': nothing is known of the slow pass's moves and tokens "
            "(calibration.thinking of prism.json)"
        )


def fires(terms: Sequence[Terms], signals: Sequence[Signals]) -> list[bool]:
    """Whether the trigger asks for the slow pass, from the fast signals (docs/maths.md, sections 3 and 12).

    Only the policy `dynamic` thinks.
    """
    by_margin = [row.point.policy == "dynamic" and row.trigger == "margin" for row in terms]
    by_value = [row.point.policy == "dynamic" and row.trigger == "value" for row in terms]
    fired = np.zeros(len(terms), bool)
    p_need, p_accept = _used(signals)
    c_fa, c_fn = _costs(terms)
    margins = np.array([row.point.margin if chosen else 0.0 for row, chosen in zip(terms, by_margin, strict=True)])
    if margins.any():
        fired |= gate.slow_band_unchecked(p_need, p_accept, c_fa, c_fn, margins)
    if any(by_value):
        at = np.array(by_value)
        known = [
            row.thinking for row, chosen in zip(terms, by_value, strict=True) if chosen and row.thinking is not None
        ]
        moves = Moves(*(np.array([row.moves[i] for row in known]) for i in range(3)))
        tokens = np.array([row.tokens for row in known])
        price = np.array([row.point.price for row in terms])[at]
        value = value_unchecked(np, p_need[at], p_accept[at], c_fa[at], c_fn[at], moves)
        fired[at] = value >= price * tokens
    return fired.tolist()


def gated(terms: Sequence[Terms], signals: Sequence[Signals]) -> list[Gated]:
    """The gate's decision at each event, on the signals of the pass that decides."""
    p_need, p_accept = _used(signals)
    c_fa, c_fn = _costs(terms)
    fixed = np.array([row.point.fixed_threshold for row in terms])
    offers, threshold = np.zeros(len(terms), bool), np.empty(len(terms))
    names = [row.point.policy for row in terms]
    for name in set(names):
        at = np.array([policy == name for policy in names])
        inputs = p_need[at], p_accept[at], c_fa[at], c_fn[at]
        offers[at] = gate.decide_unchecked(POLICIES[name], *inputs, fixed[at])
        deployed = POLICIES[name].threshold
        assert deployed is not None  # an OperatingPoint takes deployable policies only
        threshold[at] = deployed(p_need[at], c_fa[at], c_fn[at], fixed[at])
    if any(row.exploration for row in terms):
        loss = flip_loss(p_need, p_accept, c_fa, c_fn)
    else:
        loss = np.full(len(terms), math.inf)
    return [Gated(*row) for row in zip(offers.tolist(), threshold.tolist(), loss.tolist(), strict=True)]


def _used(signals: Sequence[Signals]) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    """Calibrated p_need, and p_accept of the chosen candidate."""
    return np.array([row.need for row in signals]), np.array([row.accept[row.best] for row in signals])


def _costs(terms: Sequence[Terms]) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    return np.array([row.point.c_fa for row in terms]), np.array([row.point.c_fn for row in terms])
