"""Where streams come from: the splits that a config names."""

from __future__ import annotations

import numpy as np
from etils import epath

from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.proactivebench_source import LAYOUT
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.splits import Splits, folds, hold_out
from prism_jax.training.config import DataConfig


def load_splits(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """Whole streams for training, calibration and test, and those held out of training.

    The simulator draws each split afresh; on the test split every offer is made, so that costs are observed.

    Raises:
      ValueError, OSError: in one line, for a missing or malformed source or an empty split.
    """
    return hold_out(_load(data, simulator), data.held_out, seed=data.split_seed)


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
