"""What a compiled program does on one device: matrix products, attention, traffic between devices, large arrays.

Every instruction counts as often as its loops run. Collectives are measured by the full array: the result of an
all-gather, and what every other kind takes. With n devices in a group, a ring sends (n - 1) / n of these bytes per
device, and twice that for an all-reduce (Thakur et al. 2005, doi:10.1177/1094342005051521).
"""

from __future__ import annotations

import collections
import dataclasses
import math
import operator
import re
from collections.abc import Iterator
from typing import NamedTuple

from prism_jax.training.compiled.hlo import Computation, Instruction, Program, Shape

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
_FUSED = "__cudnn$fmha"
# Results that occupy no memory of their own, or that another instruction allocates.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "after-all"}
_SLICES = {"dynamic-slice", "slice", "gather"}


@dataclasses.dataclass(frozen=True)
class Collective:
    """All exchanges of one kind in a step."""

    kind: str  # one of KINDS
    count: int = 0  # number of exchanges
    bytes: int = 0  # bytes of the full arrays, summed
    wire: float = 0.0  # bytes that each device sends, summed
    overlapped: int = 0  # number of exchanges during which the schedule computes something
    exposed: float = 0.0  # bytes that each device sends in the others


def collectives(program: Program, devices: int) -> dict[str, Collective]:
    """Sums the exchanges of a program that runs on `devices` devices, by kind; kinds that do not occur are left out."""
    total: dict[str, Collective] = {}
    for instruction, computation, times in program.run():
        kind = instruction.op.removesuffix("-start")
        if kind in KINDS:
            _, *own = dataclasses.astuple(_collective(kind, instruction, computation, times, devices))
            _, *sums = dataclasses.astuple(total.get(kind, Collective(kind)))
            total[kind] = Collective(kind, *map(operator.add, sums, own))
    return total


def _collective(kind: str, instruction: Instruction, computation: Computation, times: int, devices: int) -> Collective:
    taken = sum(operand.bytes for operand in computation.operands(instruction))
    size = taken
    if kind == "all-gather":
        # The result of an asynchronous start holds its operands, too.
        size = instruction.bytes - (taken if instruction.op.endswith("-start") else 0)
    group = group_size(instruction.attributes, devices)
    share = 1.0 if kind == "collective-permute" else (group - 1) / group * (2 if kind == "all-reduce" else 1)
    wire = times * size * share
    overlapped = _computes_meanwhile(instruction, computation)
    return Collective(kind, times, times * size, wire, times * overlapped, 0.0 if overlapped else wire)


def group_size(attributes: str, devices: int) -> int:
    """Number of devices that exchange with each other, from the `replica_groups` of a collective.

    XLA prints groups as lists, as the shape of an iota, or as axes of a mesh; any other form raises ValueError.
    """
    if listed := re.search(r"replica_groups=\{(?:\{([\d,]*)\})?", attributes):
        return len(listed[1].split(",")) if listed[1] else devices
    if iota := re.search(r"replica_groups=\[\d+,(\d+)\]", attributes):
        return int(iota[1])
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))? \{([^}]*)\}", attributes):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", mesh[2])
        return math.prod(int(part) if part else sizes[axis] for axis, part in parts)
    if "source_target_pairs" in attributes:
        return devices
    raise ValueError(f"program: found no replica groups in {attributes[:120]!r}")


def _computes_meanwhile(start: Instruction, computation: Computation) -> bool:
    """Whether the schedule runs a kernel between the start of an exchange and its end."""
    if not start.op.endswith("-start") or '"is_sync":true' in start.attributes:
        return False
    place = computation.instructions.index(start)
    for later in computation.instructions[place + 1 :]:
        if start.name in later.operands:
            return False
        if later.op in ("fusion", "custom-call", "dot", "while", "call") and later.target != "AllocateBuffer":
            return True
    return False


def dots(program: Program) -> float:
    """Floating-point operations of all matrix products, without fused attention."""
    return sum(times * _dots_of(instruction, computation, program) for instruction, computation, times in program.run())


def _dots_of(instruction: Instruction, computation: Computation, program: Program) -> float:
    if inner := program.fused(instruction):
        return sum(_dots_of(part, inner, program) for part in inner.instructions)
    if instruction.op == "dot":
        contracted = instruction.numbers("lhs_contracting_dims")
    elif instruction.target.startswith("__cublas"):
        named = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.attributes)
        contracted = tuple(int(number) for number in re.findall(r"\d+", named[1])) if named else ()
    else:
        return 0.0
    left = computation.by_name[instruction.operands[0]].shapes[0]
    return 2.0 * math.prod(instruction.shapes[0].sizes) * math.prod(left.sizes[axis] for axis in contracted)


@dataclasses.dataclass(frozen=True)
class FusedAttention:
    """Calls of cuDNN's fused attention in a step, and their floating-point operations (causal ones count half)."""

    forward: int = 0
    backward: int = 0
    flops: float = 0.0


def fused_attention(program: Program) -> FusedAttention:
    """Counts the calls of fused attention."""
    total = FusedAttention()
    for instruction, _, times in program.run():
        if instruction.target.startswith(_FUSED):
            back = times if instruction.target.endswith("Backward") else 0
            flops = total.flops + times * _fused_flops(instruction)
            total = FusedAttention(total.forward + times - back, total.backward + back, flops)
    return total


def _fused_flops(instruction: Instruction) -> float:
    """Two products in the forward pass and five in the backward pass, each of queries x keys x head width."""
    if not instruction.target.startswith(_FUSED):
        return 0.0
    sizes = re.search(r'"intermediate_tensor_shape": ?\{.*?"dimensions": ?\[([^\]]*)\]', instruction.attributes)
    width = instruction.shapes[0].sizes[-1]
    products = 5 if instruction.target.endswith("Backward") else 2
    half = 0.5 if re.search(r'"mask_type": ?"CAUSAL"', instruction.attributes) else 1.0
    return half * products * 2.0 * width * math.prod(int(n) for n in re.findall(r"\d+", sizes[1])) if sizes else 0.0


class Kernel(NamedTuple):
    """What a kernel does, as often as it runs."""

    flops: float  # floating-point operations of its matrix products and of fused attention
    bytes: int  # bytes that it reads and writes
    host: int  # bytes that it copies between the device and the host's memory


def kernels(program: Program) -> Iterator[Kernel]:
    """Yields every kernel of a program."""
    for instruction, computation, times in program.run():
        kind = instruction.op.removesuffix("-start")
        if kind in _FREE or kind in KINDS or kind.endswith("-done") or instruction.target == "AllocateBuffer":
            continue
        flops = _dots_of(instruction, computation, program) + _fused_flops(instruction)
        accessed = _accessed(instruction, computation, program)
        arrays = [instruction, *computation.operands(instruction)]
        copies = any(shape.on_host for array in arrays for shape in array.shapes)
        yield Kernel(times * flops, times * accessed, times * accessed // 2 if copies else 0)


def _accessed(instruction: Instruction, computation: Computation, program: Program) -> int:
    """Bytes that a kernel reads and writes; of an array that is only sliced or updated, the part that it touches."""
    inner = program.fused(instruction)
    if inner is None:
        operands = computation.operands(instruction)
        if instruction.op in _SLICES:
            return 2 * instruction.bytes
        if instruction.op == "copy-start":
            return 2 * instruction.shapes[0].bytes
        if instruction.op == "dynamic-update-slice":
            return 2 * operands[1].bytes
        if instruction.op == "custom-call":  # takes an operand twice to read different parts of it
            operands = list({operand.name: operand for operand in operands}.values())
        return instruction.bytes + sum(operand.bytes for operand in operands)
    parameters = [part for part in inner.instructions if part.op == "parameter"]
    return _written(inner) + sum(_read(parameter, inner) for parameter in parameters)


def _read(parameter: Instruction, inner: Computation) -> int:
    users = inner.users(parameter)
    if all(user.op in _SLICES and user.operands[0] == name for user, name in users):
        return sum(user.bytes for user, _ in users)
    if all(user.op == "dynamic-update-slice" and user.operands[0] == name for user, name in users):
        return 0
    return parameter.bytes


def _written(inner: Computation) -> int:
    return sum(
        inner.operands(result)[1].bytes if _updates(result) else result.bytes for result in _fusion_results(inner)
    )


def _fusion_results(inner: Computation) -> list[Instruction]:
    """What computes each array that a fusion returns."""
    results = inner.operands(inner.root) if inner.root.op == "tuple" else [inner.root]
    return [inner.beneath(result) for result in results]


def _updates(result: Instruction) -> bool:
    """Whether a result of a fusion is one of its operands, updated in place."""
    return result.op == "dynamic-update-slice"


def largest(program: Program, count: int = 10) -> list[tuple[int, int, str, str]]:
    """The largest arrays that a program allocates beside its arguments and results.

    For each kind of array, largest first: bytes of one, how many there are, dtype and sizes, and the operation of the
    traced program. Not all of them exist at once: one may take the memory of another that has ended.
    """
    entry = program.computations[program.entry]
    results = {result.name for result in _results(entry)}
    arrays: collections.Counter[tuple[int, str, str]] = collections.Counter()
    for instruction, computation, _ in program.run():
        returned = computation is entry and instruction.name in results
        if instruction.op in _FREE or instruction.op.endswith("-done") or _updates(instruction) or returned:
            continue
        own = _allocated(instruction, program)
        name = instruction.source or re.sub(r"[.\d]+$", "", instruction.name)
        arrays.update((shape.bytes, str(shape), name) for shape in own if not shape.on_host)
    kinds = sorted(arrays.items(), reverse=True)[:count]
    return [(size, number, array, name) for (size, array, name), number in kinds]


def _allocated(instruction: Instruction, program: Program) -> tuple[Shape, ...]:
    """The arrays of a result that no operand holds."""
    inner, shapes = program.fused(instruction), instruction.shapes
    if instruction.op == "copy-start":  # destination, source, context
        return shapes[:1]
    if instruction.op.endswith("-start") and len(shapes) > len(instruction.operands):
        shapes = shapes[len(instruction.operands) :]  # the operands are repeated
    if inner is None:
        return shapes
    results = _fusion_results(inner)
    return tuple(shape for shape, result in zip(shapes, results, strict=False) if not _updates(result))


def _results(entry: Computation) -> list[Instruction]:
    """The instructions whose arrays the program returns, seen through tuples."""
    left, results = [entry.root], []
    while left:
        result = left.pop()
        if result.op in ("tuple", "get-tuple-element", "bitcast"):
            left += entry.operands(result)
        else:
            results.append(result)
    return results
