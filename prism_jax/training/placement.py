"""Several processes as one: each gives its devices their rows of what it read, and all do the same next."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from prism_jax.prompting.packing import Packed
from prism_jax.student import sharding


def check_processes(mesh: Mesh, processes: int) -> None:
    """Refuses a mesh that would wait for ever: on CPU, collectives within a step of several processes run in no order.

    Raises:
      ValueError: for parameters sharded between CPU processes.
    """
    sharded = {name: size for name, size in mesh.shape.items() if name != "data" and size > 1}
    if processes > 1 and sharded and mesh.devices.flat[0].platform == "cpu":
        name, size = next(iter(sharded.items()))
        raise ValueError(
            f"training.{name}: found {size} on {processes} CPU processes, expected 1: they can share out a batch "
            "(training.data), but not parameters"
        )


def place(batch: Packed, mesh: Mesh) -> Packed:
    """The batch of all processes, over the mesh's devices, from this one's run of its rows."""
    if jax.process_count() == 1:
        return batch
    where = NamedSharding(mesh, sharding.BATCH)
    return jax.tree.map(lambda column: jax.make_array_from_process_local_data(where, np.asarray(column)), batch)


def any_process(here: bool) -> bool:
    """Whether it is so in any process: they must stop at the same step. With several, waits for the step under way."""
    return here if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(here))))
