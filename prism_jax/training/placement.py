"""Training in several processes: each places its rows of a batch on its devices, and all stop at the same step."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from prism_jax.prompting.packing import Packed
from prism_jax.student import sharding


def check_processes(mesh: Mesh, processes: int) -> None:
    """Raises ValueError if parameters are sharded across CPU processes, in which collectives would deadlock.

    The collectives of a step run in no fixed order there.
    """
    sharded = {name: size for name, size in mesh.shape.items() if name != "data" and size > 1}
    if processes > 1 and sharded and mesh.devices.flat[0].platform == "cpu":
        name, size = next(iter(sharded.items()))
        raise ValueError(
            f"mesh.{name}: found {size} on {processes} CPU processes, expected 1: CPU processes can shard a batch "
            "(mesh.data), but not parameters"
        )


def place(batch: Packed, mesh: Mesh) -> Packed:
    """Returns the batch of all processes, sharded over the mesh, from the consecutive rows that this process loaded."""
    if jax.process_count() == 1:
        return batch
    where = NamedSharding(mesh, sharding.BATCH)
    return jax.tree.map(lambda column: jax.make_array_from_process_local_data(where, np.asarray(column)), batch)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process. All processes must stop at the same step.

    With several processes the call waits until the current step has finished.
    """
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(flag))))
