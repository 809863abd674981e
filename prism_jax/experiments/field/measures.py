"""What one baseline is worth on one source: its calibrated signals, its decisions, and what they cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped

from prism_jax.decision import gate
from prism_jax.decision.calibration import CalibrationConfig, Map, Temperature, fit_shrunk
from prism_jax.decision.uncertainty import Bounds, Estimate, mean_interval
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.replay import RATIOS, Replay, accept_alone, costs, gate_offers, pooled, replay, taken
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.experiments.field.interface import Decisions
from prism_jax.experiments.ranking import Ranked
from prism_jax.scores import Scores
from prism_jax.scores.agreement import NEED
from prism_jax.scores.labels import Signal, read

LABELS = (0, 20, 100)
"""Numbers of labels of a new source that transferred scores are calibrated with."""


SIGNALS: tuple[Signal, ...] = ("accept", "need")


class CalibratedFold(NamedTuple):
    """One method on one fold."""

    scores: Scores  # labelled; raw signals on the calibration and the test part
    calibration: Calibration  # maps, fitted on the calibration part


class Decided(NamedTuple):
    """Decisions at some judged steps: one per step, in the order of stream and step."""

    steps: Replay
    offers: Float64[np.ndarray, " steps"]  # 1 where an offer is made
    accepted: Float64[np.ndarray, " steps"]  # acceptance label of the offer that is, or would be, made


class Cost(NamedTuple):
    """What decisions cost at one ratio; C_FA is 1."""

    steps: int
    speak_rate: float
    cost: Estimate  # mean realised cost
    over_constant: Estimate  # that minus the cost of the better of always and never on the same steps


def as_it_is(map_of_accept: Map | None = None, count: int = 1, need_target: str = "marginal") -> Calibration:
    """Need as it is, and acceptance by a map, or as it is."""
    plain = SignalFit(Temperature(1.0), base_rate=0.5, count=1, effective_count=1.0)
    accept = dataclasses.replace(plain, map=map_of_accept or Temperature(1.0), count=max(count, 1))
    return Calibration(need_fast=plain, accept_fast=accept, need_target=need_target)


def calibrated_folds(tables: Sequence[Scores], config: CalibrationConfig) -> list[CalibratedFold]:
    """Each fold's labelled table with the maps of its calibration rows; those of calibrated scores are the identity."""
    plain = [as_it_is(need_target=table.need_meaning) for table in tables]
    return [
        CalibratedFold(table, calibrate(table, config) if table.calibrated is None else identity)
        for table, identity in zip(tables, plain, strict=True)
    ]


def signal_of(folds: Sequence[CalibratedFold], signal: Signal) -> Ranked:
    """Collects one signal on the test part of some folds, on the rows whose label is known.

    The raw signal is the score, because maps differ between folds; the calibrated signal is the probability.
    """
    parts = []
    for fold in folds:
        readings = read(rows_of(fold.scores, TEST), signal, "fast")
        known = ~np.isnan(readings.y)
        p = fold.calibration.calibrated(signal, "fast", readings.rows)
        streams = np.asarray(readings.rows.stream, str)
        parts.append(Ranked(readings.p[known], p[known], readings.y[known], streams[known]))
    return Ranked.joined(parts)


def divide(scores: Scores, tested: Sequence[Sequence[str]]) -> list[Scores]:
    """The rows once per fold: the fold's streams are the test split, all others the calibration split.

    A fold of which a sample has no row is left out.
    """
    columns = {name: column for name, column in scores.columns().items() if name not in ("split", "fold")}
    tables = []
    for fold, test in enumerate(tested):
        split = np.where(np.isin(scores.stream.astype(str), list(test)), TEST, CALIBRATION)
        if TEST in split:
            tables.append(
                Scores.from_columns({**columns, "split": split.astype(object), "fold": np.full(len(split), fold)})
            )
    return tables


def few_labels(scores: Scores, labels: int, config: CalibrationConfig, seed: int) -> list[CalibratedFold]:
    """The acceptance of each half of the streams, calibrated with some labels of the other half; with none, as it is.

    The scores are labelled; those that are calibrated already, for another source, are calibrated again.
    """
    without = ("calibrated", "p_need_fast", *NEED)
    columns = {name: column for name, column in scores.columns().items() if name not in without}
    scores, rng = Scores.from_columns(columns), np.random.default_rng(seed)
    streams = rng.permutation(np.unique(scores.stream.astype(str))).tolist()
    halves = []
    for table in divide(scores, (streams[::2], streams[1::2])):
        assert table.split is not None and table.y_accept is not None, "it was divided, and has labels"
        drawn = rng.permutation(np.flatnonzero(table.split == CALIBRATION))[:labels]
        fitted = None
        if labels:
            fitted = fit_shrunk(config, table.p_accept_fast[drawn], table.y_accept[drawn])
        halves.append(CalibratedFold(table, as_it_is(fitted, len(drawn))))
    return halves


def steps_of(folds: Sequence[CalibratedFold]) -> Replay:
    """The judged test steps of all folds."""
    return pooled([replay(fold.scores, fold.calibration, TEST) for fold in folds])


def gated(steps: Replay, ratio: float) -> Decided:
    """The decisions of the gate."""
    return Decided(steps, gate_offers(steps, ratio), steps.y_first)


def told(decisions: Decisions, labels: Scores) -> Decided:
    """Decisions from elsewhere, at the judged steps among them; `labels` has every offer, with the label of each."""
    steps = replay(labels, as_it_is(), TEST)
    known = np.array([key in decisions for key in _keys(steps)], bool)
    chosen = {key: index for key, index in decisions.items() if index is not None}
    rows = zip(labels.stream.tolist(), labels.step.tolist(), labels.candidate.tolist(), strict=True)
    assert labels.y_accept is not None, "these are labels"
    accepted = {
        (stream, step): y
        for (stream, step, index), y in zip(rows, labels.y_accept.tolist(), strict=True)
        if chosen.get((stream, step)) == index
    }
    of_all = [(float(key in chosen), accepted.get(key, 0.0)) for key in _keys(steps)]
    offers, label = np.array(of_all, np.float64).reshape(-1, 2).T
    return Decided(taken(steps, known), offers[known], label[known])


def _keys(steps: Replay) -> list[tuple[str, int]]:
    return list(zip(steps.stream.tolist(), steps.step.tolist(), strict=True))


def realised(decided: Decided, ratio: float) -> Float64[np.ndarray, " steps"]:
    """The realised cost of each step."""
    return costs(decided.offers, decided.accepted, decided.steps, ratio).realised


def constants(steps: Replay) -> dict[str, Decided]:
    """Offering never, and always some offer."""
    offers = {"never": np.zeros(len(steps)), "always": np.ones(len(steps))}
    return {name: Decided(steps, own, steps.y_mean) for name, own in offers.items()}


def cost_of(decided: Decided, ratio: float, resamples: int) -> Cost:
    """What decisions cost, with intervals over the streams."""
    own, steps = realised(decided, ratio), decided.steps
    best = min((realised(one, ratio) for one in constants(steps).values()), key=lambda values: float(values.mean()))
    return Cost(
        len(steps),
        float(decided.offers.mean()),
        mean_interval(own, steps.stream, bounds=Bounds(0.0, max(1.0, ratio)), resamples=resamples),
        mean_interval(own - best, steps.stream, resamples=resamples),
    )


def second_signal(steps: Replay, resamples: int) -> Estimate:
    """Realised cost of the gate minus that of p_accept alone at the same speak rate: the mean over `RATIOS`."""
    differences = []
    for ratio in RATIOS:
        alone = Decided(steps, accept_alone(steps, ratio), steps.y_first)
        differences.append(realised(gated(steps, ratio), ratio) - realised(alone, ratio))
    return mean_interval(np.mean(differences, axis=0), steps.stream, resamples=resamples)


class Twins(NamedTuple):
    """Decisions at the steps of streams and of their noisy twins, in the same order."""

    stream: Shaped[np.ndarray, " steps"]  # the stream without noise
    plain: Float64[np.ndarray, " steps"]  # 1 where an offer is made
    noisy: Float64[np.ndarray, " steps"]


def flipped(scores: Scores, calibration: Calibration, pairs: Sequence[tuple[str, str]]) -> dict[float, Twins]:
    """The gate's decisions about the first candidate of every step, by ratio; the scores need no labels."""
    first = scores.take(scores.candidate == 0)
    p_accept = calibration.calibrated("accept", "fast", first)
    p_need = calibration.calibrated("need", "fast", first) if first.has_need else np.ones(len(first))
    found = {}
    for ratio in RATIOS:
        offers = np.asarray(gate.decide(p_need, p_accept, 1.0, ratio), np.float64).tolist()
        made = dict(zip(zip(first.stream.tolist(), first.step.tolist(), strict=True), offers, strict=True))
        both = [
            (plain, offer, made[noisy, step])
            for plain, noisy in pairs
            for (stream, step), offer in made.items()
            if stream == plain
        ]
        names, plain, noisy = zip(*both, strict=True)
        found[ratio] = Twins(np.array(names, str), np.array(plain), np.array(noisy))
    return found
