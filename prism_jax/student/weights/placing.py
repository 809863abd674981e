"""Moves the tensors of a file to the devices: all are checked first, then placed piece by piece.

The host never holds the whole model. It holds one device's piece of one parameter (stacked over layers) at a time,
copied directly from the memory-mapped file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from tqdm import tqdm

from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.sharding import partition_spec
from prism_jax.student.weights.names import EMBEDDING, HEAD, Format, Parameter, listed, not_finite, parameters

Index = tuple[slice, ...]
# Start and stop along each axis.
Bounds = tuple[tuple[int, int], ...]

_ROWS_COMPARED = 8192


@runtime_checkable
class TensorFile(Protocol):
    """The tensors of a checkpoint, by the names of its format; `where` is its path, for errors.

    `unreadable` maps the tensors that cannot be read to the reason, such as a dtype without floating-point numbers.
    """

    where: str
    form: Format
    shapes: Mapping[str, tuple[int, ...]]
    unreadable: Mapping[str, str]

    def read(self, name: str, index: Index) -> np.ndarray:
        """Reads a copy of a part of one tensor, in a floating-point dtype."""


def place(file: TensorFile, model: Qwen3, mesh: Mesh | None, blocks: int = 0) -> Params:
    """Loads the parameters of the model that a file describes; without a mesh, to the default device.

    Only the lowest `blocks` blocks are loaded, and the tensors of the others are checked but not read; 0 loads all.

    Raises:
      ValueError: naming all tensors that are missing, unexpected, mis-shaped, unreadable or, for a tied head, different
        from the embedding; or all that are not finite in the model's dtype. Or for more blocks than the model has.
    """
    if model.config.num_layers > len(file.shapes):  # Stops before names for an absurd number of layers are made.
        raise ValueError(
            f"{file.where}: found {len(file.shapes)} tensors, expected {model.config.num_layers} layers of them"
        )
    _check(file, parameters(model.abstract_params(), file.form), tied=model.config.tied)
    wanted = parameters(Qwen3(model.config.lowest(blocks)).abstract_params(), file.form)
    total = sum(_size(index) * p.leaf.dtype.itemsize for p in wanted for index in _pieces(p, _sharding(p, mesh)))
    params: Params = {}
    placed = []
    with tqdm(total=total, unit="B", unit_scale=True, desc="weights", disable=None) as progress:
        for parameter in wanted:
            leaf = _place(file, parameter, mesh, progress)
            placed.append(dataclasses.replace(parameter, leaf=leaf))
            _put(params, parameter.path, leaf)
    if broken := not_finite(placed, model.config.param_dtype):
        dtype = model.config.param_dtype
        raise ValueError(f"{file.where}: {listed(broken)}: found NaN or infinity, expected finite {dtype} numbers")
    return params


def _check(file: TensorFile, wanted: list[Parameter], tied: bool) -> None:
    """Compares the file's tensors with the model's; the errors are those of `place`."""
    expected = {name: p.tensor_shape for p in wanted for name in p.tensors}
    head, embedding = getattr(HEAD, file.form), getattr(EMBEDDING, file.form)
    copied_head = tied and head in file.shapes
    if copied_head:  # Some files store the tied head a second time.
        expected[head] = expected[embedding]
    problems = []
    if missing := [name for name in expected if name not in file.shapes]:
        problems.append(f"missing {listed(missing)}")
    if unexpected := [name for name in file.shapes if name not in expected]:
        problems.append(f"unexpected {listed(unexpected)}")
    shapes = {name: (file.shapes[name], shape) for name, shape in expected.items() if name in file.shapes}
    if misshaped := [f"{name} {list(a)} (expected {list(b)})" for name, (a, b) in shapes.items() if a != b]:
        problems.append(f"mis-shaped {listed(misshaped)}")
    if unreadable := [f"{name} ({why})" for name, why in file.unreadable.items()]:
        problems.append(f"unreadable {listed(unreadable)}")
    if copied_head and not problems and not _equal(file, head, embedding):
        problems.append(f"{head} unlike {embedding}, to which the head is tied")
    if problems:
        raise ValueError(f"{file.where}: found tensors that don't fit the model: {'; '.join(problems)}")


def _equal(file: TensorFile, a: str, b: str) -> bool:
    """Whether two tensors of the same shape hold the same numbers; compares some rows at a time."""
    rows = file.shapes[a][0]
    parts = [(slice(i, min(i + _ROWS_COMPARED, rows)), slice(None)) for i in range(0, rows, _ROWS_COMPARED)]
    return all(np.array_equal(file.read(a, part), file.read(b, part)) for part in parts)


def _place(file: TensorFile, parameter: Parameter, mesh: Mesh | None, progress: tqdm) -> jax.Array:
    """Places one parameter on its devices; a piece that several devices hold is read once."""
    sharding = _sharding(parameter, mesh)
    arrays = []
    for index, devices in _pieces(parameter, sharding).items():
        piece = _read(file, parameter, index)
        # Waits, so that pieces in transfer do not accumulate on the host.
        arrays += jax.block_until_ready([jax.device_put(piece, device) for device in devices])
        progress.update(piece.nbytes)
    if sharding is None:
        return arrays[0]
    return jax.make_array_from_single_device_arrays(parameter.leaf.shape, sharding, arrays)


def _read(file: TensorFile, parameter: Parameter, index: Bounds) -> np.ndarray:
    """Reads one piece of a parameter, with layers stacked, in the model's dtype."""
    piece = np.empty([stop - start for start, stop in index], parameter.leaf.dtype)
    within = [slice(*bounds) for bounds in (index[1:] if parameter.stacked else index)]
    within = within[::-1] if parameter.transposed else within
    tensors = parameter.tensors[slice(*index[0])] if parameter.stacked else parameter.tensors
    with np.errstate(over="ignore"):  # Tensors that overflow the dtype are reported by name later.
        for part, name in zip(piece if parameter.stacked else piece[None], tensors, strict=True):
            values = file.read(name, tuple(within))
            part[...] = values.T if parameter.transposed else values
    return piece


def _sharding(parameter: Parameter, mesh: Mesh | None) -> NamedSharding | None:
    return None if mesh is None else NamedSharding(mesh, partition_spec(parameter.path, parameter.leaf.ndim))


def _pieces(parameter: Parameter, sharding: NamedSharding | None) -> dict[Bounds, list[Any]]:
    """The bounds of each distinct piece on this process's devices, with those devices; None is the default device."""
    shape = parameter.leaf.shape
    if sharding is None:
        return {tuple((0, size) for size in shape): [None]}
    pieces: dict[Bounds, list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        bounds = tuple(part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True))
        pieces.setdefault(bounds, []).append(device)
    return pieces


def _size(index: Bounds) -> int:
    return math.prod(stop - start for start, stop in index)


def _put(tree: Params, path: str, leaf: jax.Array) -> None:
    *folders, last = path.split("/")
    for folder in folders:
        tree = tree.setdefault(folder, {})
    tree[last] = leaf
