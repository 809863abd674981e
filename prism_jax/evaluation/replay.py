"""Policies replayed on human labels: what their decisions would have cost at steps whose offers were all judged.

At each step a method ranks the offers by p_accept, and a policy decides whether to make the first. An offer costs C_FA
times the chance that it is not accepted. Silence costs C_FN where help was needed and some offer would have been
accepted, so that it costs the same whichever offer a method ranks first (docs/maths.md, section 3). In the gold cost an
offer that was not needed counts as not accepted.

Offers that tie for the first place share it: their mean label counts, so the order of a step's offers has no influence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int, Shaped

from prism_jax.decision import arrays, gate
from prism_jax.evaluation.fits import Calibration
from prism_jax.scores import Scores

RATIOS = (4.0, 2.0, 1.0, 0.5)
"""Cost ratios r = C_FN / C_FA of the tables; C_FA is 1."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """The judged steps of one method, in order of stream and step."""

    stream: Shaped[np.ndarray, " steps"]
    step: Int[np.ndarray, " steps"]  # number of each step in its stream
    p_need: Float64[np.ndarray, " steps"]  # calibrated probability of need
    p_accept: Float64[np.ndarray, " steps"]  # calibrated probability that the offer ranked first is accepted
    y_need: Float64[np.ndarray, " steps"]  # need label in [0, 1]
    y_first: Float64[np.ndarray, " steps"]  # acceptance label of the offer ranked first; the mean over a tie
    y_best: Float64[np.ndarray, " steps"]  # highest acceptance label among the step's offers
    y_mean: Float64[np.ndarray, " steps"]  # mean acceptance label of the step's offers

    def __len__(self) -> int:
        return len(self.step)


def replay(scores: Scores, calibration: Calibration, split: str) -> Replay:
    """The steps of one split with a need label and a judged offer, at least one; other offers are left out.

    Without a column of need, it is certain: p_need and its label are 1.
    """
    certain = not scores.has_need
    scores = scores.with_certain_need() if certain else scores
    keep = ~np.isnan(scores.numbers("y_need")) & ~np.isnan(scores.numbers("y_accept"))
    assert scores.split is not None, "folds are made with splits"
    rows = scores.take(np.flatnonzero(keep & (scores.split == split)))
    if not len(rows):
        raise ValueError(f"split {split!r}: found no step with a need label and a judged offer, expected some")
    p_need = np.ones(len(rows)) if certain else calibration.calibrated("need", "fast", rows)
    p_accept = calibration.calibrated("accept", "fast", rows)
    y = rows.numbers("y_accept")
    order = np.lexsort((rows.step, rows.stream.astype(str)))
    keys = list(zip(rows.stream[order].astype(str).tolist(), rows.step[order].tolist(), strict=True))
    starts = [i for i, key in enumerate(keys) if i == 0 or keys[i - 1] != key]
    parts = np.split(order, starts[1:])
    first = [part[rows.p_accept_fast[part] == rows.p_accept_fast[part].max()] for part in parts]
    return Replay(
        stream=np.array([keys[i][0] for i in starts]),
        step=np.array([keys[i][1] for i in starts]),
        p_need=np.array([p_need[part[0]] for part in parts]),
        p_accept=np.array([p_accept[part[0]] for part in first]),
        y_need=np.array([rows.numbers("y_need")[part[0]] for part in parts]),
        y_first=np.array([_mean(y[part]) for part in first]),
        y_best=np.array([y[part].max() for part in parts]),
        y_mean=np.array([_mean(y[part]) for part in parts]),
    )


def pooled(folds: Sequence[Replay]) -> Replay:
    """The steps of several replays together, in order of stream and step."""
    columns = {
        field.name: np.concatenate([getattr(fold, field.name) for fold in folds])
        for field in dataclasses.fields(Replay)
    }
    order = np.lexsort((columns["step"], columns["stream"]))
    return Replay(**{name: column[order] for name, column in columns.items()})


def taken(steps: Replay, mask: Bool[np.ndarray, " steps"]) -> Replay:
    """Some of the steps."""
    return Replay(**{field.name: getattr(steps, field.name)[mask] for field in dataclasses.fields(Replay)})


def gate_offers(steps: Replay, ratio: float) -> Float64[np.ndarray, " steps"]:
    """The two-signal gate's decisions at C_FN = `ratio` and C_FA = 1, as 0 and 1."""
    return np.asarray(gate.decide(steps.p_need, steps.p_accept, 1.0, ratio), np.float64)


def most_accepted(p_accept: Float64[np.ndarray, " steps"], number: float) -> Float64[np.ndarray, " steps"]:
    """Shares of offers at the steps of highest p_accept, which add up to `number`.

    Steps that tie at the boundary share what is left: each of them gets the same share.
    """
    steps = len(p_accept)
    arrays.check_range("number", number, 0.0, steps * (1 + 1e-12), f"at most {steps}, the number of steps")
    if not number:
        return np.zeros(steps)
    boundary = np.sort(p_accept)[max(steps - math.ceil(number), 0)]
    above, tied = p_accept > boundary, p_accept == boundary
    return above + tied * min(max((number - above.sum()) / tied.sum(), 0.0), 1.0)


def accept_alone(steps: Replay, ratio: float) -> Float64[np.ndarray, " steps"]:
    """Decisions on p_accept alone that speak at exactly as many of the steps as the gate; no label has a part in it."""
    return most_accepted(steps.p_accept, float(gate_offers(steps, ratio).sum()))


class Costs(NamedTuple):
    """What decisions cost at each step, in units of C_FA."""

    realised: Float64[np.ndarray, " steps"]
    gold: Float64[np.ndarray, " steps"]


def costs(
    offers: Float64[np.ndarray, " steps"],
    accepted: Float64[np.ndarray, " steps"],
    steps: Replay,
    ratio: float,
) -> Costs:
    """Costs of offers that are made with some probability, where `accepted` is their acceptance label and C_FA = 1."""
    silence = (1 - offers) * ratio * steps.y_need * steps.y_best
    return Costs(offers * (1 - accepted) + silence, offers * (1 - steps.y_need * accepted) + silence)


def _mean(values: Float64[np.ndarray, " n"]) -> float:
    """The mean, added in ascending order, so that the order of the values has no influence."""
    return float(np.sort(values).sum() / len(values))
