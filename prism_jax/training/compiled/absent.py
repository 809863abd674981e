"""Compiles a training step for NVIDIA GPUs that are not present.

XLA's compiler for CUDA comes in a few wheels, which `launch/compiler.sh` installs. It gets a description of the card in
place of the card, and runs nothing. It therefore cannot time alternatives: matrix products become Triton kernels, where
a card may prefer cuBLAS. Calls of cuDNN are compiled without cuDNN, so the memory of their workspaces is unknown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import jax
import numpy as np
from jax._src.cudnn import fused_attention_stablehlo as fused  # has no public name; its checks ask the card
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from prism_jax.student import dispatch, sharding
from prism_jax.training.compiled.cards import Card
from prism_jax.training.optimization.step import StepShape, make_step

OPTIONS: dict[str, str | bool] = {"xla_gpu_autotune_level": "0"}
"""Compiler options that an absent card requires: nothing can be timed on it."""


def has_compiler() -> bool:
    """Whether XLA's compiler for CUDA is installed in this environment."""
    names = [f"jax_plugins.xla_cuda{version}" for version in (12, 13)]
    return bool(importlib.util.find_spec("jax_plugins")) and any(map(importlib.util.find_spec, names))


def absent_mesh(card: Card, sizes: tuple[int, int, int], limit: int) -> Mesh:
    """A mesh of cards that are not present, eight in each node if there are more than eight.

    The sizes are the numbers of devices on the axes data, fsdp and tensor; a process may use `limit` bytes of a card.

    Raises:
      ValueError: for more than eight devices that do not fill their nodes.
    """
    count = int(np.prod(sizes))
    if count > 8 and count % 8:
        raise ValueError(f"mesh: found {count} devices, expected at most 8 or a multiple of 8, as a node has eight")
    nodes = -(-count // 8)
    topology = topologies.get_topology_desc(
        card.name, "cuda", target_config=card.described(limit), topology=f"1x{nodes}x{count // nodes}"
    )
    return Mesh(np.reshape(np.array(topology.devices), sizes), sharding.MESH_AXES, axis_types=(AxisType.Auto,) * 3)


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """Traces as on a card with a current cuDNN, whatever the platform of this process is."""
    known: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if importlib.util.find_spec("jax._src.pallas.triton.gpu_info"):  # from JAX 0.11 on, Pallas asks which card it is
        info = importlib.import_module("jax._src.pallas.triton.gpu_info")
        known = mock.patch.object(info, "get_gpu_info", lambda: info.get_gpu_info_from_version(info.GpuVersion.H100))
    with (
        known,
        mock.patch.object(dispatch, "platform", lambda: "cuda"),
        mock.patch.object(fused, "check_cudnn_version", lambda: 91_000),
        mock.patch.object(fused, "check_compute_capability", lambda *_: False),
        mock.patch.object(fused, "is_cuda_compute_capability_equal", lambda *_: False),
    ):
        yield


def lower_step(shape: StepShape) -> jax.stages.Lowered:
    """Traces and lowers the training step for CUDA, for the mesh of the shape; nothing is allocated."""
    step = cast(Any, make_step(shape))
    with as_on_cuda():
        return step.trace(shape.state, shape.batch).lower(lowering_platforms=("cuda",))


def compile_step(shape: StepShape, card: Card, limit: int) -> jax.stages.Compiled:
    """Compiles the training step for absent cards, laid out as the shape's mesh; a process may use `limit` bytes."""
    sizes = (shape.mesh.shape["data"], shape.mesh.shape["fsdp"], shape.mesh.shape["tensor"])
    return lower_step(dataclasses.replace(shape, mesh=absent_mesh(card, sizes, limit))).compile(OPTIONS)
