"""How parameters are sharded over a device mesh: logical axes of each parameter, and their mapping to mesh axes.

The mesh axis `data` replicates parameters and splits the batch, `fsdp` splits parameters and the batch, and `tensor`
splits heads, inner widths and the vocabulary. The shardings of parameters and batches are passed to jax.jit.
Activations are pinned inside the program (`pinned`): without that, the compiler would let the residual stream inherit
the embedding table's split of the hidden width, and exchange activations instead of parameters.
"""

from __future__ import annotations

import os
import re
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Shaped

MESH_AXES = ("data", "fsdp", "tensor")
BATCH = P(("data", "fsdp"))

# Logical axis to mesh axis.
RULES = {
    "layer": None,
    "hidden": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "mlp": "tensor",
    "norm": None,
    "rank": None,
    "token": None,
}

# Logical axes of each parameter: those of the first pattern that matches the end of the parameter's path.
AXES = (
    (r"embedding", ("vocab", "hidden")),
    (r"head/kernel", ("hidden", "vocab")),
    (r"[qkv]_proj/kernel", ("layer", "hidden", "heads")),
    (r"o_proj/kernel", ("layer", "heads", "hidden")),
    (r"(gate|up)_proj/kernel", ("layer", "hidden", "mlp")),
    (r"down_proj/kernel", ("layer", "mlp", "hidden")),
    (r"([qkv]|gate|up)_proj/lora/a", ("layer", "hidden", "rank")),
    (r"[qkv]_proj/lora/b", ("layer", "rank", "heads")),
    (r"(gate|up)_proj/lora/b", ("layer", "rank", "mlp")),
    (r"o_proj/lora/a", ("layer", "heads", "rank")),
    (r"down_proj/lora/a", ("layer", "mlp", "rank")),
    (r"(o|down)_proj/lora/b", ("layer", "rank", "hidden")),
    (r"head_rows", ("token", "hidden")),
    (r"layers/.*norm/weight", ("layer", "norm")),
    (r"final_norm/weight", ("norm",)),
)


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """Makes a mesh of the first data * fsdp * tensor devices.

    Raises:
      ValueError: when there are fewer devices, or more in several processes, each of which must take part.
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
    """Makes the CPU appear as at least `count` devices, so that programs for that many devices compile on it.

    Must be called before JAX initialises its devices. It has no effect on GPUs and TPUs, nor where XLA_FLAGS already
    sets the number of CPU devices.
    """
    if count > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", count)


def path_of(path: tuple[Any, ...]) -> str:
    """Formats a pytree path, as in `layers/attention/q_proj/kernel`."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def pinned(x: Shaped[Array, "*shape"], spec: P = BATCH) -> Shaped[Array, "*shape"]:
    """Fixes how activations are split over the mesh in context, by default their leading axis over the batch axes.

    The context is `jax.sharding.use_abstract_mesh(mesh.abstract_mesh)` around the traced code; without one, as on a
    single device, `x` is returned as it is.
    """
    return x if jax.sharding.get_abstract_mesh().empty else jax.lax.with_sharding_constraint(x, spec)


def partition_spec(path: str, ndim: int) -> P:
    """The partition of the parameter at `path`, or of an optimizer moment, whose path ends in its parameter's path."""
    for pattern, axes in AXES:
        if len(axes) == ndim and re.search(rf"(^|/){pattern}$", path):
            return P(*(RULES[axis] for axis in axes))
    if ndim == 0:
        return P()
    raise ValueError(f"sharding: found parameter {path!r} with {ndim} axes, expected one that AXES names")


def shardings(tree: Any, mesh: Mesh) -> Any:
    """A NamedSharding for each leaf of parameters, or of a state that contains them; scalars are replicated."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: NamedSharding(mesh, partition_spec(path_of(path), leaf.ndim)), tree
    )
