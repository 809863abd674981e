"""A person's own rate on top of any score (docs/maths.md, section 13).

    logit p_t = a * logit(s_t) + b + u_i,   u_i ~ N(0, tau^2) for a new person, drifting by N(0, q) per answer

A person is two numbers, the mean m and variance v of u_i, which each answer changes by one Laplace step, in constant
time. `believe`, `predict` and `update` are elementwise and serve a single answer as well as arrays. Logs of answers,
and the fit of a population, are in `prism_jax.people.layer`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Reals, sigmoid

MOST_LOG_ODDS = 40.0
"""A calibrated probability of 0 or 1 counts as log-odds of this size, so that a person can still move it."""
MOST_OPTIMISM, OPTIMISM_SHARE = 0.5, 0.25


def optimism(cost_ratio: float) -> float:
    """Number of standard deviations of a person's rate that the gate adds to the log-odds of acceptance.

    Only an offer is answered, so a person who is thought to decline would never get the chance to say otherwise. Where
    silence is cheap a gate errs on that side, and an offer now and then pays for itself. With r = C_FN / C_FA it is
    min(0.5, 0.25 / r) up to r = 1, and 0 above: there the gate offers often anyway. 0 for r = 0, which never offers.
    """
    return min(MOST_OPTIMISM, OPTIMISM_SHARE / cost_ratio) if 0 < cost_ratio <= 1 else 0.0


class Population(NamedTuple):
    """What a person shares with everybody else."""

    scale: float  # a, by which the log-odds of the score are multiplied
    bias: float  # b, which is added to them
    spread: float  # tau > 0, the standard deviation of the people's own rates, in log-odds
    drift: float  # q >= 0, the variance by which a person's rate moves from one answer to the next


class Belief(NamedTuple):
    """What is known of a person's own rate u_i."""

    mean: Any  # m, in log-odds; 0 is the population's
    variance: Any  # v; tau^2 for a person who never answered


def anchored(spread: Any, drift: Any) -> Population:
    """The population of a calibrated score: the prediction about a person who never answered is the score itself.

    A calibrated score is an average over people, who differ; the log-odds of one person are farther from 0, by
    sqrt(1 + pi tau^2 / 8), and `predict` takes this back as far as the person is unknown.
    """
    return Population((1 + (np.pi / 8) * spread**2) ** 0.5, 0.0, spread, drift)


DEFAULT = anchored(spread=0.6, drift=0.01)
"""What is assumed of people until a population is fitted: calibrated scores, and people who differ a little."""


def believe(population: Population) -> Belief:
    """The belief about a person who never answered."""
    return Belief(0.0, population.spread**2)


def predict(belief: Belief, log_odds: Reals, population: Population) -> Floats:
    """Log-odds of acceptance, with the doubt about the person's rate averaged out.

    The average of a sigmoid over N(m, v) is close to the sigmoid of its log-odds divided by sqrt(1 + pi v / 8)
    (MacKay 1992). `log_odds` is logit(s_t) of the score.
    """
    mean_log_odds = population.scale * log_odds + population.bias + belief.mean
    return mean_log_odds / (1 + (np.pi / 8) * belief.variance) ** 0.5


def update(belief: Belief, log_odds: Reals, accepted: Reals, population: Population) -> Belief:
    """The belief after an answer, including the drift until the next one.

    One Newton step from m on the log posterior, with the curvature at m: v <- 1 / (1/v + p (1 - p)) and
    m <- m + v (y - p), then v <- v + q. `log_odds` is logit(s_t) of the offer's score; `accepted` is 1 or 0.
    """
    p = sigmoid(population.scale * log_odds + population.bias + belief.mean)
    variance = belief.variance / (1 + belief.variance * p * (1 - p))
    return Belief(belief.mean + variance * (accepted - p), variance + population.drift)


def bonus(belief: Belief, cost_ratio: float) -> float:
    """What the gate adds to a person's predicted log-odds: `optimism` standard deviations of their rate."""
    return optimism(cost_ratio) * math.sqrt(belief.variance)


def threshold_on_predicted(threshold: float, added: float) -> float:
    """The threshold on the predicted p_accept that is as high as this one is with so much added to its log-odds."""
    return float(sigmoid(arrays.log_odds(threshold) - added)) if added and 0 < threshold < 1 else threshold


def clipped_log_odds(p: Any) -> Float64[np.ndarray, "..."]:
    """log(p / (1 - p)), clipped to `MOST_LOG_ODDS` on both sides."""
    return np.asarray(np.clip(arrays.log_odds(np.asarray(p, np.float64)), -MOST_LOG_ODDS, MOST_LOG_ODDS))
