"""Lets the population's map follow everybody's answers (docs/maths.md, section 16).

    logit p_t = a_t * logit(s_t) + b_t + u_i,    (a, b) drifting by N(0, diag(q_a, q_b)) per answer of anybody

The person layer learns how a person differs from the population; here the population itself moves, so that somebody
who has not answered yet is met by what others have said lately. One Laplace step per answer, in constant time, beside
that of the layer. Prior, and drift per answer, were fixed on simulated logs (`studies/coverage/recalibration.py`,
seeds 101 to 103): with a tenth of the drift the map follows more slowly, with ten times it costs .004 nats where
nothing changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prism_jax.decision.arrays import Reals, namespace, sigmoid
from prism_jax.decision.person import Belief, Population

SPREAD_SCALE, SPREAD_BIAS = 0.1, 0.2
"""Standard deviations of a and b before the first answer: how well the fit of the population is known."""
DRIFT_SCALE, DRIFT_BIAS = 1e-5, 1e-4
"""Variances q_a and q_b by which a and b move from one answer to the next."""
MOST_VARIANCE = 0.25
"""Largest variance of a and of b."""


class Recalibration(NamedTuple):
    """What is known of the population's scale a and bias b."""

    scale: Any  # mean of a
    bias: Any  # mean of b
    variance_scale: Any
    variance_bias: Any
    covariance: Any


def start(population: Population) -> Recalibration:
    """The state before any answer: the population as it was fitted."""
    return Recalibration(population.scale, population.bias, SPREAD_SCALE**2, SPREAD_BIAS**2, 0.0)


def moved(population: Population, state: Recalibration) -> Population:
    """The population with the scale and bias of now."""
    return population._replace(scale=state.scale, bias=state.bias)


def update(
    state: Recalibration,
    log_odds: Reals,
    belief: Belief,
    accepted: Reals,
    drift_scale: float = DRIFT_SCALE,
    drift_bias: float = DRIFT_BIAS,
) -> Recalibration:
    """The state after an answer of somebody, including the drift until the next one.

    One Newton step on the likelihood of the prediction, which averages over the doubt about the person
    (`prism_jax.decision.person.predict`). So people who are little known do not draw the map towards 0. State and
    belief are those before the answer, `log_odds` is logit(s_t) of the offer's score, and the drifts are q_a and q_b,
    at least 0.
    """
    doubt = (1 + (np.pi / 8) * belief.variance) ** 0.5
    p = sigmoid((state.scale * log_odds + state.bias + belief.mean) / doubt)
    curvature = p * (1 - p) / doubt**2
    # P g, and 1 + w g' P g.
    of_scale = state.variance_scale * log_odds + state.covariance
    of_bias = state.covariance * log_odds + state.variance_bias
    total = 1 + curvature * (of_scale * log_odds + of_bias)
    step, shrink = (accepted - p) / (doubt * total), curvature / total
    variance_scale = state.variance_scale - shrink * of_scale**2 + drift_scale
    variance_bias = state.variance_bias - shrink * of_bias**2 + drift_bias
    covariance = state.covariance - shrink * of_scale * of_bias
    # Where the answers do not tell a from b, the drift would add up without a bound.
    ratio_scale, ratio_bias = _at_most(variance_scale), _at_most(variance_bias)
    return Recalibration(
        state.scale + of_scale * step,
        state.bias + of_bias * step,
        variance_scale * ratio_scale**2,
        variance_bias * ratio_bias**2,
        covariance * ratio_scale * ratio_bias,
    )


def _at_most(variance: Any) -> Any:
    """What a standard deviation is multiplied by so that the variance is at most `MOST_VARIANCE`."""
    return (MOST_VARIANCE / namespace(variance).maximum(variance, MOST_VARIANCE)) ** 0.5
