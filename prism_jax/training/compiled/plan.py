"""The plan of a config for GPUs that are not present: memory, arithmetic, traffic and a roofline, as compiled for them.

The roofline assumes the peaks of the card's data sheet. Every kernel takes the time of its arithmetic or of its memory
traffic, whichever is longer; kernels follow one another, while exchanges and copies to the host run beside them where
the schedule lets them. No step can be faster; latencies, cuDNN's and Triton's own efficiency and stragglers make it
slower. All devices count as neighbours on NVLink, also where a mesh spans several nodes.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import Any, NamedTuple

import jax

from prism_jax.student.dispatch import attention_path
from prism_jax.student.sharding import pretend_devices
from prism_jax.training.compiled import accounting, hlo
from prism_jax.training.compiled.absent import compile_step
from prism_jax.training.compiled.accounting import Collective
from prism_jax.training.compiled.cards import Card, card
from prism_jax.training.compiled.theory import Traffic, needed_dots, zero3
from prism_jax.training.job import step_shape
from prism_jax.training.memory import estimate, fitted, gib, persistent
from prism_jax.training.optimization.step import StepShape
from prism_jax.training.run_config import RunConfig


class Seconds(NamedTuple):
    """Least seconds of a step, by what takes them."""

    arithmetic: float  # matrix products and attention, at the card's peak
    memory: float  # bytes that kernels read and write, at the card's bandwidth
    kernels: float  # kernels one after another, each by the longer of the two
    wire: float  # bytes sent to other devices
    exposed: float  # part of `wire` during which nothing is computed
    host: float  # bytes copied to the host and back

    @property
    def step(self) -> float:
        """Seconds of the step."""
        return max(self.kernels + self.exposed, self.wire, self.host)


@dataclasses.dataclass(frozen=True)
class TargetPlan:
    """What the compiler says of one device. Sizes are in bytes, arithmetic in floating-point operations."""

    target: str  # name of the card, a key of `cards.CARDS`
    devices: int
    rows: str  # where the sizes of the rows come from
    remat: str  # remat policy that the step was compiled with
    arguments: int  # size of the state and of two batches
    temporaries: int  # memory of the step in addition to its arguments
    on_host: int  # memory of the step on the host
    limit: int  # memory that the process may use
    estimated: int  # what the estimate from shapes alone says of arguments and temporaries
    dots: float  # matrix products, without attention
    needed: float  # what they need without recomputation
    attention: float  # fused attention
    forward: int  # calls of fused attention in the forward pass and where it is recomputed
    backward: int  # calls of fused attention in the backward pass
    exchanges: tuple[Collective, ...]  # traffic by kind
    theory: Traffic  # what ZeRO-3 exchanges for the blocks
    largest: tuple[tuple[int, int, str, str], ...]  # the largest arrays that the step allocates (`accounting.largest`)
    seconds: Seconds  # the roofline
    jax_version: str  # version of JAX and of the compiler

    @property
    def peak(self) -> int:
        """Memory of the process."""
        return self.arguments + self.temporaries

    @property
    def utilisation(self) -> float:
        """The bound on model FLOPs utilisation: needed products at the card's peak, as a share of the step's time."""
        return self.needed / card(self.target).flops / self.seconds.step

    def check(self) -> None:
        """Raises ValueError for a plan that does not fit, naming the largest temporary and ways to need less."""
        if self.peak > self.limit:
            size, _, array, source = self.largest[0]
            raise ValueError(
                f"plan: found {gib(self.peak)} per device, of which {gib(self.arguments)} arguments and "
                f"{gib(self.temporaries)} temporaries (the largest: {gib(size)}, {array}, {source}), expected at most "
                f"{gib(self.limit)}; set student.remat = 'auto', raise mesh.fsdp, lower training.accumulation, "
                "training.batch or packing.context, or keep smaller moments and masters"
            )

    def to_dict(self) -> dict[str, Any]:
        """The plan of one device as JSON; `bytes` are those of the full arrays, `wire_gb` is what the device sends."""
        return {
            "target": self.target,
            "devices": self.devices,
            "rows": self.rows,
            "remat": self.remat,
            "peak_gib": self.peak / 2**30,
            "temp_gib": self.temporaries / 2**30,
            "host_gib": self.on_host / 2**30,
            "limit_gib": self.limit / 2**30,
            "estimated_gib": self.estimated / 2**30,
            "fits": self.peak <= self.limit,
            "dots_tflop": self.dots / 1e12,
            "model_tflop": self.needed / 1e12,
            "wire_gb": sum(exchange.wire for exchange in self.exchanges) / 1e9,
            "collectives": [{"kind": x.kind, "count": x.count, "bytes": x.bytes} for x in self.exchanges],
            "fused_attention": self.forward + self.backward,
            "mfu_bound": self.utilisation,
            "updates_per_hour": 3600 / self.seconds.step,
            "jax_version": self.jax_version,
        }

    def lines(self) -> list[tuple[str, str]]:
        """The plan for the terminal: pairs of a name and a fact."""
        s, chip = self.seconds, card(self.target)
        traffic = [
            (
                exchange.kind,
                f"{_size(exchange.bytes)} in {exchange.count:,} exchanges, {_size(exchange.wire)} sent; something "
                f"is computed during {exchange.overlapped:,} of them",
            )
            for exchange in self.exchanges
        ]
        theory = ", ".join(f"{_size(size)} {name}" for name, size in self.theory._asdict().items() if size)
        links = "NVLink, between nodes, too" if self.devices > 8 else "NVLink"
        host = f", and {gib(self.on_host)} on the host" if self.on_host else ""
        return [
            ("row sizes", f"from {self.rows}"),
            ("compiled for", f"{self.devices} x {chip.name}, by jax {self.jax_version}"),
            ("remat", self.remat),
            ("attention", f"cudnn: {self.forward} calls forward, {self.backward} backward" if self.forward else "xla"),
            (
                "memory",
                f"{gib(self.arguments)} arguments + {gib(self.temporaries)} temporaries = {gib(self.peak)} of "
                f"{gib(self.limit)} per device{host}; {gib(self.estimated)} estimated",
            ),
            ("", "not counted: cuDNN's workspace, NCCL's buffers, fragmentation"),
            (
                "products",
                f"{_flop(self.dots)}, {self.dots / self.needed:.3f} x the {_flop(self.needed)} needed without "
                "recomputation; " + (f"attention {_flop(self.attention)}" if self.forward else "attention included"),
            ),
            *traffic,
            *([("ZeRO-3", f"{theory}, for the blocks")] if theory else []),
            (
                "roofline",
                f"{s.arithmetic:.3g} s arithmetic, {s.memory:.3g} s memory; {s.kernels:.3g} s for all kernels, each by "
                f"the longer of the two; {s.wire:.3g} s wire, {s.exposed:.3g} s of it exposed"
                + (f", {s.host:.3g} s host" if s.host else ""),
            ),
            (
                "",
                f"at least {s.step:.3g} s per update: at most {3600 / s.step:,.0f} updates per hour, model FLOPs "
                f"utilisation at most {self.utilisation:.0%}",
            ),
            (
                "",
                f"assumes {chip.flops / 1e12:,.0f} TFLOP/s, {chip.bandwidth / 1e9:,.0f} GB/s memory, "
                f"{chip.link / 1e9:,.0f} GB/s {links}, {chip.host / 1e9:.1f} GB/s to the host",
            ),
            *(
                ("" if place else "largest", f"{count} x {gib(size)} {array} {source}")
                for place, (size, count, array, source) in enumerate(self.largest)
            ),
        ]


def _size(count: float) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e8 else f"{count / 1e6:,.2f} MB"


def _flop(count: float) -> str:
    return f"{count / 1e12:,.1f} TFLOP" if count >= 1e11 else f"{count / 1e9:,.1f} GFLOP"


def compile_plan(config: RunConfig, target: str, limit: int) -> TargetPlan:
    """Compiles the training step of a config for a card that is not present; needs XLA's compiler for CUDA.

    The config's mesh says how many cards there are, and a process may use `limit` bytes of each.

    Raises:
      ValueError, OSError: in one line, if the config cannot be used or the target is unknown.
    """
    chip = card(target)
    pretend_devices(config.mesh.devices)
    shape, rows = step_shape(config)
    shape = fitted(shape, "cuda", limit)
    estimated = estimate(shape, attention_path(shape.student, "cuda")).peak
    compiled = compile_step(shape, chip, limit)
    return _read(compiled, shape, chip, target=target, rows=rows, limit=limit, estimated=estimated)


def _read(
    compiled: jax.stages.Compiled, shape: StepShape, chip: Card, *, target: str, rows: str, limit: int, estimated: int
) -> TargetPlan:
    program = hlo.parse(compiled.as_text() or "")
    memory: Any = compiled.memory_analysis()
    held, devices = persistent(shape), shape.mesh.size
    fused, kernels = accounting.fused_attention(program), list(accounting.kernels(program))
    exchanges = tuple(accounting.collectives(program, devices).values())
    flops, moved, copied = (sum(column) for column in zip(*kernels, strict=True))
    seconds = Seconds(
        arithmetic=flops / chip.flops,
        memory=moved / chip.bandwidth,
        kernels=sum(
            max(kernel.flops / chip.flops, kernel.bytes / chip.bandwidth) for kernel in kernels if not kernel.host
        ),
        wire=sum(exchange.wire for exchange in exchanges) / chip.link,
        exposed=sum(exchange.exposed for exchange in exchanges) / chip.link,
        host=copied / chip.host,
    )
    return TargetPlan(
        target=target,
        devices=devices,
        rows=rows,
        remat=shape.student.remat,
        # While a step runs, the next batch is already on the device.
        arguments=memory.argument_size_in_bytes + held.batch // 2,
        temporaries=memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        on_host=memory.host_temp_size_in_bytes,
        limit=limit,
        estimated=sum(held) + estimated,
        dots=accounting.dots(program),
        needed=needed_dots(shape),
        attention=fused.flops,
        forward=fused.forward,
        backward=fused.backward,
        exchanges=exchanges,
        theory=zero3(shape),
        largest=tuple(accounting.largest(program)),
        seconds=seconds,
        jax_version=importlib.metadata.version("jax"),
    )
