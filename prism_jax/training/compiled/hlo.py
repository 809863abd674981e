"""Parses the text of a compiled program (HLO) into computations and instructions.

Only what accounting needs is read: names, types, operands, attributes and trip counts, in the order of the schedule.
The grammar is that of XLA's printer (openxla.org/xla/operation_semantics).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

_BYTES = {
    "pred": 1, "s4": 1, "u4": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2,
    "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
_ARRAY = re.compile(r"\b([a-z]+\d+\w*|pred)\[([\d,]*)\](?:\{([^}]*)\})?")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")


@dataclasses.dataclass(frozen=True)
class Shape:
    """One array of a type: its dtype, its sizes, and whether it lies in the host's memory (memory space 5)."""

    dtype: str
    sizes: tuple[int, ...]
    on_host: bool = False

    @property
    def bytes(self) -> int:
        """Size of the array in bytes; raises ValueError for a dtype without a known size."""
        size = 1 if self.dtype.startswith("f8") else _BYTES.get(self.dtype)
        if size is None:
            raise ValueError(f"program: found an array of {self.dtype}, expected one of f8..., {', '.join(_BYTES)}")
        return math.prod(self.sizes) * size

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction of a computation."""

    name: str  # name within the program
    op: str  # opcode, such as `fusion`; that of an asynchronous operation ends in `-start` or `-done`
    shapes: tuple[Shape, ...]  # arrays of the result; several where it is a tuple
    operands: tuple[str, ...]
    attributes: str  # the text after the operands
    root: bool  # whether it is the result of its computation

    @property
    def bytes(self) -> int:
        """Bytes of the result."""
        return sum(shape.bytes for shape in self.shapes)

    @property
    def called(self) -> list[str]:
        """Names of the computations that it runs."""
        listed = re.search(r"branch_computations=\{([^}]*)\}", self.attributes)
        return _CALLED.findall(self.attributes) + (re.findall(r"%([\w.\-]+)", listed[1]) if listed else [])

    @property
    def trips(self) -> int:
        """Number of iterations of a loop; 1 where the compiler does not know it, and for anything else."""
        known = re.search(r'known_trip_count":\{"n":"(\d+)"', self.attributes)
        return int(known[1]) if known else 1

    @property
    def target(self) -> str:
        """Name of the library function of a custom call; empty for anything else."""
        match = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return match[1] if match else ""

    @property
    def source(self) -> str:
        """The operation of the traced program from which it comes, such as `jit(step)/jvp()/while/body/dot_general`."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match[1].replace("\\'", "'") if match else ""

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The numbers of an attribute, such as `lhs_contracting_dims={1}`."""
        match = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.attributes)
        return tuple(int(part) for part in match[1].split(",") if part) if match else ()


@dataclasses.dataclass(frozen=True)
class Computation:
    """The instructions of a computation, in the order of the schedule."""

    instructions: tuple[Instruction, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        """The instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def root(self) -> Instruction:
        """The result of the computation."""
        return next((instruction for instruction in self.instructions if instruction.root), self.instructions[-1])

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that compute the operands."""
        return [self.by_name[name] for name in instruction.operands if name in self.by_name]

    def users(self, instruction: Instruction) -> list[tuple[Instruction, str]]:
        """The instructions that read a result, seen through bitcasts, each with the name by which it reads it."""
        readers: list[tuple[Instruction, str]] = []
        for user in self.instructions:
            if instruction.name in user.operands:
                readers += self.users(user) if user.op == "bitcast" and not user.root else [(user, instruction.name)]
        return readers

    def beneath(self, instruction: Instruction) -> Instruction:
        """The instruction whose result a chain of bitcasts shows."""
        while instruction.op == "bitcast" and self.operands(instruction):
            instruction = self.operands(instruction)[0]
        return instruction


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled program for one device."""

    computations: dict[str, Computation]
    entry: str

    def run(self, name: str = "", times: int = 1) -> Iterator[tuple[Instruction, Computation, int]]:
        """Yields every scheduled instruction with its computation and the number of times that it runs.

        The bodies of loops, calls and conditionals are entered; fused computations are not.
        """
        computation = self.computations[name or self.entry]
        for instruction in computation.instructions:
            yield instruction, computation, times
            if instruction.op in ("while", "call", "conditional", "async-start"):
                for called in instruction.called:
                    yield from self.run(called, times * instruction.trips)

    def fused(self, instruction: Instruction) -> Computation | None:
        """The computation of a fusion, also of one that copies asynchronously; None for anything else."""
        return self.computations[instruction.called[0]] if instruction.op in ("fusion", "fusion-start") else None


def parse(text: str) -> Program:
    """Parses the text of a compiled program, as `compiled.as_text()` gives it; one without an entry is an error."""
    computations: dict[str, Computation] = {}
    entry, name = "", ""
    lines: list[Instruction] = []
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" ") and "->" in line:
            head = re.match(r"(ENTRY )?%?([\w.\-]+)", line)
            name, lines = head[2] if head else "", []
            entry = name if head and head[1] else entry
        elif line.startswith("}") and name:
            computations[name], name = Computation(tuple(lines)), ""
        elif name and " = " in line:
            lines.append(_instruction(line.strip()))
    if not entry:
        raise ValueError("program: found no ENTRY computation, expected the text of a compiled program")
    return Program(computations, entry)


def _instruction(line: str) -> Instruction:
    left, _, rest = line.partition(" = ")
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    type_, rest = rest[:end], rest[end:].lstrip()
    op, _, _ = rest.partition("(")
    close = _closing(rest, len(op))
    shapes = tuple(
        Shape(dtype, tuple(int(size) for size in sizes.split(",") if size), "S(5)" in layout)
        for dtype, sizes, layout in _ARRAY.findall(type_)
    )
    operands = tuple(re.findall(r"%([\w.\-]+)", rest[len(op) : close]))
    return Instruction(
        left.removeprefix("ROOT ").lstrip("%"), op, shapes, operands, rest[close + 1 :], left.startswith("ROOT ")
    )


def _closing(text: str, opening: int) -> int:
    """Index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    raise ValueError(f"program: found an instruction without its end: {text[:80]!r}")
