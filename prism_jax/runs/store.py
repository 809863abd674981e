"""A folder of trainings that tables and studies share: each is made once, kept, and resumed after an interruption."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from etils import epath

from prism_jax.runs.pipeline import score_run, train_run
from prism_jax.runtime.dataclass_config import to_dict
from prism_jax.runtime.digests import sha256
from prism_jax.runtime.lock import only_training
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.student.qwen3 import Params
from prism_jax.student.scoring.passes import Passes
from prism_jax.training.checkpoints.checkpoint import steps
from prism_jax.training.run import Run, reopen_run, resolve, trained_params, untrained_params
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import MAY_DIFFER, Workdir

Signals = Literal["all", "slow", "fast", "untrained"]
"""Which signals a table of scores holds: all that the student learned, both passes without an offer that it writes, the
fast pass alone, or that of the student before training."""
FAST_BATCH = 50
"""Streams per forward pass where only slots are read."""


class Store:
    """Trainings in one folder, each in a workdir of its own named NAME-DIGEST.

    The digest is that of the config, in which files count by their content and a first stage by its own name. A config
    that changes therefore has another folder, and the store may be moved. What a training left behind says how far it
    is: its checkpoints, and its scores, which are written at once when they are complete.
    """

    def __init__(self, folder: epath.PathLike):
        """Sets the folder; reads and writes nothing."""
        self.folder = epath.Path(folder)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[Store]:
        """Keeps other processes from training here while the block runs; RuntimeError names the process that does."""
        with only_training(self.folder):
            yield self

    def place(self, name: str, config: RunConfig) -> epath.Path:
        """The workdir of a training by the name that tables call it; the files that its config names must exist."""
        return self.folder / f"{name}-{_digest(config)}"

    def finished(self, name: str, config: RunConfig) -> epath.Path:
        """The workdir of a training, which is trained to its last step unless it was before; errors as `train_run`."""
        workdir = Workdir(self.place(name, config))
        if not _finished(workdir, config):
            began = time.monotonic()
            print(f"{workdir.path.name}: training {config.training.steps} steps", flush=True)
            train_run(config, workdir, report=False)
            print(f"{workdir.path.name}: trained in {time.monotonic() - began:.0f} s", flush=True)
        return workdir.path

    def trained(self, name: str, config: RunConfig) -> tuple[Run, Params]:
        """The run of a training and its parameters after the last step; errors as `finished`."""
        run = reopen_run(Workdir(self.finished(name, config)))
        return run, trained_params(run.config, run.files)[1]

    def scores(self, name: str, config: RunConfig, signals: Signals = "all") -> Scores:
        """The raw scores of a training on the calibration and test streams; a second call reads them.

        The signals `untrained` do not train, unless for a first stage. Errors as `finished`.
        """

        def make() -> Scores:
            if signals == "untrained":
                run = resolve(config)
                return score_run(run, untrained_params(run), batch=FAST_BATCH, passes=Passes())
            run, params = self.trained(name, config)
            chosen: dict[str, dict[str, Any]] = {
                "fast": {"batch": FAST_BATCH, "passes": Passes()},
                "slow": {"passes": Passes(slow=True, writing=run.config.writing)},
            }
            return score_run(run, params, **chosen.get(signals, {}))

        file = "scores.parquet" if signals == "all" else f"scores_{signals}.parquet"
        return kept(self.place(name, config) / file, make)


def kept(path: epath.Path, make: Callable[[], Scores]) -> Scores:
    """The scores of a file, which is made where it does not exist; it appears at once, complete.

    The scores are always those read from the file, so the first call and all others return the same.
    """
    if not path.exists():
        scores = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_scores(path, scores)
    return read_scores(path)


def of_seed(config: RunConfig, seed: int) -> RunConfig:
    """The config with a seed for its streams, its initial parameters and the order of its data."""
    simulator = dataclasses.replace(config.simulator, seed=seed)
    return dataclasses.replace(config, simulator=simulator, training=dataclasses.replace(config.training, seed=seed))


def _digest(config: RunConfig) -> str:
    """The first 12 digits of the SHA-256 of a config, wherever its files and its first stage lie."""
    tree = to_dict(config)
    for place in MAY_DIFFER:
        section, name = place.split(".")
        if name != "keep_best" or not tree[section][name]:  # which decides what checkpoint is scored
            del tree[section][name]
    if not config.lora.rank:
        del tree["lora"]  # so that folders keep the names that they had before there were adapters
    if not config.data.without_domain:
        del tree["data"]["without_domain"]  # so that they keep those that they had before it could be named
    tree["training"]["start"] = epath.Path(config.training.start).name
    for name, path in tree["data"].items():
        if path in config.data.paths and epath.Path(path).is_file():
            tree["data"][name] = sha256(path)
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]


def _finished(workdir: Workdir, config: RunConfig) -> bool:
    """Whether a checkpoint of the last step is there; a number of epochs has to be planned to know."""
    last = config.training.steps
    return bool(last) and last in steps(workdir.checkpoints)
