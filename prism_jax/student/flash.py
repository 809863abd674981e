"""Attention through fused (flash) attention, which never writes scores to memory.

In packed rows the trunk takes one causal call, under a mask if rows hold several trunks. Branches are split into a few
runs with one call each: the run's queries attend, under one mask, to the part of the trunk that any of them sees and to
the branch positions around them. One softmax over both needs no merge, and therefore no log-sum-exp from cuDNN, which
`jax.nn.dot_product_attention` rounds to the inputs' dtype and through which it passes no gradient. New tokens after
cached ones take one call over both, for the same reason. The only quadratic array is the mask, which all heads and
layers share.

Dimensions: B batch, L = T + R length, N query heads, K key/value heads, H head width, W window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from prism_jax.student.attention import TreeMask, Visible, branch_runs, trunk_mask


class Run(NamedTuple):
    """A run of branch positions, which sees the trunk below `bound` and branch positions from `start - W` to `stop`."""

    start: int
    stop: int
    bound: int
    seen: Bool[Array, "B 1 q k"]


class FlashMasks(NamedTuple):
    """Masks and sizes that all layers share."""

    trunk: int  # T, length of the trunk region
    window: int  # W, which no branch exceeds
    runs: tuple[Run, ...]  # runs of branch positions, with their masks
    # which trunk positions a trunk position sees, where rows hold several trunks; None for causal attention
    trunks: Bool[Array, "B 1 T T"] | None = None


def flash_masks(mask: TreeMask, visible: Visible = None) -> FlashMasks:
    """Builds the masks of fused attention, whose backward pass needs even lengths of the trunk and the window."""
    trunk, (chunks, window) = mask.to_trunk.shape[2], mask.local.shape[1:3]
    if chunks and (trunk % 2 or window % 2):
        raise ValueError(
            f"attention: found a trunk of {trunk} and a window of {window}, expected even numbers for cudnn"
        )
    runs = []
    for start, stop, bound in branch_runs(mask, visible) if chunks else ():
        bound += bound % 2
        rows = []
        for chunk in range(start // window, stop // window):
            before, behind = chunk - start // window, stop // window - 1 - chunk
            rows.append(jnp.pad(mask.local[:, chunk], ((0, 0), (0, 0), (before * window, behind * window))))
        seen = jnp.concatenate([mask.to_trunk[:, start:stop, :bound], jnp.concatenate(rows, axis=1)], axis=2)
        runs.append(Run(start, stop, bound, seen[:, None]))
    trunks = None if mask.begin is None else trunk_mask(mask, 0, trunk)[:, None]
    return FlashMasks(trunk, window, tuple(runs), trunks)


def flash_tree(
    q_BxLxNxH: Float[Array, "B L N H"],
    k_BxLxKxH: Float[Array, "B L K H"],
    v_BxLxKxH: Float[Array, "B L K H"],
    masks: FlashMasks,
    implementation: Literal["cudnn", "xla"],
) -> Float[Array, "B L N H"]:
    """Computes attention of trunk and branches; the result equals that of `attention.attend`.

    The implementation is one of `jax.nn.dot_product_attention`; `xla` computes the same, unfused.
    """
    trunk, window = masks.trunk, masks.window
    (k, v), (k_branch, v_branch) = (
        [x[:, :trunk] for x in (k_BxLxKxH, v_BxLxKxH)],
        [jnp.pad(x[:, trunk:], ((0, 0), (window, 0), (0, 0), (0, 0))) for x in (k_BxLxKxH, v_BxLxKxH)],
    )
    of_trunk = {"is_causal": True} if masks.trunks is None else {"mask": masks.trunks}
    out = [jax.nn.dot_product_attention(q_BxLxNxH[:, :trunk], k, v, **of_trunk, implementation=implementation)]
    for start, stop, bound, seen in masks.runs:
        # The branch arrays are padded by one window, so this slice holds branch positions from start - W to stop.
        keys, values = (
            jnp.concatenate([x[:, :bound], branch[:, start : stop + window]], axis=1)
            for x, branch in ((k, k_branch), (v, v_branch))
        )
        q = q_BxLxNxH[:, trunk + start : trunk + stop]
        out.append(jax.nn.dot_product_attention(q, keys, values, mask=seen, implementation=implementation))
    return jnp.concatenate(out, axis=1)


def flash_cached(
    q_BxLxNxH: Float[Array, "B L N H"],
    k_BxLxKxH: Float[Array, "B L K H"],
    v_BxLxKxH: Float[Array, "B L K H"],
    cached: Sequence[tuple[Float[Array, "B K H _"], Float[Array, "B K _ H"]]],
    seen: Bool[Array, "B L all"],
    implementation: Literal["cudnn", "xla"],
) -> Float[Array, "B L N H"]:
    """Computes attention of new tokens over cached ones and over each other.

    `cached` holds keys and values of each cache, in its layout. `seen` says whether a new token sees a position of the
    caches, end to end, and then of the new tokens.
    """
    keys = jnp.concatenate([*(keys.transpose(0, 3, 1, 2) for keys, _ in cached), k_BxLxKxH], axis=1)
    values = jnp.concatenate([*(values.transpose(0, 2, 1, 3) for _, values in cached), v_BxLxKxH], axis=1)
    return jax.nn.dot_product_attention(q_BxLxNxH, keys, values, mask=seen[:, None], implementation=implementation)
