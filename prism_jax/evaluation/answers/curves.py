"""A log's score in curves: how far it is from a probability, and what a gate at each threshold would have cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.calibration import BinSums, Reliability, Rule
from prism_jax.decision.score_maps import ScoreMap
from prism_jax.evaluation.answers.labelled import Labelled
from prism_jax.evaluation.answers.measures import BINS

MOST_POINTS = 400
"""Thresholds of a curve, at most."""


class Curves(NamedTuple):
    """What is drawn of a score."""

    reliability: Mapping[str, Reliability]  # of each map, on people that it was not fitted on
    threshold: Float64[np.ndarray, " thresholds"]  # ascending scores
    cost: Float64[np.ndarray, " thresholds"]  # per offer with a score, of a gate that offers from each of them on

    @classmethod
    def of(
        cls,
        scores: Mapping[int, Labelled],
        maps: Mapping[int, Mapping[str, ScoreMap]],
        rule: Rule,
        costs: tuple[float, float],
    ) -> Curves:
        """The curves of the scores and the maps of each fold, at C_FA and C_FN.

        A rule that offers at most a score has curves for such rules.
        """
        whole = Labelled.together(list(scores.values())).histogram
        known = ~np.isnan(whole.value)
        value, one, zero = whole.value[known], whole.sums["one"][known], whole.sums["zero"][known]
        side = slice(None, None, -1) if rule.offer == "at_most" else slice(None)
        value, one, zero = value[side], one[side], zero[side]
        silent = np.cumsum(one) - one
        cost = (costs[0] * (zero.sum() - np.cumsum(zero) + zero) + costs[1] * silent) / (one.sum() + zero.sum())
        some = np.unique(np.linspace(0, len(value) - 1, min(len(value), MOST_POINTS)).astype(np.int64))
        names = next(iter(maps.values()))
        return cls({name: _reliability(scores, maps, name) for name in names}, value[some][side], cost[some][side])


def _reliability(scores: Mapping[int, Labelled], maps: Mapping[int, Mapping[str, ScoreMap]], name: str) -> Reliability:
    """That of a map, on the people of each fold, by the sums of equal scores."""
    parts = [(maps[fold][name], labelled.histogram) for fold, labelled in scores.items()]
    known = [~np.isnan(histogram.value) for _, histogram in parts]
    p = np.concatenate([fitted(each.value[some]) for some, (fitted, each) in zip(known, parts, strict=True)])
    one, zero = (
        np.concatenate([each.sums[label][some] for some, (_, each) in zip(known, parts, strict=True)])
        for label in ("one", "zero")
    )
    sums = BinSums.of(p, one / (one + zero), one + zero, bins=BINS)
    squares = sums.mass * sum(labelled.squares for labelled in scores.values()) / sums.mass.sum()
    return sums._replace(
        rows=np.round(sums.mass).astype(np.int64), squares=np.minimum(squares, sums.mass**2)
    ).reliability()
