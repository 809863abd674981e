"""Trains a pretrained student on ProactiveBench's human judgements and compares it with three baselines.

    python -m prism_jax experiments proactivebench --weights=PATH.gguf --source=DIR --workdir=DIR --select
    python -m prism_jax experiments proactivebench --weights=PATH.gguf --source=DIR --workdir=DIR

The first command compares the settings in CANDIDATES on one inner split of the streams outside fold 0's test split. The
chosen settings are those of configs/smollm2_proactivebench.py. The second command trains with them on every fold and
compares the student, on test streams only, with logistic regression on words, with the tiny student and with an
annotator. Every training is an ordinary run in its own folder, so an interrupted study resumes when started again.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.evaluation.protocol import calibrate
from prism_jax.experiments import proactivebench_results as results
from prism_jax.experiments.proactivebench_results import Fold
from prism_jax.experiments.word_regression import score_words
from prism_jax.report.table import Table
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import write_json
from prism_jax.runtime.provenance import provenance
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.sources import expect_sources, load_splits
from prism_jax.training.run import open_run, resolve
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class TrainingChoice:
    """The settings that are compared."""

    learning_rate: float = 1e-4  # peak of the cosine schedule
    steps: int = 32  # steps of one stream each; 32 are four epochs of eight streams
    soft_labels: bool = True  # whether the label of acceptance is the share of annotators who accepted
    layers: int = 4  # number of upper blocks that are trained, of SmolLM2's 30

    def apply(self, config: RunConfig) -> RunConfig:
        """The config with these settings."""
        training = dataclasses.replace(
            config.training,
            learning_rate=self.learning_rate,
            steps=self.steps,
            checkpoint_every=self.steps,
            soft_labels=self.soft_labels,
            frozen=("embedding", f"layers/({'|'.join(map(str, range(30 - self.layers)))})/.*"),
        )
        return dataclasses.replace(config, training=training)


CANDIDATES = {
    "base": TrainingChoice(),
    "hard labels": TrainingChoice(soft_labels=False),
    "high rate": TrainingChoice(learning_rate=3e-4),
}
"""Fixed before any result was known; the best mean of four AUROCs (both signals, pooled and within) is chosen."""


def select(config: RunConfig, candidates: Mapping[str, TrainingChoice], workdir: epath.Path) -> dict[str, Any]:
    """Trains every candidate on one inner split; finished candidates are not trained again.

    The result is also written as selection.json: the name of the best candidate, and the settings and measures of each.
    """
    inner = _inner(config, workdir)
    measured: dict[str, dict[str, Any]] = {}
    for name, choice in candidates.items():
        folder = workdir / "select" / name.replace(" ", "_")
        fold = trained_fold(choice.apply(inner), folder)
        if (folder / "checkpoints").exists():
            shutil.rmtree(folder / "checkpoints")  # half a gigabyte each; only the scores are compared
        measured[name] = {"settings": dataclasses.asdict(choice), **results.aurocs([fold])}
    best = max(measured, key=lambda name: measured[name]["mean"])
    selection = {"best": best, "candidates": measured}
    write_json(workdir / "selection.json", selection)
    return selection


def _inner(config: RunConfig, workdir: epath.Path) -> RunConfig:
    """The config that tests on a third of the streams outside fold 0's test split and trains on the others."""
    splits = load_splits(dataclasses.replace(config.data, fold=0), config.simulator)
    path = workdir / "inner.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_streams(path, sorted((*splits.train, *splits.calibration), key=lambda stream: stream.id))
    data = dataclasses.replace(config.data, name="jsonl", source=str(path), folds=3, fold=0, calibration=0.2)
    return dataclasses.replace(config, data=data)


def train_student(config: RunConfig, folder: epath.Path) -> Scores:
    """Trains a run unless it is finished, and returns its scores on the calibration and test streams.

    ConfigError if the folder holds a run with another config.
    """
    workdir, path, resolved = Workdir(folder), folder / "scores.parquet", resolve(config)
    if not path.exists():
        # What trains is loaded once there are weights to start from.
        from prism_jax.runs.pipeline import train_and_evaluate

        train_and_evaluate(config, workdir)
    opened = open_run(resolved, workdir)
    opened.files.claim(opened.config)
    return read_scores(path)


def trained_fold(config: RunConfig, folder: epath.Path) -> Fold:
    """What `train_student` gives, calibrated, with the seconds of the epochs."""
    scores, train = train_student(config, folder), load_splits(config.data, config.simulator).train
    return Fold(scores, calibrate(scores), results.epoch_seconds(folder, len(train) / config.training.batch))


def study(config: RunConfig, tiny: RunConfig, workdir: epath.Path, *, resamples: int = 10_000) -> dict[str, Any]:
    """Trains and scores every fold, writes results.json and scores.parquet (the student's out-of-fold scores).

    The number of folds is that of the config. The workdir also holds one folder per run. The result is the content of
    results.json.
    """
    student, words, small = [], [], []
    streams: dict[str, Stream] = {}
    for fold in range(config.data.folds):
        student.append(trained_fold(_on_fold(config, fold), workdir / "student" / f"fold{fold}"))
        small.append(trained_fold(_on_fold(tiny, fold), workdir / "tiny" / f"fold{fold}"))
        splits = load_splits(dataclasses.replace(config.data, fold=fold), config.simulator)
        scores = score_words(splits, fold)
        words.append(Fold(scores, calibrate(scores)))
        streams |= {stream.id: stream for stream in splits.test}
    methods = {"student": student, "words": words, "tiny": small}
    content = {"made": provenance(), **results.compare(methods, list(streams.values()), resamples)}
    write_scores(workdir / "scores.parquet", results.out_of_fold(student))
    write_json(workdir / "results.json", content)
    return content


def _on_fold(config: RunConfig, fold: int) -> RunConfig:
    return dataclasses.replace(config, data=dataclasses.replace(config.data, fold=fold))


def with_sources(config: RunConfig, source: str, weights: str) -> RunConfig:
    """Returns the config with this source of streams and these weights; an empty string keeps the config's own."""
    data = dataclasses.replace(config.data, source=source or config.data.source)
    training = dataclasses.replace(config.training, start=weights or config.training.start)
    return dataclasses.replace(config, data=data, training=training)


def define_flags() -> None:
    """Defines the command-line flags."""
    config_flags.DEFINE_config_file(
        "student", "configs/smollm2_proactivebench.py", "Config of the pretrained student's run."
    )
    config_flags.DEFINE_config_file("tiny", "configs/proactivebench_tiny.py", "Config of the tiny student's run.")
    flags.DEFINE_string("weights", "", "Weights to start from; empty uses the config's.")
    flags.DEFINE_string("source", "", "Folder with ProactiveBench's repository; empty uses the config's.")
    flags.DEFINE_string("workdir", None, "Folder for the runs and the results.")
    flags.DEFINE_bool("select", False, "Compare the candidate settings instead of running the folds.")


def main() -> Iterable[Table]:
    """Runs the selection, which prints JSON, or the study."""
    options = flags.FLAGS
    workdir = epath.Path(options.workdir)
    config = with_sources(from_config_dict(RunConfig, options.student), options.source, options.weights)
    expect_sources(config.data)
    if options.select:
        selection = select(config, CANDIDATES, workdir)
        print(json.dumps(selection, indent=2))
        return []
    tiny = with_sources(from_config_dict(RunConfig, options.tiny), options.source, "")
    return results.tables(study(config, tiny, workdir))
