"""Stacks a student on a floor: one probability from two, by maps that calibration streams alone determine.

    p = sigmoid(a + b · mean of the floor's log-odds and of c + d · the student's log-odds)

c and d put the student on the scale of probabilities, so that a student that knows nothing (d = 0) counts for nothing.
All four numbers are fitted on rows of the split "calibration", on whose streams neither model was trained.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy import special

from prism_jax.decision.arrays import log_odds
from prism_jax.decision.calibration import Platt
from prism_jax.evaluation.splits import CALIBRATION
from prism_jax.experiments.proactivebench_results import SIGNALS
from prism_jax.probe.logistic import fit_platt_with_ridge
from prism_jax.scores import Scores
from prism_jax.scores.labels import Signal

_LEAST = 1e-9
"""Probabilities nearer to 0 or 1 than this count as this."""


@dataclasses.dataclass(frozen=True)
class Stack:
    """A fitted stack of one signal."""

    student: Platt  # map of the student's own log-odds
    joint: Platt  # map of the mean of both

    @classmethod
    def fit(cls, floor: Float[np.ndarray, " n"], student: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Stack:
        """Fits both maps on log-odds of calibration rows and their labels."""
        weight = np.ones_like(y)
        own = fit_platt_with_ridge(student, y, weight)
        return cls(own, fit_platt_with_ridge((floor + own.of_log_odds(student)) / 2, y, weight))

    def __call__(self, floor: Float[np.ndarray, " n"], student: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The probabilities of rows, from log-odds."""
        return special.expit(self.joint.of_log_odds((floor + self.student.of_log_odds(student)) / 2))


def stack(floor: Scores, student: Scores) -> tuple[Scores, dict[Signal, Stack]]:
    """Stacks the student's table on the floor's, of the same calibration and test rows in any order.

    The result is the floor's table with the probabilities of the stack, and the stack of each signal. ValueError if the
    tables have different rows.
    """
    columns, student = floor.columns(), _in_order_of(student, floor)
    calibration = np.asarray(floor.split) == CALIBRATION
    stacks: dict[Signal, Stack] = {}
    for signal in SIGNALS:
        name, y = f"p_{signal}_fast", columns[f"y_{signal}"]
        z, own = (log_odds(np.asarray(table.columns()[name], float), _LEAST) for table in (floor, student))
        rows = calibration & ~np.isnan(y)
        if signal == "need":  # A step's need stands in the row of each of its offers and counts once.
            rows &= floor.candidate == 0
        stacks[signal] = Stack.fit(z[rows], own[rows], y[rows])
        columns[name] = stacks[signal](z, own)
    return Scores.from_columns(columns), stacks


def _in_order_of(scores: Scores, other: Scores) -> Scores:
    """The rows of one table in the order of the other's."""
    place = {key: number for number, key in enumerate(_keys(scores))}
    wanted = _keys(other)
    if place.keys() != set(wanted):
        different = len(place.keys() ^ set(wanted))
        raise ValueError(f"scores: found {different} rows in only one of two tables, expected the same rows in both")
    return scores.take(np.array([place[key] for key in wanted]))


def _keys(scores: Scores) -> list[tuple[str, str, int, int]]:
    assert scores.split is not None, "a stack needs calibration rows"
    columns = (scores.stream, scores.split, scores.step, scores.candidate)
    return list(zip(*(column.tolist() for column in columns), strict=True))
