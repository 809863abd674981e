"""How many decisions were right, and what decisions cost (docs/maths.md, section 8).

The gold label of a decision is y = y_need AND y_accept. A confusion counts decisions against it. Rates are ratios of
these counts, under the paper's names and the standard ones. Costs charge errors in the units of C_FA and C_FN.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Shaped

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Floats, Reals, Vector

STABILISER = 1e-8
"""The epsilon that the paper adds to the denominator of F1, and the official scorer to every denominator."""
Compat = Literal["official"]
Count = int | float | np.number | Shaped[Array, "..."]


class Confusion(NamedTuple):
    """Counts of decisions against gold labels; sums of weights where rows are weighted.

    Each field may be one number or an array of numbers, such as a whole control surface.
    """

    tp: Count
    fp: Count
    fn: Count
    tn: Count


def confusion(decision: Vector, y: Vector, weight: Vector | None = None) -> Confusion:
    """Counts interventions and silences against gold labels.

    Args:
      decision: Whether the policy intervened, True or 1.
      y: Gold labels. Boolean and integer labels must be 0 or 1 and give integer counts; floating-point labels may be
        soft (in [0, 1]) and give sums, exact for hard labels up to 2^53 rows (2^24 in JAX's float32).
      weight: Importance of each row; None is 1 everywhere.

    Raises:
      ValueError: for unequal lengths, empty input, or a decision, label or weight outside its range.

    Examples:
      >>> confusion(np.array([True, True, False]), np.array([1, 0, 1]))
      Confusion(tp=np.int64(1), fp=np.int64(1), fn=np.int64(1), tn=np.int64(0))
    """
    arrays.check_lengths(decision=decision, y=y, weight=weight)
    arrays.check_decision(decision=decision)
    arrays.check_label("y", y)
    arrays.check_weight("weight", weight)
    xp = arrays.namespace(decision, y, weight)
    chosen, label = xp.asarray(decision, dtype=bool), xp.asarray(y)
    if weight is None and not xp.issubdtype(label.dtype, xp.floating):
        gold = label.astype(bool)
        tp, offers, positives = (xp.count_nonzero(rows) for rows in (chosen & gold, chosen, gold))
        return Confusion(tp, offers - tp, positives - tp, chosen.shape[0] - offers - positives + tp)
    label = arrays.as_float(label)
    v = xp.ones_like(label) if weight is None else arrays.as_float(xp.asarray(weight))
    return weighted_confusion(chosen.astype(v.dtype), v * label, v * (1 - label))


def weighted_confusion(offered: Any, positive: Any, negative: Any) -> Confusion:
    """`confusion` without checks: of decisions, 1 or 0, and the weights of each row's label and of its complement."""
    dtype = np.float64 if arrays.namespace(offered, positive) is np else None
    offers = ((offered * of).sum(dtype=dtype) for of in (positive, negative))  # a product takes less time than `where`
    silences = (((1 - offered) * of).sum(dtype=dtype) for of in (positive, negative))
    return Confusion(*offers, *silences)


@dataclasses.dataclass(frozen=True)
class Rates:
    """Ratios of a confusion, each under its standard name, and also under the paper's name where that differs.

    Attributes:
      steps: Total weight n = TP + FP + FN + TN.
      prevalence: (TP + FN) / n.
      speak_rate: (TP + FP) / n, the share of steps with an intervention.
      recall: TP / (TP + FN).
      precision: TP / (TP + FP).
      accuracy: (TP + TN) / n.
      f1: 2 P R / (P + R + 1e-8).
      matthews: Matthews correlation coefficient.
      specificity: TN / (FP + TN).
      false_positive_rate: FP / (FP + TN), the field's "false-alarm rate".
      false_alarm: FP / (TP + FP) = 1 - precision, the false discovery rate; the paper's "False-Alarm".
      false_alarms_per_step: FP / n.
      missed_need: FN / (TP + FN) = 1 - recall.
    """

    steps: Count
    prevalence: Floats
    speak_rate: Floats
    recall: Floats
    precision: Floats
    accuracy: Floats
    f1: Floats
    matthews: Floats
    specificity: Floats
    false_positive_rate: Floats
    false_alarm: Floats
    false_alarms_per_step: Floats
    missed_need: Floats


def rates(counts: Confusion, compat: Compat | None = None) -> Rates:
    """The rates of a confusion, elementwise over arrays of counts.

    Args:
      counts: The confusion.
      compat: By default a ratio with denominator 0 is NaN. With `official` every denominator has 1e-8 added, as in
        ProactiveBench's scorer: such a ratio is then 0, and every other one changes in about its ninth digit.

    Raises:
      ValueError: for negative counts or an unknown `compat`.
    """
    if compat is not None:
        arrays.check_choice("compat", compat, get_args(Compat))
    for name, value in zip(Confusion._fields, counts, strict=True):
        arrays.check_range(name, value, 0.0, np.inf, "a finite count of at least 0")
    xp, tp, fp, fn, tn = arrays.as_floats(*counts)

    def ratio(part: Any, whole: Any) -> Any:
        if compat == "official":
            return part / (whole + STABILISER)
        empty = whole == 0
        return xp.where(empty, np.nan, part / xp.where(empty, 1.0, whole))[()]

    offers, silences, positives, negatives = tp + fp, fn + tn, tp + fn, fp + tn
    total = offers + silences
    recall, precision = ratio(tp, positives), ratio(tp, offers)
    # The root of each margin is taken separately, because the product of the margins overflows for large counts.
    spread = xp.sqrt(offers) * xp.sqrt(silences) * xp.sqrt(positives) * xp.sqrt(negatives)
    return Rates(
        steps=total,
        prevalence=ratio(positives, total),
        speak_rate=ratio(offers, total),
        recall=recall,
        precision=precision,
        accuracy=ratio(tp + tn, total),
        f1=2 * precision * recall / (precision + recall + STABILISER),
        matthews=ratio(tp * tn - fp * fn, spread),
        specificity=ratio(tn, negatives),
        false_positive_rate=ratio(fp, negatives),
        false_alarm=ratio(fp, offers),
        false_alarms_per_step=ratio(fp, total),
        missed_need=ratio(fn, positives),
    )


def step_costs(decision: Reals, y_accept: Reals, y_missed: Reals, c_fa: Reals, c_fn: Reals) -> Float[Array, "..."]:
    """The realised cost of each step: C_FA (1 - y_accept) for an offer, C_FN y_missed for silence (docs/maths.md, 3).

    Nothing is checked: a label that is NaN, for unknown, gives NaN where the decision's cost depends on it.

    Args:
      decision: Whether an offer is made.
      y_accept: Acceptance label in [0, 1] of the offer that would be made.
      y_missed: What silence misses, in [0, 1]: y_need AND y_accept, of the best offer where a step has several.
      c_fa: Cost of an offer that is not accepted.
      c_fn: Cost of silence where help was needed and would have been accepted.

    Returns:
      Costs of the arguments' common shape, in the unit of `c_fa` and `c_fn`.

    Examples:
      >>> offers, y_accept, y_missed = np.array([True, True, False]), np.array([1, 0, 1]), np.array([1, 0, 1])
      >>> step_costs(offers, y_accept, y_missed, c_fa=1.0, c_fn=2.0)
      array([0., 1., 2.])
    """
    xp = arrays.namespace(decision, y_accept, y_missed, c_fa, c_fn)
    offer = xp.asarray(decision, dtype=bool)
    return xp.where(offer, arrays.as_float(c_fa) * (1 - y_accept), arrays.as_float(c_fn) * y_missed)


def realised_cost(
    decision: Vector,
    y_need: Vector,
    y_accept: Vector,
    c_fa: Reals,
    c_fn: Reals,
    weight: Vector | None = None,
) -> Floats:
    """Mean over rows of C_FA * a * (1 - y_accept) + C_FN * (1 - a) * y_need * y_accept for decisions a.

    This is the cost of the paper's Proposition 1; Eq. 1 minimises its expectation.

    Args:
      decision: Whether the policy intervened.
      y_need: Need labels in [0, 1].
      y_accept: Acceptance labels in [0, 1].
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      weight: Importance of each row; None is 1 everywhere.

    Returns:
      A scalar, in the unit of the costs.

    Raises:
      ValueError: for unequal lengths, empty input, or a decision, label, cost or weight outside its range.

    Examples:
      >>> offers, y_need, y_accept = np.array([True, True, False]), np.array([1, 1, 1]), np.array([1, 0, 1])
      >>> float(realised_cost(offers, y_need, y_accept, c_fa=1.0, c_fn=2.0))  # one refused, one missed
      1.0
    """
    arrays.check_lengths(decision=decision, y_need=y_need, y_accept=y_accept, weight=weight)
    arrays.check_label("y_need", y_need)
    arrays.check_label("y_accept", y_accept)
    _, need, accept = arrays.as_floats(y_need, y_accept)
    return _mean_cost(decision, accept, need * accept, c_fa, c_fn, weight)


def expected_realised_cost(
    decision: Vector,
    p_accept: Vector,
    p_both: Vector,
    c_fa: Reals,
    c_fn: Reals,
    weight: Vector | None = None,
) -> Floats:
    """The expectation of `realised_cost`, for rows whose true probabilities are known, as in the simulator.

    `p_accept` is the true Pr(accept | X, intervene), and `p_both`, at most that, the true Pr(need AND accept | X).
    Other arguments are those of `realised_cost`.

    Raises:
      ValueError: for unequal lengths, empty input, a decision, probability, cost or weight outside its range, or a
        p_both above its row's p_accept.
    """
    arrays.check_lengths(decision=decision, p_accept=p_accept, p_both=p_both, weight=weight)
    arrays.check_probability("p_accept", p_accept)
    arrays.check_probability("p_both", p_both)
    _, accept, gold = arrays.as_floats(p_accept, p_both)
    if not arrays.is_traced(accept, gold) and (gold > accept).any():
        index = int((gold > accept).argmax())
        raise ValueError(
            f"p_both: found {gold[index]} at index {index}, above p_accept = {accept[index]}; expected a probability "
            "of need AND acceptance"
        )
    return _mean_cost(decision, accept, gold, c_fa, c_fn, weight)


def _mean_cost(decision: Any, accept: Any, missed: Any, c_fa: Any, c_fn: Any, weight: Any) -> Any:
    arrays.check_decision(decision=decision)
    arrays.check_costs(c_fa, c_fn, accept, missed)
    for name, cost in (("c_fa", c_fa), ("c_fn", c_fn)):
        if np.ndim(cost):
            arrays.check_lengths(decision=decision, **{name: cost})
    arrays.check_weight("weight", weight)
    xp = arrays.namespace(decision, accept, missed, c_fa, c_fn, weight)
    costs = step_costs(decision, accept, missed, c_fa, c_fn)
    dtype = np.float64 if xp is np else None
    if weight is None:
        return costs.mean(dtype=dtype)[()]
    v = arrays.as_float(xp.asarray(weight))
    return ((v * costs).sum(dtype=dtype) / v.sum(dtype=dtype))[()]
