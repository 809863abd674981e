"""Agreement between two judges, or among several (docs/maths.md, section 8). Host only, in float64.

Where one label is rare, raw agreement is high for any judge. `compare` therefore reports the base rate and the best
constant judge as well. Kappa and Matthews' coefficient are 0 for a constant or a random judge.
"""

from __future__ import annotations

import dataclasses
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from prism_jax.decision import arrays, metrics
from prism_jax.decision.arrays import Array


def raw_agreement(first: Any, second: Any) -> float:
    """Share of items to which both judges give the same label.

    Args:
      first: Labels of one judge, either all numbers or all text.
      second: Labels of the other judge, one per item in the same order.

    Raises:
      ValueError: for unequal lengths, empty input, NaN, or labels of two kinds (the number 1 is not the text "1").
    """
    table = _table(first, second)
    return float(np.trace(table) / table.sum())


def cohens_kappa(first: Any, second: Any) -> float:
    """Cohen's kappa (1960): (observed - chance) / (1 - chance), chance from each judge's own label frequencies.

    It is 1 for judges who always agree and 0 for independent ones. It is NaN where both judges give one and the same
    label to every item, since chance could then produce no disagreement. Arguments and errors are those of
    `raw_agreement`.

    Examples:
      >>> round(cohens_kappa(np.array([1, 1, 1, 0]), np.array([1, 1, 0, 0])), 3)
      0.5
    """
    return float(kappa_of_counts(_table(first, second)))


def kappa_of_counts(table: Num[np.ndarray, "*tables labels labels"]) -> Float[np.ndarray, "*tables"]:
    """Cohen's kappa of counts of each pair of labels; NaN where both judges give one and the same label to every item.

    Whole counts stay exact up to the division, so that only the division rounds.
    """
    counts = table.astype(np.float64)
    items, agreed = counts.sum((-2, -1)), np.trace(counts, axis1=-2, axis2=-1)
    chance = (counts.sum(-2) * counts.sum(-1)).sum(-1)
    possible = items**2 - chance
    return np.where(possible == 0, np.nan, (items * agreed - chance) / np.where(possible == 0, 1.0, possible))


def matthews(first: Any, second: Any) -> float:
    """Matthews correlation coefficient of two binary judges; NaN where either gives every item the same label.

    It equals kappa where both judges give each label equally often.

    Raises:
      ValueError: for unequal lengths, empty input, or a label that is neither 0 nor 1.
    """
    a, b = _binary(first, second)
    return float(metrics.rates(metrics.confusion(a, b)).matthews)


def fleiss_kappa(votes: Int[Array, "items categories"]) -> float:
    """Fleiss' kappa (1971) for a panel of interchangeable judges.

    Args:
      votes: Number of judges that put each item in each category; every item has the same number of votes, at least 2.

    Returns:
      Kappa, or NaN where all votes fall in one category.

    Raises:
      ValueError: for counts that are negative or not whole, an empty table, or items with unequal or below 2 votes.
    """
    table = _vote_counts(votes)
    judges = table.sum(axis=1)
    if judges[0] < 2 or np.any(judges != judges[0]):
        raise ValueError(
            f"votes: found items with {judges.min():g} to {judges.max():g} votes, "
            "expected the same number for each item, at least 2 (krippendorffs_alpha takes unequal numbers)"
        )
    n = judges[0]
    pairs_agreeing = (table * (table - 1)).sum(axis=1) / (n * (n - 1))
    share = table.sum(axis=0) / table.sum()
    chance = float(share @ share)
    return (float(pairs_agreeing.mean()) - chance) / (1 - chance) if np.count_nonzero(share) > 1 else float("nan")


class Alpha(NamedTuple):
    """Krippendorff's alpha, the number of items with at least 2 votes, and the number of items left out."""

    alpha: float
    items: int
    left_out: int


def krippendorffs_alpha(votes: Int[Array, "items categories"]) -> Alpha:
    """Krippendorff's alpha for nominal labels: 1 - observed / expected disagreement of pairs of votes on one item.

    Items may have unequal numbers of votes. An item with fewer than 2 votes has no pair and is left out. Unlike Fleiss'
    kappa, the expected disagreement draws pairs without replacement. (Krippendorff 2011, Computing Krippendorff's
    Alpha-Reliability.)

    Args:
      votes: Number of judges that put each item in each category.

    Returns:
      Alpha, which is NaN where all votes fall in one category, and the numbers of items.

    Raises:
      ValueError: for counts that are negative or not whole, an empty table, or no item with 2 votes.
    """
    table = _vote_counts(votes)
    judges = table.sum(axis=1)
    paired = table[judges >= 2]
    if len(paired) == 0:
        raise ValueError(f"votes: found at most {judges.max():g} votes on an item, expected at least 2 on some item")
    judges, totals = paired.sum(axis=1), paired.sum(axis=0)
    n = totals.sum()
    observed = ((judges**2 - (paired**2).sum(axis=1)) / (judges - 1)).sum() / n
    expected = (n**2 - (totals**2).sum()) / (n * (n - 1))
    alpha = float(1 - observed / expected) if expected > 0 else float("nan")
    return Alpha(alpha, len(paired), len(table) - len(paired))


def _vote_counts(votes: Any) -> np.ndarray:
    """A checked table of vote counts on the host."""
    arrays.check_kind("votes", votes)
    table = arrays.host(votes)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"votes: found shape {table.shape}, expected [items, categories] with at least one of each")
    arrays.check_range("votes", table, 0.0, np.inf, "a count of at least 0")
    if not np.array_equal(table, np.floor(table)):
        fraction = table[table != np.floor(table)][0]
        raise ValueError(f"votes: found {fraction:g}, expected a whole number of votes")
    return table


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Agreement of a judge with a reference, and the agreement of a constant judge.

    Attributes:
      items: Number of items.
      agreement: Share of items with the same label.
      kappa: Cohen's kappa.
      matthews: Matthews correlation coefficient.
      base_rate: Share of 1 in the reference.
      judge_rate: Share of 1 in the judge's labels.
      constant_agreement: Agreement of the better constant judge, max(base_rate, 1 - base_rate).
    """

    items: int
    agreement: float
    kappa: float
    matthews: float
    base_rate: float
    judge_rate: float
    constant_agreement: float


def compare(judge: Any, reference: Any) -> Agreement:
    """All agreement measures of a binary judge against a binary reference.

    Raises:
      ValueError: for unequal lengths, empty input, or a label that is neither 0 nor 1.
    """
    a, b = _binary(judge, reference)
    base_rate = float(b.mean())
    return Agreement(
        items=a.size,
        agreement=raw_agreement(a, b),
        kappa=cohens_kappa(a, b),
        matthews=matthews(a, b),
        base_rate=base_rate,
        judge_rate=float(a.mean()),
        constant_agreement=max(base_rate, 1 - base_rate),
    )


def _binary(first: Any, second: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two checked binary judges as booleans."""
    arrays.check_lengths(first=first, second=second)
    arrays.check_hard("first", first)
    arrays.check_hard("second", second)
    return np.asarray(first).astype(bool), np.asarray(second).astype(bool)


def _kind(name: str, labels: Any) -> str:
    """The kind of the labels, such as "numbers" or "text"; mixed kinds raise, as NumPy would make all labels text."""
    array = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
    if array.dtype.kind in "biufc":
        return "numbers"
    kinds = {
        "numbers" if isinstance(item, Number | np.bool_) else "text" if isinstance(item, str) else type(item).__name__
        for item in array
    }
    if len(kinds) > 1:
        raise ValueError(f"{name}: found {' and '.join(sorted(kinds))}, expected labels of one kind")
    return kinds.pop()


def _table(first: Any, second: Any) -> np.ndarray:
    """Counts of each pair of labels, [labels, labels]."""
    arrays.check_lengths(first=first, second=second)
    expected = _kind("first", first)
    if (kind := _kind("second", second)) != expected:
        raise ValueError(f"second: found {kind}, expected {expected} as in first")
    a, b = np.asarray(first), np.asarray(second)
    for name, labels in (("first", a), ("second", b)):
        if labels.dtype.kind == "f" and np.isnan(labels).any():
            index = int(np.argmax(np.isnan(labels)))
            raise ValueError(f"{name}: found NaN at index {index}, expected a label for each item")
    names, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    pairs = codes[: a.size] * names.size + codes[a.size :]
    return np.bincount(pairs, minlength=names.size**2).reshape(names.size, names.size)
