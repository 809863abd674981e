"""The value of thinking: what the slow pass is expected to save, before it runs (docs/maths.md, section 12).

With fast signals, D = (1 - p_accept) * C_FA - p_accept * p_need * C_FN is the cost of an offer minus that of silence.
The slow pass turns D into D', and the decision changes where the sign does. If both passes are calibrated and the slow
one knows all that the fast one does, E[D' | fast] = D. With D' ~ N(D, sigma^2) the expected saving is

    VOI = sigma * phi(|D| / sigma) - |D| * Phi(-|D| / sigma) >= 0.

sigma follows from three numbers, how far the slow pass moves the two log-odds (`Moves`), at any step and any costs.
Thinking is worth its tokens where VOI >= price * tokens.

Functions of signals and costs are elementwise, and their arguments broadcast; the fit runs on the host. `budgets` finds
the price for a stated share of steps, `value_surface` counts decisions over costs and prices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prism_jax.decision import arrays, gate
from prism_jax.decision.arrays import Booleans, Floats, Reals, Vector
from prism_jax.decision.passes import BothPasses, Pass

_FAR = 40.0
"""|D| / sigma from which on the saving is 0: exp(-40^2 / 2) is below every float64."""


class Moves(NamedTuple):
    """How far the slow pass moves the log-odds: second moments of the moves, in squared log-odds.

    Each is one number, or an array with one number for each group or step. The moments are not centred: a shift that
    calibration left counts as movement.

    Attributes:
      accept: Mean of (z_accept_slow - z_accept_fast)^2, at least 0.
      need: Mean of (z_need_slow - z_need_fast)^2, at least 0.
      both: Mean of the product of the two moves; its square is at most accept * need.
    """

    accept: Reals
    need: Reals
    both: Reals


def check_moves(moves: Moves) -> None:
    """Raises ValueError unless the moments are finite and positive semi-definite; tracers are not checked."""
    arrays.check_broadcast(**moves._asdict())
    for name in ("accept", "need"):
        arrays.check_range(f"moves.{name}", getattr(moves, name), 0.0, np.inf, "a finite second moment of at least 0")
    arrays.check_finite("moves.both", moves.both)
    if arrays.is_traced(*moves):
        return
    accept, need, both = (arrays.host(moment) for moment in moves)
    most = np.sqrt(accept) * np.sqrt(need)
    bad = np.abs(both) > most * (1 + 1e-6)  # moments may be rounded to float32
    if bad.any():
        product, limit = (float(np.broadcast_to(value, bad.shape)[bad].flat[0]) for value in (both, most))
        raise ValueError(f"moves.both: found {product:g}, expected at most sqrt(accept * need) = {limit:g} in size")


def fit_moves(
    fast: Pass,
    slow: Pass,
    weight: Vector | None = None,
    groups: Vector | None = None,
    *,
    num_groups: int | None = None,
) -> Moves:
    """Fits the three numbers on steps where both passes ran; runs on the host.

    The log-odds are those of each pass's own calibrated probabilities. Labels are not needed.

    Args:
      fast: Log-odds of the fast pass, one of each signal for each step.
      slow: Log-odds of the slow pass.
      weight: Importance of each step; None is 1.
      groups: Group of each step, integers from 0, such as a domain; each group gets its own moments.
      num_groups: Number of groups; None is the largest group plus 1.

    Returns:
      Moves of Python floats, or of arrays [groups] where groups are given.

    Raises:
      ValueError: for log-odds that are not finite, unequal lengths, empty input, a bad weight, or a group without a
        step of positive weight.
    """
    log_odds = BothPasses(fast, slow).named("z")
    arrays.check_lengths(**log_odds, weight=weight, groups=groups)
    for name, z in log_odds.items():
        arrays.check_finite(name, z)
    arrays.check_weight("weight", weight)
    need_fast, accept_fast, need_slow, accept_slow = map(arrays.host, log_odds.values())
    need, accept = need_slow - need_fast, accept_slow - accept_fast
    mass = np.ones(len(need)) if weight is None else arrays.host(weight)
    products = accept * accept, need * need, accept * need
    if groups is None:
        return Moves(*(float(np.average(product, weights=mass)) for product in products))
    group, number = arrays.numbered(groups, num_groups)
    total = np.bincount(group, mass, minlength=number)
    if (total == 0).any():
        raise ValueError(f"groups: found no step of the group {int((total == 0).argmax())}, expected some of each")
    return Moves(*(np.bincount(group, mass * product, minlength=number) / total for product in products))


def _deviation(xp: Any, p_need: Any, p_accept: Any, c_fa: Any, c_fn: Any, moves: Moves) -> Any:
    """The standard deviation sigma of D' around D: sigma^2 = g' S g, with the gradient g of D in the log-odds.

    g = (-p_accept (1 - p_accept) (C_FA + p_need C_FN), -p_accept p_need (1 - p_need) C_FN) for (z_accept, z_need), and
    S holds the moments of `moves`. First order in the moves.
    """
    unit = c_fa + c_fn  # in this unit nothing overflows when it is squared
    by_accept = p_accept * (1 - p_accept) * ((c_fa + p_need * c_fn) / unit)
    by_need = p_accept * p_need * (1 - p_need) * (c_fn / unit)
    square = by_accept * by_accept * moves.accept + by_need * by_need * moves.need
    square = square + 2 * by_accept * by_need * moves.both
    positive = square > 0  # rounding may take a singular form below 0
    return xp.where(positive, unit * xp.sqrt(xp.where(positive, square, 1.0)), 0.0)[()]


def _expected_saving(xp: Any, net: Any, sigma: Any) -> Any:
    """E[max(-D', 0)] - max(-D, 0) for D' ~ N(D, sigma^2): what seeing D' before deciding saves.

    sigma * phi(t) - |D| * Phi(-t) with t = |D| / sigma, computed as sigma * exp(-t^2 / 2) * (1 / sqrt(2 pi) - t / 2 *
    erfcx(t / sqrt(2))), which neither cancels nor overflows.
    """
    distance = xp.abs(net)
    scale = xp.maximum(sigma, distance / _FAR)
    t = distance / xp.where(scale > 0, scale, 1.0)
    bracket = 1 / np.sqrt(2 * np.pi) - t / 2 * arrays.special(xp).erfcx(t / np.sqrt(2))
    return (sigma * xp.exp(-t * t / 2) * xp.maximum(bracket, 0.0))[()]


def value_of_thinking(p_need: Reals, p_accept: Reals, c_fa: Reals, c_fn: Reals, moves: Moves) -> Floats:
    """VOI, the expected saving of the slow pass at each step.

    At most the lower of the two expected costs, which is all that can be saved; the normal form alone can exceed it.

    The probabilities are those of the fast pass; arrays of `moves` broadcast with them.

    Returns:
      VOI >= 0 in the unit of the costs, of the broadcast shape.

    Raises:
      ValueError: for bad values, moments that are not positive semi-definite, or shapes that do not broadcast.
    """
    _, p_need, p_accept, c_fa, c_fn = _checked(p_need, p_accept, c_fa, c_fn)
    check_moves(moves)
    arrays.check_broadcast(p_need=p_need, p_accept=p_accept, c_fa=c_fa, c_fn=c_fn, **moves._asdict())
    moments = [arrays.as_float(moment) for moment in moves]
    xp = arrays.namespace(p_need, p_accept, c_fa, c_fn, *moments)
    return value_unchecked(xp, p_need, p_accept, c_fa, c_fn, Moves(*moments))


def value_unchecked(xp: Any, p_need: Any, p_accept: Any, c_fa: Any, c_fn: Any, moves: Moves) -> Any:
    """`value_of_thinking` without checks, on floating-point numbers that its caller has checked; `xp` is theirs."""
    offer, silence = gate.expected_costs(p_accept, p_accept * p_need, c_fa, c_fn)
    sigma = _deviation(xp, p_need, p_accept, c_fa, c_fn, moves)
    saving = _expected_saving(xp, offer - silence, sigma)
    return xp.minimum(saving, xp.minimum(offer, silence))[()]


def decide_by_value(
    fast: Pass,
    slow: Pass,
    c_fa: Reals,
    c_fn: Reals,
    moves: Moves,
    price: Reals,
    tokens: Reals,
) -> tuple[Booleans, Booleans]:
    """The dynamic gate where the slow pass is triggered by its value: the counterpart of `gate.decide_with_slow`.

    Args:
      fast: Probabilities of the fast pass.
      slow: Probabilities of the slow pass.
      c_fa: C_FA > 0.
      c_fn: C_FN >= 0.
      moves: Moves of the log-odds; arrays broadcast with the signals.
      price: Price kappa >= 0 of one slow token, in the unit of the costs.
      tokens: Expected tokens of the slow pass, above 0.

    Returns:
      The decision (True is to intervene) and whether the slow pass ran, of the broadcast shape.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    probabilities = BothPasses(fast, slow).named()
    arrays.check_broadcast(**probabilities, c_fa=c_fa, c_fn=c_fn, **moves._asdict(), price=price, tokens=tokens)
    for name, p in probabilities.items():
        arrays.check_probability(name, p)
    arrays.check_costs(c_fa, c_fn, *fast)
    check_moves(moves)
    arrays.check_range("price", price, 0.0, np.inf, "a finite price of at least 0")
    arrays.check_range("tokens", tokens, 0.0, np.inf, "a finite number of tokens above 0", open_low=True)
    arrays.check_costs(c_fa, c_fn, *slow)
    fast, slow = (Pass(*map(arrays.as_float, of)) for of in (fast, slow))
    _, c_fa, c_fn, *moments, price, tokens = arrays.as_floats(c_fa, c_fn, *moves, price, tokens)
    return by_value_unchecked(fast, slow, c_fa, c_fn, Moves(*moments), price, tokens)


def by_value_unchecked(
    fast: Pass, slow: Pass, c_fa: Any, c_fn: Any, moves: Moves, price: Any, tokens: Any
) -> tuple[Booleans, Booleans]:
    """`decide_by_value` without checks, on floating-point numbers that its caller has checked."""
    value = value_unchecked(arrays.namespace(*fast, c_fa, c_fn, *moves), *fast, c_fa, c_fn, moves)
    thinks = arrays.namespace(value, price, tokens).greater_equal(value, price * tokens)
    decisions = [gate.intervene_unchecked(of.accept, of.accept * of.need, c_fa, c_fn) for of in (slow, fast)]
    xp = arrays.namespace(thinks, *decisions)
    return xp.where(thinks, *decisions)[()], thinks


def _checked(p_need: Any, p_accept: Any, c_fa: Any, c_fn: Any, **others: Any) -> tuple[Any, ...]:
    """Namespace and floats of checked signals, costs and others."""
    arrays.check_broadcast(p_need=p_need, p_accept=p_accept, c_fa=c_fa, c_fn=c_fn, **others)
    arrays.check_probability("p_need", p_need)
    arrays.check_probability("p_accept", p_accept)
    arrays.check_costs(c_fa, c_fn, p_need, p_accept)
    return arrays.as_floats(p_need, p_accept, c_fa, c_fn, *others.values())
