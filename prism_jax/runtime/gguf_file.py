"""Reads the header of a GGUF file: its metadata fields, and where its tensors are.

Every length is compared with what is left of the file, and every count with a limit, before anything is read, so that
a small file costs little, whatever it claims. The memory is at most some times the header's size. The format is that
of the ggml project, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import dataclasses
import mmap
import pathlib
import reprlib
import struct
from typing import Any

import numpy as np

from prism_jax.runtime.files import open_regular

MAX_FIELDS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_ENTRIES = 1 << 22
"""Largest number of entries of an array; the largest published vocabularies have fewer than a tenth of it."""
MAX_NAME = (1 << 16) - 1  # bytes of a key or a tensor's name, as the format says
MAX_TEXT = 1 << 24  # bytes of one string
MAX_DIMENSIONS = 4

_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# The value types of the format that hold one number, as codes of `struct` and NumPy.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclasses.dataclass(frozen=True)
class GGUFTensor:
    """What the header says about one tensor."""

    shape: tuple[int, ...]  # sizes with the rows first, as in NumPy; the file lists them in the opposite order
    kind: int  # number of the quantisation type
    start: int  # position of its first byte in the file


@dataclasses.dataclass(frozen=True)
class GGUFHeader:
    """The header of a GGUF file, and the whole file mapped into memory."""

    # value of each metadata field: a number, a bool, a text, a list of texts, or an array of numbers
    fields: dict[str, Any]
    tensors: dict[str, GGUFTensor]
    data: np.ndarray  # [bytes] of the whole file, read-only


def read_gguf_header(path: pathlib.Path) -> GGUFHeader:
    """Reads the header of a local GGUF file.

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: when the file is truncated or corrupt, or exceeds one of this module's limits; the message is one line
        that names the file.
    """
    with open_regular(path, ValueError, "a GGUF file") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            fields, tensors = _Reader(mapped).header()
        except ValueError as error:
            raise ValueError(
                f"{path}: found a truncated or corrupt GGUF file ({error}), expected a whole one"
            ) from None
    return GGUFHeader(fields, tensors, np.frombuffer(mapped, np.uint8))


class _Reader:
    """Reads values one after the other; raises ValueError, without the file's name, for those that cannot be."""

    def __init__(self, data: mmap.mmap):
        self._data = memoryview(data)
        self._at = 0

    def header(self) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
        """The metadata fields, and the tensors."""
        if bytes(self._take(4, "magic")) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self._number("I", "version")
        if version not in _VERSIONS:
            order = ", of a big-endian file" if version and version & 0xFFFF == 0 else ""
            raise ValueError(f"version {version}{order}; expected little-endian version 2 or 3")
        tensors = self._count("Q", "tensors", MAX_TENSORS, 24)
        count = self._count("Q", "fields", MAX_FIELDS, 13)
        fields: dict[str, Any] = {}
        for _ in range(count):
            name = self._text("field name", MAX_NAME)
            if name in fields:
                raise ValueError(f"field {shorten(name)} twice")
            fields[name] = self._value(self._number("I", name), name)
        return fields, self._tensors(tensors, _alignment(fields))

    def _tensors(self, count: int, alignment: int) -> dict[str, GGUFTensor]:
        tensors: dict[str, GGUFTensor] = {}
        for _ in range(count):
            name = self._text("tensor name", MAX_NAME)
            if name in tensors:
                raise ValueError(f"tensor {shorten(name)} twice")
            dimensions = self._count("I", name, MAX_DIMENSIONS, 8)
            sizes = [self._number("Q", name) for _ in range(dimensions)]
            kind, start = self._number("I", name), self._number("Q", name)
            tensors[name] = GGUFTensor(tuple(reversed(sizes)), kind, start)
        base = -(-self._at // alignment) * alignment
        return {name: dataclasses.replace(tensor, start=base + tensor.start) for name, tensor in tensors.items()}

    def _value(self, kind: int, name: str) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind], name)
        if kind == _STRING:
            return self._text(name, MAX_TEXT)
        if kind != _ARRAY:
            raise ValueError(f"{shorten(name)} of unknown type {kind}")
        entry = self._number("I", name)
        if entry == _STRING:
            count = self._count("Q", name, MAX_ENTRIES, 8)
            return [self._text(name, MAX_TEXT) for _ in range(count)]
        if entry not in _SCALARS:
            raise ValueError(f"{shorten(name)}: an array of type {entry}; expected numbers or texts")
        dtype = np.dtype(_SCALARS[entry]).newbyteorder("<")
        count = self._count("Q", name, MAX_ENTRIES, dtype.itemsize)
        return np.frombuffer(self._take(count * dtype.itemsize, name), dtype)

    def _text(self, name: str, most: int) -> str:
        size = self._number("Q", name)
        if size > most:
            raise ValueError(f"{shorten(name)}: a text of {size} bytes; expected at most {most}")
        try:
            return str(self._take(size, name), "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{shorten(name)}: {error.reason} of UTF-8") from None

    def _count(self, code: str, name: str, most: int, smallest: int) -> int:
        """A number of entries of at least `smallest` bytes each."""
        count = self._number(code, name)
        if count > most:
            raise ValueError(f"{shorten(name)}: {count} entries; expected at most {most}")
        self._need(count * smallest, name)
        return count

    def _number(self, code: str, name: str) -> Any:
        (value,) = struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}"), name))
        return value

    def _take(self, size: int, name: str) -> memoryview:
        self._need(size, name)
        self._at += size
        return self._data[self._at - size : self._at]

    def _need(self, size: int, name: str) -> None:
        left = len(self._data) - self._at
        if size > left:
            raise ValueError(f"{shorten(name)}: {size} bytes at {self._at}; only {left} are left")


def _alignment(fields: dict[str, Any]) -> int:
    """The number of bytes of which each tensor's position is a multiple."""
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment of {reprlib.repr(alignment)}; expected a power of two")
    return alignment


def shorten(name: str) -> str:
    """A name for messages: at most 60 characters, with control characters escaped."""
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    return shown if shown.isprintable() else ascii(shown)
