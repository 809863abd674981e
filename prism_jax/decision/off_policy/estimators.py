"""Inverse-propensity, self-normalised and doubly robust estimates, each as one number per row whose mean it is.

An offer costs C_FA if it is not accepted; silence costs C_FN if help was needed and the offer would have been accepted.
With d = C_FA (1 - y_a) - C_FN y_n y_a, an offer in place of silence changes the cost of a row by d, which is known only
where the offer was made. A target policy that offers with probability pi changes the mean cost of the log by
E[(pi - A) d] (docs/maths.md, section 15).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float64

Estimator = Literal["ips", "snips", "dr"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
Rows = Float64[np.ndarray, " rows"]
WeightSums = Float64[np.ndarray, "3"]


class Logged(NamedTuple):
    """What a log knows of every row."""

    offered: Bool[np.ndarray, " rows"]  # a, whether the offer was made
    propensity: Rows  # e, the probability that it was made; NaN where unknown, 0 where it could not be made
    accepted: Rows  # y_a where the offer was made; not read elsewhere
    # y_n in [0, 1] where the offer was made; a log without judgements of need has 1, so that an acceptable offer that
    # is not made counts as missed
    needed: Rows


def savings(logged: Logged, c_fa: float, c_fn: float) -> Rows:
    """d: what an offer costs more than silence at each row; 0 where no offer was made, as nobody knows it."""
    d = c_fa * (1 - logged.accepted) - c_fn * logged.needed * logged.accepted
    return np.where(logged.offered, d, 0.0)


def difference_terms(
    estimator: Estimator,
    target: Rows,
    logged: Logged,
    d: Rows,
    model: Rows | None = None,
    most: float = np.inf,
    sums: WeightSums | None = None,
) -> Rows:
    """Terms whose mean estimates E[(pi - A) d], the change of the mean cost if `target` = pi offers.

    `ips` has terms A (pi / e - 1) d. `snips` scales the weights of the offers to the mean of pi; its estimate is a
    ratio, and its terms are linearised at the estimate, so that their mean is exactly it. `dr` adds a `model` of d:
    predictions for every row by a model that did not see the row's person. It is right whatever the model is, and
    varies less if it is good. Weights pi / e above `most` are clipped to it, which biases the estimate. Offers of the
    target that the log could not show are left out; `intervals.difference` says what they may cost. Of some rows of a
    log, `sums` are the `weight_sums` of all of them, for `snips`.

    Raises:
      ValueError: for `dr` without a model, or `snips` without a row that both policies offer.
    """
    target = np.where(covered(logged), target, 0.0)
    weight = _weight(target, logged, most)
    log_terms = np.where(logged.offered, d, 0.0)
    if estimator == "ips":
        return weight * d - log_terms
    if estimator == "dr":
        return target * _known(model) + weight * (d - _known(model)) - log_terms
    return (
        _self_normalised(target, weight, d, weight_sums(target, logged, d, most) if sums is None else sums) - log_terms
    )


def level_terms(
    estimator: Estimator,
    target: Rows,
    logged: Logged,
    d: Rows,
    silence: Rows,
    model: Rows | None = None,
    silence_model: Rows | None = None,
    sums: WeightSums | None = None,
) -> Rows:
    """Terms whose mean estimates the target's mean cost, E[silence + pi d]: every row needs a propensity above 0.

    The estimators are those of `difference_terms`, with weights A / e. `silence` is C_FN y_n y_a, what silence costs;
    it is read only where the offer was made. `model` predicts d and `silence_model` predicts `silence`, for `dr`. Of
    some rows of a log, `sums` are the `level_sums` of all of them, for `snips`.
    """
    always = np.ones_like(target)
    weight = _weight(always, logged, np.inf)
    cost = _cost(target, logged, d, silence)
    if estimator == "ips":
        return weight * cost
    if estimator == "dr":
        predicted = _known(silence_model) + target * _known(model)
        return predicted + weight * (cost - predicted)
    return _self_normalised(always, weight, cost, level_sums(target, logged, d, silence) if sums is None else sums)


def weight_sums(target: Rows, logged: Logged, outcome: Rows, most: float = np.inf) -> WeightSums:
    """Sums over rows of w, w times the outcome, and pi, with w = A pi / e; what the terms of `snips` need of a log.

    Those of the parts of a log add up. Offers of the target that the log could not show are left out.
    """
    target = np.where(covered(logged), target, 0.0)
    weight = _weight(target, logged, most)
    return np.array([weight.sum(), (weight * outcome).sum(), target.sum()])


def level_sums(target: Rows, logged: Logged, d: Rows, silence: Rows) -> WeightSums:
    """The `weight_sums` of `level_terms`, whose weights are A / e."""
    return weight_sums(np.ones_like(target), logged, _cost(target, logged, d, silence))


def covered(logged: Logged) -> Bool[np.ndarray, " rows"]:
    """Whether the log could show the answer to each offer: its propensity is known and above 0."""
    return logged.propensity > 0


def _weight(target: Rows, logged: Logged, most: float) -> Rows:
    """A pi / e, at most `most`."""
    e = np.where(logged.offered & covered(logged), logged.propensity, 1.0)
    return np.where(logged.offered, np.minimum(target / e, most), 0.0)


def _cost(target: Rows, logged: Logged, d: Rows, silence: Rows) -> Rows:
    return np.where(logged.offered, silence + target * d, 0.0)


def _self_normalised(target: Rows, weight: Rows, outcome: Rows, sums: WeightSums) -> Rows:
    """Weighted outcomes, scaled so that the weights have the mean of the target, and linearised at their mean."""
    total, weighted, targets = sums.tolist()
    if targets == 0:
        return np.zeros_like(target)
    if total == 0:
        raise ValueError("snips: found no row that both policies offer, expected some")
    mean = weighted / total
    return weight * (outcome - mean) * (targets / total) + target * mean


def _known(model: Rows | None) -> Rows:
    if model is None:
        raise ValueError("dr: found no model, expected its predictions for every row")
    return model
