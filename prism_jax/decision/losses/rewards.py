"""Rewards, and the weights of reward-weighted fine-tuning (docs/maths.md, section 6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Floats, Number, Reals, Vector


def total_reward(
    score: Reals, logged: Reals, y_accept: Reals, tokens: Reals, *, c_fa: Number = 1.0, c_tok: Number = 1e-4
) -> Floats:
    """R_total = R_DC - c_FA * A * (1 - y_accept) - c_tok * tokens.

    Args:
      score: R_DC, from `curation.score`.
      logged: A, 1 where an offer was made; elsewhere y_accept is not read.
      y_accept: Acceptance labels.
      tokens: Tokens of the response.
      c_fa: Cost of a rejected offer, in units of R_DC.
      c_tok: Cost of one token, in units of R_DC.

    Raises:
      ValueError: for shapes that do not broadcast, a score that is not finite, an A other than 0 and 1, a label
        outside [0, 1] where A = 1, or a negative number of tokens.
    """
    arrays.check_broadcast(score=score, logged=logged, y_accept=y_accept, tokens=tokens)
    arrays.check_finite("score", score)
    arrays.check_hard("logged", logged)
    arrays.check_kind("y_accept", y_accept)
    arrays.check_range("tokens", tokens, 0.0, np.inf, "a number of at least 0")
    xp, reward, chosen, accept, length = arrays.as_floats(score, logged, y_accept, tokens)
    answer = xp.where(chosen > 0, accept, 1.0)
    arrays.check_label("y_accept", answer)
    return reward - c_fa * chosen * (1 - answer) - c_tok * length


class RewardWeights(NamedTuple):
    """Weights of the training set's rows.

    Attributes:
      weight: Weight of each row, with mean 1 over the training set.
      effective_sample_size: (sum w)^2 / sum w^2, between 1 and the number of rows.
    """

    weight: Float[Array, "_n"]
    effective_sample_size: Floats


def reward_weights(reward: Vector, beta: int | float) -> RewardWeights:
    """Reward-weighted regression: weights proportional to exp(R / beta), with mean 1 over the training set.

    Args:
      reward: R_total of every row of the whole training set, not of one batch.
      beta: Temperature > 0, in units of reward; infinity gives weights of 1, plain supervised fine-tuning.

    Raises:
      ValueError: for an empty or non-finite reward, or beta <= 0.
    """
    xp, values = _checked_reward(reward, beta)
    return _normalised(xp, xp.exp((values - values.max()) / beta))  # the shift cancels and prevents overflow


def advantage_weights(reward: Vector, value: Vector, beta: int | float, cap: int | float = 20.0) -> RewardWeights:
    """Advantage-weighted regression: weights proportional to min(exp((R - V) / beta), cap), with mean 1.

    Args:
      reward: R_total of every row of the training set.
      value: A baseline V of each row, in units of reward.
      beta: Temperature > 0; infinity gives weights of 1.
      cap: Largest weight before normalisation, at least 1.

    Raises:
      ValueError: for unequal lengths, empty or non-finite input, beta <= 0 or cap < 1.
    """
    arrays.check_lengths(reward=reward, value=value)
    arrays.check_kind("reward", reward)
    arrays.check_finite("value", value)
    arrays.check_range("cap", cap, 1.0, np.inf, "a finite number of at least 1")
    _, base = arrays.as_floats(value)
    xp, advantage = _checked_reward(arrays.as_float(reward) - base, beta)
    top, limit = advantage.max(), np.log(cap)
    # The shift makes the largest weight 1. It cancels, and prevents exp from underflowing on every row.
    capped = xp.minimum(advantage / beta, limit) - limit
    return _normalised(xp, xp.exp(xp.where(top / beta > limit, capped, (advantage - top) / beta)))


def _checked_reward(reward: Any, beta: int | float) -> tuple[Any, Any]:
    """Namespace and reward as floats, both checked."""
    arrays.check_lengths(reward=reward)
    arrays.check_finite("reward", reward)
    if not beta > 0:
        raise ValueError(f"beta: found {beta}, expected a number above 0")
    return arrays.as_floats(reward)


def _normalised(xp: Any, weight: Any) -> RewardWeights:
    """Weights divided by their mean, and their effective sample size."""
    weight = weight / weight.mean()
    return RewardWeights(weight, (weight.sum() ** 2 / (weight**2).sum())[()])
