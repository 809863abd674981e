"""From what the gate says to what is done: allow-list, budgets and chance; and the reason in words."""

from __future__ import annotations

import math
from typing import NamedTuple

from prism_jax.agent.explore import draw, propensity
from prism_jax.agent.gating import Gated
from prism_jax.agent.settings import Terms
from prism_jax.agent.signals import Signals
from prism_jax.gate import comparison


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
    gate: Gated,
    signals: Signals,
    *,
    critical: bool,
    spent: bool,
    starved: bool,
) -> Choice:
    """Decides at one event, from the signals of the pass that decides.

    A critical event, one on the allow-list, leads to an offer whatever it costs. Otherwise a spent interruption budget
    means silence, and what is left is the gate's decision, or near the boundary chance. `starved` says that the trigger
    fired and the slow budget was spent.
    """
    threshold = gate.threshold if gate.threshold < math.inf else None
    if critical:
        return Choice(True, 1.0, False, threshold, "offer: critical event")
    note = "; not thought about: the slow budget is spent" if starved else ""
    chance, wants = float(gate.offers), gate.offers
    if terms.exploration is not None:
        chance = propensity(terms.exploration, gate.offers, gate.loss)
        wants = draw(terms.exploration, stream, event) < chance
    if spent and chance > 0:
        assert terms.offers is not None
        allowed = f"{terms.offers.most} in {terms.offers.seconds:g} s"
        return Choice(False, 0.0, False, threshold, f"silent: interruption budget, {allowed}{note}")
    explored = wants != gate.offers
    if explored:
        note = f"; by chance, propensity {chance:g}{note}"
    compared = comparison(terms.point.policy, gate.offers, signals.need, signals.accept[signals.best], gate.threshold)
    return Choice(wants, chance, explored, threshold, f"{'offer' if wants else 'silent'}: {compared}{note}")
