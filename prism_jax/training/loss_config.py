"""The `loss` section of a config: weights and estimators of the objective."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Weights and estimators of the objective (maths section 4; defaults of section 1).

    Attributes:
      response: lambda_LM, of the cross-entropy of response tokens; at 0 it is reported, and costs no gradient.
      need: lambda_n.
      accept: lambda_a.
      burden: lambda_b.
      estimator: How logged acceptances are weighted: `snips`, `ips`, `dr` (doubly robust, with the mean acceptance of
        other streams of the domain as its prediction), or `none`, which ignores the propensities (for comparison).
      e_min: Propensities below are raised to this.
      w_max: Inverse propensities above are lowered to this.
      false_alarm: lambda_FA, inside the burden.
      missed: Weight of missed help, inside the burden.
      width_start: h of the soft gate at the first step, in log-odds.
      width_end: h at the last step.
      tokens: Loss of a token of text: `sft`, or `dft`, which pathway.name = 'dft' sets.
      response_chunk: Supervised tokens whose logits exist at once.
    """

    response: float = 1.0
    need: float = 1.0
    accept: float = 1.0
    burden: float = 0.1
    estimator: Literal["snips", "ips", "dr", "none"] = "snips"
    e_min: float = 0.05
    w_max: float = 20.0
    false_alarm: float = 1.0
    missed: float = 1.0
    width_start: float = 0.25
    width_end: float = 0.05
    tokens: Literal["sft", "dft"] = "sft"
    response_chunk: int = 1024

    def __post_init__(self) -> None:
        for name in ("response", "need", "accept", "burden", "false_alarm", "missed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 0")
        if not 0 < self.e_min <= 1:
            raise ValueError(f"e_min: found {self.e_min}, expected a probability in (0, 1]")
        for name in ("w_max", "width_start", "width_end", "response_chunk"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected above 0")
