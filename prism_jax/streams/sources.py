"""Where streams come from: the splits that a config names."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from etils import epath

from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.proactivebench_source import LAYOUT
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.splits import Splits, folds, with_validation


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where streams come from, and how whole streams are split.

    Attributes:
      name: `simulator`, `proactivebench`, or `jsonl` (streams in this project's own format).
      source: Directory laid out as ProactiveBench's repository, empty to download the official archive; or path of the
        JSONL file.
      need: ProactiveBench's definition of need: strict (official help_needed), majority, or any_valid.
      folds: Number of folds of a fixed data set; the simulator draws each split afresh instead.
      fold: Which fold is the test split.
      calibration: Share of the other folds' streams that calibrate.
      split_seed: Names the shuffle behind the folds.
      validation: Share of the training split's streams, drawn whole, that training never sees; they are scored along
        the way and say which checkpoint is best. 0 takes none. The calibration split never chooses a checkpoint.
      train_streams: Simulator: streams of the training split.
      calibration_streams: Simulator: streams of the calibration split.
      test_streams: Simulator: streams of the test split, on which every offer is made.
    """

    name: Literal["simulator", "proactivebench", "jsonl"] = "simulator"
    source: str = ""
    need: Literal["strict", "majority", "any_valid"] = "strict"
    folds: int = 4
    fold: int = 0
    calibration: float = 0.25
    split_seed: int = 0
    validation: float = 0.0
    train_streams: int = 4096
    calibration_streams: int = 256
    test_streams: int = 512

    def __post_init__(self) -> None:
        for name in ("train_streams", "calibration_streams", "test_streams"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")
        if self.folds < 2:
            raise ValueError(f"folds: found {self.folds}, expected at least 2")
        if not 0 <= self.fold < self.folds:
            raise ValueError(f"fold: found {self.fold}, expected 0 to {self.folds - 1} (folds = {self.folds})")
        if not 0 < self.calibration < 1:
            raise ValueError(f"calibration: found {self.calibration}, expected a share between 0 and 1")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation: found {self.validation}, expected a share of at least 0 and below 1")
        if self.name == "jsonl" and not self.source:
            raise ValueError(f"source: found none, expected a path for data.name = {self.name!r}")


def load_splits(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """Whole streams for training, calibration and test, and those held out of training.

    The simulator draws each split afresh; on the test split every offer is made, so that costs are observed.

    Raises:
      ValueError, OSError: in one line, for a missing or malformed source or an empty split.
    """
    return with_validation(_load(data, simulator), data.validation, seed=data.split_seed)


def _load(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """The splits before any stream is held out."""
    if data.name == "simulator":
        return _simulate(data, simulator)
    if data.name == "jsonl":
        streams = read_streams(data.source)
    else:
        from prism_jax.streams.proactivebench import load  # imports TFDS, which takes seconds

        if data.source and not epath.Path(data.source).is_dir():
            raise FileNotFoundError(
                f"{data.source}: found no such directory, expected in --config.data.source {LAYOUT}; "
                "--config.data.source= (empty) downloads the official archive"
            )
        streams = load(data.source or None, need=data.need)
    return folds(streams, data.folds, data.fold, calibration=data.calibration, seed=data.split_seed)


def _simulate(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """Streams 0, 1, ... of the population: first training, then calibration, then test."""
    stops = np.cumsum([data.train_streams, data.calibration_streams, data.test_streams]).tolist()
    return Splits(
        train=tuple(simulate(simulator, i) for i in range(stops[0])),
        calibration=tuple(simulate(simulator, i) for i in range(stops[0], stops[1])),
        test=tuple(simulate(simulator, i, logging="always") for i in range(stops[1], stops[2])),
    )
