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
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int, Shaped

from prism_jax.decision import arrays, gate
from prism_jax.decision.uncertainty import Bounds, Estimate, mean_interval
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.splits import CALIBRATION, TEST
from prism_jax.scores import Scores

RATIOS = (4.0, 2.0, 1.0, 0.5)
"""Cost ratios r = C_FN / C_FA of the tables; C_FA is 1."""
MATCHED, TRAINED = "matched", "trained"


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


class FoldReplay(NamedTuple):
    """One method on one fold: its training streams, scored by models that never saw them, and its test streams."""

    train: Replay
    test: Replay


def replay(scores: Scores, calibration: Calibration, split: str) -> Replay:
    """The steps of one split with a need label and a judged offer, at least one; other offers are left out.

    Without a column of need, it is certain: p_need and its label are 1.
    """
    certain = not scores.has_need
    scores = scores.with_certain_need() if certain else scores
    keep = ~np.isnan(_column(scores, "y_need")) & ~np.isnan(_column(scores, "y_accept"))
    assert scores.split is not None, "folds are made with splits"
    rows = scores.take(np.flatnonzero(keep & (scores.split == split)))
    if not len(rows):
        raise ValueError(f"split {split!r}: found no step with a need label and a judged offer, expected some")
    p_need = np.ones(len(rows)) if certain else calibration.calibrated("need", "fast", rows)
    p_accept = calibration.calibrated("accept", "fast", rows)
    y = _column(rows, "y_accept")
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
        y_need=np.array([_column(rows, "y_need")[part[0]] for part in parts]),
        y_first=np.array([_mean(y[part]) for part in first]),
        y_best=np.array([y[part].max() for part in parts]),
        y_mean=np.array([_mean(y[part]) for part in parts]),
    )


def replay_fold(scores: Scores, calibration: Calibration) -> FoldReplay:
    """The replays of one fold's calibration split (its training streams) and test split."""
    return FoldReplay(replay(scores, calibration, CALIBRATION), replay(scores, calibration, TEST))


def pooled(folds: Sequence[Replay]) -> Replay:
    """The steps of several replays together, in order of stream and step."""
    columns = {
        field.name: np.concatenate([getattr(fold, field.name) for fold in folds])
        for field in dataclasses.fields(Replay)
    }
    order = np.lexsort((columns["step"], columns["stream"]))
    return Replay(**{name: column[order] for name, column in columns.items()})


def gate_offers(steps: Replay, ratio: float) -> Float64[np.ndarray, " steps"]:
    """The two-signal gate's decisions at C_FN = `ratio` and C_FA = 1, as 0 and 1."""
    return np.asarray(gate.decide(steps.p_need, steps.p_accept, 1.0, ratio), np.float64)


def trained_threshold(steps: Replay, number: int) -> float:
    """The p_accept that at most `number` of the steps reach, as close to it as ties allow; infinite for none."""
    reached = [value for value in np.unique(steps.p_accept) if (steps.p_accept >= value).sum() <= number]
    return float(min(reached)) if reached else np.inf


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


def accept_alone(folds: Sequence[FoldReplay], ratio: float, matching: str) -> Float64[np.ndarray, " steps"]:
    """Decisions on p_accept alone that speak as often as the gate, on the pooled test steps of one method.

    With `matched` they speak at exactly as many of all test steps; no label has a part in it. With `trained` each fold
    has the threshold that speaks as often as the gate on the fold's training streams.
    """
    test = pooled([fold.test for fold in folds])
    if matching == MATCHED:
        return most_accepted(test.p_accept, float(gate_offers(test, ratio).sum()))
    parts = []
    for fold in folds:
        threshold = trained_threshold(fold.train, int(gate_offers(fold.train, ratio).sum()))
        parts.append(dataclasses.replace(fold.test, p_need=(fold.test.p_accept >= threshold).astype(np.float64)))
    return pooled(parts).p_need


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


@dataclasses.dataclass(frozen=True)
class PolicyReplay:
    """One policy at one cost ratio."""

    name: str
    speak_rate: float  # share of steps with an offer
    precision: float  # mean acceptance label of the offers; NaN without offers
    realised: Estimate  # mean realised cost with its interval over streams
    gold: Estimate  # mean gold cost with its interval


@dataclasses.dataclass(frozen=True)
class Gain:
    """Cost of the gate minus that of p_accept alone, paired by step; negative where the gate is cheaper."""

    method: str  # name of the method whose signals decide
    matching: str  # `matched` or `trained`, as in `accept_alone`
    ratio: float | None  # None is the mean over `RATIOS`
    realised: Estimate  # difference of the mean realised costs with its interval over streams
    gold: Estimate  # that of the gold costs


def policy_rows(
    methods: dict[str, Sequence[FoldReplay]], ratio: float, *, resamples: int, seed: int = 0
) -> tuple[PolicyReplay, ...]:
    """Every policy at one cost ratio; constants and random offers are those of the first method's steps.

    Each method, by name, has one entry per fold; intervals resample whole streams.

    Raises:
      ValueError: if two methods have different steps.
    """
    tests = {name: pooled([fold.test for fold in folds]) for name, folds in methods.items()}
    first_name, first = next(iter(tests.items()))
    for name, steps in tests.items():
        if len(steps) != len(first) or (steps.stream != first.stream).any() or (steps.step != first.step).any():
            raise ValueError(f"{name}: found other judged steps than {first_name} has, expected the same")
    everywhere, gated = np.ones(len(first)), gate_offers(first, ratio)
    decisions = {
        "never": (0 * everywhere, first.y_first),
        "always, a random offer": (everywhere, first.y_mean),
        f"always, the first by {first_name}": (everywhere, first.y_first),
        f"gate on {first_name}, a random offer": (gated, first.y_mean),
    }
    for name, folds in methods.items():
        decisions[f"gate on {name}"] = gate_offers(tests[name], ratio), tests[name].y_first
        for matching, words in ((MATCHED, "same speak rate"), (TRAINED, "threshold of the training streams")):
            offers = accept_alone(folds, ratio, matching)
            decisions[f"p_accept of {name} alone, {words}"] = offers, tests[name].y_first
    decisions["clairvoyant"] = (first.y_best * (1 + ratio * first.y_need) >= 1).astype(np.float64), first.y_best
    gold = first.y_need * first.y_best
    decisions["clairvoyant, of the gold cost"] = (gold * (1 + ratio) >= 1).astype(np.float64), first.y_best
    return decided_rows(decisions, first, ratio, resamples=resamples, seed=seed)


def decided_rows(
    decisions: Mapping[str, tuple[Float64[np.ndarray, " steps"], Float64[np.ndarray, " steps"]]],
    steps: Replay,
    ratio: float,
    *,
    resamples: int,
    seed: int = 0,
) -> tuple[PolicyReplay, ...]:
    """One row for each policy by name, from its decisions and the acceptance labels of its offers (see `costs`)."""
    rows = []
    for name, (offers, accepted) in decisions.items():
        step_costs = costs(offers, accepted, steps, ratio)
        between = Bounds(0.0, max(1.0, ratio))
        pair = [
            mean_interval(column, steps.stream, bounds=between, resamples=resamples, seed=seed) for column in step_costs
        ]
        if name.startswith("clairvoyant"):  # its 0 holds whatever the labels are, so samples don't make it uncertain
            pair = [of if of.value else of._replace(low=np.nan, high=np.nan) for of in pair]
        spoken = float(offers.sum())
        precision = float((offers * accepted).sum() / spoken) if spoken else np.nan
        rows.append(PolicyReplay(name, float(offers.mean()), precision, *pair))
    return tuple(rows)


def gains(
    methods: dict[str, Sequence[FoldReplay]],
    *,
    ratios: Sequence[float] = RATIOS,
    resamples: int,
    seed: int = 0,
) -> tuple[Gain, ...]:
    """What the gate saves against p_accept alone: for each method and matching, at each ratio and on average."""
    rows = []
    for method, folds in methods.items():
        steps = pooled([fold.test for fold in folds])
        for matching in (MATCHED, TRAINED):
            differences: list[Costs] = []
            for ratio in ratios:
                gated = costs(gate_offers(steps, ratio), steps.y_first, steps, ratio)
                accept_costs = costs(accept_alone(folds, ratio, matching), steps.y_first, steps, ratio)
                differences.append(Costs(*(cost - rival for cost, rival in zip(gated, accept_costs, strict=True))))
            mean = Costs(*(np.mean(columns, axis=0) for columns in zip(*differences, strict=True)))
            by_ratio: list[tuple[float | None, Costs]] = [*zip(ratios, differences, strict=True), (None, mean)]
            for cost_ratio, difference in by_ratio:
                pair = [mean_interval(column, steps.stream, resamples=resamples, seed=seed) for column in difference]
                rows.append(Gain(method, matching, cost_ratio, pair[0], pair[1]))
    return tuple(rows)


def _mean(values: Float64[np.ndarray, " n"]) -> float:
    """The mean, added in ascending order, so that the order of the values has no influence."""
    return float(np.sort(values).sum() / len(values))


def _column(scores: Scores, name: str) -> Float64[np.ndarray, " rows"]:
    column = getattr(scores, name)
    return np.full(len(scores), np.nan) if column is None else column
