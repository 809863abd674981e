"""Token-level losses and weights of supervised, dynamic and reward-weighted fine-tuning (docs/maths.md, section 6).

The log-probability of a token is log pi of the target token under the student. These are the reference definitions, on
log-probabilities; `prism_jax.student.heads.token_cross_entropy` computes the same losses from hidden states in chunks,
and a test checks that the two agree.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Floats, Number, Reals, Vector
from prism_jax.decision.losses.propensity import Sums

TokenLoss = Literal["sft", "dft"]


def token_weight(log_prob: Float[Array, "..."], kind: TokenLoss) -> Float[jax.Array, "..."]:
    """The factor on -log pi of each token: 1 for `sft`, pi without its gradient for `dft`.

    Dynamic fine-tuning's loss -sg(pi) log pi has the gradient -grad pi (Wu et al., arXiv 2508.05629); without the
    stop-gradient its gradient would be -(1 + log pi) grad pi.

    Raises:
      ValueError: for an unknown kind.
    """
    arrays.check_choice("kind", kind, get_args(TokenLoss))
    values = jnp.asarray(log_prob)
    return jnp.ones_like(values) if kind == "sft" else jnp.exp(jax.lax.stop_gradient(values))


def token_sums(log_prob: Float[Array, "..."], mask: Reals, kind: TokenLoss = "sft", weight: Reals = 1.0) -> Sums:
    """Sums of a token loss; its mean is sum(mask * weight * factor * -log pi) / sum(mask).

    Args:
      log_prob: Log-probability of each target token, of any shape, at most 0.
      mask: 1 on supervised tokens, 0 elsewhere; log-probabilities of other tokens are not read. Broadcasts.
      kind: `sft` or `dft` (see `token_weight`).
      weight: Weight of each sequence or token, such as `reward_weights`; broadcasts. It does not enter the denominator,
        so weights act relative to their mean over the training set at any batch size.

    Raises:
      ValueError: for an unknown kind, or a supervised token whose log-probability is NaN or clearly above 0.
    """
    _check_log_prob(log_prob, mask)
    values = jnp.asarray(log_prob)
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    counted = jnp.broadcast_to(jnp.asarray(mask, values.dtype), values.shape)
    values = jnp.where(counted > 0, values, 0.0)
    losses = -counted * weight * token_weight(values, kind) * values
    return Sums(jnp.sum(losses), jnp.sum(counted))


def token_loss(
    log_prob: Float[Array, "..."], mask: Reals, kind: TokenLoss = "sft", weight: Reals = 1.0
) -> Float[Array, ""]:
    """Mean token loss over supervised tokens, 0 if there are none; arguments and errors are those of `token_sums`."""
    return token_sums(log_prob, mask, kind, weight).mean()


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
    xp, reward, chosen, accept, length = arrays.as_floats(score, logged, y_accept, tokens)
    answer = xp.where(chosen > 0, accept, 1.0)
    arrays.check_finite("score", reward)
    arrays.check_hard("logged", chosen)
    arrays.check_label("y_accept", answer)
    arrays.check_range("tokens", length, 0.0, np.inf, "a number of at least 0")
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
    arrays.check_finite("value", value)
    arrays.check_range("cap", cap, 1.0, np.inf, "a finite number of at least 1")
    _, base = arrays.as_floats(value)
    xp, advantage = _checked_reward(arrays.as_float(reward) - base, beta)
    top, limit = advantage.max(), np.log(cap)
    # The shift makes the largest weight 1. It cancels, and prevents exp from underflowing on every row.
    capped = xp.minimum(advantage / beta, limit) - limit
    return _normalised(xp, xp.exp(xp.where(top / beta > limit, capped, (advantage - top) / beta)))


def _check_log_prob(log_prob: Any, mask: Any) -> None:
    """Raises ValueError where a supervised token's log-probability is NaN, or above 0 by more than rounding."""
    if arrays.is_traced(log_prob, mask):
        return
    values = arrays.host(log_prob)
    counted = values[np.broadcast_to(arrays.host(mask) > 0, values.shape)]
    if counted.size:
        arrays.check_range("log_prob", counted, -np.inf, 1e-3, "a log-probability, at most 0")


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
