"""From signals to what is done: trigger, gate, exploration, budgets and allow-list, and the reason in words.

Trigger and gate decide on a batch of events at once, each under its own terms, by the comparisons of
`prism_jax.decision.gate` without its checks: costs and probabilities were checked where they came in. A gate that is
always obeyed leaves a log that says nothing about the other decision. Near the boundary the other decision costs
little, so there, and only there, exploration takes it with a known probability.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.agent.settings import Exploration, Terms
from prism_jax.agent.signals import Signals
from prism_jax.decision import gate
from prism_jax.decision.policies import POLICIES
from prism_jax.decision.thinking import Moves, value_unchecked
from prism_jax.decision.verdict import comparison


class GateDecision(NamedTuple):
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


def gate_decisions(terms: Sequence[Terms], signals: Sequence[Signals]) -> list[GateDecision]:
    """The gate's decision at each event, on the signals of the pass that decides."""
    p_need, p_accept = _used(signals)
    c_fa, c_fn = _costs(terms)
    fixed = np.array([row.point.fixed_threshold for row in terms])
    offers, threshold = np.zeros(len(terms), bool), np.empty(len(terms))
    policies = [row.point.policy for row in terms]
    for name in set(policies):
        at = np.array([own == name for own in policies])
        inputs, policy = (c_fa[at], c_fn[at], fixed[at]), POLICIES[name]
        offers[at] = gate.decide_unchecked(policy, p_need[at], p_accept[at], *inputs)
        threshold[at] = policy.least_acceptance(p_need[at], *inputs)
    if any(row.exploration for row in terms):
        loss = flip_loss(p_need, p_accept, c_fa, c_fn)
    else:
        loss = np.full(len(terms), math.inf)
    return [GateDecision(*row) for row in zip(offers.tolist(), threshold.tolist(), loss.tolist(), strict=True)]


def _used(signals: Sequence[Signals]) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    """Calibrated p_need, and p_accept of the chosen candidate."""
    return np.array([row.need for row in signals]), np.array([row.accept[row.best] for row in signals])


def _costs(terms: Sequence[Terms]) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    return np.array([row.point.c_fa for row in terms]), np.array([row.point.c_fn for row in terms])


def flip_loss(
    p_need: Float64[np.ndarray, "n"],
    p_accept: Float64[np.ndarray, "n"],
    c_fa: Float64[np.ndarray, "n"],
    c_fn: Float64[np.ndarray, "n"],
) -> Float64[np.ndarray, "n"]:
    """Expected loss of the decision that the gate did not take: |cost of the offer - cost of silence|.

    By the costs of the paper's Proposition 1 (docs/maths.md, section 2), (1 - p_accept) C_FA and p_accept p_need C_FN,
    in their unit. Where p_accept * p_need = 0 it is infinite: an offer that nobody needs or takes is not worth trying.
    """
    both = p_accept * p_need
    offer, silence = gate.expected_costs(p_accept, both, c_fa, c_fn)
    return np.where(both > 0, np.abs(offer - silence), np.inf)


def draw(exploration: Exploration, stream: str, event: int) -> float:
    """A number in [0, 1), uniform over streams and events, that depends on seed, stream and event alone.

    So a restarted agent, and a replay, draw the same.
    """
    name = f"{exploration.seed}\0{event}\0{stream}".encode()
    return (int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) >> 11) * 2.0**-53


def propensity(exploration: Exploration, offers: bool, loss: float) -> float:
    """Pr(offer) at one event: 1 or 0 as the gate decides, or epsilon away from it where the flip's loss is bounded."""
    if loss > exploration.loss:
        return float(offers)
    return 1.0 - exploration.epsilon if offers else exploration.epsilon


class Choice(NamedTuple):
    """What is done at one event."""

    spoke: bool  # whether an offer is made
    propensity: float  # Pr(offer) under the deployed policy, given all that the agent knew
    explored: bool  # whether chance took the other decision than the gate
    threshold: float | None  # the least p_accept at which the policy offers; None where no p_accept suffices
    reason: str  # all of this in words


def choose(
    stream: str,
    event: int,
    terms: Terms,
    decision: GateDecision,
    signals: Signals,
    *,
    critical: bool,
    budget_spent: bool,
    slow_budget_spent: bool,
) -> Choice:
    """Decides at one event, from the signals of the pass that decides.

    A critical event, one on the allow-list, leads to an offer whatever it costs. Otherwise a person who wants quiet or
    a spent interruption budget means silence, and what is left is the gate's decision, or near the boundary chance.
    `slow_budget_spent` says that the trigger fired and the slow budget was spent.
    """
    threshold = decision.threshold if decision.threshold < math.inf else None
    if critical:
        return Choice(True, 1.0, False, threshold, "offer: critical event")
    if terms.quiet is not None:
        return Choice(False, 0.0, False, threshold, f"silent: {terms.quiet}")
    note = "; not thought about: the slow budget is spent" if slow_budget_spent else ""
    chance, wants = float(decision.offers), decision.offers
    if terms.exploration is not None:
        chance = propensity(terms.exploration, decision.offers, decision.loss)
        wants = draw(terms.exploration, stream, event) < chance
    if budget_spent and chance > 0:
        assert terms.offers is not None
        allowed = f"{terms.offers.most} in {terms.offers.seconds:g} s"
        return Choice(False, 0.0, False, threshold, f"silent: interruption budget, {allowed}{note}")
    explored = wants != decision.offers
    if explored:
        note = f"; by chance, propensity {chance:g}{note}"
    compared = comparison(
        terms.point.policy, decision.offers, signals.need, signals.accept[signals.best], decision.threshold
    )
    return Choice(wants, chance, explored, threshold, f"{'offer' if wants else 'silent'}: {compared}{note}")


def without_signals(reason: str, *, critical: bool) -> Choice:
    """Decides at an event whose signals nobody knows, for a reason in words: silence, unless it is critical.

    A critical event offers its first candidate, since none ranks highest.
    """
    if critical:
        return Choice(True, 1.0, False, None, f"offer: critical event; {reason}")
    return Choice(False, 0.0, False, None, f"silent: {reason}")


def by_host(choice: Choice, spoke: bool) -> Choice:
    """What the host did at an event, where the gate is only watching, beside what the gate would have done."""
    reason = f"{'offer' if spoke else 'silent'}: by the host; the gate: {choice.reason}"
    return Choice(spoke, float(spoke), False, choice.threshold, reason)
