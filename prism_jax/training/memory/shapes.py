"""The shape of a training step, and the bytes that follow from it exactly."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.student import sharding
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.packing import Packed, Sizes
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.optimization.step import abstract_state
from prism_jax.training.run_config import TrainingConfig


@dataclasses.dataclass(frozen=True)
class StepShape:
    """Everything on which the memory of a step depends."""

    slots: Slots  # the student and the tokens of its two answers
    size: Sizes  # sizes of the largest packed rows that a step may receive
    row: Packed  # a row of these sizes
    training: TrainingConfig  # training section of the config, with batch and optimizer
    loss: LossConfig  # loss section of the config; only the chunk of logits and the weight of the response matter
    point: OperatingPoint  # operating point whose costs weight the burden, for compiling
    mesh: Mesh

    @property
    def student(self) -> StudentConfig:
        """The architecture of the student, and how it runs."""
        return self.slots.model.config

    def running(self, **changes: Any) -> StepShape:
        """The same step with other settings of the student, such as `remat`."""
        model = dataclasses.replace(self.slots.model, config=dataclasses.replace(self.student, **changes))
        return dataclasses.replace(self, slots=dataclasses.replace(self.slots, model=model))


class Persistent(NamedTuple):
    """Bytes of one device that stay allocated between steps."""

    parameters: int
    masters: int  # master values stored beside bfloat16 parameters
    moments: int  # moments of the optimizer
    batch: int  # two batches: that of the step and the next one


def persistent(shape: StepShape) -> Persistent:
    """Bytes that stay allocated between steps."""
    state = abstract_state(shape.slots.model, shape.training, shape.mesh)
    return Persistent(
        parameters=on_device(state.params),
        masters=on_device(state.optimizer.master),
        moments=on_device(state.optimizer.moments),
        batch=2 * on_device(abstract_batch(shape)),
    )


def abstract_batch(shape: StepShape) -> Packed:
    """Shapes and shardings of one batch, as the step receives it."""
    where, student = NamedSharding(shape.mesh, sharding.BATCH), shape.slots.model.config

    def abstract_column(column: Any, dtype: Any, *more: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((shape.training.batch, *np.shape(column), *more), dtype, sharding=where)

    batch = jax.tree.map(lambda column: abstract_column(column, column.dtype), shape.row)
    if not shape.training.reuse_frozen:
        return batch
    of_frozen = {
        name: abstract_column(getattr(shape.row, name), student.dtype, student.hidden_dim)
        for name in ("trunk", "tokens")
    }
    return batch._replace(**of_frozen)


def on_device(tree: Any) -> int:
    """Bytes that one device holds of a tree of leaves with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def device_memory(device: jax.Device) -> int:
    """Bytes of memory that JAX may use on a device; 0 if unknown. CPU devices share the machine's memory equally."""
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(jax.local_devices(backend="cpu"))
    return (device.memory_stats() or {}).get("bytes_limit", 0)
