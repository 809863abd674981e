"""The decision policies, each defined once (docs/maths.md, section 2).

Everything that depends on a policy reads its entry of `POLICIES`: `gate.decide`, the sweeps over cost ratios
(`audbc.policy_signals`), `operating_point.OperatingPoint`, the evaluation and the tables of the report. A new policy is
one new entry here, with `signals` or `constant`, and one row of the table in docs/maths.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["DEPLOYABLE", "POLICIES", "Policy", "answering_to_ratio", "promised_policies"]

SignalMap = Callable[[Any, Any, Any], tuple[Any, Any]]
"""(p_need, p_accept, base_rate) to the (p_need, p_accept) on which the dynamic gate decides; a constant is a scalar."""
ThresholdMap = Callable[[Any, Any, Any, Any], Any]
"""(p_need [n], c_fa, c_fn, fixed_threshold) to the least p_accept at which a policy intervenes, [n]; the last three are
numbers, or arrays [n]."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """One policy.

    Attributes:
      label: Name in tables and figures.
      meaning: What it does, in one sentence that tables and figures print.
      signals: The signals on which the dynamic gate decides as this policy does, at every cost ratio; None for a policy
        whose decisions do not depend on the cost ratio. With neither `signals` nor `constant`, it decides as `fixed`.
      threshold: The least p_accept at which the policy intervenes, infinite where it never does, from the numbers that
        an operating point holds; None for a policy that needs more than these and therefore cannot be deployed.
      constant: The decision of a policy that decides the same at every step; None for the others.
      needs_base_rate: Whether the policy reads the acceptance rate of the calibration split.
    """

    label: str
    meaning: str
    signals: SignalMap | None = None
    threshold: ThresholdMap | None = None
    constant: bool | None = None
    needs_base_rate: bool = False

    @property
    def answers_to_ratio(self) -> bool:
        """Whether its decisions depend on the cost ratio C_FN / C_FA."""
        return self.signals is not None

    @property
    def deployable(self) -> bool:
        """Whether an `OperatingPoint` can deploy it."""
        return self.threshold is not None

    def least_acceptance(self, p_need: Any, c_fa: Any, c_fn: Any, fixed_threshold: Any) -> Any:
        """`threshold` of a policy that has one; agrees with `gate.decide` except at floating-point ties."""
        if self.threshold is None:
            raise ValueError(f"policy: found {self.label!r}, expected one with a threshold on p_accept")
        return self.threshold(p_need, c_fa, c_fn, fixed_threshold)


def acceptance_threshold(p_need: Any, c_fa: Any, c_fn: Any) -> Any:
    """The threshold tau = C_FA / (C_FA + p_need * C_FN) of the paper's Eq. 1: `gate.threshold` without its checks."""
    return c_fa / (c_fa + p_need * c_fn)


def _product_threshold(p_need: Any, c_fa: Any, c_fn: Any, _: Any) -> Any:
    """At p_need = share the policy requires p_accept = 1; below it no p_accept suffices."""
    share = c_fa / (c_fa + c_fn)
    return np.where(p_need >= share, share / np.maximum(p_need, share), np.inf)


def _constant_threshold(value: float) -> ThresholdMap:
    return lambda p_need, c_fa, c_fn, fixed: np.full_like(p_need, value)


POLICIES: dict[str, Policy] = {
    "fixed": Policy(
        "fixed",
        "Offers where p_accept reaches one fixed threshold.",
        threshold=lambda p_need, c_fa, c_fn, fixed: np.full_like(p_need, fixed),
    ),
    "static": Policy(
        "static",
        "Offers where p_accept reaches C_FA / (C_FA + C_FN), whatever the need.",
        signals=lambda p_need, p_accept, base_rate: (1.0, p_accept),
        threshold=lambda p_need, c_fa, c_fn, fixed: acceptance_threshold(np.ones_like(p_need), c_fa, c_fn),
    ),
    "dynamic": Policy(
        "dynamic",
        "Offers where p_accept reaches C_FA / (C_FA + p_need C_FN): the gate of the paper's Eq. 1.",
        signals=lambda p_need, p_accept, base_rate: (p_need, p_accept),
        threshold=lambda p_need, c_fa, c_fn, _: np.where(p_need > 0, acceptance_threshold(p_need, c_fa, c_fn), np.inf),
    ),
    "product": Policy(
        "product",
        "Offers where p_need p_accept reaches C_FA / (C_FA + C_FN); minimises the gold cost.",
        signals=lambda p_need, p_accept, base_rate: (1.0, p_accept * p_need),
        threshold=_product_threshold,
    ),
    "need_only": Policy(
        "need only",
        "The dynamic gate with p_accept replaced by the acceptance rate of the calibration split's top-ranked offers.",
        signals=lambda p_need, p_accept, base_rate: (p_need, base_rate),
        needs_base_rate=True,
    ),
    "always": Policy("always", "Offers at every step.", threshold=_constant_threshold(0.0), constant=True),
    "never": Policy("never", "Stays silent at every step.", threshold=_constant_threshold(np.inf), constant=False),
    "need_only_paper": Policy(
        "need only, as printed",
        "Sets p_accept to tau(p_need) as the paper prints it: an equality, so it offers at every step.",
        constant=True,
    ),
}

DEPLOYABLE = tuple(name for name, policy in POLICIES.items() if policy.deployable)
"""The policies that an `OperatingPoint` can deploy: they need only costs and a fixed threshold."""


def answering_to_ratio() -> tuple[str, ...]:
    """The policies whose decisions depend on the cost ratio."""
    return tuple(name for name, policy in POLICIES.items() if policy.answers_to_ratio)


def promised_policies() -> tuple[str, ...]:
    """The policies that can be promised: deployable ones whose offers are nested in the cost ratio, the gate first."""
    names = [name for name in answering_to_ratio() if POLICIES[name].deployable]
    return tuple(sorted(names, key=lambda name: name != "dynamic"))
