"""What frozen blocks make of a row is the same in every epoch: read once, kept on the host, and trained on from there.

For small machines: a row costs 4 bytes times its positions times the width, and is read by itself, on one device.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from prism_jax.prompting.packing import Packed
from prism_jax.slots import Slots
from prism_jax.student.qwen3 import Params, Tree
from prism_jax.training.optimization.frozen import Partition


class FrozenFeatures:
    """Batches with features in place of token ids; every distinct row is read once.

    A row is known by its content, so that it does not matter how batches are drawn, or whether a run is resumed.
    """

    def __init__(self, slots: Slots, partition: Partition):
        """Reads nothing yet.

        Raises:
          ValueError: when there is nothing to reuse: the embedding or the lowest block trains.
        """
        if not partition.depth:
            raise ValueError(
                "training.reuse_frozen: found True, but the embedding or a part of layers/0 trains, expected "
                "training.frozen to match them, as 'embedding' and 'layers/0/.*' do"
            )
        self._read = jax.jit(dataclasses.replace(slots, frozen=partition.depth).features)
        self._kept: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, params: Params, batch: Packed) -> Packed:
        """The batch as `Slots.features` gives it."""
        rows = [jax.tree.map(lambda column, i=i: column[i : i + 1], batch) for i in range(len(batch.row))]
        trunk, tokens = zip(*(self._features(params, row) for row in rows), strict=True)
        return batch._replace(trunk=np.concatenate(trunk), tokens=np.concatenate(tokens))

    def _features(self, params: Params, row: Packed) -> tuple[np.ndarray, np.ndarray]:
        # All that a row's features depend on.
        columns = [np.asarray(column) for column in Tree.of(row) if column is not None]
        key = b"".join(repr(column.shape).encode() + column.tobytes() for column in columns)
        if key not in self._kept:
            # One row at a time: what is kept of a row can't depend on the batch that it was first met in.
            read = self._read(params, row)
            self._kept[key] = np.asarray(read.trunk), np.asarray(read.tokens)
        return self._kept[key]
