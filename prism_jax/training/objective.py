"""The objective: response cross-entropy and the three decision losses, over one batch of packed streams.

    L = lambda_LM L_LM + lambda_n L_need + lambda_a L_acc + lambda_b L_burden        (maths section 4)

Decision losses act on slot logits, cross-entropy on response tokens only, and one `OperatingPoint` gives the burden the
same costs as the deployed gate.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prism_jax.decision import losses
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.prompting.packing import Packed
from prism_jax.student import Qwen3
from prism_jax.student.attention import Visible
from prism_jax.student.heads import token_cross_entropy
from prism_jax.student.qwen3 import Params, take
from prism_jax.training.config import LossConfig


@dataclasses.dataclass(frozen=True)
class Slots:
    """How decisions are read off the student; hashable, so that jit can close over it.

    Attributes:
      model: The static half of the student.
      yes: Id of the answer yes.
      no: Id of the answer no.
      window: W, the length that no branch exceeds.
      visible: Bounds on what each W branch tokens see of the trunk.
    """

    model: Qwen3
    yes: int
    no: int
    window: int
    visible: Visible = None


def objective(
    params: Params,
    batch: Packed,
    slots: Slots,
    config: LossConfig,
    point: OperatingPoint,
    width: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The total loss and its parts.

    Args:
      params: Of the student.
      batch: Rows along the leading axis.
      slots: The student and its two answers.
      config: Weights and estimators.
      point: Costs of the burden.
      width: h of the soft gate, annealed by the caller.

    Returns:
      The total, and by name the unweighted terms and the diagnostics of the propensity weights.
    """
    model = slots.model
    hidden = model.branch_hidden(
        params,
        batch.trunk,
        batch.tokens,
        batch.positions,
        batch.stop,
        batch.branch,
        batch.leaf,
        slots.window,
        slots.visible,
    )
    z_need = model.answers(params, hidden, batch.need_slot, slots.yes, slots.no)
    z_accept = model.answers(params, hidden, batch.accept_slot, slots.yes, slots.no)
    terms = {}
    terms["need"] = losses.need_loss(z_need.ravel(), batch.y_need.ravel(), batch.need_weight.ravel())
    unweighted = config.estimator == "none"
    weight = batch.accept_weight * batch.logged if unweighted else batch.accept_weight
    propensity = jnp.ones_like(batch.propensity) if unweighted else batch.propensity
    terms["accept"], diagnostics = losses.accept_loss(
        z_accept.ravel(),
        batch.y_accept.ravel(),
        batch.logged.ravel(),
        propensity.ravel(),
        estimator="ips" if config.estimator == "ips" else "snips",
        e_min=config.e_min,
        w_max=config.w_max,
        weight=weight.ravel(),
    )
    terms["burden"] = _burden(z_need, z_accept, batch, propensity, config, point, width)
    rows = take(hidden, batch.response_source)
    nll, count = token_cross_entropy(
        model.head(params),
        rows.reshape(-1, rows.shape[-1]),
        batch.response_target.ravel(),
        batch.response_weight.ravel(),
        config.response_chunk,
    )
    terms["response"] = nll / jnp.maximum(count, 1.0)
    total = sum((getattr(config, name) * term for name, term in terms.items()), jnp.zeros(()))
    checks = {f"accept_{name}": value for name, value in diagnostics._asdict().items() if name != "outside_share"}
    return total, {"loss": total, **terms, **checks}


def _burden(
    z_need: Float[Array, "B S"],
    z_accept: Float[Array, "B C"],
    batch: Packed,
    propensity: Float[Array, "B C"],
    config: LossConfig,
    point: OperatingPoint,
    width: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """L_burden over candidates whose need and outcome are known, weighted like the acceptance loss."""

    def of_step(values_BxS: Float[Array, "B S"]) -> Array:
        return jnp.take_along_axis(values_BxS, batch.accept_step, axis=1)

    inverse = jnp.minimum(1.0 / jnp.maximum(propensity, config.e_min), config.w_max)
    observed = batch.accept_weight * batch.logged * of_step(batch.need_weight) * inverse
    loss = losses.burden_loss(
        of_step(z_need).ravel(),
        z_accept.ravel(),
        of_step(batch.y_need).ravel(),
        batch.y_accept.ravel(),
        c_fa=point.c_fa,
        c_fn=point.c_fn,
        width=width,
        fa_weight=config.false_alarm,
        missed_weight=config.missed,
        observed=observed.ravel(),
    )
    return jnp.asarray(loss)


def gate_width(step: Int[Array, ""] | int, steps: int, config: LossConfig) -> Float[Array, ""]:
    """The soft gate's width h at `step` of `steps`: from width_start to width_end along a geometric path."""
    share = jnp.clip(step / jnp.maximum(steps - 1, 1), 0.0, 1.0)
    return jnp.exp((1 - share) * jnp.log(config.width_start) + share * jnp.log(config.width_end))
