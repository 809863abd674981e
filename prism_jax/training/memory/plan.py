"""Plans whether a run fits on its devices, before anything is allocated.

The bytes of parameters, moments, masters and the batch follow exactly from shapes and shardings. For the memory within
a step there are two sources. The compiler of the step reports it for the devices that are present. For others, it is
estimated (`prism_jax.training.memory.estimate`), or compiled for them (`prism_jax.training.compiled`).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, cast

import jax

from prism_jax.student.dispatch import ChosenPath, attention_path, platform
from prism_jax.student.remat import Remat
from prism_jax.training.memory.estimate import Persistent, Working, device_memory, estimate, fitted, persistent
from prism_jax.training.optimization.step import StepShape, make_step

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """The memory of one device."""

    persistent: Persistent  # bytes between steps, exact
    working: Working  # bytes within a step, estimated
    # bytes that the compiled step needs in addition to its arguments, as reported by the compiler; None if the step was
    # not compiled
    compiled: int | None
    compiler: str  # platform of the compiler
    devices_present: bool  # whether the plan is for the devices that are present
    attention: ChosenPath  # attention path that the estimate assumes
    remat: Remat  # remat policy, chosen where the config says `auto`
    limit: int  # bytes of memory of a device; 0 if unknown

    @property
    def total(self) -> int:
        """Bytes to compare with the limit: the compiler's for devices that are present, otherwise the estimate."""
        reported = self.compiled if self.devices_present else None
        return sum(self.persistent) + (self.working.peak if reported is None else reported)

    def check(self) -> None:
        """Raises ValueError for a plan that does not fit, naming its largest part and ways to need less."""
        if self.limit and self.total > self.limit:
            parts = {**self.persistent._asdict(), "gradients and activations": self.total - sum(self.persistent)}
            largest = max(parts, key=parts.__getitem__)
            raise ValueError(
                f"plan: found {gib(self.total)} per device, of which {gib(parts[largest])} {largest}, expected at most "
                f"{gib(self.limit)}; set student.remat = 'auto', raise mesh.fsdp, lower training.accumulation, "
                "training.batch or packing.context, or keep smaller moments and masters"
            )

    def lines(self) -> dict[str, str]:
        """The plan as lines for the terminal, by name."""
        held, within = self.persistent, self.working
        compiler, source = f"XLA:{self.compiler}'s compiler", "the estimate: such a device is not present"
        if self.devices_present:
            source = "the estimate" if self.compiled is None else compiler
        return {
            "parameters": gib(held.parameters),
            "masters": gib(held.masters),
            "moments": gib(held.moments),
            "batch": gib(held.batch),
            "remat": self.remat,
            "gradients": f"{gib(within.gradients)}, estimated",
            "activations": f"{gib(within.kept)} kept for the backward pass, {gib(within.layer)} in the current layer, "
            f"{gib(within.loss)} in the loss, estimated with {self.attention} attention",
            "in a step": f"{gib(within.peak)} of these at once, estimated"
            + ("" if self.compiled is None else f"; {gib(self.compiled)} by {compiler}"),
            "total": f"{gib(self.total)} of {gib(self.limit) if self.limit else 'unknown'} per device, by {source}",
        }


def plan_memory(shape: StepShape, limit: int = 0, *, compiled: bool = True) -> MemoryPlan:
    """Plans the memory of a step; allocates nothing.

    `limit` is a device's memory in bytes; 0 uses that of the devices that are present. On CPU devices, a limit means
    that the plan is for NVIDIA GPUs, which are not present. With `compiled`, the step is compiled if its devices are
    present, and the plan holds what the compiler reports.
    """
    compiler = shape.mesh.devices.flat[0].platform
    present = compiler != "cpu" or not limit
    where = platform() if present else "cuda"
    attention = attention_path(shape.student, where)
    limit = limit or device_memory(shape.mesh.devices.flat[0])
    shape = fitted(shape, where, limit)
    return MemoryPlan(
        persistent=persistent(shape),
        working=estimate(shape, attention),
        compiled=compiled_bytes(shape) if compiled and present else None,
        compiler=compiler,
        devices_present=present,
        attention=attention,
        remat=shape.student.remat,
        limit=limit,
    )


def compiled_bytes(shape: StepShape) -> int:
    """Bytes of one device that the compiled step needs in addition to the state and the batch passed to it."""
    step = cast(jax.stages.Wrapped, make_step(shape))
    analysis: Any = step.lower(shape.state, shape.batch).compile().memory_analysis()
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes


def parse_bytes(text: str) -> int:
    """Parses `80GiB`, `24 GB` or a plain number of bytes; raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", text.strip())
    if match is None or match[2] not in UNITS:
        raise ValueError(f"device_memory: found {text!r}, expected a size such as 80GiB or 24GB")
    return int(float(match[1]) * UNITS[match[2]])


def gib(size: int) -> str:
    """Formats bytes in GiB or MiB."""
    return f"{size / 2**30:,.2f} GiB" if size >= 2**27 else f"{size / 2**20:,.1f} MiB"
