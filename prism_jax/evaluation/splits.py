"""The splits and folds of a scores table: what maps are fitted on, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from prism_jax.scores import Scores, ScoresError

CALIBRATION, TEST = "calibration", "test"


def evaluated_rows(scores: Scores) -> Scores:
    """The rows of the split "test", or all rows of scores without splits.

    Raises:
      ScoresError: if there are splits and none of them is "test".
    """
    return scores if scores.split is None else rows_of(scores, TEST)


def rows_of(scores: Scores, split: str) -> Scores:
    """The rows of one split.

    Raises:
      ScoresError: if there are none; it names the split and the splits that were found.
    """
    if scores.split is None:
        raise without_split(split, {})
    names, number = scores.numbered("split")
    if split not in names:
        raise without_split(split, dict(zip(names, np.bincount(number).tolist(), strict=True)))
    return scores if len(names) == 1 else scores.take(number == names.index(split))


def without_split(split: str, counts: Mapping[str, int]) -> ScoresError:
    """The error for a table without rows of a split, from the rows of each split that it has; none without splits."""
    if not counts:
        hint = ", or a column fold with two or more folds, or --calibration=FILE" if split == CALIBRATION else ""
        return ScoresError(f"found no such column, expected it to name the split {split!r}{hint}", "split")
    splits = ", ".join(f"{count} of {name!r}" for name, count in sorted(counts.items()))
    return ScoresError(f"found no row of the split {split!r} (there are {splits}), expected at least one", "split")
