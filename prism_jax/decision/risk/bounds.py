"""Tests that the mean of bounded losses is above a limit, from independent units (docs/maths.md, section 14).

Both p-values are valid for losses in [0, 1] of any distribution and any finite number of units, do not depend on the
order of the units, and never fall when a loss grows. The last property is what lets the rules of a monotone risk
depend on the certifying units' own scores.

Axes: U units, G rules, D draws (resamples of the units).
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float, Real

from prism_jax.decision import arrays

FRACTIONS = (1.0, 0.5, 0.25, 0.125)
"""The bets, as fractions of the largest that cannot lose more than everything."""
SHARES = (0.5, 0.25, 0.125, 0.125)
"""How the capital is divided between the bets; chosen on simulated beta losses (docs/promises.md)."""
_ROUNDING = 1e-9

Counts = Real[np.ndarray, "D U"]


def betting_p_values(
    L_UxG: Float[np.ndarray, "U G"], limit: float, *, counts: Counts | None = None
) -> Float[np.ndarray, "D G"]:
    """p-values against "the mean loss exceeds the limit", by betting, for losses in [0, 1].

    A gambler who bets that losses lie below the limit alpha has the capital K = sum_j share_j * prod_i (1 + b_j *
    (alpha - L_i)), b_j = fraction_j / (1 - alpha). Where the mean loss is at least alpha, E K <= 1, so 1 / K is a
    p-value by Markov's inequality. This is the capital of Waudby-Smith and Ramdas (2024, section 4) for a mixture of
    constant bets; a bet that followed past units would make the result depend on their order.

    `counts` says how often each unit counts in each draw; None is one draw with every unit once.
    """
    counts = _checked(L_UxG, limit, counts)
    log_capital_DxG = np.full((len(counts), L_UxG.shape[1]), -np.inf)
    for fraction, share in zip(FRACTIONS, SHARES, strict=True):
        with np.errstate(divide="ignore"):
            log_factor_UxG = np.log1p(fraction / (1 - limit) * (limit - L_UxG))
        # A lost bet is log 0; a large negative number keeps 0 * log 0 = 0 for units that are not drawn.
        log_bet_DxG = np.log(share) + counts @ np.maximum(log_factor_UxG, -1e9)
        log_capital_DxG = np.logaddexp(log_capital_DxG, log_bet_DxG)
    return np.exp(-np.maximum(log_capital_DxG, 0.0))


def hoeffding_bentkus_p_values(
    L_UxG: Float[np.ndarray, "U G"], limit: float, *, counts: Counts | None = None
) -> Float[np.ndarray, "D G"]:
    """p-values against "the mean loss exceeds the limit", by Hoeffding's and Bentkus's inequalities.

    The smaller of exp(-n KL(min(mean, alpha), alpha)) and e * Pr(Binomial(n, alpha) <= ceil(n * mean)), each of which
    is valid alone and both together (Bates et al. 2021, section 3.1). It sees the mean only: where losses vary less
    than those of a coin, betting certifies more. Counts must be whole numbers.
    """
    counts = _checked(L_UxG, limit, counts)
    number_D = counts.sum(axis=1, keepdims=True)
    sum_DxG = counts @ L_UxG
    inside = np.minimum(sum_DxG / number_D, limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(inside > 0, inside * np.log(inside / limit), 0.0)
    divergence = divergence + (1 - inside) * (np.log1p(-inside) - np.log1p(-limit))
    bentkus = np.e * scipy.stats.binom.cdf(np.ceil(sum_DxG - _ROUNDING), number_D, limit)
    return np.minimum(1.0, np.minimum(np.exp(-number_D * divergence), bentkus))


def smallest_limit(units: int, error: float, bound: str = "betting") -> float:
    """The smallest limit that a number of units can promise: what they promise where none has any loss.

    For `hoeffding_bentkus` it is 1 - error^(1 / units), which no valid test can improve. For `betting` it is the limit
    at which the capital of losses of 0 reaches 1 / error. For `expectation` it is 1 / (units + 1), whatever the error,
    which is the probability with which the promise may fail.

    Examples:
      >>> round(smallest_limit(40, 0.1), 4), round(smallest_limit(40, 0.1, "hoeffding_bentkus"), 4)
      (0.0684, 0.0559)
    """
    arrays.check_choice("bound", bound, ("betting", "hoeffding_bentkus", "expectation"))
    if units < 1 or not 0 < error < 1:
        raise ValueError(f"units, error: found {units} and {error}, expected at least 1 unit and an error in (0, 1)")
    if bound == "expectation":
        return 1 / (units + 1)
    if bound == "hoeffding_bentkus":
        return float(-np.expm1(np.log(error) / units))

    def excess(limit: float) -> float:
        parts = [
            np.log(share) + units * np.log1p(fraction * limit / (1 - limit))
            for fraction, share in zip(FRACTIONS, SHARES, strict=True)
        ]
        return float(np.logaddexp.reduce(parts) + np.log(error))

    return float(scipy.optimize.brentq(excess, 1e-15, 1 - 1e-15))


def _checked(L_UxG: Float[np.ndarray, "U G"], limit: float, counts: Counts | None) -> Float[np.ndarray, "D U"]:
    """The counts as floats, one row of ones by default."""
    arrays.check_probability("losses", L_UxG)
    if not 0 < limit < 1:
        raise ValueError(f"limit: found {limit}, expected a number above 0 and below 1")
    if counts is None:
        return np.ones((1, len(L_UxG)))
    arrays.check_range("counts", counts, 0.0, np.inf, "a finite count of at least 0")
    if counts.shape[1] != len(L_UxG) or not (counts.sum(axis=1) > 0).all():
        raise ValueError(f"counts: found shape {counts.shape}, expected counts of {len(L_UxG)} units, some above 0")
    return np.asarray(counts, np.float64)
