"""The memory of a training step, and whether the devices have enough of it; nothing is allocated here.

The bytes of parameters, moments, masters and the batch follow exactly from shapes and shardings. For the memory within
a step there are two sources. The compiler of the step reports it for the devices that are present. For others, it is
compiled for them (`prism_jax.training.compiled`), or estimated.

The estimate is the largest of three moments of the step. Sizes on one device: t tokens, width D, Q and K for all query
heads and all key heads, inner width F, vocabulary V, and c supervised tokens whose logits exist at once.

    loss        the activations kept by the forward pass, the gradient of the head, in float32 and twice if it is summed
                over chunks (V D), and the logits of a chunk with their gradient in float32 (2 c V); without the
                gradient of the head if no response is trained on
    backward    the activations kept by the forward pass, all gradients, and the temporaries of the current layer,
                5 t (D + Q + K + F), and 4 t D more on several devices of the axis `tensor`
    embedding   all gradients, that of the embedding in float32 (V D), and that of the residual stream, twice

Per layer, the forward pass keeps t D and what the remat policy names. With `none` it keeps
t (12 D + 7.5 Q + 10 K + 3 F) and the attention scores; these numbers were observed with XLA. `xla` attention adds its
scores in float32, twice, to the temporaries of the current layer; `cudnn` attention adds only the mask. Layers that
fsdp shards are gathered: the current layer, its gradient, and the next layer. The update of the optimizer is fused with
the cast of gradients to float32 and needs no further memory. `--plan --target` compares the estimate with XLA's
compiler for NVIDIA GPUs: it errs upwards.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from prism_jax.student.attention import split_evenly
from prism_jax.student.dispatch import ChosenPath, attention_path, platform
from prism_jax.student.heads import Layout
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.packing import Sizes
from prism_jax.student.remat import SAVED, Remat
from prism_jax.training.optimization.step import StepShape, make_step

RESERVE = 3 * 2**29
"""Bytes that `fitted` leaves free on a GPU: cuDNN's workspace, NCCL's buffers and fragmentation are not estimated."""
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Persistent(NamedTuple):
    """Bytes of one device that stay allocated between steps."""

    parameters: int
    masters: int  # master values stored beside bfloat16 parameters
    moments: int  # moments of the optimizer
    batch: int  # two batches: that of the step and the next one


def persistent(shape: StepShape) -> Persistent:
    """Bytes that stay allocated between steps."""
    state = shape.state
    return Persistent(
        parameters=on_device(state.params),
        masters=on_device(state.optimizer.master),
        moments=on_device(state.optimizer.moments),
        batch=2 * on_device(shape.batch),
    )


def on_device(tree: Any) -> int:
    """Bytes that one device holds of a tree of leaves with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def device_memory(device: jax.Device) -> int:
    """Bytes of memory that JAX may use on a device of this process; 0 if unknown. CPU devices share the machine's."""
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(jax.local_devices(backend="cpu"))
    return (device.memory_stats() or {}).get("bytes_limit", 0)


class Working(NamedTuple):
    """Estimated bytes of one device that are allocated only within a step."""

    gradients: int  # gradients of the trained parameters; with microbatches also their sum
    kept: int  # activations that the forward pass keeps for the backward pass
    loss: int  # temporaries of the cross-entropy of the head, in addition to `kept`
    layer: int  # temporaries of the backward pass of one layer, in addition to `kept` and `gradients`
    embedding: int  # temporaries of the gradient of the embedding, in addition to `gradients`

    @property
    def peak(self) -> int:
        """The largest of the three moments."""
        return max(self.kept + self.loss, self.kept + self.gradients + self.layer, self.gradients + self.embedding)


def estimate(shape: StepShape, attention: ChosenPath) -> Working:
    """Estimates the bytes needed within a step, as the docstring of the module describes."""
    student, training, size = shape.student, shape.training, shape.size
    axes = shape.mesh.shape
    split = axes["tensor"]
    rows = training.batch // (axes["data"] * axes["fsdp"] * training.accumulation)
    tokens = rows * (size.trunk + size.branches)
    heads, keys = student.num_heads * student.head_dim // split, student.num_kv_heads * student.head_dim // split
    inner, item = student.mlp_dim // split, jnp.dtype(student.dtype).itemsize
    # With several devices on `tensor`, gradients of the full width wait for the sum over them.
    temporaries = 5 * (student.hidden_dim + heads + keys + inner) + 4 * student.hidden_dim * (split > 1)
    scores = rows * _scores(size, attention, -(-student.num_heads // split))
    lora = shape.slots.model.lora
    table = student.vocab_size * student.hidden_dim * 4 // split // axes["fsdp"]
    # The head with rows of the adapters' own is a copy, which the backward pass needs, too.
    copied = table // 4 * jnp.dtype(student.param_dtype).itemsize if lora.tokens else 0
    if lora.rank and not (lora.trains_head and student.tied):
        table = 0
    return Working(
        gradients=_gradients(shape),
        kept=student.num_layers * (tokens * _kept(shape) * item + (scores if student.remat == "none" else 0)) + copied,
        loss=_loss(shape),
        layer=tokens * temporaries * item + scores + _gathered(shape) + _joined(shape),
        embedding=table + 8 * tokens * student.hidden_dim,
    )


def _widths(student: StudentConfig, split: int = 1) -> dict[str, int]:
    """Values per token of the arrays that remat policies name, on a device of `split` that share a block."""
    heads, keys = student.num_heads * student.head_dim // split, student.num_kv_heads * student.head_dim // split
    inner = student.mlp_dim // split
    return {"query": heads, "key": keys, "value": keys, "output": student.hidden_dim, "gate": inner, "up": inner}


def _kept(shape: StepShape) -> int:
    """Values per token that the forward pass of a block keeps on the device."""
    student, split = shape.student, shape.mesh.shape["tensor"]
    widths = _widths(student, split)
    if student.remat == "none":
        return 12 * widths["output"] + 15 * widths["query"] // 2 + 10 * widths["key"] + 3 * widths["gate"]
    # Fused attention keeps its result and, for each head, a normaliser in float32.
    fused = widths["query"] + 2 * student.num_heads // split if student.remat == "flash" else 0
    return student.hidden_dim + sum(widths[name] for name in SAVED[student.remat]) + fused


def _loss(shape: StepShape) -> int:
    """Bytes of the cross-entropy: logits with their gradient, and the head with its gradient where it is trained.

    On one device a head that adapters leave as it is takes no more memory.
    """
    student, axes, lora = shape.student, shape.mesh.shape, shape.slots.model.lora
    tokens = shape.training.batch // shape.training.accumulation * shape.size.responses
    if not tokens:
        return 0
    head = jax.ShapeDtypeStruct((student.vocab_size, student.hidden_dim), student.param_dtype)
    hidden = jax.ShapeDtypeStruct((tokens, student.hidden_dim), student.dtype)
    layout = Layout.of(head, hidden, shape.objective.loss.response_chunk, axes)
    words = student.vocab_size // math.prod(axes[name] for name in layout.vocabulary)
    own = layout.size * layout.groups // math.prod(axes[name] for name in layout.tokens)
    gathered = words * student.hidden_dim * head.dtype.itemsize
    summed = 2 * words * student.hidden_dim * 4 if layout.chunks > 1 else gathered
    if lora.rank and not lora.trains_head:
        return 2 * own * words * 4 + (gathered if shape.mesh.size > 1 else 0)
    return 2 * own * words * 4 + (gathered + summed if shape.objective.loss.response else 0)


def _gradients(shape: StepShape) -> int:
    """Bytes of the gradients and, with several microbatches, of their sum in float32."""
    model = shape.slots.model
    own = model.own(shape.state.params)
    count = sum(leaf.size for leaf in jax.tree.leaves(own))
    gradients = round(on_device(own) * shape.partition.trained / count)
    item = jnp.dtype("float32" if model.lora.rank else model.config.param_dtype).itemsize
    return gradients if shape.training.accumulation == 1 else gradients + gradients * 4 // item


def _scores(size: Sizes, attention: ChosenPath, heads: int) -> int:
    """Bytes per row of the part of attention that is quadratic in the number of tokens."""
    if attention == "cudnn":
        return 2 * size.branches * (size.trunk + size.branches)
    trunk = sum((stop - start) * stop for start, stop in split_evenly(size.trunk, 1))
    return heads * 2 * 4 * (trunk + size.branches * (size.trunk + 2 * size.window))


def _gathered(shape: StepShape) -> int:
    """Bytes of layers that fsdp gathers."""
    if shape.mesh.shape["fsdp"] == 1:
        return 0
    model = shape.slots.model
    stack = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(model.abstract_params()["layers"]))
    return 3 * stack // model.config.num_layers // shape.mesh.shape["tensor"]


def _joined(shape: StepShape) -> int:
    """Bytes of the matrices of a block that XLA joins with their adapters, forward and backward, for fewer products."""
    model = shape.slots.model
    stack = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(model.abstract_params()["layers"]))
    return 2 * stack // model.config.num_layers // shape.mesh.shape["tensor"] if model.lora.rank else 0


def _policies(student: StudentConfig, platform: str) -> list[Remat]:
    """The policies to choose from on a platform, from the least recomputation to the most.

    `none` keeps results of elementwise operations, too, which a GPU recomputes in less time than it takes to write and
    read them. `offload` is none of them: where it was measured, its copies took longer than they save.
    """
    if platform == "cpu":
        policies: list[Remat] = ["none", "dots", "attention", "qkv", "full"]
    else:
        policies = ["dots", "attention", "qkv", "full"]
        if attention_path(student, platform) == "cudnn":
            policies.insert(0, "flash")
    return sorted(policies, key=lambda remat: _recomputed(student, remat))


def _recomputed(student: StudentConfig, remat: Remat) -> int:
    """Multiplications per token and block that the backward pass repeats, without attention."""
    widths = _widths(student)
    widths["output"] = widths["query"]  # its product maps the heads to the hidden width, the others the reverse
    kept = set(widths) if remat == "none" else set(SAVED[remat])
    return student.hidden_dim * sum(width for name, width in widths.items() if name not in kept)


def fitted(shape: StepShape, platform: str, limit: int) -> StepShape:
    """Replaces `remat = auto` by the policy with the least recomputation that fits, by the estimate.

    The platform is named as by `dispatch.platform`. A process may use `limit` bytes of a device's memory; 0 if unknown.
    The policy is `full` where nothing fits or the limit is unknown.
    """
    if shape.student.remat != "auto":
        return shape
    held, reserve = sum(persistent(shape)), 0 if platform == "cpu" else RESERVE
    for remat in _policies(shape.student, platform):
        step = shape.running(remat=remat)
        if held + estimate(step, attention_path(step.student, platform)).peak + reserve <= limit:
            return step
    return shape.running(remat="full")


def fitted_here(shape: StepShape) -> StepShape:
    """The step with the policy that fits the devices of its mesh, which are present (`fitted`)."""
    return fitted(shape, platform(), device_memory(shape.mesh.local_devices[0]))


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
    limit = limit or device_memory(shape.mesh.local_devices[0])
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


def parse_bytes(text: str, flag: str = "device_memory") -> int:
    """Parses `80GiB`, `24 GB` or a plain number of bytes; raises ValueError, naming the flag, for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", text.strip())
    if match is None or match[2] not in UNITS:
        raise ValueError(f"{flag}: found {text!r}, expected a size such as 80GiB or 24GB")
    return int(float(match[1]) * UNITS[match[2]])


def gib(size: int) -> str:
    """Formats bytes in GiB or MiB."""
    return f"{size / 2**30:,.2f} GiB" if size >= 2**27 else f"{size / 2**20:,.1f} MiB"
