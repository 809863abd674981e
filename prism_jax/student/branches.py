"""Branches off a trunk, and the layout of an event and the branches after it as one row of new tokens.

Dimensions: L new tokens, padded; P marked places, padded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from prism_jax.student.attention import PADDING, TRUNK


@dataclasses.dataclass(frozen=True)
class Branch:
    """Tokens that follow the trunk: a head, and leaves that each follow the head and do not see each other."""

    head: tuple[int, ...]  # token ids of the head
    leaves: tuple[tuple[int, ...], ...] = ()  # token ids of each leaf
    # indices into `ids` of the tokens whose next-token logits are read; None marks the last token of the head and of
    # each leaf
    places: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, ids in (("head", self.head), *((f"leaves[{i}]", leaf) for i, leaf in enumerate(self.leaves))):
            if not ids:
                raise ValueError(f"branch.{name}: found no token ids, expected at least one")
        if self.places is not None and not (self.places and all(0 <= p < len(self.ids) for p in self.places)):
            raise ValueError(f"branch.places: found {self.places}, expected some indices in [0, {len(self.ids)})")

    @property
    def ids(self) -> list[int]:
        """Head and leaves, end to end."""
        return [token for part in (self.head, *self.leaves) for token in part]

    @property
    def marked(self) -> tuple[int, ...]:
        """Indices into `ids` of the tokens whose next-token logits are read."""
        if self.places is not None:
            return self.places
        return tuple((np.cumsum([len(part) for part in (self.head, *self.leaves)]) - 1).tolist())


class NewTokens(NamedTuple):
    """An event and the branches after it, end to end."""

    tokens: Int[Array | np.ndarray, " L"]  # token ids
    offsets: Int[Array | np.ndarray, " L"]  # rotary positions, counted from the end of the trunk so far
    # TRUNK on the event, else number of the branch, from 1; PADDING on padding
    branch: Int[Array | np.ndarray, " L"]
    leaf: Int[Array | np.ndarray, " L"]  # 0 on the event and on heads, else number of the leaf
    places: Int[Array | np.ndarray, " P"]  # indices of the marked tokens


def bucket(count: int, smallest: int = 8) -> int:
    """The padded length of `count` positions, a multiple of `smallest`.

    From four times `smallest` on there are four lengths per doubling, so that at most a fifth is padding.
    """
    step = max(smallest, 1 << max(0, count.bit_length() - 3))
    return max(1, -(-count // step)) * step


def lay_out(event: Sequence[int], branches: Sequence[Branch], length: int = 0, marked: int = 0) -> NewTokens:
    """Lays out an event, which may be empty, and branches, each of which continues from the end of the event.

    `length` is the padded number of tokens and `marked` that of marked places; 0 takes the bucket, which for marked
    places is 0 where there are no branches.
    """
    tokens, offsets = list(event), list(range(len(event)))
    number, leaf, places = [TRUNK] * len(event), [0] * len(event), []
    for count, branch in enumerate(branches, start=1):
        places += [len(tokens) + place for place in branch.marked]
        for part, ids in enumerate((branch.head, *branch.leaves)):
            first = len(event) + (len(branch.head) if part else 0)
            tokens += ids
            offsets += range(first, first + len(ids))
            number += [count] * len(ids)
            leaf += [part] * len(ids)
    length = length or bucket(len(tokens))

    def pad(values: list[int], size: int, fill: int = 0) -> np.ndarray:
        return np.array(values + [fill] * (size - len(values)), np.int32)

    return NewTokens(
        pad(tokens, length),
        pad(offsets, length),
        pad(number, length, PADDING),
        pad(leaf, length),
        pad(places, marked or (bucket(len(places), 4) if places else 0)),
    )


def row_mask(row: NewTokens) -> Bool[Array, "L L"]:
    """Whether a new token (first axis) sees another new token (second axis); every token sees itself.

    No other token sees padding.
    """
    index = jnp.arange(row.tokens.shape[0])
    query, key = (slice(None), None), (None, slice(None))
    same_branch = row.branch[query] == row.branch[key]
    same_leaf = (row.leaf[key] == 0) | (row.leaf[query] == row.leaf[key])
    related = (row.branch[key] == TRUNK) | (same_branch & same_leaf & (row.branch[key] > PADDING))
    return (related & (index[key] <= index[query])) | (index[key] == index[query])
