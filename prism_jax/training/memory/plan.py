"""Whether a run fits its devices, before anything is allocated.

Parameters, moments, masters and the batch are known to the byte from shapes and shardings. For what lives within a step
there are two accounts: the compiled step's own, true for the devices that are here and for no others (XLA:CPU widens
bfloat16 and has no fused attention), and an estimate (`prism_jax.training.memory.estimate`), which decides for devices
that are not here.
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
    """Bytes of one device that live from step to step.

    Attributes:
      parameters: Of the student.
      masters: What is kept beside bfloat16 parameters.
      moments: Of the optimizer.
      batch: Two batches: the step's, and the one that comes next.
    """

    parameters: int
    masters: int
    moments: int
    batch: int


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """The account of one device.

    Attributes:
      persistent: Exact.
      working: Estimated.
      compiled: Bytes that the compiled step holds beside its arguments, as its compiler says; None if it wasn't asked.
      compiler: The compiler's platform.
      here: Whether the devices planned for are those that are here.
      attention: The path that the estimate assumes.
      limit: Bytes of memory of a device, 0 where that is unknown.
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
        """Bytes that decide: the compiler's for devices that are here, else the estimate."""
        asked = self.compiled if self.here else None
        return sum(self.persistent) + (self.working.peak if asked is None else asked)

    def check(self) -> None:
        """Refuses what can't fit.

        Raises:
          ValueError: in one line, with what takes most and what would help.
        """
        if self.limit and self.total > self.limit:
            parts = {**self.persistent._asdict(), "gradients and activations": self.total - sum(self.persistent)}
            largest = max(parts, key=parts.__getitem__)
            raise ValueError(
                f"plan: found {gib(self.total)} a device, {gib(parts[largest])} of it {largest}, expected at most "
                f"{gib(self.limit)}; lower training.batch or packing.context, raise mesh.fsdp, set student.remat = "
                "'full', or keep smaller moments and masters"
            )

    def lines(self) -> dict[str, str]:
        """The account by name, for the terminal."""
        held, within = self.persistent, self.working
        asked, decides = f"XLA:{self.compiler}'s compiler", "the estimate: such a device is not here"
        if self.here:
            decides = "the estimate" if self.compiled is None else asked
        return {
            "parameters": gib(held.parameters),
            "masters": gib(held.masters),
            "moments": gib(held.moments),
            "batch": gib(held.batch),
            "gradients": f"{gib(within.gradients)}, estimated",
            "activations": f"{gib(within.kept)} kept, {gib(within.layer)} in a layer at work, {gib(within.loss)} in "
            f"the loss, estimated with {self.attention} attention",
            "in a step": f"{gib(within.peak)} of these at once, estimated"
            + ("" if self.compiled is None else f"; {gib(self.compiled)} by {asked}"),
            "total": f"{gib(self.total)} of {gib(self.limit) if self.limit else 'unknown'} a device, by {decides}",
        }


def plan_memory(shape: StepShape, limit: int = 0, *, compiled: bool = True) -> MemoryPlan:
    """The account of a step; allocates nothing.

    Args:
      shape: What its memory depends on.
      limit: Bytes of memory of a device; 0 takes what the devices that are here have. CPU devices with a limit stand
        for NVIDIA GPUs, which are not here.
      compiled: Whether to compile the step and ask its compiler.
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
    """Bytes of what lives from step to step."""
    state = abstract_state(shape.slots.model, shape.training, shape.mesh)
    return Persistent(
        parameters=on_device(state.params),
        masters=on_device(state.optimizer.master),
        moments=on_device(state.optimizer.moments),
        batch=2 * on_device(abstract_batch(shape)),
    )


def compiled_bytes(shape: StepShape) -> int:
    """Bytes of one device that the compiled step holds beside the state and the batch it is given."""
    step = make_step(shape.slots, shape.training, shape.loss, shape.point, shape.mesh)
    state = abstract_state(shape.slots.model, shape.training, shape.mesh)
    found: Any = cast(jax.stages.Wrapped, step).lower(state, abstract_batch(shape)).compile().memory_analysis()
    return found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes


def abstract_batch(shape: StepShape) -> Packed:
    """Shapes and shardings of one batch, as the step takes it."""
    where, student = NamedSharding(shape.mesh, sharding.BATCH), shape.slots.model.config

    def one(column: Any, dtype: Any, *more: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((shape.training.batch, *np.shape(column), *more), dtype, sharding=where)

    batch = jax.tree.map(lambda column: one(column, column.dtype), shape.row)
    if not shape.training.reuse_frozen:
        return batch
    features = {name: one(getattr(shape.row, name), student.dtype, student.hidden_dim) for name in ("trunk", "tokens")}
    return batch._replace(**features)


def shape_of(job: Job) -> StepShape:
    """What the memory of a job's largest step depends on."""
    largest = max(job.split.buckets, key=lambda bucket: bucket.size.trunk + bucket.size.branches)
    row = job.split.rows[largest.rows[0]]
    return StepShape(job.slots, largest.size, row, job.training, job.loss, job.config.decision, job.mesh)


def step_shape(config: RunConfig) -> tuple[StepShape, str]:
    """What the memory of a config's step depends on, and where the sizes of its rows come from.

    Where the weights or the streams that the config names are absent, the student is the config's own and a row is
    taken for `packing.context` tokens, an eighth of them branches.

    Raises:
      ValueError, OSError: in one line, for a config that can't be used.
    """
    absent = _absent(config)
    if not absent:
        return shape_of(plan(open_run(resolve(config)))), "the streams"
    if not config.student.vocab_size:
        raise ValueError(
            f"student.vocab_size: found 0, expected the tokenizer's size, since {absent} is not here to be read"
        )
    size = _assumed(config.packing.context)
    mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    slots = Slots(Qwen3(config.student), 0, 1, size.window, size.visible)
    return (
        StepShape(
            slots, size, empty_row(size), config.training, config.pathway.objective(config.loss), config.decision, mesh
        ),
        f"packing.context, taken as {size.trunk} + {size.branches} tokens: {absent} is not here to be read",
    )


def _absent(config: RunConfig) -> str:
    """The first path that a config names and that is not here, or the archive that it would download."""
    paths = [config.training.start, config.data.source if config.data.name != "simulator" else ""]
    missing = [path for path in paths if path and not epath.Path(path).exists()]
    if not missing and config.data.name == "proactivebench" and not config.data.source:
        return "ProactiveBench (data.source)"
    return missing[0] if missing else ""


def _assumed(context: int) -> Sizes:
    """Rows of `packing.context` tokens, an eighth of them branches, the half of these supervised."""
    branches = -(-context // 64) * 8
    trunk = max(8, context // 8 * 8 - branches)
    return Sizes(trunk, branches, branches, 8, 8, max(8, branches // 2))


def _attention(student: StudentConfig, here: bool) -> AttentionPath:
    """The path that a device planned for takes."""
    return chosen_path(student.attention, student.dtype, student.head_dim, platform() if here else "cuda")


def device_memory(device: jax.Device) -> int:
    """Bytes that a device has for JAX: of the machine's memory an equal share a CPU device; 0 if unknown."""
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(jax.local_devices(backend="cpu"))
    return (device.memory_stats() or {}).get("bytes_limit", 0)


def parse_bytes(text: str) -> int:
    """`80GiB`, `24 GB` or a plain number, in bytes.

    Raises:
      ValueError: for anything else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", text.strip())
    if match is None or match[2] not in UNITS:
        raise ValueError(f"device_memory: found {text!r}, expected a size such as 80GiB or 24GB")
    return int(float(match[1]) * UNITS[match[2]])


def gib(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / 2**30:,.2f} GiB" if size >= 2**27 else f"{size / 2**20:,.1f} MiB"
