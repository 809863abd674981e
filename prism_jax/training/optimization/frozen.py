"""The partition into trained and frozen parameters. Frozen parameters have no optimizer state and get no gradient.

The name of a parameter is its path, such as `embedding` or `final_norm/weight`. Blocks are stacked in memory, but each
has its own name, such as `layers/3/mlp/up_proj/kernel`, so that a pattern can freeze only the lower blocks.

What frozen lowest blocks compute of a row is the same in every epoch. It can be computed once and kept on the host, for
training to start from. This is meant for small machines: a row takes 4 bytes times its positions times the width of the
student, and each row is computed separately, on one device.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from prism_jax.student.prompting.packing import Packed
from prism_jax.student.qwen3 import Params, Qwen3, Tree
from prism_jax.student.scoring.slots import Slots

STACK = "layers"


class Partition:
    """The partition of a parameter tree; `trained` and `frozen` are the numbers of values in its parts.

    `depth` is the number of blocks, counted from the lowest, that are completely frozen; 0 if the embedding trains. No
    gradient needs to enter these blocks, and their output for a row is the same in every epoch.
    """

    def __init__(self, params: Params, patterns: Sequence[str]):
        """Freezes the parameters whose whole names match any of the patterns; shapes are enough.

        Raises:
          ValueError: if a pattern matches nothing, or if no parameter is left to train.
        """
        flat = traverse_util.flatten_dict(params, sep="/")
        names = {path: _names(path, leaf) for path, leaf in flat.items()}
        for pattern in patterns:
            if not any(re.fullmatch(pattern, name) for group in names.values() for name in group):
                raise ValueError(
                    f"training.frozen: found {pattern!r}, which matches no parameter, expected a regular expression of "
                    f"whole names such as {next(iter(names[min(names)]))!r}"
                )
        # For each path, the indices of the trained layers; [0] for a trained parameter outside the stack.
        self._kept = {path: _kept(group, patterns) for path, group in names.items()}
        self._whole = {path for path, kept in self._kept.items() if len(kept) == len(names[path])}
        total = sum(leaf.size for leaf in flat.values())
        self.trained = sum(leaf.size // len(names[path]) * len(self._kept[path]) for path, leaf in flat.items())
        self.frozen = total - self.trained
        lowest = [kept.min(initial=len(names[path])) for path, kept in self._kept.items() if path.startswith(STACK)]
        self.depth = 0 if len(self._kept["embedding"]) else int(min(lowest))
        if not self.trained:
            raise ValueError(f"training.frozen: found {tuple(patterns)}, which freezes all, expected a part to train")

    @classmethod
    def of(cls, model: Qwen3, patterns: Sequence[str]) -> Partition:
        """The partition of a student's parameters; beside its adapters, if it has some, nothing trains."""
        beside = [rf"(?!(?:{model.lora.owns(model.config.tied)})$).*"] if model.lora.rank else []
        return cls(model.abstract_params(), (*patterns, *beside))

    def split(self, params: Params) -> Params:
        """The trained part: whole parameters, or the trained layers of a stack."""
        flat = traverse_util.flatten_dict(params, sep="/")
        return _nested({path: self._take(path, leaf) for path, leaf in flat.items() if len(self._kept[path])})

    def merge(self, params: Params, trained: Params) -> Params:
        """`params` with its trained part replaced by `trained`."""
        new = traverse_util.flatten_dict(trained, sep="/")
        flat = traverse_util.flatten_dict(params, sep="/")
        return _nested({path: self._put(path, leaf, new) for path, leaf in flat.items()})

    def _take(self, path: str, leaf: Any) -> Any:
        return leaf if path in self._whole else leaf[self._kept[path]]

    def _put(self, path: str, leaf: Any, new: dict[str, Any]) -> Any:
        if path not in new:
            return leaf
        return new[path] if path in self._whole else leaf.at[self._kept[path]].set(new[path], unique_indices=True)


def _names(path: str, leaf: Any) -> list[str]:
    """The names of the parameters at one path: one name per layer of a stack, otherwise a single name."""
    head, _, rest = path.partition("/")
    return [f"{STACK}/{layer}/{rest}" for layer in range(leaf.shape[0])] if head == STACK else [path]


def _kept(names: Sequence[str], patterns: Sequence[str]) -> np.ndarray:
    """Indices of the names that no pattern matches."""
    return np.flatnonzero([not any(re.fullmatch(pattern, name) for pattern in patterns) for name in names])


def _nested(flat: dict[str, Any]) -> Params:
    return traverse_util.unflatten_dict(flat, sep="/")


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
