"""Where parameters live on a mesh of devices: logical axes of each parameter, and one table from these to mesh axes.

Mesh axes: `data` repeats parameters and splits the batch, `fsdp` splits parameters and the batch, `tensor` splits
heads, inner widths and the vocabulary. "pjit" today is jax.jit with these shardings.
"""

from __future__ import annotations

import os
import re
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH_AXES = ("data", "fsdp", "tensor")
BATCH = P(("data", "fsdp"))

# Logical axis to mesh axis.
RULES = {"layer": None, "width": "fsdp", "vocabulary": "tensor", "heads": "tensor", "ffn": "tensor", "norm": None}

# Logical axes by parameter; the first pattern that ends the parameter's path names its axes.
AXES = (
    (r"embedding", ("vocabulary", "width")),
    (r"head/kernel", ("width", "vocabulary")),
    (r"[qkv]_proj/kernel", ("layer", "width", "heads")),
    (r"o_proj/kernel", ("layer", "heads", "width")),
    (r"(gate|up)_proj/kernel", ("layer", "width", "ffn")),
    (r"down_proj/kernel", ("layer", "ffn", "width")),
    (r"layers/.*norm/weight", ("layer", "norm")),
    (r"final_norm/weight", ("norm",)),
)


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """A mesh of the first data * fsdp * tensor devices.

    Raises:
      ValueError: when there are fewer devices than that, or more in several processes: each must have a part.
    """
    count = data * fsdp * tensor
    if jax.process_count() > 1 and count != jax.device_count():
        raise ValueError(
            f"mesh: found {jax.device_count()} devices in {jax.process_count()} processes, expected exactly {count} "
            f"(data {data} x fsdp {fsdp} x tensor {tensor})"
        )
    if count > jax.device_count():
        raise ValueError(
            f"mesh: found {jax.device_count()} devices, expected at least {count} (data {data} x fsdp {fsdp} x "
            f"tensor {tensor})"
        )
    return jax.make_mesh(
        (data, fsdp, tensor), MESH_AXES, axis_types=(AxisType.Auto,) * 3, devices=jax.devices()[:count]
    )


def pretend_devices(count: int) -> None:
    """Lets the CPU stand for at least `count` devices where JAX's devices are CPUs: programs compile as for as many.

    Called before JAX looks for devices; changes nothing on GPUs and TPUs, nor where XLA_FLAGS says how many CPUs are.
    """
    if count > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", count)


def path_of(path: tuple[Any, ...]) -> str:
    """A pytree path as `layers/attention/q_proj/kernel`."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def partition_spec(path: str, ndim: int) -> P:
    """The spec of the parameter (or of an optimizer moment, whose path ends in its parameter's) at `path`.

    Raises:
      ValueError: for a parameter that the table doesn't know.
    """
    for pattern, axes in AXES:
        if len(axes) == ndim and re.search(rf"(^|/){pattern}$", path):
            return P(*(RULES[axis] for axis in axes))
    if ndim == 0:
        return P()
    raise ValueError(f"sharding: found parameter {path!r} with {ndim} axes, expected one that AXES names")


def shardings(tree: Any, mesh: Mesh) -> Any:
    """A NamedSharding for every leaf of parameters, or of a state that holds them: scalars are replicated."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: NamedSharding(mesh, partition_spec(path_of(path), leaf.ndim)), tree
    )
