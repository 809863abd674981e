"""Which attention runs: cuDNN's flash attention where the config and the devices allow it, XLA's elsewhere.

This is for training and whole prefills; reading against a cache (`kv_cache`) is bound by memory and always XLA's.
"""

from __future__ import annotations

import functools
from typing import Literal

import jax
from absl import logging

from prism_jax.student.attention import TreeMask, Visible, attend
from prism_jax.student.config import StudentConfig
from prism_jax.student.flash import flash_masks, flash_tree
from prism_jax.student.layers import Attend

_HALF = ("float16", "bfloat16")


def dispatch(config: StudentConfig, mask: TreeMask, visible: Visible = None) -> Attend:
    """Attention under a mask, by the path that the config asks for; what all layers share is computed once, here.

    Raises:
      ValueError: when `config.attention` is `cudnn` and that can't run here.
    """
    if chosen_path(config.attention, config.dtype, config.head_dim, platform()) == "cudnn":
        return functools.partial(flash_tree, masks=flash_masks(mask, visible), implementation="cudnn")
    return functools.partial(attend, mask=mask, visible=visible)


@functools.cache
def chosen_path(asked: str, dtype: str, head_dim: int, platform: str) -> Literal["xla", "cudnn"]:
    """`xla` or `cudnn`; logs the choice, once for each set of arguments.

    Args:
      asked: `auto`, `xla` or `cudnn`.
      dtype: Of activations.
      head_dim: Width of a head.
      platform: `cpu`, `cuda`, `rocm` or another one that JAX names.

    Raises:
      ValueError: when cudnn is asked for and can't run, with the reason.
    """
    reason = None
    if platform != "cuda":
        reason = f"the platform is {platform}, expected cuda"
    elif dtype not in _HALF:
        reason = f"student.dtype is {dtype}, expected one of {', '.join(_HALF)}"
    elif head_dim % 8 or head_dim > 128:
        reason = f"student.head_dim is {head_dim}, expected a multiple of 8, at most 128"
    if asked == "cudnn" and reason:
        raise ValueError(f"student.attention: found 'cudnn', which can't run here: {reason}; use 'auto' or 'xla'")
    path: Literal["xla", "cudnn"] = "xla" if asked == "xla" or reason else "cudnn"
    logging.info("attention: %s (asked for %s%s)", path, asked, f"; {reason}" if reason and asked == "auto" else "")
    return path


def platform() -> str:
    """Where computations go by default; NVIDIA's and AMD's GPUs are told apart."""
    backend = jax.default_backend()
    if backend != "gpu":
        return backend
    return "rocm" if "rocm" in jax.devices()[0].client.platform_version.lower() else "cuda"
