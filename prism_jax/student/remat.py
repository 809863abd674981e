"""What the backward pass keeps of a block's forward pass, by name; it recomputes the rest from the block's input.

A kept result of a matrix product saves about as many operations per byte, whichever product it is, so the policies
differ in how much they keep. Each keeps what the one before it does, except that `offload` keeps the feed-forward gate
alone, in the host's memory: it is copied there while later blocks are computed, and back before its block's backward
pass. On an H200 the copies took longer than they saved, so `auto` never takes it.

    full       nothing
    qkv        queries, keys and values, before their norms and rotation
    attention  also the output projection of attention
    offload    the gate of the feed-forward layer, in pinned host memory
    dots       all matrix products: those of `attention`, and both of the feed-forward layer that a gradient needs
    flash      also the results of cuDNN's attention
    none       everything but the product of gate and sigmoid
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax

Remat = Literal["auto", "full", "qkv", "attention", "offload", "dots", "flash", "none"]

_ATTENTION = ("query", "key", "value", "output")
SAVED: dict[str, tuple[str, ...]] = {
    "full": (),
    "qkv": _ATTENTION[:3],
    "attention": _ATTENTION,
    "offload": (),
    "dots": (*_ATTENTION, "gate", "up"),
    "flash": (*_ATTENTION, "gate", "up"),
}
"""Names (`jax.ad_checkpoint.checkpoint_name`) of the arrays of a block that each policy keeps on the device."""

OFFLOADED = ("gate",)
"""Names of the arrays that `offload` keeps on the host."""


def keeping(remat: Remat) -> Callable[[Callable], Callable]:
    """Returns a decorator of a block's function, after which its backward pass keeps what the policy names.

    Where gradients are computed, `prism_jax.training.memory.fitted` must have replaced `auto` by a policy;
    without gradients, no policy has an effect.
    """
    if remat in ("auto", "none"):
        return lambda block: block
    return functools.partial(jax.checkpoint, policy=_policy(remat))


def _policy(remat: str) -> Callable[..., Any]:
    policies = jax.checkpoint_policies
    if remat == "offload":
        return policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(OFFLOADED),
            offload_src="device",
            offload_dst="pinned_host",
        )
    named = policies.save_only_these_names(*SAVED[remat])
    if remat != "flash":
        return named
    return lambda primitive, *args, **params: (
        primitive.name.startswith("dot_product_attention_fwd") or named(primitive, *args, **params)
    )
