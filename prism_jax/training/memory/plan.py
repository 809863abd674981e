"""Plans whether a run fits on its devices, before anything is allocated.

The bytes of parameters, moments, masters and the batch follow exactly from shapes and shardings. For the memory within
a step there are two sources. The compiler of the step reports it, but only for the devices that are present (XLA:CPU
widens bfloat16 and has no fused attention). For devices that are not present, it is estimated
(`prism_jax.training.memory.estimate`).
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from etils import epath
from jax.sharding import NamedSharding

from prism_jax.prompting.packing import Packed, Sizes, empty_row
from prism_jax.slots import Slots
from prism_jax.student import Qwen3, StudentConfig, sharding
from prism_jax.student.dispatch import chosen_path, platform
from prism_jax.training.config import RunConfig
from prism_jax.training.loop import Job, plan
from prism_jax.training.memory.estimate import AttentionPath, StepShape, Working, estimate, on_device
from prism_jax.training.optimization.step import abstract_state, make_step
from prism_jax.training.run import open_run, resolve

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Persistent(NamedTuple):
    """Bytes of one device that stay allocated between steps.

    Attributes:
      parameters: Parameters of the student.
      masters: Master values stored beside bfloat16 parameters.
      moments: Moments of the optimizer.
      batch: Two batches: that of the step and the next one.
    """

    parameters: int
    masters: int
    moments: int
    batch: int


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """The memory of one device.

    Attributes:
      persistent: Bytes between steps, exact.
      working: Bytes within a step, estimated.
      compiled: Bytes that the compiled step needs in addition to its arguments, as reported by the compiler; None if
        the step was not compiled.
      compiler: Platform of the compiler.
      here: Whether the plan is for the devices that are present.
      attention: Attention path that the estimate assumes.
      limit: Bytes of memory of a device; 0 if unknown.
    """

    persistent: Persistent
    working: Working
    compiled: int | None
    compiler: str
    here: bool
    attention: AttentionPath
    limit: int

    @property
    def total(self) -> int:
        """Bytes to compare with the limit: the compiler's for devices that are present, otherwise the estimate."""
        reported = self.compiled if self.here else None
        return sum(self.persistent) + (self.working.peak if reported is None else reported)

    def check(self) -> None:
        """Rejects a plan that does not fit.

        Raises:
          ValueError: in one line, naming the largest part and ways to need less.
        """
        if self.limit and self.total > self.limit:
            parts = {**self.persistent._asdict(), "gradients and activations": self.total - sum(self.persistent)}
            largest = max(parts, key=parts.__getitem__)
            raise ValueError(
                f"plan: found {gib(self.total)} per device, of which {gib(parts[largest])} {largest}, expected at most "
                f"{gib(self.limit)}; lower training.batch or packing.context, raise mesh.fsdp, set student.remat = "
                "'full', or keep smaller moments and masters"
            )

    def lines(self) -> dict[str, str]:
        """The plan as lines for the terminal, by name."""
        held, within = self.persistent, self.working
        compiler, source = f"XLA:{self.compiler}'s compiler", "the estimate: such a device is not present"
        if self.here:
            source = "the estimate" if self.compiled is None else compiler
        return {
            "parameters": gib(held.parameters),
            "masters": gib(held.masters),
            "moments": gib(held.moments),
            "batch": gib(held.batch),
            "gradients": f"{gib(within.gradients)}, estimated",
            "activations": f"{gib(within.kept)} kept for the backward pass, {gib(within.layer)} in the current layer, "
            f"{gib(within.loss)} in the loss, estimated with {self.attention} attention",
            "in a step": f"{gib(within.peak)} of these at once, estimated"
            + ("" if self.compiled is None else f"; {gib(self.compiled)} by {compiler}"),
            "total": f"{gib(self.total)} of {gib(self.limit) if self.limit else 'unknown'} per device, by {source}",
        }


def plan_memory(shape: StepShape, limit: int = 0, *, compiled: bool = True) -> MemoryPlan:
    """Plans the memory of a step; allocates nothing.

    Args:
      shape: Everything on which the memory depends.
      limit: Bytes of memory of a device; 0 uses that of the devices that are present. On CPU devices, a limit means
        that the plan is for NVIDIA GPUs, which are not present.
      compiled: Whether to compile the step and report the memory that its compiler needs.
    """
    compiler = shape.mesh.devices.flat[0].platform
    here = compiler != "cpu" or not limit
    attention = _attention(shape.slots.model.config, here)
    return MemoryPlan(
        persistent=persistent(shape),
        working=estimate(shape, attention),
        compiled=compiled_bytes(shape) if compiled else None,
        compiler=compiler,
        here=here,
        attention=attention,
        limit=limit or device_memory(shape.mesh.devices.flat[0]),
    )


def persistent(shape: StepShape) -> Persistent:
    """Bytes that stay allocated between steps."""
    state = abstract_state(shape.slots.model, shape.training, shape.mesh)
    return Persistent(
        parameters=on_device(state.params),
        masters=on_device(state.optimizer.master),
        moments=on_device(state.optimizer.moments),
        batch=2 * on_device(abstract_batch(shape)),
    )


def compiled_bytes(shape: StepShape) -> int:
    """Bytes of one device that the compiled step needs in addition to the state and the batch passed to it."""
    step = make_step(shape.slots, shape.training, shape.loss, shape.point, shape.mesh)
    state = abstract_state(shape.slots.model, shape.training, shape.mesh)
    found: Any = cast(jax.stages.Wrapped, step).lower(state, abstract_batch(shape)).compile().memory_analysis()
    return found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes


def abstract_batch(shape: StepShape) -> Packed:
    """Shapes and shardings of one batch, as the step receives it."""
    where, student = NamedSharding(shape.mesh, sharding.BATCH), shape.slots.model.config

    def one(column: Any, dtype: Any, *more: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((shape.training.batch, *np.shape(column), *more), dtype, sharding=where)

    batch = jax.tree.map(lambda column: one(column, column.dtype), shape.row)
    if not shape.training.reuse_frozen:
        return batch
    features = {name: one(getattr(shape.row, name), student.dtype, student.hidden_dim) for name in ("trunk", "tokens")}
    return batch._replace(**features)


def shape_of(job: Job) -> StepShape:
    """The shape of the largest step of a job."""
    largest = max(job.split.buckets, key=lambda bucket: bucket.size.trunk + bucket.size.branches)
    row = job.split.rows[largest.rows[0]]
    return StepShape(job.slots, largest.size, row, job.training, job.loss, job.config.decision, job.mesh)


def step_shape(config: RunConfig) -> tuple[StepShape, str]:
    """The shape of the step of a config, and a description of where the sizes of its rows come from.

    If weights or streams that the config names are not present, the student is that of the config, and a row is assumed
    to have `packing.context` tokens, of which an eighth are branches.

    Raises:
      ValueError, OSError: in one line, if the config cannot be used.
    """
    absent = _absent(config)
    if not absent:
        return shape_of(plan(open_run(resolve(config)))), "the streams"
    if not config.student.vocab_size:
        raise ValueError(f"student.vocab_size: found 0, expected the tokenizer's size, since {absent} is not present")
    size = _assumed(config.packing.context)
    mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    slots = Slots(Qwen3(config.student), 0, 1, size.window, size.visible)
    return (
        StepShape(
            slots, size, empty_row(size), config.training, config.pathway.objective(config.loss), config.decision, mesh
        ),
        f"packing.context, assumed to be {size.trunk} + {size.branches} tokens: {absent} is not present",
    )


def _absent(config: RunConfig) -> str:
    """The first path in a config that does not exist, or the archive that the run would download; otherwise empty."""
    paths = [config.training.start, *config.data.paths]
    missing = [path for path in paths if path and not epath.Path(path).exists()]
    if not missing and config.data.name == "proactivebench" and not config.data.source:
        return "ProactiveBench (data.source)"
    return missing[0] if missing else ""


def _assumed(context: int) -> Sizes:
    """Sizes of rows of `packing.context` tokens, of which an eighth are branches; half of these are supervised."""
    branches = -(-context // 64) * 8
    trunk = max(8, context // 8 * 8 - branches)
    return Sizes(trunk, branches, branches, 8, 8, max(8, branches // 2))


def _attention(student: StudentConfig, here: bool) -> AttentionPath:
    """The attention path on the devices of the plan."""
    return chosen_path(student.attention, student.dtype, student.head_dim, platform() if here else "cuda")


def device_memory(device: jax.Device) -> int:
    """Bytes of memory that JAX may use on a device; 0 if unknown. CPU devices share the machine's memory equally."""
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(jax.local_devices(backend="cpu"))
    return (device.memory_stats() or {}).get("bytes_limit", 0)


def parse_bytes(text: str) -> int:
    """Parses `80GiB`, `24 GB` or a plain number of bytes.

    Raises:
      ValueError: if the text is anything else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", text.strip())
    if match is None or match[2] not in UNITS:
        raise ValueError(f"device_memory: found {text!r}, expected a size such as 80GiB or 24GB")
    return int(float(match[1]) * UNITS[match[2]])


def gib(size: int) -> str:
    """Formats bytes in GiB or MiB."""
    return f"{size / 2**30:,.2f} GiB" if size >= 2**27 else f"{size / 2**20:,.1f} MiB"
