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

from prism_jax.decision import gate
from prism_jax.decision.policies import POLICIES
from prism_jax.decision.thinking import Moves, value_unchecked
from prism_jax.policy.explore import flip_loss
from prism_jax.policy.settings import Terms
from prism_jax.policy.signals import Signals


class Gated(NamedTuple):
    """What the gate says at one event."""

    offers: bool  # whether it would offer
    threshold: float  # the least p_accept at which it would; infinite where none suffices
    loss: float  # expected loss of the other decision; infinite where exploration is off


def check_trigger(terms: Terms) -> None:
    """Raises ValueError if the trigger needs to know what the slow pass does, and nobody knows."""
    if terms.point.trigger == "value" and terms.thinking is None:
        raise ValueError(
            "trigger: found 'value', expected 'margin': nothing is known of the slow pass's moves and tokens "
            "(calibration.thinking of prism.json)"
        )


def fires(terms: Sequence[Terms], signals: Sequence[Signals]) -> list[bool]:
    """Whether the trigger asks for the slow pass, from the fast signals (docs/maths.md, sections 3 and 12).

    Only the policy `dynamic` thinks.
    """
    by_margin = [one.point.policy == "dynamic" and one.trigger == "margin" for one in terms]
    by_value = [one.point.policy == "dynamic" and one.trigger == "value" for one in terms]
    found = np.zeros(len(terms), bool)
    p_need, p_accept = _used(signals)
    c_fa, c_fn = _costs(terms)
    margins = np.array([one.point.margin if here else 0.0 for one, here in zip(terms, by_margin, strict=True)])
    if margins.any():
        found |= gate.slow_band_unchecked(p_need, p_accept, c_fa, c_fn, margins)
    if any(by_value):
        at = np.array(by_value)
        known = [one.thinking for one, here in zip(terms, by_value, strict=True) if here and one.thinking is not None]
        moves = Moves(*(np.array([one.moves[i] for one in known]) for i in range(3)))
        tokens = np.array([one.tokens for one in known])
        price = np.array([one.point.price for one in terms])[at]
        value = value_unchecked(np, p_need[at], p_accept[at], c_fa[at], c_fn[at], moves)
        found[at] = value >= price * tokens
    return found.tolist()


def gated(terms: Sequence[Terms], signals: Sequence[Signals]) -> list[Gated]:
    """The gate's decision at each event, on the signals of the pass that decides."""
    p_need, p_accept = _used(signals)
    c_fa, c_fn = _costs(terms)
    fixed = np.array([one.point.fixed_threshold for one in terms])
    offers, threshold = np.zeros(len(terms), bool), np.empty(len(terms))
    names = [one.point.policy for one in terms]
    for name in set(names):
        at = np.array([other == name for other in names])
        here = p_need[at], p_accept[at], c_fa[at], c_fn[at]
        offers[at] = gate.decide_unchecked(POLICIES[name], *here, fixed[at])
        deployed = POLICIES[name].threshold
        assert deployed is not None  # an OperatingPoint takes deployable policies only
        threshold[at] = deployed(p_need[at], c_fa[at], c_fn[at], fixed[at])
    if any(one.exploration for one in terms):
        loss = flip_loss(p_need, p_accept, c_fa, c_fn)
    else:
        loss = np.full(len(terms), math.inf)
    return [Gated(*row) for row in zip(offers.tolist(), threshold.tolist(), loss.tolist(), strict=True)]


def _used(signals: Sequence[Signals]) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    """Calibrated p_need, and p_accept of the chosen candidate."""
    return np.array([one.need for one in signals]), np.array([one.accept[one.best] for one in signals])


def _costs(terms: Sequence[Terms]) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    return np.array([one.point.c_fa for one in terms]), np.array([one.point.c_fn for one in terms])
