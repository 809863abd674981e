"""What a gate says at one decision or at many, and the comparison that it made in words."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a gate says: Python values for two numbers, arrays of one shape for arrays.

    Attributes:
      speak: Whether to offer help.
      p_need: Calibrated probability that help is needed.
      p_accept: Calibrated probability that an offer would be accepted.
      threshold: The least calibrated p_accept at which the gate speaks; infinite where none suffices.
      policy: The rule that decided.
      offer: What a person answers (`Person.learn`); None of silence, and of a verdict that is about nobody.
    """

    speak: Any
    p_need: Any
    p_accept: Any
    threshold: Any
    policy: str = "dynamic"
    offer: Any = dataclasses.field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Whether to offer help, so that `if gate(p_need, p_accept):` asks it; ValueError for arrays."""
        if np.ndim(self.speak):
            found = f"found decisions of the shape {np.shape(self.speak)}, expected one"
            raise ValueError(f"verdict: {found}; `verdict.speak` is the array of them")
        return bool(self.speak)

    @property
    def reason(self) -> Any:
        """The comparison in words, such as "silent: 0.41 < 0.62"; a list of them, flattened, for arrays."""
        if np.ndim(self.speak) == 0:
            return reason(
                self.policy, bool(self.speak), float(self.p_need), float(self.p_accept), float(self.threshold)
            )
        columns = (np.ravel(value).tolist() for value in (self.speak, self.p_need, self.p_accept, self.threshold))
        return [reason(self.policy, *row) for row in zip(*columns, strict=True)]


def reason(policy: str, speak: bool, p_need: float, p_accept: float, threshold: float) -> str:
    """A decision in words, with as many digits as it takes to see the comparison."""
    return f"{'offer' if speak else 'silent'}: {comparison(policy, speak, p_need, p_accept, threshold)}"


def comparison(policy: str, speak: bool, p_need: float, p_accept: float, threshold: float) -> str:
    """What a policy compared, such as "0.41 < 0.62"."""
    if policy in ("always", "never"):
        return f"policy {policy}"
    if threshold == math.inf:
        return f"no acceptance suffices at a need of {p_need:.2g}"
    sign = ">=" if speak else "<"
    for digits in (2, 4, 6):
        left, right = f"{p_accept:.{digits}f}", f"{threshold:.{digits}f}"
        if left != right:
            return f"{left} {sign} {right}"
    return f"{p_accept!r} {sign} {threshold!r}"
