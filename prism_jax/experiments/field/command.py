"""The command of the field's table: its flags, and what it makes in which order."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

import numpy as np
from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.decision.calibration import CALIBRATORS, CalibrationConfig
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.experiments.field import running, tables
from prism_jax.experiments.field.interface import Baseline, Fold, Run
from prism_jax.experiments.field.material import Material, read
from prism_jax.experiments.field.registry import BASELINES
from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.report.table import Table
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.scores import Scores, ScoresError, write_scores
from prism_jax.scores.joining import read_all
from prism_jax.streams.proactivebench_source import Need
from prism_jax.streams.published.contextagent import MEDIUM

KEPT, OUT_OF_FOLD = "scores", "out_of_fold"
"""Folders in the workdir: what was scored, by digest, and the labelled test rows of each baseline, for `evaluate`."""
FLAGS = {"weights": "--weights", "endpoint": "--config"}
"""Where a run has what a baseline needs from."""


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_list("sources", [], "Entries NAME=PATH: a folder or file of a source, log=FILE, or simulator alone.")
    flags.DEFINE_list("baselines", [], f"Some of {', '.join(BASELINES)}; by default those that need nothing.")
    flags.DEFINE_multi_string("scores", [], "NAME=FILE|FOLDER|GLOB with out-of-fold scores of anybody's agent.")
    flags.DEFINE_list("columns", [], "Roles of a log's columns, person=NAME,accepted=NAME and others.")
    flags.DEFINE_enum("need", "strict", get_args(Need), "ProactiveBench's definition of need.")
    flags.DEFINE_enum("medium", "unlabelled", MEDIUM, "The label of ContextAgentBench's rows of medium need.")
    flags.DEFINE_string("weights", "", "Weights of a language model: a GGUF file or a model directory.")
    config_flags.DEFINE_config_file(
        "config", None, "Config of a teacher, whose endpoint baselines ask; --config.x.y=value overrides a setting."
    )
    flags.DEFINE_string("checkout", None, "ProactiveBench's repository with the prompt of its agent; default: ours.")
    flags.DEFINE_integer("folds", None, "Number of folds; by default one per unit of at most 20, else 5.", 2)
    flags.DEFINE_enum("calibrator", "penalised", CALIBRATORS, "The map that is fitted on the training part.")
    flags.DEFINE_integer("steps", 300, "Number of steps that a prompted baseline takes.", 1)
    flags.DEFINE_integer("seed", 0, "Seed of samples.", 0)
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams or people.", 100)
    flags.DEFINE_string("workdir", None, "Folder for scores and tables.")


def chosen(names: list[str], run: Run) -> list[Baseline]:
    """The baselines of these names, by default those that need neither weights nor an endpoint."""
    if unknown := [name for name in names if name not in BASELINES]:
        raise ValueError(f"baselines: found {unknown[0]!r}, expected some of {', '.join(BASELINES)}")
    for name in names:
        if missing := [FLAGS[need] for need in BASELINES[name].needs if getattr(run, need) is None]:
            raise ValueError(f"baselines: found {name!r} without {missing[0]}, expected both")
    if names:
        return [BASELINES[name] for name in dict.fromkeys(names)]
    return [baseline for baseline in BASELINES.values() if not baseline.needs]


def read_given(entries: Iterable[str], taken: Iterable[str]) -> list[Baseline]:
    """The baselines of entries NAME=FILE, whose names must not be `taken`; their labels are not read."""
    names, found = set(taken), []
    for entry in entries:
        name, _, path = entry.partition("=")
        if not name or not path or name in names:
            raise ValueError(f"scores: found {entry!r}, expected NAME=FILE with a new name")
        names.add(name)
        found.append(given(name, read_all(path)))
    return found


def given(name: str, scores: Scores) -> Baseline:
    """A baseline that looks its scores up: of models that did not see a step's stream."""

    def score(fold: Fold, run: Run) -> Scores:
        columns = {key: column for key, column in scores.columns().items() if key not in ("split", "fold")}
        rows = np.flatnonzero(np.isin(scores.stream.astype(str), [stream.id for stream in fold.test]))
        taken = {key: column[rows] for key, column in columns.items()}
        keys = set(zip(*(taken[key].tolist() for key in ("stream", "step", "candidate")), strict=True))
        for stream in fold.test:
            for number, step in enumerate(stream.steps):
                for index in range(len(step.candidates)):
                    if (stream.id, number, index) not in keys:
                        place = f"stream {stream.id!r}, step {number}, candidate {index}"
                        raise ScoresError(f"found no row for {place}, expected one for every offer", place=name)
        marks = {"split": np.full(len(rows), "test", object), "fold": np.full(len(rows), fold.number)}
        return Scores.from_columns({**taken, **marks})

    def misfit(source: Material) -> str:
        return "" if set(scores.stream.tolist()) & set(source.units) else "other streams"

    parts = [scores.stream.astype(str), scores.step, scores.candidate, scores.p_accept_fast]
    parts += [] if scores.p_need_fast is None else [scores.p_need_fast]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
    return Baseline(name, name, score, fitted=False, misfit=misfit, about=digest)


def main() -> Iterator[Table | Callable[[Any], None]]:
    """Yields every table as soon as it is there, and what draws the figure."""
    options = flags.FLAGS
    if not options.sources:
        raise ValueError("sources: found none, expected some, such as simulator or contextagent=DIR")
    workdir = epath.Path(options.workdir)
    run = Run(
        workdir,
        weights=options.weights or None,
        seed=options.seed,
        steps=options.steps,
        checkout=options.checkout,
    )
    if options.config is not None:
        config = from_config_dict(TeacherConfig, options.config)
        run = dataclasses.replace(run, endpoint=config.endpoint, remote=config.remote)
    roles = parse_columns(options.columns) if options.columns else None
    entries = [entry.partition("=") for entry in options.sources]
    settings = {"proactivebench": {"need": options.need}, "contextagent": {"medium": options.medium}}
    baselines = [*chosen(options.baselines, run), *read_given(options.scores, BASELINES)]
    materials = [read(name, place, roles, **settings.get(name, {})) for name, _, place in entries]
    yield from study(
        baselines,
        materials,
        run,
        CalibrationConfig(options.calibrator),
        options.folds,
        options.resamples,
    )


def study(
    baselines: list[Baseline],
    materials: list[Material],
    run: Run,
    config: CalibrationConfig | None = None,
    folds: int | None = None,
    resamples: int = 10_000,
) -> Iterator[Table | Callable[[Any], None]]:
    """Every table of some baselines on some sources; what was scored is kept in `run.cache`.

    ValueError for two sources of one name; and, after the table that says why, if no baseline fits any source.
    """
    names = [material.name for material in materials]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"sources: found {twice[0]} more than once, expected each name once")
    config, kept = config or CalibrationConfig("penalised"), run.cache / KEPT
    yield tables.fits(baselines, materials)
    cells = []
    for material in materials:
        fitting = [baseline for baseline in baselines if not running.misfit(baseline, material)]
        own = [running.cell_of(baseline, material, run, config, folds, kept / material.name) for baseline in fitting]
        if not own:
            continue
        cells += own
        for cell in own:
            if cell.folds:
                path = run.cache / OUT_OF_FOLD / f"{cell.source}-{cell.baseline.name}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_scores(path, running.out_of_fold(cell))
        yield from filter(None, (tables.quality(own, resamples), tables.decisions(own, resamples)))
    found = list(running.moved(baselines, materials, run, config, kept))
    yield from filter(None, (tables.two_signals(cells, resamples), tables.transfer(found, resamples)))
    turned = list(running.flips(baselines, materials, run, config, kept / "transfer"))
    yield from filter(None, [tables.noise(turned, resamples)])
    if not cells and not turned:
        raise ValueError("baselines: found none that fits a source, expected one (the table above says why)")
    if cells:
        yield tables.figure(cells, resamples)
