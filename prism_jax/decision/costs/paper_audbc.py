"""The paper's two AUDBCs as printed, for reproduction only (docs/maths.md, section 9); use `audbc.audbc` instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import Float

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Array, Floats, Scalar, Vector
from prism_jax.decision.costs.cost_grid import PAPER_COST_RATIOS, check_axis
from prism_jax.decision.costs.sweep import check_gold, check_rows, check_signals
from prism_jax.decision.passes import Pass


class PaperAudbc(NamedTuple):
    """A paper's area with its points, sorted by burden.

    Attributes:
      area: Trapezoid area under benefit over burden, between the smallest and the largest burden reached.
      burden: Burden at each cost ratio.
      benefit: Benefit at each cost ratio.
      cost_ratio: The cost ratio of each point.
    """

    area: Floats
    burden: Float[Array, " costs"]
    benefit: Float[Array, " costs"]
    cost_ratio: Float[Array, " costs"]

    @classmethod
    def of_points(cls, burden: Any, benefit: Any, cost_ratio: Any) -> PaperAudbc:
        """The area of points in any order."""
        order = arrays.namespace(burden, benefit).argsort(burden, stable=True)
        burden, benefit = burden[order], benefit[order]
        width = burden[1:] - burden[:-1]
        return cls((width * (benefit[1:] + benefit[:-1])).sum() / 2, burden, benefit, cost_ratio[order])

    @classmethod
    def of_counts(cls, tp: Any, fp: Any, fn: Any, positives: Any, cost_ratio: Any, c_fa: Scalar) -> PaperAudbc:
        """The main text's area of the counts of any policy at each cost ratio (see `audbc_main_paper`)."""
        c_fn = c_fa * cost_ratio
        burden = fp / arrays.namespace(tp).maximum(tp + fp, 1e-30)  # 0 without offers
        return cls.of_points(burden, (tp - c_fa * fp - c_fn * fn) / ((1 + c_fn) * positives), cost_ratio)


def audbc_main_paper(
    signals: Pass,
    y: Vector,
    cost_ratios: Sequence[Scalar] | Array = PAPER_COST_RATIOS,
    *,
    c_fa: Scalar = 1.0,
) -> PaperAudbc:
    """The main text's AUDBC: Eq. deltaU over the false-alarm rate, swept over C_FN.

    At each C_FN = r * C_FA the gate's benefit is (TP - C_FA FP - C_FN FN) / Z per step and its burden FP / (TP + FP), 0
    without interventions. The paper leaves Z open; here Z = (1 + C_FN) pi, the value at which a perfect policy gains 1
    over silence. Three defects are kept as printed: the misses of the baseline are left out, so silence scores
    -C_FN / (1 + C_FN) instead of 0; the false-alarm rate need not grow with C_FN, so points are sorted by it; and the
    area covers only the burdens that are reached, may be negative, and depends on the grid.

    Args:
      signals: Probabilities of the fast pass, one of each signal for each step.
      y: Gold labels, 0 or 1, not all 0.
      cost_ratios: Cost ratios r >= 0; the paper's grid is not stated, the default is that of its tables.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.

    Raises:
      ValueError: for a value outside its range, unequal lengths, empty input, or labels without a positive.
    """
    arrays.check_costs(c_fa, 0.0)
    checked = check_signals(signals, None, 0.0)
    check_gold(checked, y, positive=True)
    xp = arrays.namespace(*checked.fast, y)
    gold = xp.asarray(y) != 0
    ratios = check_axis("cost_ratios", cost_ratios, checked.fast.need.dtype)
    offers = xp.stack([gate.decide(*checked.fast, 1.0, ratio) for ratio in ratios])
    tp = (offers & gold).sum(axis=1)
    fp = offers.sum(axis=1) - tp
    return PaperAudbc.of_counts(tp, fp, gold.sum() - tp, gold.sum(), xp.asarray(ratios), c_fa)


def audbc_appendix_paper(
    signals: Pass,
    cost_ratios: Sequence[Scalar] | Array = PAPER_COST_RATIOS,
    *,
    c_fa: Scalar = 1.0,
    form: gate.Form = "odds_paper",
    candidates: Vector | None = None,
) -> PaperAudbc:
    """The appendix's AUDBC: mean of I * p_accept over mean I, where I = [p_accept >= tau(p_need) and candidates > 0].

    It uses no labels: it sums the model's predictions, not outcomes. Since p_accept <= 1, the benefit is at most the
    burden, and the area at most (B_max^2 - B_min^2) / 2 <= 1/2; yet the paper prints values up to 88.5 %. The default
    tau is the inverted `odds_paper` form, under which a higher C_FN means fewer interventions.

    Args:
      signals: Probabilities of the fast pass, one of each signal for each step.
      cost_ratios: Cost ratios r >= 0; the paper's grid is not stated, the default is that of its tables.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      form: The form of the threshold (see `gate.threshold`).
      candidates: Number of candidate proposals of each step; None is at least one everywhere.

    Raises:
      ValueError: for a value outside its range, unequal lengths or empty input.
    """
    checked = check_signals(signals, None, 0.0)
    check_rows(checked, candidates=candidates)
    arrays.check_costs(c_fa, 0.0)
    need, accept = checked.fast
    xp = arrays.namespace(need, candidates)
    ratios = check_axis("cost_ratios", cost_ratios, need.dtype)
    proposed = True if candidates is None else xp.asarray(candidates) > 0
    burden, benefit = [], []
    for ratio in ratios:
        chosen = (accept >= gate.threshold(need, c_fa, c_fa * ratio, form)) & proposed
        burden.append(chosen.mean())
        benefit.append(xp.where(chosen, accept, 0).mean())
    return PaperAudbc.of_points(xp.stack(burden), xp.stack(benefit), xp.asarray(ratios))
