"""Several processes as one: each gives its devices their rows of what it read, and all do the same next."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from prism_jax.prompting.packing import Packed
from prism_jax.student import sharding


def place(batch: Packed, mesh: Mesh) -> Packed:
    """The batch of all processes, over the mesh's devices, from this one's run of its rows."""
    if jax.process_count() == 1:
        return batch
    where = NamedSharding(mesh, sharding.BATCH)
    return jax.tree.map(lambda column: jax.make_array_from_process_local_data(where, np.asarray(column)), batch)


def anyone(here: bool) -> bool:
    """Whether it is so in any process: they must stop at the same step. With several, waits for the step under way."""
    return here if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(here))))
