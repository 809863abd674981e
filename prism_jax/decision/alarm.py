"""Has a calibrated probability drifted? An alarm that may be watched at every answer (docs/maths.md, section 16).

While probabilities are calibrated, E[y_t - p_t | past] = 0. A gambler who bets a part lambda * h of the capital on
y_t - p_t, with |lambda * h| <= 1/2 and h known before the answer, then has a martingale. The mean M_t of several such
capitals is one as well, and Pr(M_t ever reaches 1 / alpha) <= alpha (Ville's inequality), at whatever time one looks
and however often. Bets go up and down, on h = 1 (all probabilities are too low or too high), on the log-odds of p
(they are too timid or too bold), and on answers near the gate. An offer that is withdrawn before its answer costs every
bet the worse of the two answers: were it free, refusals that end a stream would leave the acceptances only.

The state is one number per bet, so it fits in a row per person. `update` takes one answer of any number of people;
`along` takes a whole log at once.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Floats, Reals

SIZES = (0.5, -0.5, 0.25, -0.25, 0.1, -0.1)
"""The bets lambda, of both signs; fixed before any log was looked at."""
DIRECTIONS = 3
"""Number of functions h: 1, the clipped log-odds, and the neighbourhood of the gate."""
COMPONENTS = len(SIZES) * DIRECTIONS
MOST_LOG_ODDS = 4.0
"""Log-odds are clipped to this range and divided by it, so that |h| <= 1."""
NEAR = 1.0
"""How close to the gate, in log-odds, an answer is near it."""
_CAP = 600.0
"""Bound of a log capital, so that it can be averaged; capping a martingale from above raises no false alarm."""


def start(people: int | None = None) -> Float[np.ndarray, "*people components"]:
    """The state before any answer: the log capital 0 of each bet, for one person or for several."""
    shape = () if people is None else (people,)
    return np.zeros((*shape, COMPONENTS))


def update(state: Float[Array, "*n components"], p: Reals, y: Reals, threshold: Reals = 0.5) -> Floats:
    """The state after one answer of each person.

    `p` is the probability of acceptance that was stated before the answer. `threshold` is the gate's threshold tau on p
    at that moment, in (0, 1]; it only says which answers are near the gate.
    """
    return state + log_factors(p, y, threshold)


def withdraw(state: Float[Array, "*n components"], p: Reals, threshold: Reals = 0.5) -> Floats:
    """The state after an offer of each person whose answer will never come; arguments are those of `update`.

    Each capital is multiplied by min(1 + lambda * h * (1 - p), 1 - lambda * h * p), the worse of the two answers.
    Whatever the answer would have been, and whatever of it led to the withdrawal, no capital is larger than with it.
    """
    accepted, refused = (log_factors(p, y, threshold) for y in (1.0, 0.0))
    return state + arrays.namespace(accepted).minimum(accepted, refused)


def log_factors(p: Reals, y: Reals, threshold: Reals = 0.5) -> Float[Array, "*n components"]:
    """log(1 + lambda * h * (y - p)) of every bet, for each answer; the state is their sum over answers."""
    arrays.check_broadcast(p=p, y=y, threshold=threshold)
    arrays.check_probability("p", p)
    arrays.check_label("y", y)
    arrays.check_range("threshold", threshold, 0.0, 1.0, "a threshold above 0 and at most 1", open_low=True)
    xp, p, y, threshold = arrays.as_floats(p, y, threshold)
    least = 1 / (1 + np.exp(MOST_LOG_ODDS))
    log_odds, gate = (arrays.log_odds(xp.asarray(value), least) for value in (p, threshold))
    near = xp.abs(log_odds - gate) <= NEAR
    ones = xp.ones_like(log_odds)
    h_xH = xp.stack([ones, log_odds / MOST_LOG_ODDS, xp.where(near, ones, 0 * ones)], axis=-1)
    sizes = xp.asarray(SIZES, h_xH.dtype)
    bet_xHxS = h_xH[..., :, None] * sizes * (xp.asarray(y) - xp.asarray(p))[..., None, None]
    return xp.log1p(bet_xHxS.reshape(*bet_xHxS.shape[:-2], COMPONENTS))


def log_martingale(state: Float[Array, "*n components"]) -> Floats:
    """Log M of each person: the mean capital of the bets. The alarm is `log_martingale(state) >= log(1 / alpha)`.

    For a family of n people who are watched one by one, compare with log(n / alpha) (Bonferroni).
    """
    if arrays.is_jax(state):
        return arrays.special(arrays.namespace(state)).logsumexp(state, axis=-1) - np.log(state.shape[-1])
    return np.logaddexp.reduce(state, axis=-1) - np.log(state.shape[-1])


def along(
    p: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"],
    person: Int[np.ndarray, " n"],
    threshold: Reals = 0.5,
) -> Float[np.ndarray, " n"]:
    """Log M of each answer's person after that answer, for a whole log at once, in the order in which answers came."""
    arrays.check_lengths(p=p, y=y, person=person)
    order = np.argsort(person, kind="stable")
    total_NxC = np.cumsum(np.asarray(log_factors(p, y, threshold), np.float64)[order], axis=0)
    starts = np.flatnonzero(np.diff(person[order], prepend=person[order][0] - 1))
    before = np.concatenate([np.zeros((1, COMPONENTS)), total_NxC[starts[1:] - 1]])
    own_NxC = total_NxC - np.repeat(before, np.diff(starts, append=len(order)), axis=0)
    log_m = np.empty(len(order))
    log_m[order] = log_martingale(own_NxC)
    return log_m


def pooled_along(
    log_m: Float[np.ndarray, " n"], person: Int[np.ndarray, " n"], *, independent: bool = False
) -> Float[np.ndarray, " n"]:
    """Log of one martingale for all people after each answer of a log, given `along`; people join with their first.

    It is the mean of theirs, or the product where people are `independent`. The mean notices a few people with much
    evidence and holds under any dependence between people. The product notices a little evidence in many; its answers
    of different people must not depend on each other given the past.

    In the mean the n-th person to join weighs 1 / (n (n + 1)), and those to come, at M = 1, what is left. A plain
    average is no martingale while people join: whoever joins at M = 1 raises an average that has fallen.
    """
    arrays.check_lengths(log_m=log_m, person=person)
    order = np.argsort(person, kind="stable")
    first = np.diff(person[order], prepend=person[order][0] - 1) != 0
    capped = np.minimum(log_m[order], _CAP)
    value = capped if independent else np.exp(capped)
    before = np.where(first, 0.0 if independent else 1.0, np.roll(value, 1))
    change = np.empty(len(order))
    change[order] = value - before
    if independent:
        return np.cumsum(change)
    _, joined, code = np.unique(person, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(joined))[code]
    n = np.arange(1, len(joined) + 1)  # people in the order in which they joined; their weights sum to 1 - 1 / (n + 1)
    total = np.cumsum(change * (1 / (n * (n + 1)))[place])
    return np.log(np.maximum(1 + total, np.finfo(float).tiny))


def first_alarm(log_m: Float[np.ndarray, "*n steps"], alpha: float, family: int = 1) -> Int[np.ndarray, "*n"]:
    """Number of answers after which the alarm first rings, along the last axis of `log_m`; -1 where it never does.

    `alpha` is the probability of a false alarm at any time, in (0, 1), for a `family` of people who are watched one by
    one.
    """
    if not 0 < alpha < 1 or family < 1:
        raise ValueError(f"alpha, family: found {alpha} and {family}, expected a number in (0, 1) and at least 1")
    rings: Bool[np.ndarray, "..."] = np.asarray(log_m) >= np.log(family / alpha)
    return np.where(rings.any(axis=-1), rings.argmax(axis=-1) + 1, -1)
