"""Beliefs over a log of answers, and the gradient of its likelihood, as XLA compiles them, in float64."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Shaped

from prism_jax.decision.person import Belief, Population, anchored, believe, predict, update

Spread = Shaped[np.ndarray, "steps lanes"]
Theta = Float64[np.ndarray, " parameters"]
"""(a, b, log tau, log q), or (log tau, log q) where the score is calibrated."""


def _natural(theta: Any) -> Population:
    """The population of (a, b, log tau, log q), or of (log tau, log q) where the score is calibrated."""
    last: Any = jnp.exp(theta[-2:])
    spread, drift = last[0], last[1]
    return anchored(spread, drift) if len(theta) == 2 else Population(theta[0], theta[1], spread, drift)


def _predictions(
    theta: Any, log_odds: Any, of_answer: Any, accepted: Any, has_answer: Any, first: Any
) -> tuple[Any, Any, Any]:
    """Predicted log-odds, means and variances, all [steps, lanes]."""
    population = Population(*theta)
    newcomer = believe(population)

    def step(belief: Belief, row: Any) -> tuple[Belief, Any]:
        z, z_answer, y, answered, begins = row
        belief = Belief(*(jnp.where(begins, new, old) for new, old in zip(newcomer, belief, strict=True)))
        after = update(belief, z_answer, y, population)
        kept = Belief(*(jnp.where(answered > 0, new, old) for new, old in zip(after, belief, strict=True)))
        return kept, (predict(belief, z, population), *belief)

    start = Belief(jnp.zeros(first.shape[1]), jnp.full(first.shape[1], newcomer.variance))
    return jax.lax.scan(step, start, (log_odds, of_answer, accepted, has_answer, first))[1]


@functools.partial(jax.jit)
@functools.partial(jax.jacfwd, has_aux=True)
def _gradient(theta: Any, labels: Any, weight: Any, *rows: Any) -> Any:
    """Gradient and value of the weighted negative log-likelihood; forward mode keeps no intermediate of the scan."""
    predicted, _, _ = _predictions(_natural(theta), *rows)
    value = jnp.sum(weight * (jnp.logaddexp(0.0, predicted) - labels * predicted))
    return value, value


_scan = jax.jit(_predictions)


def predictions(population: Population, *rows: Spread) -> tuple[Spread, ...]:
    """Predicted log-odds, means and variances at the places of some lanes.

    `rows` are logit(s_t) of the offers, the same at the places where answers are seen, these answers, 1 where there is
    one, and where a person begins.
    """
    with jax.enable_x64(True):
        return tuple(map(np.asarray, _scan(jnp.asarray(population, jnp.float64), *rows)))


def loss(theta: Theta, labels: Spread, weight: Spread, *rows: Spread) -> tuple[float, Theta]:
    """The weighted negative log-likelihood of labels, 1 or 0, and its gradient; `rows` are those of `predictions`."""
    with jax.enable_x64(True):
        gradient, value = _gradient(jnp.asarray(theta, jnp.float64), labels, weight, *rows)
        return float(value), np.asarray(gradient, np.float64)


def population_of(theta: Theta) -> Population:
    """The population of some parameters."""
    with jax.enable_x64(True):
        return Population(*map(float, _natural(jnp.asarray(theta, jnp.float64))))
