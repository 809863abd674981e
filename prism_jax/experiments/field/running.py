"""Runs baselines over sources. Whatever was scored is kept in a file under a digest of all that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.replay import RATIOS
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.experiments.field.interface import Baseline, Decisions, Fold, LogFold, Run, has_need, rows_of_streams
from prism_jax.experiments.field.material import Material
from prism_jax.experiments.field.measures import (
    LABELS,
    CalibratedFold,
    Decided,
    Twins,
    as_it_is,
    calibrated_folds,
    divide,
    few_labels,
    flipped,
    gated,
    steps_of,
    told,
)
from prism_jax.runtime.digests import weights_sha256
from prism_jax.runtime.files import parse_json, read_bounded, write_json
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.streams.jsonl import encode_stream

OF_ANSWERS = ("model", "base_url", "schema", "max_tokens", "temperature", "seed")
"""The settings of an endpoint on which its answers depend."""


class Cell(NamedTuple):
    """What one baseline gave on one source."""

    baseline: Baseline
    source: str
    folds: list[CalibratedFold]  # calibrated signals; empty where it decides
    decided: Mapping[float, Decided]  # by C_FN / C_FA
    unit: str = "streams"  # what is divided into folds, and resampled


class Moved(NamedTuple):
    """A baseline on a source that it was not fitted on, calibrated with some labels of it."""

    baseline: Baseline
    fitted_on: str  # another source; empty where nothing was fitted
    source: str
    by_labels: Mapping[int, list[CalibratedFold]]  # by the number of labels


class Flips(NamedTuple):
    """What noise does to a baseline's decisions."""

    baseline: Baseline
    fitted_on: str
    source: str
    by_ratio: Mapping[float, Twins]  # by C_FN / C_FA


def misfit(baseline: Baseline, material: Material) -> str:
    """Why a baseline cannot run on a source; empty where it can."""
    if material.kind not in baseline.takes:
        return "takes streams" if material.kind == "log" else "takes logs"
    return baseline.misfit(material) if material.judged else "no labels"


def cell_of(
    baseline: Baseline, material: Material, run: Run, config: CalibrationConfig, folds: int | None, kept: epath.Path
) -> Cell:
    """Scores every fold, or whatever is not kept of them, and calibrates each on its own training part."""
    divided = material.folds(folds)
    if baseline.decide is not None:
        labels, decided = _every_offer(material), {}
        tested = [unit for fold in divided for unit in material.tested(fold)]
        labels = labels.take(np.isin(labels.stream.astype(str), tested))
        for ratio in RATIOS:
            decisions: dict[tuple[str, int], int | None] = {}
            for fold in divided if baseline.fitted else [material.whole()]:
                decisions |= dict(_decisions(baseline, fold, run, ratio, kept))
            decided[ratio] = told(decisions, labels)
        return Cell(baseline, material.name, [], decided, material.unit)
    if baseline.fitted:
        tables = [material.labelled(_scores(baseline, fold, run, kept)) for fold in divided]
    else:
        whole = material.labelled(_scores(baseline, material.whole(), run, kept))
        tables = divide(whole, [material.tested(fold) for fold in divided])
    calibrated = calibrated_folds(tables, config)
    steps = material.needed(steps_of(calibrated))
    by_gate = {ratio: gated(steps, ratio) for ratio in RATIOS}
    return Cell(baseline, material.name, calibrated, by_gate, material.unit)


def moved(
    baselines: Sequence[Baseline], materials: Sequence[Material], run: Run, config: CalibrationConfig, kept: epath.Path
) -> Iterator[Moved]:
    """Every baseline fitted on all of one source of streams and asked about all of another, and those without a fit."""
    for target in materials:
        for baseline in baselines:
            if baseline.score is None or misfit(baseline, target):
                continue
            whole = target.whole()
            parts: list[tuple[str, Fold | LogFold]] = [] if baseline.fitted else [("", whole)]
            if baseline.fitted and isinstance(whole, Fold):
                others = [other for other in materials if other is not target and other.streams]
                fitting = [other for other in others if not misfit(baseline, other)]
                parts = [(other.name, whole._replace(train=other.streams)) for other in fitting]
            for fitted_on, fold in parts:
                test = target.labelled(rows_of(_scores(baseline, fold, run, kept / target.name), TEST))
                by_labels = {labels: few_labels(test, labels, config, run.seed) for labels in LABELS}
                yield Moved(baseline, fitted_on, target.name, by_labels)


def flips(
    baselines: Sequence[Baseline],
    materials: Sequence[Material],
    run: Run,
    config: CalibrationConfig,
    kept: epath.Path,
) -> Iterator[Flips]:
    """Every baseline that gives probabilities, fitted on a source with labels and asked about each source of twins."""
    for target in materials:
        pairs, whole = target.twins(), target.whole()
        if not pairs or isinstance(whole, LogFold):
            continue
        for baseline in baselines:
            if baseline.score is None or target.kind not in baseline.takes:
                continue
            if not baseline.fitted:
                test = _scores(baseline, whole, run, kept)
                yield Flips(baseline, "", target.name, flipped(test, as_it_is(need_target=test.need_meaning), pairs))
            for source in materials if baseline.fitted else ():
                if source.log is None and not misfit(baseline, source):
                    scores = _scores(baseline, whole._replace(train=source.streams), run, kept)
                    calibration = as_it_is(need_target=scores.need_meaning)
                    if scores.calibrated is None:
                        calibration = calibrate(source.labelled(rows_of(scores, CALIBRATION)), config)
                    yield Flips(baseline, source.name, target.name, flipped(rows_of(scores, TEST), calibration, pairs))


def out_of_fold(cell: Cell) -> Scores:
    """The labelled test rows of all folds, with the baseline's own signals, which `evaluate` calibrates by fold."""
    parts = [rows_of(fold.scores, TEST).columns() for fold in cell.folds]
    names = [name for name in parts[0] if name not in ("split", "calibrated")]
    return Scores.from_columns({name: np.concatenate([part[name] for part in parts]) for name in names})


def _every_offer(material: Material) -> Scores:
    """The labels of every offer, beside probabilities that say nothing."""
    streams = material.streams
    need = [0.5 for stream in streams for _ in stream.steps] if has_need(streams) else None
    accept = [0.5 for stream in streams for step in stream.steps for _ in step.candidates]
    return material.labelled(Scores.from_rows(rows_of_streams(streams, need, accept, split="test", fold=0)))


def _scores(baseline: Baseline, fold: Fold | LogFold, run: Run, kept: epath.Path) -> Scores:
    score = baseline.score
    assert score is not None, "it gives probabilities"

    def compute(path: epath.Path) -> None:
        write_scores(path, score(fold, run))

    return read_scores(_kept(baseline, fold, run, kept, "parquet", compute))


def _decisions(baseline: Baseline, fold: Fold | LogFold, run: Run, ratio: float, kept: epath.Path) -> Decisions:
    decide = baseline.decide
    assert decide is not None and isinstance(fold, Fold), "decisions are about streams"

    def compute(path: epath.Path) -> None:
        write_json(path, {"decisions": [[*key, offer] for key, offer in sorted(decide(fold, run, ratio).items())]})

    path = _kept(baseline, fold, run, kept, "json", compute, ratio=ratio)
    rows = parse_json(read_bounded(path), str(path))["decisions"]
    return {(stream, step): offer for stream, step, offer in rows}


def _kept(
    baseline: Baseline,
    fold: Fold | LogFold,
    run: Run,
    kept: epath.Path,
    suffix: str,
    compute: Callable[[epath.Path], None],
    **settings: Any,
) -> epath.Path:
    """The file of a fold, which is computed where there is none yet; its name has the digest of what it depends on."""
    about: dict[str, Any] = {"about": baseline.about, "fold": fold.number, **settings}
    if "weights" in baseline.needs and run.weights is not None:
        about["weights"] = weights_sha256(run.weights)
    if "endpoint" in baseline.needs and run.endpoint is not None:
        about |= {name: getattr(run.endpoint, name) for name in OF_ANSWERS} | {"checkout": run.checkout}
    if baseline.needs and not baseline.fitted:
        about |= {"seed": run.seed, "steps": run.steps}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for part in _parts(fold, baseline.causal):
        digest.update(hashlib.sha256(part).digest())
    path = kept / f"{baseline.name}-{digest.hexdigest()[:24]}.{suffix}"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        compute(path)
    return path


def _parts(fold: Fold | LogFold, causal: bool) -> Iterator[bytes]:
    """Everything that a fold shows to a baseline."""
    if isinstance(fold, Fold):
        for side in (fold.train, fold.test):
            yield from (encode_stream(stream).encode("utf-8", "surrogatepass") for stream in side)
            yield b"end"
        return
    answers = fold.log.answers
    columns = [fold.log.numbers, answers.person, answers.time, fold.train, fold.test]
    columns += [answers.accepted if causal else answers.accepted[fold.train]]
    columns += [] if answers.score is None else [answers.score]
    yield from (column.tobytes() for column in columns)
    yield json.dumps(fold.log.texts).encode("utf-8", "surrogatepass")
