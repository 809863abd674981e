"""Reuse of the features of frozen blocks, which are the same for a row in every epoch.

The features are computed once and kept on the host; training starts from them. This is meant for small machines: a row
takes 4 bytes times its positions times the width of the student, and each row is computed separately, on one device.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from prism_jax.prompting.packing import Packed
from prism_jax.scoring.slots import Slots
from prism_jax.student.qwen3 import Params, Tree
from prism_jax.training.optimization.frozen import Partition


class FrozenFeatures:
    """Replaces the token ids of batches by features, which are computed once per distinct row.

    Rows are identified by their content, so the result does not depend on how batches are drawn or on resuming a run.
    """

    def __init__(self, slots: Slots, partition: Partition):
        """Computes no features yet; raises ValueError if the embedding or the lowest block trains: nothing to reuse."""
        if not partition.depth:
            raise ValueError(
                "training.reuse_frozen: found True, but the embedding or a part of layers/0 trains, expected "
                "training.frozen to match them, as 'embedding' and 'layers/0/.*' do"
            )
        self._read = jax.jit(dataclasses.replace(slots, frozen=partition.depth).features)
        self._kept: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, params: Params, batch: Packed) -> Packed:
        """The batch with features, as `Slots.features` returns it."""
        rows = [jax.tree.map(lambda column, i=i: column[i : i + 1], batch) for i in range(len(batch.row))]
        trunk, tokens = zip(*(self._features(params, row) for row in rows), strict=True)
        return batch._replace(trunk=np.concatenate(trunk), tokens=np.concatenate(tokens))

    def _features(self, params: Params, row: Packed) -> tuple[np.ndarray, np.ndarray]:
        # Everything that the features of a row depend on.
        columns = [np.asarray(column) for column in Tree.of(row) if column is not None]
        key = b"".join(repr(column.shape).encode() + column.tobytes() for column in columns)
        if key not in self._kept:
            # One row at a time, so that the features of a row cannot depend on the batch in which it first occurs.
            read = self._read(params, row)
            self._kept[key] = np.asarray(read.trunk), np.asarray(read.tokens)
        return self._kept[key]
