"""Saving a Hugging Face model directory that transformers and serving engines load without changes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.typing import DTypeLike
from safetensors.numpy import save_file

from prism_jax.runtime.files import write_json
from prism_jax.student.model_config import dtype_name
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.weights.architecture import config_to_hf
from prism_jax.student.weights.names import Parameter, listed, not_finite, parameters
from prism_jax.student.weights.safetensors_in import INDEX, SINGLE

GIGABYTE = 10**9


def save_hf(
    directory: epath.PathLike,
    model: Qwen3,
    params: Params,
    *,
    dtype: DTypeLike | None = None,
    eos_token_id: int | list[int] | None = None,
    pad_token_id: int | None = None,
    bos_token_id: int | None = None,
    max_shard_bytes: int = 5 * GIGABYTE,
) -> None:
    """Writes config.json, generation_config.json and safetensors; several shards with an index where one is too large.

    The directory, which may hold other files but no model, is not written atomically: callers should pass a temporary
    one and rename it once it is complete. Tensors are gathered from the devices one shard at a time, in the dtype of
    the parameters unless another is given. The ids are those that end a generation, pad, and begin a text. A single
    tensor may be larger than `max_shard_bytes`.

    Raises:
      FileExistsError: when the directory already holds a model.
      ValueError: for parameters of another model, an unsupported dtype, or numbers that are not finite in it.
    """
    folder = pathlib.Path(directory)
    written = jnp.dtype(dtype_name(model.config.param_dtype if dtype is None else dtype))
    if max_shard_bytes < 1:
        raise ValueError(f"max_shard_bytes: found {max_shard_bytes}, expected at least 1")
    _check(model, params, written)
    folder.mkdir(parents=True, exist_ok=True)
    there = [path.name for path in folder.iterdir() if path.name == "config.json" or path.suffix == ".safetensors"]
    if there:
        raise FileExistsError(f"{folder}: found {', '.join(sorted(there))}, expected a directory without a model")
    special = {"bos_token_id": bos_token_id, "eos_token_id": eos_token_id, "pad_token_id": pad_token_id}
    _write_json(folder / "config.json", config_to_hf(model.config, written.name) | special)
    generation = {name: value for name, value in special.items() if value is not None}
    _write_json(folder / "generation_config.json", generation | {"do_sample": False})
    _write_tensors(folder, parameters(params, "hf"), written, max_shard_bytes)


def _check(model: Qwen3, params: Params, dtype: np.dtype) -> None:
    """Refuses parameters of another model and numbers that are not finite in the written dtype."""
    found, expected = (
        {p.path: p.leaf.shape for p in parameters(tree, "hf")} for tree in (params, model.abstract_params())
    )
    if found != expected:
        different = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
        raise ValueError(
            f"params: found other shapes than the model's at {', '.join(different)}, expected the model's own"
        )
    if broken := [name for parameter in parameters(params, "hf") for name in not_finite([parameter], dtype.name)]:
        raise ValueError(f"params: {listed(broken)}: found NaN or infinity, expected finite {dtype.name} numbers")


def _write_tensors(folder: pathlib.Path, wanted: list[Parameter], dtype: np.dtype, most: int) -> None:
    """Writes the shards one at a time, and the index if there are several."""
    shards = _plan(wanted, dtype, most)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: _gather(parameter, layer, dtype) for name, parameter, layer in shard}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, file)
    if len(shards) > 1:
        total = sum(parameter.leaf.size * dtype.itemsize for parameter in wanted)
        _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


Entry = tuple[str, Parameter, int | None]


def _plan(wanted: list[Parameter], dtype: np.dtype, most: int) -> list[list[Entry]]:
    """Assigns tensors to files in order: embedding, layer by layer, norm, head. Each file is filled before the next."""
    shards: list[list[Entry]] = [[]]
    filled = 0
    for name, parameter, layer in _in_order(wanted):
        size = int(np.prod(parameter.tensor_shape)) * dtype.itemsize
        if shards[-1] and filled + size > most:
            shards.append([])
            filled = 0
        shards[-1].append((name, parameter, layer))
        filled += size
    return shards


def _in_order(wanted: list[Parameter]) -> Iterator[Entry]:
    """All tensors in the order in which the model uses them, so that those of a layer are together."""
    stacked = [p for p in wanted if p.stacked]
    before, after = (
        [(p.tensors[0], p, None) for p in wanted if not p.stacked and (p.path == "embedding") is first]
        for first in (True, False)
    )
    yield from before
    for layer in range(len(stacked[0].tensors)):
        for parameter in stacked:
            yield parameter.tensors[layer], parameter, layer
    yield from after


def _gather(parameter: Parameter, layer: int | None, dtype: np.dtype) -> np.ndarray:
    """Gathers one tensor on the host, in the file's layout."""
    whole: Any = parameter.leaf
    leaf = whole if layer is None else whole[layer]
    values = np.asarray(jax.device_get(leaf)).astype(dtype)
    return np.ascontiguousarray(values.T if parameter.transposed else values)


def _write_json(path: pathlib.Path, content: dict[str, Any]) -> None:
    write_json(path, _sorted(content))


def _sorted(value: Any) -> Any:
    """The value with the keys of all objects in it sorted, as transformers writes them."""
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value
