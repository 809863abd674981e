"""Loading a Hugging Face model directory: `config.json` and safetensors, one file or shards with an index."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import safetensors
from etils import epath
from jax.sharding import Mesh
from jax.typing import DTypeLike

from prism_jax.runtime.files import open_regular
from prism_jax.runtime.model_files import inside, model_directory, read_json, refuse_pickle
from prism_jax.student.model_config import StudentConfig, dtype_name
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights.architecture import config_from_hf
from prism_jax.student.weights.names import EMBEDDING, HEAD, NAMES, Format
from prism_jax.student.weights.placing import Index, place
from prism_jax.student.weights.pretrained import Pretrained

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

MOST_HEADER_BYTES = 1 << 24
"""Longest header of a safetensors file, enough for 100,000 tensors; reading one takes 16 times its size in memory."""

_DTYPES = ("BF16", "F16", "F32")

_NO_PARAMETER = re.compile(r"(.*\.)?(rotary_emb\.\w+|position_ids|(self_attn|attn)\.(bias|masked_bias))")
"""Constants that files of older versions of transformers hold beside parameters. It does not read them either."""
_OF_THE_TABLE = re.compile("|".join(re.escape(name.hf).replace(r"\{\}", r"\d+") for name in NAMES))


def load_hf(directory: epath.PathLike, dtype: DTypeLike, mesh: Mesh | None = None, blocks: int = 0) -> Pretrained:
    """Loads a dense Qwen3 or a Llama-shaped model from a directory as published on Hugging Face.

    Tensors of bfloat16, float16 or float32 are copied from the memory-mapped files to the devices piece by piece; the
    host never holds the whole model. Parameters are sharded over the mesh, or lie on the default device. The model
    keeps its lowest `blocks` blocks (`StudentConfig.lowest`); 0 keeps all.

    Raises:
      OSError: when a file is missing or cannot be read. ValueError: when a file is corrupt, a pickle, outside of the
        directory, or describes another model; the message names the file, and all tensors that are missing, unexpected
        or mis-shaped.
    """
    whole = Qwen3(read_hf_config(directory, dtype))
    file = SafetensorsDirectory(model_directory(pathlib.Path(directory)), whole.config.tied)
    return Pretrained(Qwen3(whole.config.lowest(blocks)), place(file, whole, mesh, blocks))


def read_hf_config(directory: epath.PathLike, dtype: DTypeLike) -> StudentConfig:
    """Reads the student's config from a directory's config.json; arguments and errors are those of `load_hf`."""
    folder = model_directory(pathlib.Path(directory))
    return config_from_hf(read_json(folder, "config.json"), dtype_name(dtype), str(folder / "config.json"))


class SafetensorsDirectory:
    """The tensors of a directory's safetensors, memory-mapped; a `placing.TensorFile`.

    As transformers reads them, names may lack `model.` or begin with it twice, and a tied head may be stored instead of
    the embedding.
    """

    form: Format = "hf"

    def __init__(self, directory: pathlib.Path, tied: bool):
        self.where = str(directory)
        stored: dict[str, Any] = {}
        for path, names in _shards(directory).items():
            stored |= open_tensors(path, names)
        self._slices: dict[str, Any] = {}
        for name, part in stored.items():
            if not _NO_PARAMETER.fullmatch(name):
                spellings = (name, f"model.{name}", name.removeprefix("model."))
                known = next(filter(_OF_THE_TABLE.fullmatch, spellings), name)
                self._slices[name if known in stored else known] = part
        if tied and EMBEDDING.hf not in self._slices and HEAD.hf in self._slices:
            self._slices[EMBEDDING.hf] = self._slices.pop(HEAD.hf)
        dtypes = {name: part.get_dtype() for name, part in self._slices.items()}
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(part.get_shape()) for name, part in self._slices.items()
        }
        self.unreadable: Mapping[str, str] = {
            name: f"{dtype}, expected {', '.join(_DTYPES)}" for name, dtype in dtypes.items() if dtype not in _DTYPES
        }

    def read(self, name: str, index: Index) -> np.ndarray:
        """Reads a copy of a part of one tensor, in the file's dtype."""
        return self._slices[name][index]


def open_tensors(path: pathlib.Path, indexed: set[str] | None) -> dict[str, Any]:
    """Opens one file, whose tensors must be those that the index lists."""
    _check_header(path)
    try:
        opened = safetensors.safe_open(path, framework="numpy")
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - not a dict
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: found a truncated or corrupt safetensors file ({error})") from None
    different = [] if indexed is None else sorted(slices.keys() ^ indexed)
    if different := [name for name in different if not _NO_PARAMETER.fullmatch(name)]:
        shown = ", ".join(different[:5])
        raise ValueError(f"{path}: found other tensors than {INDEX} lists ({shown}), expected the same")
    return slices


def _check_header(path: pathlib.Path) -> None:
    """Refuses a header that is longer than the file or than a model's can be, before it is parsed."""
    with open_regular(path, ValueError, "safetensors") as file:
        size = int.from_bytes(file.read(8), "little")
    left = path.stat().st_size - 8
    if left < 0 or size > left:
        raise ValueError(
            f"{path}: found a truncated or corrupt safetensors file (a header of {size} bytes where {max(left, 0)} are "
            "left), expected a whole one"
        )
    if size > MOST_HEADER_BYTES:
        raise ValueError(f"{path}: found a header of {size} bytes, expected at most {MOST_HEADER_BYTES}")


def _shards(directory: pathlib.Path) -> dict[pathlib.Path, set[str] | None]:
    """The safetensors files and, if there is an index, the names of the tensors in each."""
    single, index = ((directory / name).exists() or (directory / name).is_symlink() for name in (SINGLE, INDEX))
    if single and index:
        raise ValueError(f"{directory}: found {SINGLE} and {INDEX}, expected one of them")
    if single:
        return {inside(directory, SINGLE): None}
    if index:
        shards: dict[pathlib.Path, set[str] | None] = {}
        files: dict[str, set[str]] = {}
        for name, file in _index_entries(directory):
            files.setdefault(file, set()).add(name)
        for file, names in files.items():
            shards[inside(directory, file)] = names
        return shards
    present = sorted(directory.iterdir())
    for path in present:
        refuse_pickle(path)
    found = ", ".join(path.name for path in present) or "no files"
    raise ValueError(f"{directory}: found {found}, expected {SINGLE} or {INDEX}")


def _index_entries(directory: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The tensor and the file of each entry of the index."""
    content = read_json(directory, INDEX)
    entries = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(entries, dict) or not entries or not all(isinstance(file, str) for file in entries.values()):
        raise ValueError(f"{directory / INDEX}: weight_map: expected an object from tensor names to file names")
    for name, file in entries.items():
        if not file.endswith(".safetensors"):
            raise ValueError(
                f"{directory / INDEX}: weight_map: found {file!r} for {name}, expected a .safetensors file"
            )
        yield name, file
