"""The rules that keep promises, with a stated probability or in expectation (docs/maths.md, section 14).

Learn-then-test: every rule is tested against "its risk exceeds the limit", in a sequence that is fixed beforehand, up
to the first test that fails. The rules before it keep the promise, all of them at once, except with probability eta.
So any of them may be deployed, chosen in any way, also on the same units.

Axes: U units, G rules, ordered from silent to talkative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from prism_jax.decision import arrays
from prism_jax.decision.risk.bounds import betting_p_values, hoeffding_bentkus_p_values
from prism_jax.decision.risk.losses import Promise

BOUNDS: dict[str, Callable[..., Float[np.ndarray, "D G"]]] = {
    "betting": betting_p_values,
    "hoeffding_bentkus": hoeffding_bentkus_p_values,
}
"""The bounds by name. State beforehand which one decides: the better of two is no longer a promise."""


class Kept(NamedTuple):
    """One promise and the rules that keep it."""

    promise: Promise
    rules: Bool[np.ndarray, " G"]  # whether each rule is certified
    p_values: Float[np.ndarray, " G"]
    error: float  # the share of eta that this promise was tested at


class Certified(NamedTuple):
    """The rules that keep several promises at once."""

    # whether each rule is certified for all of them; with probability 1 - eta, all certified rules keep them
    rules: Bool[np.ndarray, " G"]
    kept: tuple[Kept, ...]  # each promise by itself


def fixed_sequence(
    p_values: Float[np.ndarray, "D G"], error: float, *, starts: Sequence[int] = (0,), upwards: bool = True
) -> Bool[np.ndarray, "D G"]:
    """The rules that fixed-sequence testing certifies, for each row of p-values, in order from silent to talkative.

    From every start, rules are certified in order until the first p-value above error / (number of starts): towards
    more talkative rules if `upwards`, else towards more silent ones. The probability that any certified rule is false
    is at most `error`, whatever the dependence between tests. Starts are fixed beforehand or on other units.

    Raises:
      ValueError: for an error outside (0, 1), or a start that is no rule.
    """
    rules = p_values.shape[1]
    if not 0 < error < 1:
        raise ValueError(f"error: found {error}, expected a number above 0 and below 1")
    if not starts or not all(0 <= start < rules for start in starts):
        raise ValueError(f"starts: found {list(starts)}, expected indices of rules from 0 to {rules - 1}")
    passed = p_values <= error / len(starts)
    certified = np.zeros_like(passed)
    for start in starts:
        part = (slice(None), slice(start, None)) if upwards else (slice(None), slice(start, None, -1))
        certified[part] |= np.logical_and.accumulate(passed[part], axis=1)
    return certified


def certify(
    losses: Mapping[Promise, Float[np.ndarray, "U G"]],
    error: float,
    *,
    bound: str = "betting",
    starts: Mapping[Promise, Sequence[int]] | None = None,
    families: int = 1,
    monotone: bool = True,
) -> Certified:
    """The rules that keep all promises together, except with probability `error` over the certifying units.

    The error is shared equally between the promises (Bonferroni), and the rules of all of them are intersected. Risks
    that grow with talkativeness are tested from the most silent rule, those that fall from the most talkative.

    Args:
      losses: For each promise, the loss of each unit under each rule, from `unit_losses`; the same units in all.
      error: The probability eta with which a promise may fail, in (0, 1).
      bound: One of `BOUNDS`, stated beforehand.
      starts: Where the sequences of a promise start, fixed beforehand or on other units; required for false discovery,
        which is near its limit where hardly anything is offered.
      families: Number of families of rules, such as slow margins or policies, among which one will be chosen after
        looking at the result. Each call is tested at error / families, so the promise holds for all of them at once.
      monotone: Whether to check that losses move in one direction from rule to rule, as is needed where the rules
        depend on the certifying units. False is for rules that were fixed beforehand or on other units and whose losses
        may move either way, as with a slow pass that chooses other candidates than the fast pass.

    Raises:
      ValueError: for an unknown bound, no promise, losses that are not monotone where the risk says so, unequal shapes,
        or a missing start.
    """
    arrays.check_choice("bound", bound, tuple(BOUNDS))
    if not losses or families < 1:
        raise ValueError(f"losses, families: found {len(losses)} and {families}, expected at least one of each")
    if len(shapes := {loss.shape for loss in losses.values()}) > 1:
        raise ValueError(f"losses: found the shapes {sorted(shapes)}, expected the same units and rules everywhere")
    kept = []
    for promise, L_UxG in losses.items():
        promise_starts = (starts or {}).get(promise)
        if promise.grows is None and promise_starts is None:
            raise ValueError(f"starts: found none for {promise}, expected one: its first test near silence would fail")
        if monotone and promise.grows is not None:
            check_monotone(promise, L_UxG)
        share = error / (len(losses) * families)
        upwards = promise.grows is not False
        p_values = BOUNDS[bound](L_UxG, promise.limit)
        begin = tuple(promise_starts) if promise_starts is not None else ((0,) if upwards else (L_UxG.shape[1] - 1,))
        rules = fixed_sequence(p_values, share, starts=begin, upwards=upwards)[0]
        kept.append(Kept(promise, rules, p_values[0], share))
    return Certified(np.logical_and.reduce([entry.rules for entry in kept]), tuple(kept))


def kept_in_expectation(losses: Mapping[Promise, Float[np.ndarray, "U G"]]) -> Bool[np.ndarray, " G"]:
    """Whether each rule keeps all promises in expectation, by conformal risk control, for monotone risks only.

    The mean is over the certifying units and one new unit: E L_new <= alpha for the most permissive rule with (n * mean
    + 1) / (n + 1) <= alpha (Angelopoulos et al. 2024). It is weaker than a promise with probability 1 - eta: for the
    units at hand, the risk of the chosen rule exceeds the limit about half of the time. With several promises, each
    holds in expectation at the rule that its own condition bounds.

    Raises:
      ValueError: for false discovery, which is not monotone, or losses that are not.
    """
    allowed = []
    for promise, L_UxG in losses.items():
        if promise.grows is None:
            raise ValueError(f"{promise}: found a risk that is not monotone, expected one that is, in expectation")
        check_monotone(promise, L_UxG)
        arrays.check_probability("losses", L_UxG)
        allowed.append((L_UxG.sum(axis=0) + 1) / (len(L_UxG) + 1) <= promise.limit)
    if not allowed:
        raise ValueError("losses: found no promise, expected at least one")
    return np.logical_and.reduce(allowed)


def check_monotone(promise: Promise, L_UxG: Float[np.ndarray, "U G"]) -> None:
    """Raises ValueError where a loss moves against the direction of its risk by more than rounding."""
    change = np.diff(L_UxG, axis=1)
    if (change < -1e-12 if promise.grows else change > 1e-12).any():
        words = "grow" if promise.grows else "fall"
        raise ValueError(f"{promise}: found losses that do not {words} from rule to rule, expected nested rules")
