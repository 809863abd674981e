"""Training losses of the two decision slots and of the gate, from logits, in JAX (docs/maths.md, section 4).

Every loss is a ratio of two sums over rows, and these sums are available separately (`need_sums`, `accept_sums`,
`burden_sums`). Add them leaf by leaf over microbatches or devices (`jax.tree.map(operator.add, a, b)`, `jax.lax.psum`)
and call `mean()` once. No denominator depends on parameters, so gradients add up in the same way.

`weight` is the importance of each row. A row of weight 0 is padding and may hold any value, including NaN; a batch of
such rows has loss 0 and gradient 0. Sums are float32 for logits of lower precision (float64 stays float64).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Array, Number, Reals, Vector
from prism_jax.decision.losses.propensity import (
    AcceptDiagnostics,
    AcceptSums,
    Sums,
    doubly_robust_label,
)
from prism_jax.decision.propensity import check_positivity, clipped_weight

Estimator = Literal["ips", "snips", "dr"]


def cross_entropy(z: Any, y: Any) -> jax.Array:
    """Binary cross-entropy from logits, softplus(z) - y * z, elementwise; y may be soft."""
    logit = _precise(z)
    return jax.nn.softplus(logit) - jnp.asarray(y, logit.dtype) * logit


def slot_target(y: Reals, teacher: Reals | None = None, alpha: Number = 0.0) -> arrays.Floats:
    """Target of a slot, (1 - alpha) * y + alpha * teacher: the label mixed with a teacher's probability.

    Raises:
      ValueError: for alpha, labels or probabilities outside [0, 1], or alpha > 0 without a teacher.
    """
    arrays.check_label("y", y)
    arrays.check_probability("alpha", alpha)
    if teacher is None:
        if alpha > 0:
            raise ValueError(f"teacher: found None with alpha = {alpha}, expected the teacher's probabilities")
        return arrays.as_float(y)
    arrays.check_probability("teacher", teacher)
    arrays.check_broadcast(y=y, teacher=teacher)
    _, label, q = arrays.as_floats(y, teacher)
    return (1 - alpha) * label + alpha * q


def need_sums(z_need: Float[Array, "_n"], y_need: Vector, weight: Vector | None = None) -> Sums:
    """The sums of `need_loss`, with one row per step.

    Args:
      z_need: Need logits.
      y_need: Need labels in [0, 1], hard or soft.
      weight: Importance of each row; None is 1 everywhere.

    Raises:
      ValueError: for unequal lengths, empty input, or a logit that is not finite or a label outside [0, 1] on a row of
        positive weight.
    """
    arrays.check_lengths(z_need=z_need, y_need=y_need, weight=weight)
    row_weight = _row_weight(z_need, weight)
    _check(arrays.check_finite, "z_need", z_need, row_weight)
    _check(arrays.check_label, "y_need", y_need, row_weight)
    losses = cross_entropy(_where_positive(row_weight, z_need), _where_positive(row_weight, y_need))
    return Sums(jnp.sum(row_weight * losses), jnp.sum(row_weight))


def need_loss(z_need: Float[Array, "_n"], y_need: Vector, weight: Vector | None = None) -> Float[Array, ""]:
    """L_need: the weighted mean cross-entropy of the need slot; arguments and errors are those of `need_sums`."""
    return need_sums(z_need, y_need, weight).mean()


def accept_sums(
    z_accept: Float[Array, "_n"],
    y_accept: Vector,
    logged: Vector,
    propensity: Vector,
    *,
    estimator: Estimator = "snips",
    e_min: Number = 0.05,
    w_max: Number = 20.0,
    weight: Vector | None = None,
    mu: Vector | None = None,
    logit_bound: Number = 10.0,
) -> AcceptSums:
    """The sums of L_acc: cross-entropy of the accept slot on logged interventions, weighted by inverse propensities.

    With w = min(A / max(e, e_min), w_max) and row weights v:
      `ips`    sum(v w l) / sum(v)
      `snips`  sum(v w l) / sum(v w), the default
      `dr`     sum(v [softplus(z) - y~ z]) / sum(v) with y~ = mu + w (y - mu)
    All three equal the plain mean if e = 1 on every row. The doubly robust loss is convex in z for every y~, but
    unbounded below where y~ lies outside [0, 1]. On such rows, whose share is in the diagnostics, the convex penalty
    (|z| - logit_bound)^2 beyond that bound keeps the optimum finite.

    Args:
      z_accept: Acceptance logits.
      y_accept: Acceptance labels in [0, 1]; where A = 0 no label was observed and the value is not read.
      logged: A, 1 where the logging policy intervened, else 0.
      propensity: e, the logging policy's probability of A = 1.
      estimator: `ips`, `snips` or `dr`.
      e_min: Lower bound to which smaller propensities are raised before the division.
      w_max: Upper bound to which larger weights are lowered.
      weight: Importance of each row; None is 1 everywhere.
      mu: Cross-fitted predictions of y_accept in [0, 1], for `dr`.
      logit_bound: Absolute logit at which the `dr` penalty begins, in log-odds.

    Raises:
      ValueError: for unequal lengths, values outside their range, a missing `mu`, or propensities that break
        positivity (see `check_positivity`); rows of weight 0 are not checked.
    """
    arrays.check_choice("estimator", estimator, get_args(Estimator))
    if estimator == "dr" and mu is None:
        raise ValueError("mu: found None, expected cross-fitted predictions of y_accept for the estimator 'dr'")
    arrays.check_probability("e_min", e_min)
    arrays.check_range("w_max", w_max, 0.0, np.inf, "a finite weight above 0", open_low=True)
    arrays.check_lengths(
        z_accept=z_accept, y_accept=y_accept, logged=logged, propensity=propensity, weight=weight, mu=mu
    )
    v: Any = _row_weight(z_accept, weight)
    chosen: Any = _where_positive(v, logged)
    check_positivity(logged, propensity, weight)
    _check(arrays.check_finite, "z_accept", z_accept, v)
    _check_amount("logit_bound", logit_bound)
    _check(arrays.check_label, "y_accept", y_accept, v * chosen)
    e = jnp.where(v > 0, jnp.asarray(propensity, v.dtype), 1.0)
    w: Any = clipped_weight(chosen, e, e_min, w_max)
    z = _where_positive(v, z_accept)
    y = _where_positive(v * w, y_accept)  # unobserved acceptance labels are not read
    outside = jnp.zeros_like(v)
    if estimator == "dr":
        _check(arrays.check_label, "mu", mu, v)
        label: Any = doubly_robust_label(y, w, _where_positive(v, mu))
        outside = ((label < 0) | (label > 1)).astype(v.dtype)
        beyond = jax.nn.relu(jnp.abs(z) - logit_bound)
        losses = v * (cross_entropy(z, label) + outside * beyond**2)
    else:
        losses = v * w * cross_entropy(z, y)
    return _add_up(losses, outside, v, w, chosen / e, estimator)


def _add_up(losses: Any, outside: Any, v: Any, w: Any, u: Any, estimator: Estimator) -> AcceptSums:
    """The sums of `AcceptSums` from the loss of each row, its weights v, w and u, and whether its label is outside."""
    return AcceptSums(
        numerator=jnp.sum(losses),
        denominator=jnp.sum(v * w) if estimator == "snips" else jnp.sum(v),
        v=jnp.sum(v),
        vw=jnp.sum(v * w),
        vw_squared=jnp.sum((v * w) ** 2),
        vu=jnp.sum(v * u),
        v2=jnp.sum(v**2),
        v2d=jnp.sum(v**2 * (u - 1)),
        v2d2=jnp.sum((v * (u - 1)) ** 2),
        outside=jnp.sum(v * outside),
    )


def accept_loss(*columns: Vector, **settings: Any) -> tuple[Float[Array, ""], AcceptDiagnostics]:
    """L_acc and its diagnostics; arguments and errors are those of `accept_sums`."""
    sums = accept_sums(*columns, **settings)
    return sums.mean(), sums.diagnostics()


class BurdenSums(NamedTuple):
    """The three parts of `burden_loss` before they are weighted, in units of cost per row (slow: tokens per row)."""

    false_alarm: Sums
    missed: Sums
    slow: Sums


def burden_sums(
    z_need: Float[Array, "_n"],
    z_accept: Float[Array, "_n"],
    y_need: Vector,
    y_accept: Vector,
    *,
    c_fa: Number,
    c_fn: Number,
    width: Number,
    margin: Number = 0.0,
    slow_width: Number = 0.02,
    slow_tokens: Vector | None = None,
    observed: Vector | None = None,
    weight: Vector | None = None,
) -> BurdenSums:
    """The realised cost of the soft gate, and the cost of its slow passes (docs/maths.md, section 4).

        mean[C_FA g (1 - y_a)],   mean[C_FN (1 - g) y_n y_a],   mean[m * slow_tokens]

    with g = `gate.soft_gate` and m = `gate.soft_slow`. The first term uses the label 1 - y_a; with the model's own 1 -
    p_a, the model could lower the term by inflating p_a. Without the second term, silence would minimise the burden.

    Args:
      z_need: Need logits.
      z_accept: Acceptance logits.
      y_need: Need labels in [0, 1].
      y_accept: Acceptance labels in [0, 1].
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.
      width: Width h > 0 of the soft gate, in log-odds; may be a traced scalar, so that a schedule can lower it.
      margin: Slow margin delta.
      slow_width: Width h_delta > 0, in units of probability.
      slow_tokens: Tokens of each row's slow pass; None is 1 per row, so that the slow term counts passes.
      observed: Row weights of the first two terms: A or an inverse-propensity weight, if acceptance was observed only
        on logged interventions. Labels of rows at 0 are not read. None is 1 everywhere.
      weight: Importance of each row; None is 1 everywhere.

    Raises:
      ValueError: for unequal lengths, a logit, label, cost, weight, width or margin outside its range.
    """
    arrays.check_lengths(
        z_need=z_need,
        z_accept=z_accept,
        y_need=y_need,
        y_accept=y_accept,
        slow_tokens=slow_tokens,
        observed=observed,
        weight=weight,
    )
    v = _row_weight(z_need, weight)
    _check(arrays.check_finite, "z_need", z_need, v)
    _check(arrays.check_finite, "z_accept", z_accept, v)
    _check(_check_amount, "observed", observed, v)
    _check(_check_amount, "slow_tokens", slow_tokens, v)
    observed_weight = v if observed is None else v * _where_positive(v, observed)
    _check(arrays.check_label, "y_need", y_need, observed_weight)
    _check(arrays.check_label, "y_accept", y_accept, observed_weight)
    need, accept = _where_positive(observed_weight, y_need), _where_positive(observed_weight, y_accept)
    logits = _where_positive(v, z_need), _where_positive(v, z_accept)
    g = gate.soft_gate(*logits, c_fa, c_fn, width)
    m = gate.soft_slow(*logits, c_fa, c_fn, margin, slow_width)
    tokens = jnp.ones_like(v) if slow_tokens is None else _where_positive(v, slow_tokens)
    total, total_observed = jnp.sum(v), jnp.sum(observed_weight)
    return BurdenSums(
        false_alarm=Sums(c_fa * jnp.sum(observed_weight * g * (1 - accept)), total_observed),
        missed=Sums(c_fn * jnp.sum(observed_weight * (1 - g) * need * accept), total_observed),
        slow=Sums(jnp.sum(v * m * tokens), total),
    )


def burden_loss(
    *columns: Vector, fa_weight: Number = 1.0, missed_weight: Number = 1.0, slow_weight: Number = 0.0, **settings: Any
) -> Float[Array, ""]:
    """L_burden, the weighted sum of the means of `burden_sums`, whose other arguments and errors are the same.

    Args:
      columns: The arrays of `burden_sums`, which may also be named.
      fa_weight: Weight of false alarms, lambda_FA.
      missed_weight: Weight of missed help.
      slow_weight: Cost of one slow token, lambda_slow * c_slow.
      settings: The other arguments of `burden_sums`.
    """
    for name, share in (("fa_weight", fa_weight), ("missed_weight", missed_weight), ("slow_weight", slow_weight)):
        arrays.check_range(name, share, 0.0, np.inf, "a finite weight of at least 0")
    sums = burden_sums(*columns, **settings)
    return fa_weight * sums.false_alarm.mean() + missed_weight * sums.missed.mean() + slow_weight * sums.slow.mean()


def _precise(z: Any) -> jax.Array:
    """Logits in float32, or in their own precision if that is higher."""
    z = jnp.asarray(z)
    return z.astype(jnp.promote_types(z.dtype, jnp.float32))


def _row_weight(z: Any, weight: Any) -> jax.Array:
    """The row weights in the precision of the sums; None is 1 everywhere."""
    dtype = _precise(z).dtype
    if weight is None:
        return jnp.ones(jnp.shape(z), dtype)
    if not arrays.is_traced(weight):
        arrays.check_range("weight", weight, 0.0, np.inf, "a finite weight of at least 0")
    return jnp.asarray(weight, dtype)


def _where_positive(weight: jax.Array, value: Any) -> jax.Array:
    """`value` where a row has positive weight, 0 elsewhere, so that values of padding never reach a sum."""
    return jnp.where(weight > 0, jnp.asarray(value, weight.dtype), 0.0)


def _check(check: Callable[[str, Any], None], name: str, value: Any, weight: Any) -> None:
    """Applies a check of `arrays` to the values on rows of positive weight; None and tracers pass."""
    if value is None or arrays.is_traced(value, weight):
        return
    arrays.check_kind(name, value)
    counted = arrays.host(value)[arrays.host(weight) > 0]
    if counted.size:
        check(name, counted)


def _check_amount(name: str, value: Any) -> None:
    """Raises ValueError for an amount that is negative or not finite."""
    arrays.check_range(name, value, 0.0, np.inf, "a finite number of at least 0")
