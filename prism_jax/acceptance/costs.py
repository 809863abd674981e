"""What the gate on each prediction of a log would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.acceptance.measures import as_json, weighted_means
from prism_jax.acceptance.study import Study
from prism_jax.decision.gate import intervene
from prism_jax.decision.metrics import step_costs
from prism_jax.decision.uncertainty import Estimate


class Costs(NamedTuple):
    """What the gate on one prediction would have cost; intervals are over people."""

    speak_rate: float  # share of the offers that it would have made
    cost: Estimate  # mean realised cost per offer of the log
    gain: Estimate  # that cost minus the better constant's, paired

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"speak_rate": self.speak_rate, "cost": as_json(self.cost), "minus_constant": as_json(self.gain)}


def gate_costs(
    studied: Study, weight: Float64[np.ndarray, " rows"], names: Sequence[str], c_fa: float, c_fn: float, seed: int = 0
) -> dict[str, Costs]:
    """What always and never offering, and the gate on each of the named probabilities, would have cost.

    An offer that is not accepted costs C_FA, silence where it would have been accepted C_FN. Need is certain, so that
    p_accept is also the probability of need and acceptance (docs/maths.md, section 2).
    """
    y = studied.accepted
    offers = {"always": np.ones(len(y), bool), "never": np.zeros(len(y), bool)}
    for name in names:
        p_accept = studied.predictions[name]
        offers[name] = np.asarray(intervene(p_accept, p_accept, c_fa, c_fn))
    costs = np.stack([step_costs(offer, y, y, c_fa, c_fn) for offer in offers.values()])
    total = costs @ weight
    better = int(np.argmin(total[:2]))
    most = np.repeat([max(c_fa, c_fn), np.inf], len(offers))
    means = weighted_means(np.vstack([costs, costs - costs[better]]), weight, studied.person, most, seed)
    return {
        name: Costs(float(np.average(offer, weights=weight)), cost, gain)
        for (name, offer), cost, gain in zip(offers.items(), means[: len(offers)], means[len(offers) :], strict=True)
    }
