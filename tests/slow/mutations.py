"""Damaged copies of a file, drawn from a seed: what a bad disk, a bad program or an attacker might leave."""

import os
import socket

import numpy as np

VALUES = (
    *(b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 40, b'""', b'"\\ud800"', b"[]", b"{}", b"[" * 3000, b"0.5"),
    *(b"9" * 400, b"-" + b"9" * 400, b"9" * 5000),
)
"""Values that JSON files do not expect where they are put, integers beyond all floats among them."""


def flip(data, rng):
    """Changes one bit."""
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)


def overwrite(data, rng):
    """Writes random bytes over up to eight bytes."""
    at = rng.integers(len(data))
    size = min(int(rng.integers(1, 9)), len(data) - at)
    data[at : at + size] = rng.bytes(size)


def cut(data, rng):
    """Ends the data early."""
    del data[rng.integers(len(data)) :]


def remove(data, rng):
    """Removes up to 64 bytes."""
    at = rng.integers(len(data))
    del data[at : at + int(rng.integers(1, 65))]


def repeat(data, rng):
    """Repeats up to 64 bytes."""
    at = rng.integers(len(data))
    data[at:at] = data[at : at + int(rng.integers(1, 65))]


def enlarge(data, rng):
    """Writes a huge number, of four or eight bytes, as a length or count may be."""
    at = rng.integers(len(data))
    size = int(rng.choice([4, 8]))
    number = int(rng.choice([2**31 - 1, 2**32 - 1, 10**6, 2**16]))
    data[at : at + size] = number.to_bytes(size, "little")


def replace_value(data, rng):
    """Replaces what stands between two marks of JSON by another value."""
    marks = [i for i, byte in enumerate(data) if byte in b":,[]{}"]
    if len(marks) < 2:
        return flip(data, rng)
    at = int(rng.integers(len(marks) - 1))
    data[marks[at] + 1 : marks[at + 1]] = VALUES[rng.integers(len(VALUES))]


BINARY = (flip, overwrite, cut, remove, repeat, enlarge)
TEXT = (flip, overwrite, cut, remove, repeat, replace_value, replace_value, replace_value)


def damaged(whole, seed, kinds):
    """The bytes `whole` after one to three damages."""
    rng = np.random.default_rng(seed)
    data = bytearray(whole)
    for _ in range(rng.integers(1, 4)):
        if data:
            kinds[rng.integers(len(kinds))](data, rng)
    return bytes(data)


def _linked_to(target):
    return lambda path: path.symlink_to(target)


def _bind(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))  # the name of a socket must be short


def _enormous(path):
    with path.open("wb") as file:
        file.truncate(2**40)


_TARGETS = ("/dev/zero", "/dev/urandom", "/dev/null", "/dev/full", "/dev/tty", ".", "missing")
IMPOSTORS = {
    **{f"a link to {target}": _linked_to(target) for target in _TARGETS},
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a FIFO": os.mkfifo,
    "a socket": _bind,
    "a folder": lambda path: path.mkdir(),
    "a terabyte of nothing": _enormous,
}
"""What may stand in place of a file: by its name, what makes it at a path."""
