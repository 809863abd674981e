"""The training losses of the two decision slots, of the gate and of tokens; users import them from here.

Belongs here: cross-entropy of the slots and the burden (`decision_losses`), inverse-propensity weights and the sums
that are added over microbatches (`propensity`), token losses and reward weights of fine-tuning (`token_losses`).
Does not belong here: the student, and the sum of the terms in one objective (`prism_jax.training.optimization`).
"""

from prism_jax.decision.losses.decision_losses import (
    BurdenSums,
    Estimator,
    accept_loss,
    accept_sums,
    burden_loss,
    burden_sums,
    cross_entropy,
    need_loss,
    need_sums,
    slot_target,
)
from prism_jax.decision.losses.propensity import (
    NORMAL_975,
    AcceptDiagnostics,
    AcceptSums,
    Sums,
    check_positivity,
    doubly_robust_label,
    propensity_weight,
)
from prism_jax.decision.losses.token_losses import (
    RewardWeights,
    TokenLoss,
    advantage_weights,
    reward_weights,
    token_loss,
    token_sums,
    token_weight,
    total_reward,
)

__all__ = [
    "NORMAL_975",
    "AcceptDiagnostics",
    "AcceptSums",
    "BurdenSums",
    "Estimator",
    "RewardWeights",
    "Sums",
    "TokenLoss",
    "accept_loss",
    "accept_sums",
    "advantage_weights",
    "burden_loss",
    "burden_sums",
    "check_positivity",
    "cross_entropy",
    "doubly_robust_label",
    "need_loss",
    "need_sums",
    "propensity_weight",
    "reward_weights",
    "slot_target",
    "token_loss",
    "token_sums",
    "token_weight",
    "total_reward",
]
