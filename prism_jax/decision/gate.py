"""The gate: intervene or stay silent, from two probabilities and two costs (maths sections 2 and 3, paper Eq. 1).

An offer that is not accepted costs C_FA; silence where help was needed and would have been accepted costs C_FN. Where
need and acceptance are independent given what was observed, intervening is the cheaper decision exactly if

    (1 - p_accept) * C_FA <= p_accept * p_need * C_FN,

and this is THE comparison: `decide` and everything built on it evaluate it in this form and order of operations,
without a division. Threshold, scalar score and critical ratio state the same rule and agree with it off floating-point
ties. Where p_accept * p_need = 0 the gate is silent.

All functions are elementwise; arguments broadcast, costs included. Costs share one unit, which cancels.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Booleans, Floats, Reals

Form = Literal["bayes", "odds_paper"]
Rule = Literal["fixed", "static", "dynamic", "product", "need_only", "always", "never", "need_only_paper"]
"""Every decision rule of maths section 2; an `OperatingPoint` can deploy those that need nothing but costs."""


def threshold(p_need: Reals, c_fa: Reals, c_fn: Reals, form: Form = "bayes") -> Floats:
    """The acceptance threshold tau(p_need), in [C_FA / (C_FA + C_FN), 1] for the default form.

    Args:
      p_need: Probability that help is needed.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      form: `bayes` is paper Eq. 1, tau = C_FA / (C_FA + p_need * C_FN). `odds_paper` is the AUDBC appendix's
        C_FN * p_need / (C_FA + C_FN * p_need) = 1 - tau, an inverted derivation kept for reproduction only.

    Raises:
      ValueError: for a value outside its range, shapes that do not broadcast, or an unknown form.
    """
    arrays.check_choice("form", form, get_args(Form))
    arrays.check_broadcast(p_need=p_need, c_fa=c_fa, c_fn=c_fn)
    arrays.check_probability("p_need", p_need)
    arrays.check_costs(c_fa, c_fn)
    _, p_need, c_fa, c_fn = arrays.as_floats(p_need, c_fa, c_fn)
    missed = p_need * c_fn
    return (c_fa if form == "bayes" else missed) / (c_fa + missed)


def score(p_need: Reals, p_accept: Reals) -> Floats:
    """The gate's one scalar, s = logit(p_accept) + log(p_need): intervene exactly if s >= log(C_FA / C_FN).

    -inf where p_need * p_accept = 0 (silent at every cost), +inf where p_accept = 1 and p_need > 0.

    Raises:
      ValueError: for a probability outside [0, 1] or shapes that do not broadcast.
    """
    xp, p_need, p_accept = _probabilities(p_need, p_accept)
    silent = p_need * p_accept == 0
    certain = p_accept == 1
    inside = xp.where(silent | certain, 0.5, p_accept)  # keeps logarithms finite, so that gradients are too
    finite = xp.log(inside) - xp.log1p(-inside) + xp.log(xp.where(silent, 1.0, p_need))
    return xp.where(silent, -xp.inf, xp.where(certain, xp.inf, finite))[()]


def score_from_logits(z_need: Reals, z_accept: Reals) -> Floats:
    """`score` from logits, without the rounding of probabilities near 0 and 1: s = z_accept + log sigmoid(z_need)."""
    arrays.check_broadcast(z_need=z_need, z_accept=z_accept)
    for name, value in (("z_need", z_need), ("z_accept", z_accept)):
        arrays.check_not_nan(name, value)
    xp, need, accept = arrays.as_floats(z_need, z_accept)
    log_need = jax.nn.log_sigmoid(need) if xp is jnp else -np.logaddexp(0.0, -need)
    silent = log_need == -xp.inf  # wins over z_accept = inf, as p_need * p_accept = 0 does in `score`
    return xp.where(silent, -xp.inf, accept + xp.where(silent, 0.0, log_need))[()]


def critical_ratio(p_need: Reals, p_accept: Reals) -> Floats:
    """The cost ratio r* = (1 - p_accept) / (p_accept * p_need) = exp(-s) from which on the gate intervenes.

    Intervene exactly if C_FN / C_FA >= r*; infinite where p_need * p_accept = 0, and there the gate is silent at every
    ratio.

    Raises:
      ValueError: for a probability outside [0, 1] or shapes that do not broadcast.
    """
    xp, p_need, p_accept = _probabilities(p_need, p_accept)
    both = p_accept * p_need
    largest = jnp.finfo(getattr(both, "dtype", np.float64)).max
    beyond = both * largest < 1  # both = 0, or a ratio above every finite number
    return xp.where(beyond, xp.inf, (1 - p_accept) / xp.where(beyond, 1.0, both))[()]


def decide(
    p_need: Reals,
    p_accept: Reals,
    c_fa: Reals,
    c_fn: Reals,
    policy: Rule = "dynamic",
    *,
    fixed_threshold: Reals = 0.5,
    base_rate: Reals | None = None,
) -> Booleans:
    """Whether to intervene, under one of the rules of maths section 2.

    Args:
      p_need: Probability that help is needed.
      p_accept: Probability that an offer would be accepted.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      policy: `dynamic`, the paper's Eq. 1, minimises `metrics.realised_cost` in expectation (Proposition 1, under
        conditional independence of need and acceptance). `static` is the dynamic gate at p_need = 1. `product`, optimal
        if any offer that is not gold is a false alarm, is p_accept * p_need >= C_FA / (C_FA + C_FN). `need_only` is the
        dynamic gate at p_accept = `base_rate`. `fixed` is p_accept >= `fixed_threshold`. `always` and `never` are
        constant. `need_only_paper` sets p_accept = tau(p_need) as printed, an equality that always fires.
      fixed_threshold: tau of the policy `fixed`.
      base_rate: Acceptance rate of the calibration split; `need_only` needs it, the others ignore it.

    Returns:
      Booleans of the broadcast shape of the arguments that the policy does not ignore; True is to intervene.

    Raises:
      ValueError: for a value outside its range, shapes that do not broadcast, an unknown policy, or `need_only`
        without a base rate.
    """
    arrays.check_choice("policy", policy, get_args(Rule))
    arrays.check_costs(c_fa, c_fn)
    arrays.check_probability("fixed_threshold", fixed_threshold)
    if policy == "need_only" and base_rate is None:
        raise ValueError("base_rate: found None, expected the acceptance rate of the calibration split")
    named: dict[str, dict[str, Any]] = {
        "fixed": {"fixed_threshold": fixed_threshold},
        "need_only": {"base_rate": base_rate},
    }
    own = named.get(policy, {})
    xp, p_need, p_accept = _probabilities(p_need, p_accept, c_fa=c_fa, c_fn=c_fn, **own)
    c_fa, c_fn = arrays.as_float(c_fa), arrays.as_float(c_fn)
    if policy == "dynamic":
        return _intervene(p_accept, p_accept * p_need, c_fa, c_fn)
    if policy == "static":
        return _intervene(p_accept, p_accept + 0 * p_need, c_fa, c_fn)
    if policy == "product":
        return _intervene(p_accept * p_need, p_accept * p_need, c_fa, c_fn)
    if policy == "need_only":
        arrays.check_probability("base_rate", base_rate)
        rate = arrays.as_float(base_rate)
        return _intervene(rate + 0 * p_accept, rate * p_need, c_fa, c_fn)
    shape = np.broadcast_shapes(*map(np.shape, (p_need, p_accept, c_fa, c_fn, *own.values())))
    if policy == "fixed":
        return xp.broadcast_to(p_accept >= fixed_threshold, shape)[()]
    return xp.full(shape, policy != "never")[()]


def slow_band(p_need: Reals, p_accept: Reals, c_fa: Reals, c_fn: Reals, margin: Reals) -> Booleans:
    """Whether to think slowly: |p_accept - tau(p_need)| <= margin on the fast signals (maths section 3).

    Evaluated in the gate's own division-free form at p_accept + margin (which must intervene) and p_accept - margin
    (which must not intervene, or only just), so that it holds exactly where the form is exact. Off at margin 0, on
    everywhere at margin 1, and never shrinking as the margin grows.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    arrays.check_costs(c_fa, c_fn)
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    _, need, accept = _probabilities(p_need, p_accept, c_fa=c_fa, c_fn=c_fn, margin=margin)
    _, cost_fa, cost_fn, delta = arrays.as_floats(c_fa, c_fn, margin)
    high, low = accept + delta, accept - delta
    reaches_up = (1 - high) * cost_fa <= high * need * cost_fn
    reaches_down = (1 - low) * cost_fa >= low * need * cost_fn
    return reaches_up & reaches_down & (delta > 0)


def decide_with_slow(
    p_need_fast: Reals,
    p_accept_fast: Reals,
    p_need_slow: Reals,
    p_accept_slow: Reals,
    c_fa: Reals,
    c_fn: Reals,
    margin: Reals,
) -> tuple[Booleans, Booleans]:
    """The dynamic gate with a slow margin: where `slow_band` holds, the slow signals replace both fast ones.

    Margin 0 is the fast-only policy, any margin of at least 1 the slow-only policy.

    Returns:
      The decision (True is to intervene) and whether the slow pass ran, of the broadcast shape of the arguments.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    given = {
        "p_need_fast": p_need_fast,
        "p_accept_fast": p_accept_fast,
        "p_need_slow": p_need_slow,
        "p_accept_slow": p_accept_slow,
    }
    arrays.check_broadcast(**given, c_fa=c_fa, c_fn=c_fn, margin=margin)
    for name, p in given.items():
        arrays.check_probability(name, p)
    slow = slow_band(p_need_fast, p_accept_fast, c_fa, c_fn, margin)
    fast_decision = decide(p_need_fast, p_accept_fast, c_fa, c_fn)
    slow_decision = decide(p_need_slow, p_accept_slow, c_fa, c_fn)
    xp = arrays.namespace(slow, fast_decision, slow_decision)
    return xp.where(slow, slow_decision, fast_decision)[()], slow


def soft_gate(z_need: Reals, z_accept: Reals, c_fa: Reals, c_fn: Reals, width: Reals) -> Floats:
    """The gate with a soft edge, for losses: sigmoid((s - log(C_FA / C_FN)) / width), from logits (maths section 4).

    As width -> 0 it becomes the hard gate wherever s differs from log(C_FA / C_FN). It is 0 at C_FN = 0.

    Args:
      z_need: Need logits.
      z_accept: Acceptance logits.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      width: h > 0, in units of s (log-odds).

    Raises:
      ValueError: for a cost or width outside its range, or shapes that do not broadcast.
    """
    arrays.check_costs(c_fa, c_fn)
    _check_width(width)
    xp, *_ = arrays.as_floats(z_need, z_accept, c_fa, c_fn, width)
    c_fa, c_fn = arrays.as_float(c_fa), arrays.as_float(c_fn)
    free = xp.asarray(c_fn == 0)
    boundary = xp.log(c_fa / xp.where(free, 1.0, c_fn))
    soft = arrays.sigmoid((score_from_logits(z_need, z_accept) - boundary) / width)
    return xp.where(free, 0.0, soft)[()]


def soft_slow(z_need: Reals, z_accept: Reals, c_fa: Reals, c_fn: Reals, margin: Reals, width: Reals) -> Floats:
    """The slow trigger with a soft edge: sigmoid((margin - |p_accept - tau(p_need)|) / width), from logits.

    As width -> 0 it becomes `slow_band` wherever the distance differs from the margin. It is 0 at margin 0.

    Args:
      z_need: Need logits.
      z_accept: Acceptance logits.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      margin: delta >= 0, in units of probability.
      width: h_delta > 0, in units of probability.

    Raises:
      ValueError: for a cost, margin or width outside its range, or shapes that do not broadcast.
    """
    arrays.check_range("margin", margin, 0.0, np.inf, "a finite margin of at least 0")
    _check_width(width)
    xp, z_need, z_accept, margin = arrays.as_floats(z_need, z_accept, margin)
    distance = xp.abs(arrays.sigmoid(z_accept) - threshold(arrays.sigmoid(z_need), c_fa, c_fn))
    return xp.where(margin > 0, arrays.sigmoid((margin - distance) / width), 0.0)[()]


def _intervene(p: Any, both: Any, c_fa: Any, c_fn: Any) -> Any:
    """The canonical comparison, (1 - p) * C_FA <= both * C_FN, and silence where `both` is 0."""
    return ((1 - p) * c_fa <= both * c_fn) & (both > 0)


def _probabilities(p_need: Any, p_accept: Any, **others: Any) -> tuple[Any, Any, Any]:
    """Namespace and floats of two checked probabilities; `others` take part in the choice and the shape check."""
    arrays.check_broadcast(p_need=p_need, p_accept=p_accept, **others)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    xp = arrays.namespace(p_need, p_accept, *others.values())
    return xp, arrays.as_float(p_need), arrays.as_float(p_accept)


def _check_width(width: Any) -> None:
    arrays.check_range("width", width, 0.0, np.inf, "a finite width above 0", open_low=True)
