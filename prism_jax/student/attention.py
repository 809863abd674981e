"""Attention over sequences in which decision branches hang off a shared trunk.

A row is [trunk | branches]: T trunk positions, causal, then R branch positions. A branch (one decision) sees the trunk
up to its own moment; it has a head, which its leaves (one a candidate) share without seeing each other. Three integers
a branch position say so:

    stop     it sees the trunk positions below this
    branch   the branch's number, from 1; 0 is padding
    leaf     0 on the head, else the leaf's number within the branch

Branches lie one after another and none is longer than the window W, so a position's own branch lies in its chunk of W
positions or the one before: scores cost T*T + R*T + R*2W, not (T + R)^2. Of the first two about a third, which no
query sees, is skipped: branches lie in the order of their stops, so early ones see only the trunk's beginning.

Several trunks can lie one after another in the trunk region, their branches in the same order. A fourth integer then
says of each trunk position where its own trunk begins; neither it nor a branch sees anything before that.

Dimensions: B batch, L = T + R length, N query heads, K key/value heads, G = N / K queries a key, H head width,
C = R / W chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prism_jax.student.parts import Part, attend_part, group_queries, merge, ungroup

# A bound for each chunk of branch positions, known when compiling: none of them, in any row, sees the trunk from there
# on, so that these scores are never computed. None promises nothing.
Visible = tuple[int, ...] | None

# Queries are cut into at most so many pieces, none of them shorter than this: more pieces skip little more.
_PIECES, _SHORTEST = 4, 128


class TreeMask(NamedTuple):
    """Which keys a branch position sees; the trunk is causal.

    Attributes:
      to_trunk: [B, R, T] of the trunk.
      local: [B, C, W, 2W] of the chunk before its own (first W) and its own chunk (last W).
      begin: [B, T] where the trunk of a trunk position begins; None where it begins at 0 in every row.
    """

    to_trunk: Bool[Array, "B R T"]
    local: Bool[Array, "B C W W2"]
    begin: Int[Array, "B T"] | None = None


def tree_mask(
    stop_BxR: Int[Array, "B R"],
    branch_BxR: Int[Array, "B R"],
    leaf_BxR: Int[Array, "B R"],
    trunk: int,
    window: int,
    begin_BxT: Int[Array, "B T"] | None = None,
) -> TreeMask:
    """The mask of rows whose trunk region has `trunk` positions and whose branches are at most `window` long.

    A position always sees itself, padding too, so that no softmax runs over nothing. `begin_BxT` says of each trunk
    position where its own trunk begins, if rows hold several.

    Raises:
      ValueError: when R is not a multiple of `window`.
    """
    batch, length = stop_BxR.shape
    if length % window:
        raise ValueError(f"branches: found {length} positions, expected a multiple of the window {window}")
    shape = (batch, length // window, window)
    branch, leaf = (_with_previous(x.reshape(shape), axis=1) for x in (branch_BxR, leaf_BxR))
    own_branch, own_leaf = branch_BxR.reshape(shape)[..., None], leaf_BxR.reshape(shape)[..., None]
    query, key = jnp.arange(window)[:, None] + window, jnp.arange(2 * window)[None, :]
    same_branch = (branch[:, :, None] == own_branch) & (own_branch > 0)
    same_leaf = (leaf[:, :, None] == 0) | (leaf[:, :, None] == own_leaf)
    local = (same_branch & same_leaf & (key <= query)) | (key == query)
    place = jnp.arange(trunk)[None, None, :]
    to_trunk = place < stop_BxR[..., None]
    if begin_BxT is not None:
        # A branch belongs to the trunk that it sees the last position of.
        to_trunk &= place >= jnp.take_along_axis(begin_BxT, jnp.maximum(stop_BxR - 1, 0), axis=1)[..., None]
    return TreeMask(to_trunk, local, begin_BxT)


def trunk_mask(mask: TreeMask, start: int, stop: int) -> Bool[Array, "*b q k"]:
    """Which trunk positions below `stop` those from `start` to `stop` see: [q, k], or [B, q, k] of several trunks."""
    causal = jnp.arange(stop) <= jnp.arange(start, stop)[:, None]
    return causal if mask.begin is None else causal & (jnp.arange(stop) >= mask.begin[:, start:stop, None])


def no_branches(batch: int, trunk: int) -> TreeMask:
    """The mask of rows that are all trunk: plain causal attention."""
    return TreeMask(jnp.zeros((batch, 0, trunk), bool), jnp.zeros((batch, 0, 1, 2), bool))


def attend(
    q_BxLxNxH: Float[Array, "B L N H"],
    k_BxLxKxH: Float[Array, "B L K H"],
    v_BxLxKxH: Float[Array, "B L K H"],
    mask: TreeMask,
    visible: Visible = None,
) -> Float[Array, "B L N H"]:
    """Grouped-query attention of trunk and branches; softmax in float32, scores scaled by 1/sqrt(H).

    The trunk attends to itself; a branch attends to the trunk and to itself, two parts under one softmax, merged by
    their log-sum-exp. Everything is batched matrix products over contiguous heads, the form that XLA runs fastest;
    queries go piece by piece, so that most of what no query of a piece sees is never computed.
    """
    branches, trunk = mask.to_trunk.shape[1:]
    q = group_queries(q_BxLxNxH, k_BxLxKxH.shape[2])
    k, v = k_BxLxKxH.transpose(0, 2, 3, 1), v_BxLxKxH.transpose(0, 2, 1, 3)

    def over_trunk(start: int, stop: int, bound: int, seen: Array) -> Part:
        return attend_part(q[:, :, :, start:stop], k[:, :, None, :, :bound], v[:, :, None, :bound], seen)

    out = []
    for start, stop in pieces(trunk, 1):
        seen = trunk_mask(mask, start, stop)
        out.append(over_trunk(start, stop, stop, seen if seen.ndim == 2 else seen[:, None, None]).normalised())
    if branches:
        parts = []
        for start, stop, bound in branch_pieces(mask, visible):
            seen = mask.to_trunk[:, None, None, start:stop, :bound]
            parts.append(over_trunk(trunk + start, trunk + stop, bound, seen))
        whole = Part(*(jnp.concatenate(column, axis=3) for column in zip(*parts, strict=True)))
        own = _own_branch(q[:, :, :, trunk:], k[:, :, :, trunk:].swapaxes(2, 3), v[:, :, trunk:], mask.local)
        out.append(merge([whole, own]).normalised())
    return ungroup(jnp.concatenate(out, axis=3)).astype(q_BxLxNxH.dtype)


def pieces(length: int, multiple: int) -> list[tuple[int, int]]:
    """Cuts `length` positions into at most `_PIECES` runs of whole multiples, none shorter than `_SHORTEST`."""
    units = length // multiple
    count = max(1, min(_PIECES, length // _SHORTEST, units))
    ends = [round(units * i / count) * multiple for i in range(1, count)] + [length]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def branch_pieces(mask: TreeMask, visible: Visible) -> list[tuple[int, int, int]]:
    """Runs of branch positions, start and stop, and below which trunk position all that they see lies.

    Raises:
      ValueError: when `visible` has not one entry a chunk.
    """
    chunks, window = mask.local.shape[1:3]
    trunk = mask.to_trunk.shape[2]
    visible = (trunk,) * chunks if visible is None else visible
    if len(visible) != chunks:
        raise ValueError(f"visible: found {len(visible)} bounds, expected one for each of the {chunks} chunks")
    runs = pieces(chunks * window, window)
    return [(a, b, min(trunk, max(1, *visible[a // window : b // window]))) for a, b in runs]


def _own_branch(
    q: Float[Array, "B K G R H"],
    k: Float[Array, "B K R H"],
    v: Float[Array, "B K R H"],
    local: Bool[Array, "B C W W2"],
) -> Part:
    """Branch positions over their own chunk and the one before it."""
    chunks, window = local.shape[1:3]

    def split(x: Array) -> Array:
        return x.reshape(*x.shape[:-2], chunks, window, x.shape[-1])

    keys, values = (_with_previous(split(x), axis=2)[:, :, None] for x in (k, v))
    part = attend_part(split(q), keys.swapaxes(-1, -2), values, local[:, None, None])
    return Part(*(x.reshape(*q.shape[:4], x.shape[-1]) for x in part))


def _with_previous(x: Array, axis: int) -> Array:
    """Each chunk (chunks along `axis`, positions along the next) behind the one before it, zeros before the first."""
    shifted = jnp.roll(x, 1, axis).at[(slice(None),) * axis + (0,)].set(0)
    return jnp.concatenate([shifted, x], axis=axis + 1)
