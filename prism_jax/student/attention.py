"""Attention over sequences in which decision branches continue a shared trunk.

A row is [trunk | branches]: T trunk positions, causal, then R branch positions. A branch is one decision and sees the
trunk up to its own moment. It consists of a head and of leaves, one per candidate, that follow the head and do not see
each other. Three integers per branch position describe this:

    stop     the position sees the trunk positions below this one
    branch   number of the branch, from 1; `PADDING` (0) for padding
    leaf     0 on the head, else number of the leaf within the branch

Branches follow one another and none is longer than the window W. The branch of a position therefore lies in its own
chunk of W positions or in the chunk before, and scores cost T*T + R*T + R*2W instead of (T + R)^2. About a third of the
first two terms is skipped because no query sees it: branches are ordered by their stops, so early branches see only
the beginning of the trunk.

Several trunks can follow one another in the trunk region, with their branches in the same order. A fourth integer then
gives, for each trunk position, the position at which its own trunk begins. Neither the position nor its branches see
anything before that.

Dimensions: B batch, L = T + R length, N query heads, K key/value heads, G = N / K query heads per key head, H head
width, C = R / W chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prism_jax.student.partial_attention import PartialAttention, attend_partially, group_queries, merge, ungroup

PADDING = 0
"""Branch number of padding, which sees only itself. Branches are numbered from 1."""

TRUNK = -1
"""Branch number of trunk tokens, where new trunk tokens and branches share one row (`prism_jax.student.branches`)."""

# One bound per chunk of branch positions, known at compile time. No position of the chunk, in any row, sees the trunk
# from its bound on, so those scores are never computed. None gives no bounds.
Visible = tuple[int, ...] | None

# Queries are split into at most this many runs, none shorter than this: more runs would skip little more.
_MAX_RUNS, _MIN_RUN = 4, 128


class TreeMask(NamedTuple):
    """Which keys a branch position sees; the trunk is causal."""

    to_trunk: Bool[Array, "B R T"]  # whether a branch position sees a trunk position
    # [B, C, W, 2W] whether it sees a position of the chunk before its own (first W) or of its own (last W)
    local: Bool[Array, "B C W W2"]
    # where the trunk of a trunk position begins; None where it begins at 0 in every row
    begin: Int[Array, "B T"] | None = None


def tree_mask(
    stop_BxR: Int[Array, "B R"],
    branch_BxR: Int[Array, "B R"],
    leaf_BxR: Int[Array, "B R"],
    trunk: int,
    window: int,
    begin_BxT: Int[Array, "B T"] | None = None,
) -> TreeMask:
    """Builds the mask of rows of branches off trunks.

    Every position sees itself, including padding, so that no softmax is empty. The integers of branch positions are
    those of the module's docstring; `trunk` is T, `window` is W, which must divide R, and `begin_BxT` is needed where
    rows hold several trunks.
    """
    batch, length = stop_BxR.shape
    if length % window:
        raise ValueError(f"branches: found {length} positions, expected a multiple of the window {window}")
    shape = (batch, length // window, window)
    branch, leaf = (_with_previous(x.reshape(shape), axis=1) for x in (branch_BxR, leaf_BxR))
    own_branch, own_leaf = branch_BxR.reshape(shape)[..., None], leaf_BxR.reshape(shape)[..., None]
    query, key = jnp.arange(window)[:, None] + window, jnp.arange(2 * window)[None, :]
    same_branch = (branch[:, :, None] == own_branch) & (own_branch > PADDING)
    same_leaf = (leaf[:, :, None] == 0) | (leaf[:, :, None] == own_leaf)
    local = (same_branch & same_leaf & (key <= query)) | (key == query)
    place = jnp.arange(trunk)[None, None, :]
    to_trunk = place < stop_BxR[..., None]
    if begin_BxT is not None:
        # A branch belongs to the trunk that holds the last position it sees.
        to_trunk &= place >= jnp.take_along_axis(begin_BxT, jnp.maximum(stop_BxR - 1, 0), axis=1)[..., None]
    return TreeMask(to_trunk, local, begin_BxT)


def trunk_mask(mask: TreeMask, start: int, stop: int) -> Bool[Array, "*b q k"]:
    """Whether the trunk positions from `start` to `stop` (queries) see those below `stop` (keys).

    The mask is [q, k], or [B, q, k] where rows hold several trunks.
    """
    causal = jnp.arange(stop) <= jnp.arange(start, stop)[:, None]
    return causal if mask.begin is None else causal & (jnp.arange(stop) >= mask.begin[:, start:stop, None])


def no_branches(batch: int, trunk: int) -> TreeMask:
    """The mask of rows that consist of trunk only: plain causal attention."""
    return TreeMask(jnp.zeros((batch, 0, trunk), bool), jnp.zeros((batch, 0, 1, 2), bool))


def attend(
    q_BxLxNxH: Float[Array, "B L N H"],
    k_BxLxKxH: Float[Array, "B L K H"],
    v_BxLxKxH: Float[Array, "B L K H"],
    mask: TreeMask,
    visible: Visible = None,
) -> Float[Array, "B L N H"]:
    """Grouped-query attention of trunk and branches; softmax in float32, scores scaled by 1/sqrt(H).

    The trunk attends to itself. A branch attends to the trunk and to itself: two partial results under one softmax,
    merged by their log-sum-exp. All work is batched matrix products over contiguous heads, the form that XLA runs
    fastest. Queries are processed run by run, so that most scores that no query of a run sees are never computed.
    Queries and keys are rotated already.
    """
    branches, trunk = mask.to_trunk.shape[1:]
    q = group_queries(q_BxLxNxH, k_BxLxKxH.shape[2])
    k, v = k_BxLxKxH.transpose(0, 2, 3, 1), v_BxLxKxH.transpose(0, 2, 1, 3)

    def over_trunk(start: int, stop: int, bound: int, seen: Array) -> PartialAttention:
        return attend_partially(q[:, :, :, start:stop], k[:, :, None, :, :bound], v[:, :, None, :bound], seen)

    out = []
    for start, stop in split_evenly(trunk, 1):
        seen = trunk_mask(mask, start, stop)
        out.append(over_trunk(start, stop, stop, seen if seen.ndim == 2 else seen[:, None, None]).normalised())
    if branches:
        parts = []
        for start, stop, bound in branch_runs(mask, visible):
            seen = mask.to_trunk[:, None, None, start:stop, :bound]
            parts.append(over_trunk(trunk + start, trunk + stop, bound, seen))
        whole = PartialAttention(*(jnp.concatenate(column, axis=3) for column in zip(*parts, strict=True)))
        own = _own_branch(q[:, :, :, trunk:], k[:, :, :, trunk:].swapaxes(2, 3), v[:, :, trunk:], mask.local)
        out.append(merge([whole, own]).normalised())
    return ungroup(jnp.concatenate(out, axis=3)).astype(q_BxLxNxH.dtype)


def split_evenly(length: int, multiple: int) -> list[tuple[int, int]]:
    """Splits `length` positions into at most `_MAX_RUNS` runs, each a multiple of `multiple` and at least `_MIN_RUN`.

    Each run is given by its start and stop.
    """
    units = length // multiple
    count = max(1, min(_MAX_RUNS, length // _MIN_RUN, units))
    ends = [round(units * i / count) * multiple for i in range(1, count)] + [length]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def branch_runs(mask: TreeMask, visible: Visible) -> list[tuple[int, int, int]]:
    """Splits the branch positions into runs that attention processes one at a time.

    Each is given by its start, its stop, and a bound on the trunk positions that any of its queries sees.
    """
    chunks, window = mask.local.shape[1:3]
    trunk = mask.to_trunk.shape[2]
    visible = (trunk,) * chunks if visible is None else visible
    if len(visible) != chunks:
        raise ValueError(f"visible: found {len(visible)} bounds, expected one for each of the {chunks} chunks")
    runs = split_evenly(chunks * window, window)
    return [(a, b, min(trunk, max(1, *visible[a // window : b // window]))) for a, b in runs]


def _own_branch(
    q: Float[Array, "B K G R H"],
    k: Float[Array, "B K R H"],
    v: Float[Array, "B K R H"],
    local: Bool[Array, "B C W W2"],
) -> PartialAttention:
    """Attention of branch positions over their own chunk and the one before it."""
    chunks, window = local.shape[1:3]

    def split(x: Array) -> Array:
        return x.reshape(*x.shape[:-2], chunks, window, x.shape[-1])

    keys, values = (_with_previous(split(x), axis=2)[:, :, None] for x in (k, v))
    part = attend_partially(split(q), keys.swapaxes(-1, -2), values, local[:, None, None])
    return PartialAttention(*(x.reshape(*q.shape[:4], x.shape[-1]) for x in part))


def _with_previous(x: Array, axis: int) -> Array:
    """Prepends to each chunk the chunk before it, and zeros to the first.

    Chunks lie along `axis`, their positions along the next axis.
    """
    shifted = jnp.roll(x, 1, axis).at[(slice(None),) * axis + (0,)].set(0)
    return jnp.concatenate([shifted, x], axis=axis + 1)
