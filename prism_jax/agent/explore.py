"""Exploration: which decisions are flipped at random, with which probability, and how each is drawn.

A gate that is always obeyed leaves a log that says nothing about the other decision. Near the boundary the other
decision costs little, so there, and only there, the agent takes it with a known probability.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float64

from prism_jax.agent.settings import Exploration
from prism_jax.decision.gate import expected_costs


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
    offer, silence = expected_costs(p_accept, both, c_fa, c_fn)
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
