"""Studies with a command of their own, under the names of the dispatcher; `all` leaves them out."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from prism_jax.experiments import distillation as distillation_study
from prism_jax.experiments import propensities as propensities_study
from prism_jax.experiments import thinking as thinking_study
from prism_jax.experiments.distillation_tables import curve_table, difference_table, rows_table, student_table
from prism_jax.experiments.paper.study import Files, Outcome, SkippedError, Subject
from prism_jax.judges.config import JudgesConfig
from prism_jax.recipes.distillation import DISTILLED
from prism_jax.recipes.official_scores import official_tables
from prism_jax.recipes.thinking import THINKING
from prism_jax.report.human_labels import leakage_table
from prism_jax.report.table import Table
from prism_jax.runtime.config import from_config_dict
from prism_jax.training.config import RunConfig

TRACES, SPLITS, RESULTS = "eval/traces_new", "dataset/test_data/splits.json", "eval/results"
"""Where ProactiveBench's repository has traces, categories and published scores."""


def thinking(subject: Subject) -> Outcome:
    """What the slow pass is worth, over the study's own three seeds."""
    students = thinking_study.study(THINKING, thinking_study.SEEDS, subject.trainings.store)
    return Outcome(others=_numbered("thinking", thinking_study.tables(students)))


def distillation(subject: Subject) -> Outcome:
    """What curation and the teacher's quality are worth."""
    measured = distillation_study.study(subject.trainings.store.folder.parent / "distillation")
    point = DISTILLED.decision
    tables = [
        rows_table(measured.trained_on),
        student_table(measured.seeds, point),
        difference_table(measured.seeds, point),
    ]
    tables.append(curve_table(measured.curve, distillation_study.TEACHERS, point))
    return Outcome(others=_numbered("distillation", tables))


def propensities(subject: Subject) -> Outcome:
    """What inverse propensities gain; it keeps no trainings."""
    return Outcome(others={"propensities": propensities_study.measured()})


def human_labels(files: Files) -> Outcome:
    """Policies on people's votes."""
    source = _source(files)
    study, leakage, data = _loaded(
        "prism_jax.experiments.human_labels",
        "prism_jax.streams.proactivebench_leakage",
        "prism_jax.streams.proactivebench",
    )
    tables = study.study(data.load(source), folds=None, labels="majority")
    return Outcome(others=_numbered("human_labels", [*tables, leakage_table(leakage.measure_leakage(source))]))


def official_scores(files: Files) -> Outcome:
    """ProactiveBench's published scores checked, and its traces scored by people's votes."""
    source = epath.Path(_source(files))
    _loaded("prism_jax.streams.proactivebench")
    for name in (TRACES, SPLITS, RESULTS):
        if not (source / name).exists():
            raise SkippedError(f"--source: found no {name} in {source}, expected it for traces")
    options: dict[str, Any] = dict.fromkeys(("votes", "judges", "judged_by", "streams_out", "data_dir"))
    options |= {"traces": str(source / TRACES), "splits": str(source / SPLITS), "published": str(source / RESULTS)}
    options |= {"labels": str(source), "need": "strict", "most_events": JudgesConfig.most_events}
    return Outcome(others=_numbered("official_scores", official_tables(options)[0]))


def proactivebench(files: Files) -> Outcome:
    """A pretrained student on people's votes, fold by fold."""
    source = _source(files)
    if not files.weights:
        raise SkippedError("--weights: found none, expected those of a pretrained student")
    (study,) = _loaded("prism_jax.experiments.proactivebench")
    student, tiny = (
        study.with_sources(from_config_dict(RunConfig, _config(name)), source, weights)
        for name, weights in (("smollm2_proactivebench", files.weights), ("proactivebench_tiny", ""))
    )
    results = study.study(student, tiny, files.workdir / "proactivebench")
    return Outcome(
        others={
            f"proactivebench_{part}_{signal}": study.results.table(signal, content[signal])
            for part, content in results["parts"].items()
            for signal in study.results.SIGNALS
        }
    )


STUDIES: dict[str, Callable[..., Outcome]] = {
    one.__name__: one for one in (thinking, distillation, propensities, proactivebench, human_labels, official_scores)
}


def _source(files: Files) -> str:
    if not files.source:
        raise SkippedError("--source: found none, expected a folder with ProactiveBench's repository")
    if not epath.Path(files.source).is_dir():
        raise SkippedError(f"--source: found no folder {files.source}, expected ProactiveBench's repository")
    return files.source


def _loaded(*names: str) -> list[types.ModuleType]:
    """Modules that need an extra; without it, the study is skipped."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise SkippedError(f"found no package {error.name}, expected an extra of prism_jax that has it") from None


def _config(name: str) -> ConfigDict:
    """A config of the folder `configs`, which is part of the checkout and not of the package."""
    try:
        return importlib.import_module(f"configs.{name}").get_config()
    except ImportError:
        raise SkippedError(f"found no configs/{name}.py, expected the checkout as the current folder") from None


def _numbered(name: str, tables: list[Table]) -> dict[str, Table]:
    """Tables by the stem of their files, NAME_1 and so on."""
    return {f"{name}_{number}": table for number, table in enumerate(tables, start=1)}
