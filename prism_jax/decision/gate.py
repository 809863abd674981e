"""The gate: intervene or stay silent, from two probabilities and two costs (docs/maths.md, sections 2 and 3).

An offer that is not accepted costs C_FA; silence where help was needed and would have been accepted costs C_FN. If need
and acceptance are independent given what was observed, Pr(need AND accept) = p_accept * p_need, and intervening is the
cheaper decision exactly if (paper, Eq. 1)

    (1 - p_accept) * C_FA <= p_accept * p_need * C_FN.

Where p_accept * p_need = 0 the gate is silent. `intervene` makes this comparison, without a division, for every policy
that decides on signals and costs; tests check that `drift.decide` and `costs.cost_grid` agree with it exactly.
Threshold, scalar score and critical ratio state the same rule and agree with it except at floating-point ties.

All functions are elementwise; arguments broadcast, costs included. Costs share one unit, which cancels.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, get_args

import numpy as np

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Booleans, Floats, Reals
from prism_jax.decision.passes import BothPasses, Pass
from prism_jax.decision.policies import POLICIES, Policy, acceptance_threshold

Form = Literal["bayes", "odds_paper"]


def intervene(p_accept: Reals, p_both: Reals, c_fa: Reals, c_fn: Reals) -> Booleans:
    """The gate's comparison: (1 - p_accept) * C_FA <= p_both * C_FN, and silence where p_both = 0 (paper, Eq. 1).

    The offer's expected cost is on the left, that of silence on the right (docs/maths.md, section 2). Without the
    clause on p_both, a certain acceptance of help that is never needed would tie 0 <= 0 and intervene.

    Args:
      p_accept: Probability that an offer would be accepted.
      p_both: Probability that help is needed and an offer would be accepted; p_accept * p_need if the two are
        independent given what was observed.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.

    Returns:
      Booleans of the broadcast shape; True is to intervene.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    arrays.check_broadcast(p_accept=p_accept, p_both=p_both, c_fa=c_fa, c_fn=c_fn)
    arrays.check_probability("p_accept", p_accept)
    arrays.check_probability("p_both", p_both)
    arrays.check_costs(c_fa, c_fn, p_accept, p_both)
    _, p_accept, p_both, c_fa, c_fn = arrays.as_floats(p_accept, p_both, c_fa, c_fn)
    return intervene_unchecked(p_accept, p_both, c_fa, c_fn)


def intervene_unchecked(p_accept: Any, p_both: Any, c_fa: Any, c_fn: Any) -> Any:
    """`intervene` without checks, on floating-point numbers that its caller has checked."""
    offer, silence = expected_costs(p_accept, p_both, c_fa, c_fn)
    return (offer <= silence) & (p_both > 0)


def expected_costs(p_accept: Any, p_both: Any, c_fa: Any, c_fn: Any) -> tuple[Any, Any]:
    """The expected costs of an offer, (1 - p_accept) * C_FA, and of silence, p_both * C_FN, without checks.

    This is the one place that fixes the order of operations. `intervene` compares the two costs; `slow_band` and
    `drift.decide` compare them at shifted probabilities, which may leave [0, 1].
    """
    return (1 - p_accept) * c_fa, p_both * c_fn


def threshold(p_need: Reals, c_fa: Reals, c_fn: Reals, form: Form = "bayes") -> Floats:
    """The acceptance threshold tau(p_need), in [C_FA / (C_FA + C_FN), 1] for the default form.

    Args:
      p_need: Probability that help is needed.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.
      form: `bayes` is paper Eq. 1, tau = C_FA / (C_FA + p_need * C_FN). `odds_paper` is the AUDBC appendix's
        C_FN * p_need / (C_FA + C_FN * p_need) = 1 - tau, which is derived wrongly and kept for reproduction only.

    Raises:
      ValueError: for a value outside its range, shapes that do not broadcast, or an unknown form.

    Examples:
      >>> threshold(np.array([1.0, 0.5, 0.25, 0.0]), c_fa=1.0, c_fn=2.0).round(3)
      array([0.333, 0.5  , 0.667, 1.   ])
    """
    arrays.check_choice("form", form, get_args(Form))
    arrays.check_broadcast(p_need=p_need, c_fa=c_fa, c_fn=c_fn)
    arrays.check_probability("p_need", p_need)
    arrays.check_costs(c_fa, c_fn, p_need)
    _, p_need, c_fa, c_fn = arrays.as_floats(p_need, c_fa, c_fn)
    if form == "bayes":
        return acceptance_threshold(p_need, c_fa, c_fn)
    return p_need * c_fn / (c_fa + p_need * c_fn)


def score(p_need: Reals, p_accept: Reals) -> Floats:
    """The gate as one scalar, s = logit(p_accept) + log(p_need): intervene exactly if s >= log(C_FA / C_FN).

    -inf where p_need * p_accept = 0 (silent at every cost), +inf where p_accept = 1 and p_need > 0.

    Raises:
      ValueError: for a probability outside [0, 1] or shapes that do not broadcast.
    """
    xp, p_need, p_accept = _probabilities(p_need, p_accept)
    silent = p_need * p_accept == 0
    certain = p_accept == 1
    inside = xp.where(silent | certain, 0.5, p_accept)  # keeps the logarithms and their gradients finite
    finite = arrays.log_odds(inside) + xp.log(xp.where(silent, 1.0, p_need))
    return xp.where(silent, -xp.inf, xp.where(certain, xp.inf, finite))[()]


def score_from_logits(z_need: Reals, z_accept: Reals) -> Floats:
    """`score` from logits, without the rounding of probabilities near 0 and 1: s = z_accept + log sigmoid(z_need).

    Raises:
      ValueError: for a logit that is NaN, or shapes that do not broadcast.
    """
    arrays.check_broadcast(z_need=z_need, z_accept=z_accept)
    for name, value in (("z_need", z_need), ("z_accept", z_accept)):
        arrays.check_not_nan(name, value)
    xp, need, accept = arrays.as_floats(z_need, z_accept)
    log_need = -np.logaddexp(0.0, -need) if xp is np else sys.modules["jax"].nn.log_sigmoid(need)
    silent = log_need == -xp.inf  # even at z_accept = inf, as where p_need * p_accept = 0 in `score`
    return xp.where(silent, -xp.inf, accept + xp.where(silent, 0.0, log_need))[()]


def critical_ratio(p_need: Reals, p_accept: Reals) -> Floats:
    """The smallest cost ratio at which the gate intervenes, r* = (1 - p_accept) / (p_accept * p_need) = exp(-s).

    The gate intervenes exactly if C_FN / C_FA >= r*. Where p_need * p_accept = 0, r* is infinite.

    Raises:
      ValueError: for a probability outside [0, 1] or shapes that do not broadcast.
    """
    _, p_need, p_accept = _probabilities(p_need, p_accept)
    return critical_ratio_unchecked(p_need, p_accept)


def critical_ratio_unchecked(p_need: Any, p_accept: Any) -> Any:
    """`critical_ratio` without checks, on floating-point numbers that its caller has checked."""
    xp, p_both = arrays.namespace(p_need, p_accept), p_accept * p_need
    largest = arrays.finfo(getattr(p_both, "dtype", np.dtype(np.float64))).max
    beyond = p_both * largest < 1  # p_both = 0, or a ratio above every finite number
    return xp.where(beyond, xp.inf, (1 - p_accept) / xp.where(beyond, 1.0, p_both))[()]


def decide(
    p_need: Reals,
    p_accept: Reals,
    c_fa: Reals,
    c_fn: Reals,
    policy: str = "dynamic",
    *,
    fixed_threshold: Reals = 0.5,
    base_rate: Reals | None = None,
) -> Booleans:
    """Whether to intervene, under one of the policies of docs/maths.md, section 2.

    Args:
      p_need: Probability that help is needed.
      p_accept: Probability that an offer would be accepted.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.
      policy: A name in `policies.POLICIES`. `dynamic`, the paper's Eq. 1, minimises `metrics.realised_cost` in
        expectation (Proposition 1, under conditional independence of need and acceptance). `static` is the dynamic gate
        at p_need = 1. `product`, optimal if any offer that is not gold is a false alarm, intervenes where
        p_accept * p_need >= C_FA / (C_FA + C_FN). `need_only` is the dynamic gate at p_accept = `base_rate`. `fixed`
        intervenes where p_accept >= `fixed_threshold`. `always` and `never` are constant. `need_only_paper` sets
        p_accept = tau(p_need) as printed, an equality that always holds.
      fixed_threshold: Threshold tau of the policy `fixed`.
      base_rate: Acceptance rate of the calibration split; required by `need_only`, ignored by the others.

    Returns:
      Booleans of the broadcast shape of the arguments that the policy does not ignore; True is to intervene.

    Raises:
      ValueError: for a value outside its range, shapes that do not broadcast, an unknown policy, or `need_only`
        without a base rate.

    Examples:
      >>> p_need, p_accept = np.array([0.95, 0.50, 0.10]), np.array([0.90, 0.60, 0.70])
      >>> decide(p_need, p_accept, c_fa=1.0, c_fn=2.0)
      array([ True,  True, False])
    """
    arrays.check_choice("policy", policy, tuple(POLICIES))
    arrays.check_costs(c_fa, c_fn, p_need, p_accept)
    arrays.check_probability("fixed_threshold", fixed_threshold)
    chosen = POLICIES[policy]
    if chosen.signals is None and chosen.constant is None and policy != "fixed":
        raise ValueError(f"policy: found {policy!r} with neither signals nor a constant decision, expected one of both")
    extra: dict[str, Any] = {"fixed_threshold": fixed_threshold} if policy == "fixed" else {}
    if chosen.needs_base_rate:
        if base_rate is None:
            raise ValueError("base_rate: found None, expected the acceptance rate of the calibration split")
        arrays.check_probability("base_rate", base_rate)
        extra, base_rate = {"base_rate": base_rate}, arrays.as_float(base_rate)
    _, p_need, p_accept = _probabilities(p_need, p_accept, c_fa=c_fa, c_fn=c_fn, **extra)
    costs = arrays.as_float(c_fa), arrays.as_float(c_fn)
    return decide_unchecked(chosen, p_need, p_accept, *costs, fixed_threshold, base_rate)


def decide_unchecked(
    policy: Policy, p_need: Any, p_accept: Any, c_fa: Any, c_fn: Any, fixed_threshold: Any = 0.5, base_rate: Any = None
) -> Any:
    """`decide` without checks, on floating-point numbers that its caller has checked."""
    if policy.signals is not None:
        need, accept = policy.signals(p_need, p_accept, base_rate)
        p_both = accept * need
        # A constant that replaces a signal takes the signal's shape and precision from 0 times the signal.
        if accept is not p_accept:
            accept = accept + 0 * p_accept
        if need is not p_need:
            p_both = p_both + 0 * p_need
        return intervene_unchecked(accept, p_both, c_fa, c_fn)
    compared = policy.constant is None
    used = [p_need, p_accept, c_fa, c_fn, *([fixed_threshold] if compared else [])]
    offer = p_accept >= fixed_threshold if compared else policy.constant
    return arrays.namespace(*used).broadcast_to(offer, np.broadcast_shapes(*map(np.shape, used)))[()]


def slow_band(p_need: Reals, p_accept: Reals, c_fa: Reals, c_fn: Reals, margin: Reals) -> Booleans:
    """Whether the slow pass runs: |p_accept - tau(p_need)| <= margin on the fast signals (docs/maths.md, section 3).

    The two expected costs are compared at p_accept + margin (an offer must cost no more than silence) and at
    p_accept - margin (an offer must cost no less), so the result is exact wherever their arithmetic is. The band is
    empty at margin 0, everything at margin 1, and never shrinks as the margin grows.

    Only the distance of p_accept from the threshold counts, with tau(0) = 1. The gate's clause, silence where
    p_accept * p_need = 0, is not applied here.

    The probabilities are those of the fast pass, and `margin` is delta >= 0, in units of probability.

    Returns:
      Booleans of the broadcast shape; True is to run the slow pass.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    arrays.check_costs(c_fa, c_fn, p_need, p_accept)
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    _, need, accept = _probabilities(p_need, p_accept, c_fa=c_fa, c_fn=c_fn, margin=margin)
    _, cost_fa, cost_fn, delta = arrays.as_floats(c_fa, c_fn, margin)
    return slow_band_unchecked(need, accept, cost_fa, cost_fn, delta)


def slow_band_unchecked(need: Any, accept: Any, c_fa: Any, c_fn: Any, margin: Any) -> Any:
    """`slow_band` without checks, on floating-point numbers that its caller has checked."""
    high, low = accept + margin, accept - margin
    offer_high, silence_high = expected_costs(high, high * need, c_fa, c_fn)
    offer_low, silence_low = expected_costs(low, low * need, c_fa, c_fn)
    return (offer_high <= silence_high) & (offer_low >= silence_low) & (margin > 0)


def decide_with_slow(
    fast: Pass,
    slow: Pass,
    c_fa: Reals,
    c_fn: Reals,
    margin: Reals,
) -> tuple[Booleans, Booleans]:
    """The dynamic gate with a slow margin: where `slow_band` holds, the slow signals replace both fast ones.

    Margin 0 is the fast-only policy, any margin of at least 1 the slow-only policy.

    Args:
      fast: Probabilities of the fast pass.
      slow: Probabilities of the slow pass.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      margin: delta >= 0, in units of probability.

    Returns:
      The decision (True is to intervene) and whether the slow pass ran.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    probabilities = BothPasses(fast, slow).named()
    arrays.check_broadcast(**probabilities, c_fa=c_fa, c_fn=c_fn, margin=margin)
    for name, p in probabilities.items():
        arrays.check_probability(name, p)
    arrays.check_costs(c_fa, c_fn, *fast)
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    arrays.check_costs(c_fa, c_fn, *slow)
    _, cost_fa, cost_fn, delta = arrays.as_floats(c_fa, c_fn, margin)
    need_fast, accept_fast, need_slow, accept_slow = map(arrays.as_float, probabilities.values())
    thinks = slow_band_unchecked(need_fast, accept_fast, cost_fa, cost_fn, delta)
    fast_decision = intervene_unchecked(accept_fast, accept_fast * need_fast, cost_fa, cost_fn)
    slow_decision = intervene_unchecked(accept_slow, accept_slow * need_slow, cost_fa, cost_fn)
    xp = arrays.namespace(thinks, fast_decision, slow_decision)
    return xp.where(thinks, slow_decision, fast_decision)[()], thinks


def soft_gate(z_need: Reals, z_accept: Reals, c_fa: Reals, c_fn: Reals, width: Reals) -> Floats:
    """The gate with a soft boundary, sigmoid((s - log(C_FA / C_FN)) / width), from logits (docs/maths.md, section 4).

    As width -> 0 it becomes the hard gate wherever s differs from log(C_FA / C_FN). It is 0 at C_FN = 0.

    Args:
      z_need: Need logits.
      z_accept: Acceptance logits.
      c_fa: Cost C_FA > 0 of an offer that is not accepted.
      c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.
      width: Width h > 0, in units of s (log-odds).

    Raises:
      ValueError: for a cost or width outside its range, or shapes that do not broadcast.
    """
    arrays.check_costs(c_fa, c_fn, z_need, z_accept)
    _check_width(width)
    xp, *_ = arrays.as_floats(z_need, z_accept, c_fa, c_fn, width)
    c_fa, c_fn = arrays.as_float(c_fa), arrays.as_float(c_fn)
    free = xp.asarray(c_fn == 0)
    boundary = xp.log(c_fa / xp.where(free, 1.0, c_fn))
    soft = arrays.sigmoid((score_from_logits(z_need, z_accept) - boundary) / width)
    return xp.where(free, 0.0, soft)[()]


def soft_slow(z_need: Reals, z_accept: Reals, c_fa: Reals, c_fn: Reals, margin: Reals, width: Reals) -> Floats:
    """The slow trigger with a soft boundary: sigmoid((margin - |p_accept - tau(p_need)|) / width), from logits.

    As width -> 0 it becomes `slow_band` wherever the distance differs from the margin. It is 0 at margin 0.

    `margin` is the slow margin delta >= 0 and `width` h_delta > 0, both in units of probability; other arguments are
    those of `soft_gate`.

    Raises:
      ValueError: for a cost, margin or width outside its range, or shapes that do not broadcast.
    """
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    _check_width(width)
    xp, z_need, z_accept, margin = arrays.as_floats(z_need, z_accept, margin)
    distance = xp.abs(arrays.sigmoid(z_accept) - threshold(arrays.sigmoid(z_need), c_fa, c_fn))
    return xp.where(margin > 0, arrays.sigmoid((margin - distance) / width), 0.0)[()]


def _probabilities(p_need: Any, p_accept: Any, **others: Any) -> tuple[Any, Any, Any]:
    """Namespace and floats of two checked probabilities; `others` count for the namespace and the shape check."""
    arrays.check_broadcast(p_need=p_need, p_accept=p_accept, **others)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    xp = arrays.namespace(p_need, p_accept, *others.values())
    return xp, arrays.as_float(p_need), arrays.as_float(p_accept)


def _check_width(width: Any) -> None:
    arrays.check_range("width", width, 0.0, np.inf, "a finite width above 0", open_low=True)
