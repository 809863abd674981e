"""The `loss` section of the config: weights and estimators of the training objective."""

from __future__ import annotations

import dataclasses
from typing import Literal

from prism_jax.runtime.dataclass_config import check, check_above, check_at_least

NeedTarget = Literal["marginal", "given_accept"]
"""What p_need estimates: Pr(need | what is seen), or Pr(need | what is seen, the offer accepted)."""


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Weights and estimators of the objective (docs/maths.md, section 4; defaults in section 1)."""

    # weight lambda_LM of the cross-entropy of response tokens; at 0 the term is reported but no gradient is computed
    # for it
    response: float = 1.0
    need: float = 1.0  # weight lambda_n of the need loss
    # What the need slot learns. `marginal` is Pr(need | what is seen). `given_accept` is Pr(need | what is seen, the
    # offer accepted), with which the gate is optimal however need and acceptance depend on each other (docs/maths.md,
    # section 2); it learns from accepted offers only.
    need_target: NeedTarget = "marginal"
    accept: float = 1.0  # weight lambda_a of the acceptance loss
    burden: float = 0.1  # weight lambda_b of the burden
    # cost lambda_slow * c_slow of one token of the slow pass within the burden, for students that train slow branches;
    # at 0 the burden does not price the slow pass
    slow: float = 1e-4
    slow_width: float = 0.02  # width h_delta of the soft edge of the slow margin, in units of probability
    # estimator that weights logged acceptances: `snips`, `ips`, `dr` (doubly robust; its prediction is the mean
    # acceptance in other streams of the same domain), or `none`, which ignores the propensities (for comparison)
    estimator: Literal["snips", "ips", "dr", "none"] = "snips"
    e_min: float = 0.05  # lower bound that smaller propensities are raised to
    w_max: float = 20.0  # upper bound that larger inverse propensities are lowered to
    false_alarm: float = 1.0  # weight lambda_FA of false alarms within the burden
    missed: float = 1.0  # weight of missed help within the burden
    width_start: float = 0.25  # width h of the soft gate at the first step, in log-odds
    width_end: float = 0.05  # width h of the soft gate at the last step, in log-odds
    tokens: Literal["sft", "dft"] = "sft"  # loss per text token: `sft`, or `dft`, which pathway.name = 'dft' sets
    response_chunk: int = 1024  # number of supervised tokens whose logits are held in memory at once

    def __post_init__(self) -> None:
        check_at_least(self, 0, "response", "need", "accept", "burden", "slow", "false_alarm", "missed")
        check(self, "e_min", 0 < self.e_min <= 1, "a probability in (0, 1]")
        check_above(self, 0, "slow_width", "w_max", "width_start", "width_end", "response_chunk")
