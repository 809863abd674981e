"""Decision-consistent curation of a teacher's examples for training (docs/maths.md, section 5; paper, Eq. 2).

The paper's score applies its acceptance penalty only where the teacher itself predicts need. This makes the score
improper: a teacher gains by reporting q_need just below 1/2. The default score applies the penalty where the log
records an intervention instead.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Floats, Reals, Vector

NOT_OFFERED = "not offered"


def score(q_need: Reals, q_accept: Reals, y_need: Reals, y_accept: Reals, logged: Reals = 1) -> Floats:
    """R_DC = A y_accept - (q_need - y_need)^2 - A (q_accept - y_accept)^2.

    Its expectation over the labels is largest if the teacher reports the true probabilities, provided that A does not
    depend on the teacher's report.

    Args:
      q_need: The teacher's probability of need.
      q_accept: The teacher's probability of acceptance.
      y_need: Need labels in [0, 1].
      y_accept: Acceptance labels in [0, 1]; not read where A = 0.
      logged: A, 1 where an offer was made and its acceptance observed, else 0.

    Returns:
      Scores in [-2, 1], elementwise.

    Raises:
      ValueError: for a value outside its range or shapes that do not broadcast.
    """
    arrays.check_broadcast(q_need=q_need, q_accept=q_accept, y_need=y_need, y_accept=y_accept, logged=logged)
    arrays.check_hard("logged", logged)
    arrays.check_kind("y_accept", y_accept)
    _check(q_need, q_accept, y_need)
    xp, need, accept, label_need, label_accept, offered = arrays.as_floats(q_need, q_accept, y_need, y_accept, logged)
    label_accept = xp.where(offered > 0, label_accept, 0.0)
    arrays.check_label("y_accept", label_accept)
    return offered * label_accept - (need - label_need) ** 2 - offered * (accept - label_accept) ** 2


def score_paper(q_need: Reals, q_accept: Reals, y_need: Reals, y_accept: Reals) -> Floats:
    """Paper Eq. 2 as printed: the last penalty counts only where the teacher predicts need, q_need >= 1/2.

    Kept for reproduction. The score is improper. It also ranks correct silence (at most 0) below every accepted offer
    with small penalties, so selecting the global top k by it inflates the prevalence.

    Arguments, range and errors are those of `score`.
    """
    arrays.check_broadcast(q_need=q_need, q_accept=q_accept, y_need=y_need, y_accept=y_accept)
    _check(q_need, q_accept, y_need)
    arrays.check_label("y_accept", y_accept)
    xp, need, accept, label_need, label_accept = arrays.as_floats(q_need, q_accept, y_need, y_accept)
    penalty = xp.where(need >= 0.5, (accept - label_accept) ** 2, 0.0)
    return label_accept - (need - label_need) ** 2 - penalty


@dataclasses.dataclass(frozen=True)
class StratumSummary:
    """How many rows of one stratum and domain were kept and dropped."""

    stratum: str
    domain: str
    kept: int
    dropped: int


@dataclasses.dataclass(frozen=True)
class Selection:
    """The rows that curation kept.

    Attributes:
      kept: One boolean for each row.
      summary: One entry for each stratum and domain that occurs, sorted.
    """

    kept: Bool[np.ndarray, "_n"]
    summary: tuple[StratumSummary, ...]


def select(
    scores: Vector,
    y_need: Vector,
    y_accept: Vector,
    logged: Vector | None = None,
    *,
    fraction: int | float | None = None,
    count: int | None = None,
    stratify: bool = True,
    domain: Any = None,
) -> Selection:
    """Keeps the rows of highest score, within label strata by default. Host only.

    There are five strata: the four label pairs (labels of at least 1/2 count as 1), and the rows where no offer was
    made. Each stratum keeps its share of the total by largest remainders, so label proportions are preserved up to one
    row per stratum. Among equal scores, earlier rows are kept first.

    Args:
      scores: Scores of the rows, from `score` or `score_paper`.
      y_need: Need labels.
      y_accept: Acceptance labels; not read where A = 0.
      logged: A, 1 where an offer was made, else 0; None is 1 everywhere.
      fraction: Share of all rows to keep, in (0, 1]; exactly one of `fraction` and `count` is given.
      count: Number of rows to keep (the paper keeps 1,800).
      stratify: Whether to select within strata; False selects the global top, as the paper does.
      domain: Domain of each row, used only in the summary.

    Raises:
      ValueError: for unequal lengths, empty input, a score that is not finite, a label outside [0, 1], both or neither
        of fraction and count, or one outside its range.
    """
    arrays.check_lengths(scores=scores, y_need=y_need, y_accept=y_accept, logged=logged, domain=domain)
    arrays.check_finite("scores", scores)
    values = arrays.host(scores)
    total = _total(values.size, fraction, count)
    names = strata(y_need, y_accept, logged)
    kept = np.zeros(values.size, dtype=bool)
    order = np.argsort(-values, kind="stable")
    if stratify:
        _, index = np.unique(names, return_inverse=True)
        for number, share in enumerate(largest_remainders(np.bincount(index), total)):
            kept[order[index[order] == number][:share]] = True
    else:
        kept[order[:total]] = True
    domains = np.full(values.size, "") if domain is None else np.asarray(domain).astype(str)
    return Selection(kept, _summarise(names, domains, kept))


def strata(y_need: Vector, y_accept: Vector, logged: Vector | None = None) -> np.ndarray:
    """Names the stratum of each row: its pair of labels, or that no offer was made. Host only.

    Args:
      y_need: Need labels in [0, 1]; from 1/2 on they count as 1.
      y_accept: Acceptance labels in [0, 1], counted in the same way; not read where A = 0.
      logged: A, 1 where an offer was made, else 0; None is 1 everywhere.

    Returns:
      One text per row, such as "need 1, accept 0" or `NOT_OFFERED`.

    Raises:
      ValueError: for unequal lengths, empty input, a label outside [0, 1], or an A that is neither 0 nor 1.
    """
    arrays.check_lengths(y_need=y_need, y_accept=y_accept, logged=logged)
    if logged is not None:
        arrays.check_hard("logged", logged)
    arrays.check_label("y_need", y_need)
    arrays.check_kind("y_accept", y_accept)
    need, accept = arrays.host(y_need), arrays.host(y_accept)
    offered = np.ones(need.size, dtype=bool) if logged is None else arrays.host(logged) > 0
    accept = np.where(offered, accept, 0.0)
    arrays.check_label("y_accept", accept)
    pairs = np.array([[f"need {n}, accept {a}" for a in (0, 1)] for n in (0, 1)])
    names = pairs[(need >= 0.5).astype(int), (accept >= 0.5).astype(int)]
    return np.where(offered, names, NOT_OFFERED)


def _check(q_need: Any, q_accept: Any, y_need: Any) -> None:
    arrays.check_probability("q_need", q_need)
    arrays.check_probability("q_accept", q_accept)
    arrays.check_label("y_need", y_need)


def _total(rows: int, fraction: int | float | None, count: int | None) -> int:
    if (fraction is None) == (count is None):
        raise ValueError(f"fraction, count: found {fraction} and {count}, expected exactly one of them")
    if fraction is not None:
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: found {fraction}, expected a share in (0, 1]")
        return max(1, int(np.floor(fraction * rows + 0.5)))
    if count is None or not 1 <= count <= rows:
        raise ValueError(f"count: found {count}, expected from 1 to the {rows} rows there are")
    return count


def largest_remainders(sizes: np.ndarray, total: int) -> np.ndarray:
    """Splits `total` in proportion to `sizes`, in whole numbers that add up and exceed no size (Hamilton's method)."""
    whole, remainder = np.divmod(sizes * total, sizes.sum())
    first = np.argsort(-remainder, kind="stable")[: total - whole.sum()]
    whole[first] += 1
    return whole


def _summarise(strata: np.ndarray, domains: np.ndarray, kept: np.ndarray) -> tuple[StratumSummary, ...]:
    """Kept and dropped rows for each stratum and domain that occurs."""
    pairs, index = np.unique(np.stack([strata, domains]), axis=1, return_inverse=True)
    rows = np.bincount(index.reshape(-1))
    chosen = np.bincount(index.reshape(-1), weights=kept).astype(int)
    return tuple(
        StratumSummary(str(stratum), str(name), int(k), int(n - k))
        for (stratum, name), n, k in zip(pairs.T, rows, chosen, strict=True)
    )
