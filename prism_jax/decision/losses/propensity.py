"""Inverse-propensity weights, the check that they are valid, and their diagnostics (docs/maths.md, section 4).

A log contains acceptance only where its policy intervened (A = 1), with recorded probability e = Pr(A = 1 | X).
Weighting such rows by A / e makes their sum an unbiased estimate of the sum over all rows, but increases its variance;
clipping the weights reduces the variance at the price of some bias.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Vector

NORMAL_975 = 1.959963984540054
"""The standard normal's 97.5 % quantile."""


def doubly_robust_label(y_accept: Vector, propensity_weights: Vector, mu: Vector) -> Vector:
    """The label mu + w * (y - mu): unbiased for the true acceptance if either mu or the propensities are right."""
    _, y_accept, propensity_weights, mu = arrays.as_floats(y_accept, propensity_weights, mu)
    return propensity_weights * y_accept + (1 - propensity_weights) * mu  # exactly y at w = 1 and mu at w = 0


class Sums(NamedTuple):
    """A weighted mean as two sums, a numerator and a denominator; the denominator does not depend on parameters."""

    numerator: Float[Array, ""]
    denominator: Float[Array, ""]

    def mean(self) -> Float[Array, ""]:
        """The weighted mean, 0 where there is no weight."""
        return ratio(self.numerator, self.denominator)


class AcceptDiagnostics(NamedTuple):
    """Diagnostics of inverse-propensity weights. All are 0 for a batch whose weights are all 0.

    Attributes:
      effective_sample_size: (sum w)^2 / sum w^2 of the clipped weights; between 1 and the number of logged offers.
      clipped_mass: Share of the sum of unclipped weights that clipping by e_min and w_max removes.
      mean_a_over_e: Mean of the unclipped A / e; its expectation is 1 if the recorded propensities are right.
      standard_error: Standard error of `mean_a_over_e`.
      low: Lower end of its 95 % normal interval.
      high: Upper end of that interval.
      outside_share: Share of rows whose doubly robust label lies outside [0, 1]; 0 for `ips` and `snips`.
    """

    effective_sample_size: Float[Array, ""]
    clipped_mass: Float[Array, ""]
    mean_a_over_e: Float[Array, ""]
    standard_error: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    outside_share: Float[Array, ""]


class AcceptSums(NamedTuple):
    """The sums of `accept_loss` and its diagnostics: v the row weight, w the clipped A / e, u = A / e, d = u - 1."""

    numerator: Float[Array, ""]
    denominator: Float[Array, ""]
    v: Float[Array, ""]
    vw: Float[Array, ""]
    vw_squared: Float[Array, ""]
    vu: Float[Array, ""]
    v2: Float[Array, ""]
    v2d: Float[Array, ""]
    v2d2: Float[Array, ""]
    outside: Float[Array, ""]

    def mean(self) -> Float[Array, ""]:
        """The loss, 0 where there is no weight."""
        return ratio(self.numerator, self.denominator)

    def diagnostics(self) -> AcceptDiagnostics:
        """Effective sample size, clipped mass and the check of the propensities."""
        mean = ratio(self.vu, self.v)
        shift = mean - 1
        squares = self.v2d2 - 2 * shift * self.v2d + shift**2 * self.v2  # sum of v^2 (u - mean)^2
        error = ratio(jnp.sqrt(jnp.maximum(squares, 0.0)), self.v)
        return AcceptDiagnostics(
            effective_sample_size=ratio(self.vw**2, self.vw_squared),
            clipped_mass=ratio(self.vu - self.vw, self.vu),
            mean_a_over_e=mean,
            standard_error=error,
            low=mean - NORMAL_975 * error,
            high=mean + NORMAL_975 * error,
            outside_share=ratio(self.outside, self.v),
        )


def ratio(numerator: Any, denominator: Any) -> Any:
    """The ratio numerator / denominator, and 0 with gradient 0 where the denominator is 0."""
    empty = denominator == 0
    return jnp.where(empty, 0.0, numerator / jnp.where(empty, 1.0, denominator))
