"""Streams in, batches out: the splits that a config names, packed once, shuffled by Grain from one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import grain
import numpy as np
from etils import epath

from prism_jax.prompting.packing import Packed, Sizes, pack, pad, sizes
from prism_jax.prompting.template import Template
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.proactivebench_source import LAYOUT
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.splits import Splits, folds
from prism_jax.training.config import DataConfig


def load_splits(data: DataConfig, simulator: SimulatorConfig) -> Splits:
    """Whole streams for training, calibration and test.

    The simulator draws each split afresh; on the test split every offer is made, so that costs are observed.

    Raises:
      ValueError, OSError: in one line, for a missing or malformed source or an empty split.
    """
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


@dataclasses.dataclass(frozen=True)
class PackedSplit:
    """A split as rows of static sizes.

    Attributes:
      rows: One a stream, padded.
      size: Their sizes.
      tokens: Tokens before padding.
      tokens_alone: Tokens if every decision were read by itself, its trunk again and again.
    """

    rows: tuple[Packed, ...]
    size: Sizes
    tokens: int
    tokens_alone: int

    @property
    def padding(self) -> float:
        """Share of positions that hold no token."""
        return 1 - self.tokens / (len(self.rows) * (self.size.trunk + self.size.branches))


def pack_split(streams: Sequence[Stream], template: Template, context: int) -> PackedSplit:
    """Packs whole streams; row i is stream i.

    Raises:
      ValueError: for a stream longer than the context, or when nothing is supervised.
    """
    rows = [pack(stream, template, context, i) for i, stream in enumerate(streams)]
    if not any(row.need_weight.any() or (row.accept_weight * row.logged).any() for row in rows):
        raise ValueError(f"data: found {len(rows)} streams without any need or acceptance label, expected some")
    size = sizes(rows)
    tokens = sum(len(row.trunk) + len(row.tokens) for row in rows)
    # A decision alone is its visible trunk, head and leaf up to the accept slot, and its response.
    alone = sum(int((row.positions[row.accept_slot] + 1).sum()) + len(row.response_target) for row in rows)
    return PackedSplit(tuple(pad(row, size, template.tokenizer.pad) for row in rows), size, tokens, alone)


def batches(split: PackedSplit, batch: int, seed: int) -> grain.DatasetIterator:
    """An endless iterator over batches: every stream once an epoch, each epoch in an order of its own.

    Its state (`get_state`, `set_state`) is the position in the data; the checkpoint keeps it.
    """
    dataset = grain.MapDataset.source(split.rows).seed(seed).shuffle().repeat().batch(batch, drop_remainder=True)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)))
