"""The objective: response cross-entropy and the three decision losses, over one batch of packed streams.

    L = lambda_LM L_LM + lambda_n L_need + lambda_a L_acc + lambda_b L_burden        (docs/maths.md, section 4)

The decision losses act on slot logits, and the cross-entropy acts on response tokens only. The burden takes its costs
and the margin of the slow pass from the `OperatingPoint` that the deployed gate uses. Every term is a ratio of two
sums, so that the sums of microbatches add up to the sums of their batch (`prism_jax.training.optimization.step`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from prism_jax.decision import losses
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.student.heads import token_cross_entropy
from prism_jax.student.prompting.packing import Packed
from prism_jax.student.qwen3 import Params, take
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.loss_config import LossConfig

TERMS = ("need", "accept", "burden", "response")
"""The terms of the total, with the names of their weights in the loss section of the config."""


class Terms(NamedTuple):
    """The numerator and the denominator of every term; the burden has several parts."""

    need: losses.Sums
    accept: losses.AcceptSums
    burden: losses.BurdenSums
    response: losses.Sums

    def over(self, whole: Terms) -> Terms:
        """A microbatch's share of its batch: these numerators with the denominators of `whole`."""
        parts = zip(self.burden, whole.burden, strict=True)
        return Terms(
            need=self.need._replace(denominator=whole.need.denominator),
            accept=self.accept._replace(denominator=whole.accept.denominator),
            burden=losses.BurdenSums(*(mine._replace(denominator=all_.denominator) for mine, all_ in parts)),
            response=self.response._replace(denominator=whole.response.denominator),
        )


@dataclasses.dataclass(frozen=True)
class Objective:
    """The objective, with all that it sees of a config; hashable, so that a jitted function can close over it."""

    slots: Slots  # the student and the token ids of its two answers
    loss: LossConfig  # weights and estimators of the terms, as the pathway has them
    point: OperatingPoint  # its costs weight the burden; its margin and policy trigger the slow pass

    def width(self, step: Int[Array, ""] | int, steps: int) -> Float[Array, ""]:
        """Width h of the soft gate at `step` of `steps`: it changes geometrically from width_start to width_end."""
        share = jnp.clip(step / jnp.maximum(steps - 1, 1), 0.0, 1.0)
        return jnp.exp((1 - share) * jnp.log(self.loss.width_start) + share * jnp.log(self.loss.width_end))

    def sums(
        self, params: Params, batch: Packed, width: Float[Array, ""] | float, key: PRNGKeyArray | None = None
    ) -> Terms:
        """The sums of every term over a batch or a microbatch.

        `width` is the width h of the soft gate (`width`, by the step); `key` draws the dropout of adapters.
        """
        slots, config = self.slots, self.loss
        hidden = slots.hidden(params, batch, key)
        z_need, z_accept = slots.logits(params, hidden, batch)
        rows, head = take(hidden, batch.response_source), slots.model.head(params)
        if not config.response:
            # The term is reported but not trained on. Stopping the gradient saves computing a vocabulary-sized gradient
            # that would be multiplied by zero.
            rows, head = jax.lax.stop_gradient((rows, head))
        elif slots.model.lora.rank and not slots.model.lora.trains_head:
            head = jax.lax.stop_gradient(head)  # rows of single tokens train on the decision losses alone
        response, _ = token_cross_entropy(
            head,
            rows.reshape(-1, rows.shape[-1]),
            batch.response_target.ravel(),
            (batch.response_weight * batch.response_factor).ravel(),
            config.response_chunk,
            config.tokens == "dft",
            slots.model.config.compute,
        )
        sums = self._decision_sums(z_need, z_accept, batch, width)
        return sums._replace(response=sums.response._replace(numerator=response))

    def denominators(self, batch: Packed) -> Terms:
        """The denominators of a batch's terms, without a forward pass: they do not depend on logits, here 0."""
        z_need, z_accept = jnp.zeros(batch.y_need.shape), jnp.zeros(batch.y_accept.shape)
        return self._decision_sums(z_need, z_accept, batch, self.loss.width_end)

    def total(self, sums: Terms) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """The total loss, and a dictionary of the total and its parts, from the sums of a whole batch.

        The parts are the unweighted terms, the diagnostics of the propensity weights and, where `loss.slow` is above 0,
        burden_slow, the slow pass's part of the burden.
        """
        config, burden = self.loss, sums.burden
        terms = {
            "need": sums.need.mean(),
            "accept": sums.accept.mean(),
            "burden": config.false_alarm * burden.false_alarm.mean() + config.missed * burden.missed.mean(),
            "response": sums.response.mean(),
        }
        slow = {}
        if config.slow:
            slow = {"burden_slow": config.slow * burden.slow.mean()}
            terms["burden"] += slow["burden_slow"]
        loss = sum((getattr(config, name) * term for name, term in terms.items()), jnp.zeros(()))
        diagnostics = sums.accept.diagnostics()._asdict()
        if config.estimator != "dr":
            del diagnostics["outside_share"]  # only doubly robust labels can leave [0, 1]
        checks = {f"accept_{name}": value for name, value in diagnostics.items()}
        return loss, {"loss": loss, **terms, **slow, **checks}

    def alone(self, name: str) -> Objective:
        """The objective with the weights of all other terms set to 0."""
        nothing: dict[str, Any] = {term: 0.0 for term in TERMS if term != name}
        return dataclasses.replace(self, loss=dataclasses.replace(self.loss, **nothing))

    def _decision_sums(
        self,
        z_need: Float[Array, "B S"],
        z_accept: Float[Array, "B C"],
        batch: Packed,
        width: Float[Array, ""] | float,
    ) -> Terms:
        """The sums of the decision losses from logits. Of the response only the denominator is set, beside a 0."""
        config = self.loss
        unweighted = config.estimator == "none"
        weight = batch.accept_weight * batch.logged if unweighted else batch.accept_weight
        propensity = jnp.ones_like(batch.propensity) if unweighted else batch.propensity
        accept = losses.accept_sums(
            z_accept.ravel(),
            batch.accept_target.ravel(),
            batch.logged.ravel(),
            propensity.ravel(),
            estimator="snips" if config.estimator == "none" else config.estimator,
            e_min=config.e_min,
            w_max=config.w_max,
            weight=weight.ravel(),
            mu=batch.accept_mu.ravel(),
        )
        return Terms(
            need=self._need_sums(z_need, z_accept, batch, propensity),
            accept=accept,
            burden=self._burden_sums(z_need, z_accept, batch, propensity, width),
            response=losses.Sums(jnp.zeros(()), jnp.sum(batch.response_weight)),
        )

    def _need_sums(
        self,
        z_need: Float[Array, "B S"],
        z_accept: Float[Array, "B C"],
        batch: Packed,
        propensity: Float[Array, "B C"],
    ) -> losses.Sums:
        """The sums of L_need, on all labelled steps or, for `given_accept`, weighted by the acceptance of their offer.

        A step's offer is its candidate of highest p_accept, the one that would be made. No denominator may depend on
        the logits, so that of several candidates holds their mean acceptance; with one candidate they are the same. In
        rows of single decisions every candidate counts as its step's offer, with its share of the step's weight.
        """
        weight = whole = batch.need_weight
        if self.loss.need_target == "given_accept":
            accepted = batch.accept_weight * batch.logged * self._inverse(propensity) * batch.y_accept
            real = batch.accept_slot > 0  # the first token of a branch is never an accept slot, and padding has 0
            best = _over_steps(jax.ops.segment_max, jnp.where(real, jax.lax.stop_gradient(z_accept), -jnp.inf), batch)
            top = real & (z_accept == jnp.take_along_axis(best, batch.accept_step, axis=1))
            weight *= _mean_over_steps(accepted, top, batch)
            whole *= _mean_over_steps(accepted, real, batch)
        sums = losses.need_sums(z_need.ravel(), batch.need_target.ravel(), weight.ravel())
        return sums._replace(denominator=jnp.sum(whole))

    def _burden_sums(
        self,
        z_need: Float[Array, "B S"],
        z_accept: Float[Array, "B C"],
        batch: Packed,
        propensity: Float[Array, "B C"],
        width: Float[Array, ""] | float,
    ) -> losses.BurdenSums:
        """The sums of L_burden: its costs over candidates with known need and outcome, weighted as acceptances are.

        The tokens of the slow pass are averaged over all candidates on fast branches, whose signals trigger it; without
        `loss.slow` they are left out.
        """
        config, point = self.loss, self.point

        def of_step(values_BxS: Float[Array, "B S"]) -> Array:
            return jnp.take_along_axis(values_BxS, batch.accept_step, axis=1)

        # In rows of single decisions, the weight of a need label is shared between the candidates of its step. The
        # burden counts every candidate with full weight.
        judged = of_step(batch.need_weight) > 0
        observed = batch.accept_weight * batch.logged * judged * self._inverse(propensity)
        priced = {
            "margin": point.slow_margin,
            "slow_width": config.slow_width,
            "slow_tokens": batch.slow_tokens.ravel(),
        }
        sums = losses.burden_sums(
            of_step(z_need).ravel(),
            z_accept.ravel(),
            of_step(batch.y_need).ravel(),
            batch.y_accept.ravel(),
            c_fa=point.c_fa,
            c_fn=point.c_fn,
            width=width,
            observed=observed.ravel(),
            **(priced if config.slow else {}),
        )
        fast = jnp.sum(batch.slow_tokens > 0, dtype=sums.slow.denominator.dtype)
        return sums._replace(slow=sums.slow._replace(denominator=fast)) if config.slow else sums

    def _inverse(self, propensity: Float[Array, "B C"]) -> Float[Array, "B C"]:
        """The clipped inverse propensities of offers that were made."""
        return jnp.minimum(1.0 / jnp.maximum(propensity, self.loss.e_min), self.loss.w_max)


def _over_steps(segment: Callable[..., Array], values: Float[Array, "B C"], batch: Packed) -> Float[Array, "B S"]:
    """A reduction of candidates' values over the candidates of every step, such as `jax.ops.segment_sum`."""
    steps = batch.need_slot.shape[1]
    return jax.vmap(lambda row, step: segment(row, step, num_segments=steps))(values, batch.accept_step)


def _mean_over_steps(values: Float[Array, "B C"], counted: Bool[Array, "B C"], batch: Packed) -> Float[Array, "B S"]:
    """The mean over the counted candidates of every step; 0 for a step that has none."""
    total, count = (_over_steps(jax.ops.segment_sum, part * counted, batch) for part in (values, jnp.ones_like(values)))
    return total / jnp.maximum(count, 1)
