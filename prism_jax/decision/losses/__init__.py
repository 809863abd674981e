"""The training losses of the two decision slots and of the gate; users import them from here.

Belongs here: cross-entropy of the slots and the burden (`decision_losses`), inverse-propensity weights and the sums
that are added over microbatches (`propensity`), rewards and weights of fine-tuning (`rewards`).
Does not belong here: the student, and the sum of the terms in one objective (`prism_jax.training.optimization`).
"""

from prism_jax.decision.losses.decision_losses import (
    BurdenSums,
    Estimator,
    accept_loss,
    accept_sums,
    burden_loss,
    burden_sums,
    need_loss,
    need_sums,
    slot_target,
)
from prism_jax.decision.losses.propensity import (
    NORMAL_975,
    AcceptDiagnostics,
    AcceptSums,
    Sums,
    doubly_robust_label,
)
from prism_jax.decision.losses.rewards import (
    RewardWeights,
    advantage_weights,
    reward_weights,
    total_reward,
)
from prism_jax.decision.propensity import check_positivity, propensity_weight

__all__ = [
    "NORMAL_975",
    "AcceptDiagnostics",
    "AcceptSums",
    "BurdenSums",
    "Estimator",
    "RewardWeights",
    "Sums",
    "accept_loss",
    "accept_sums",
    "advantage_weights",
    "burden_loss",
    "burden_sums",
    "check_positivity",
    "doubly_robust_label",
    "need_loss",
    "need_sums",
    "propensity_weight",
    "reward_weights",
    "slot_target",
    "total_reward",
]
