"""The `decision` section of a config: costs, policy and slow trigger, used both in training and in deployment."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from prism_jax.decision import arrays
from prism_jax.decision.policies import DEPLOYABLE

LEAST, MOST = 1e-15, 1e15
"""Bounds of a cost: ratios of two costs, and sums of many, are then far from the limits of float32."""

SlowTrigger = Literal["auto", "margin", "value"]
"""What triggers the slow pass: the distance of p_accept from the threshold (section 3), or its value (section 12)."""
SLOW_TRIGGERS: tuple[SlowTrigger, ...] = get_args(SlowTrigger)


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
    """Costs, policy and slow trigger (docs/maths.md, section 1); the defaults are the paper's but for the trigger.

    Attributes:
      c_fa: Cost C_FA, from 1e-15 to 1e15, the cost of an offer that is not accepted.
      c_fn: C_FN, 0 or from 1e-15 to 1e15, the cost of silence where help was needed and would have been accepted.
      margin: Slow margin delta >= 0, the slow margin around the threshold, in units of probability.
      policy: The policy that decides: `fixed`, `static`, `dynamic` (the paper's Eq. 1), `product`, `always` or `never`.
      fixed_threshold: Threshold tau of the policy `fixed`.
      trigger: What triggers the slow pass of the policy `dynamic`: `margin` runs it within the margin of the threshold,
        `value` where it is expected to save more than the price of its tokens; `auto` is `value` wherever it is known
        what the slow pass does, and `margin`, the paper's, elsewhere. Without slow signals none has an effect.
      price: Price kappa of a slow token for the trigger `value`, 0 to 1e15, in the costs' unit; 0 always thinks.
    """

    c_fa: float = 1.0
    c_fn: float = 2.0
    margin: float = 0.10
    policy: str = "dynamic"
    fixed_threshold: float = 0.5
    trigger: SlowTrigger = "auto"
    price: float = 1e-4

    def __post_init__(self) -> None:
        if not LEAST <= self.c_fa <= MOST:
            raise ValueError(f"c_fa: found {self.c_fa}, expected a cost from {LEAST:g} to {MOST:g}")
        if not (self.c_fn == 0 or LEAST <= self.c_fn <= MOST):
            raise ValueError(f"c_fn: found {self.c_fn}, expected 0 or a cost from {LEAST:g} to {MOST:g}")
        arrays.check_choice("policy", self.policy, DEPLOYABLE)
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin: found {self.margin}, expected a number in [0, 1]")
        if not 0 <= self.fixed_threshold <= 1:
            raise ValueError(f"fixed_threshold: found {self.fixed_threshold}, expected a probability in [0, 1]")
        arrays.check_choice("trigger", self.trigger, SLOW_TRIGGERS)
        if not 0 <= self.price <= MOST:
            raise ValueError(f"price: found {self.price}, expected a price of one token from 0 to {MOST:g}")

    def triggered(self, knows_thinking: bool) -> OperatingPoint:
        """The point with the trigger that `auto` stands for, by whether it is known what the slow pass does."""
        if self.trigger != "auto":
            return self
        return dataclasses.replace(self, trigger="value" if knows_thinking else "margin")

    @property
    def slow_margin(self) -> float:
        """The margin within which training prices the slow pass: `margin` for the policy `dynamic`, 0 for all others.

        The same for both triggers: what `value` needs is fitted after training.
        """
        return self.margin if self.policy == "dynamic" else 0.0

    @property
    def cost_ratio(self) -> float:
        """The cost ratio r = C_FN / C_FA."""
        return self.c_fn / self.c_fa
