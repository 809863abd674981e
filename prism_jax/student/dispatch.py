"""Chooses the implementation of attention: cuDNN's flash attention where config and devices allow it, else XLA.

The choice concerns training and reading. Writing, one token per row at a time, is bound by memory bandwidth; where
`cudnn` is asked for by name, it takes kernels of its own (`prism_jax.student.decoding`).
"""

from __future__ import annotations

import functools
from typing import Literal

import jax
from absl import logging

from prism_jax.runtime.distributed import processor_features
from prism_jax.student.attention import TreeMask, Visible, attend
from prism_jax.student.flash import flash_masks, flash_tree
from prism_jax.student.layers import Attend
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.products import Compute

ChosenPath = Literal["xla", "cudnn"]
_HALF = ("float16", "bfloat16")


def dispatch(config: StudentConfig, mask: TreeMask, visible: Visible = None) -> Attend:
    """Attention under a mask by the path of the config (`attention_path`); computes once what all layers share."""
    if attention_path(config) == "cudnn":
        return functools.partial(flash_tree, masks=flash_masks(mask, visible), implementation="cudnn")
    return functools.partial(attend, mask=mask, visible=visible)


def attention_path(config: StudentConfig, on: str = "") -> ChosenPath:
    """The path of attention that a config leads to on a platform, by default the one in use, as in `chosen_path`.

    Raises:
      ValueError: when the attention or the products of the config cannot run there; the message gives the reason.
    """
    check_compute(config.compute, on)
    return chosen_path(config.attention, config.dtype, config.head_dim, on or platform())


def check_compute(compute: Compute, on: str = "") -> None:
    """Raises ValueError where a platform, by default the one in use, gains nothing by bfloat16; says why."""
    if compute == "float32":
        return
    on = on or platform()
    if on != "cpu":
        reason = f"the platform is {on}, which multiplies in bfloat16 with student.dtype=bfloat16"
    elif not {"avx512_bf16", "amx_bf16"} & {*processor_features().split()}:
        reason = "the features of this processor in /proc/cpuinfo are without avx512_bf16 and amx_bf16"
    elif (devices := jax.sharding.get_abstract_mesh().size) > 1:
        reason = f"the mesh has {devices} devices, each of which would compute what all compute"
    else:
        return
    raise ValueError(f"student.compute (--compute): found {compute!r}, which can't run here: {reason}; use 'float32'")


@functools.cache
def chosen_path(requested: str, dtype: str, head_dim: int, platform: str) -> ChosenPath:
    """Chooses the path of attention and logs the choice, once per set of arguments.

    The path requested is one of `AttentionPath`, and the platform is named as by `platform`.

    Raises:
      ValueError: when cudnn is requested and cannot run; the message gives the reason.
    """
    reason = None
    if platform != "cuda":
        reason = f"the platform is {platform}, expected cuda"
    elif dtype not in _HALF:
        reason = f"student.dtype is {dtype}, expected one of {', '.join(_HALF)}"
    elif head_dim % 8 or head_dim > 128:
        reason = f"student.head_dim is {head_dim}, expected a multiple of 8, at most 128"
    if requested == "cudnn" and reason:
        raise ValueError(f"student.attention: found 'cudnn', which can't run here: {reason}; use 'auto' or 'xla'")
    path: ChosenPath = "xla" if requested == "xla" or reason else "cudnn"
    logging.info(
        "attention: %s (requested: %s%s)", path, requested, f"; {reason}" if reason and requested == "auto" else ""
    )
    return path


def platform() -> str:
    """The default platform of computations; `cuda` for NVIDIA's GPUs and `rocm` for AMD's."""
    backend = jax.default_backend()
    if backend != "gpu":
        return backend
    return "rocm" if "rocm" in jax.devices()[0].client.platform_version.lower() else "cuda"
