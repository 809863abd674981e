"""Loading Qwen3 and Llama-shaped models from GGUF files, with the dequantisers of the `gguf` package.

llama.cpp rotates neighbouring pairs of query and key dimensions of Llama models, while Hugging Face pairs dimension i
with i + H/2. Its converter therefore reorders the rows of these two matrices, for this architecture only; here the
original order is restored.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import pathlib
import re
import reprlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from etils import epath
from jax.sharding import Mesh
from jax.typing import DTypeLike

from prism_jax.runtime.gguf_file import GGUFTensor, read_gguf_header, shorten
from prism_jax.runtime.model_files import refuse_pickle
from prism_jax.runtime.schema import Object, decode
from prism_jax.student.model_config import StudentConfig, dtype_name
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights.architecture import Above, Count
from prism_jax.student.weights.names import EMBEDDING, HEAD, Format
from prism_jax.student.weights.placing import Index, place
from prism_jax.student.weights.pretrained import Pretrained

ARCHITECTURES = ("qwen3", "llama")

_COUNTS = ("embedding_length", "block_count", "feed_forward_length", "context_length", "attention.head_count")
_OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("attention.head_count_kv", "attention.key_length", "attention.value_length"), Count),
    "rope.dimension_count": Count,
    "rope.scaling.type": Literal["none"],
    **dict.fromkeys(("expert_count", "attention.sliding_window"), Literal[0]),
}
_HEADER = Object(
    dict.fromkeys(_COUNTS, Count)
    | dict.fromkeys(("rope.freq_base", "attention.layer_norm_rms_epsilon"), Above)
    | _OPTIONAL,
    optional=_OPTIONAL,
)
"""An architecture's own fields; of what has only one value, the student supports no other."""

_FACTORS = ("rope.scaling.factor", "rope.scale_linear")
"""Fields that scale positions, linearly where no type is named; 0 and 1 leave them."""

_REORDERED = re.compile(r"blk\.\d+\.attn_([qk])\.weight")

# The package dequantises 16 rows at a time; rows are joined to have about so many bytes, or each step costs too much.
_BYTES_PER_ROW = 1 << 14


def load_gguf(path: epath.PathLike, dtype: DTypeLike, mesh: Mesh | None = None, blocks: int = 0) -> Pretrained:
    """Loads and dequantises a Qwen3 or Llama-shaped model from a GGUF file; needs the extra `gguf`.

    Matrices are dequantised layer by layer, in the piece that a device holds; the host never holds the whole model. The
    arguments are those of `load_hf`.

    Raises:
      OSError: when the file is missing or cannot be read.
      ValueError: when it is corrupt or describes another model; the message names all tensors that are missing,
        unexpected or mis-shaped.
      RuntimeError: when the `gguf` package is not installed.
    """
    name, file = dtype_name(dtype), GGUFFile(pathlib.Path(path))
    whole = Qwen3(file.config(name))
    return Pretrained(Qwen3(whole.config.lowest(blocks)), place(file, whole, mesh, blocks))


class GGUFFile:
    """The tensors of a GGUF file, memory-mapped; a `placing.TensorFile`."""

    form: Format = "gguf"

    def __init__(self, path: pathlib.Path):
        self.where = str(path)
        _check_package(path)
        header = read_gguf_header(path)
        self._fields = header.fields
        self._tensors = header.tensors
        self._data = header.data
        self.architecture = self._scalar("general.architecture")
        if self.architecture not in ARCHITECTURES:
            expected = " or ".join(ARCHITECTURES)
            found = reprlib.repr(self.architecture)
            raise ValueError(f"{path}: general.architecture: found {found}, expected {expected}")
        self._header = self._own_fields()
        self.shapes: Mapping[str, tuple[int, ...]] = {name: tensor.shape for name, tensor in self._tensors.items()}
        self._blocks = {name: self._stored(name, tensor) for name, tensor in self._tensors.items()}
        self.unreadable: Mapping[str, str] = {
            name: f"{_kind(tensor.kind).name}, which gguf doesn't dequantise"
            for name, tensor in self._tensors.items()
            if not _readable(tensor.kind)
        }

    def read(self, name: str, index: Index) -> np.ndarray:
        """Reads and dequantises a part of one tensor to float32, with rows in Hugging Face's order."""
        rows, stored = self._rows(name), self._blocks[name]
        if stored.ndim == 1:
            return _dequantize(stored, self._tensors[name].kind)[index]
        part = stored[index[0]] if rows is None else stored[rows[index[0]]]
        values = _dequantize(part, self._tensors[name].kind)
        return values[:, index[1]] if len(index) > 1 else values

    def _stored(self, name: str, tensor: GGUFTensor) -> np.ndarray:
        """The tensor's bytes as the file holds them, one row of blocks per row; not copied."""
        from gguf import GGML_QUANT_SIZES

        try:
            per_block, size = GGML_QUANT_SIZES[_kind(tensor.kind)]
        except ValueError:
            raise self._corrupt(name, f"type {tensor.kind}; expected one of the format's") from None
        *rows, columns = tensor.shape or (1,)
        if columns % per_block:
            raise self._corrupt(name, f"rows of {columns}; expected a multiple of {per_block}")
        stored = (*rows, columns // per_block * size)
        wanted, left = math.prod(stored), self._data.size - tensor.start
        if wanted > left:
            raise self._corrupt(name, f"{wanted} bytes at {tensor.start}; only {max(left, 0)} are left")
        return self._data[tensor.start : tensor.start + wanted].reshape(stored)

    def _corrupt(self, name: str, reason: str) -> ValueError:
        return ValueError(
            f"{self.where}: found a truncated or corrupt GGUF file ({shorten(name)}: {reason}), expected a whole one"
        )

    def _rows(self, name: str) -> np.ndarray | None:
        """The file's row for each row of Hugging Face's matrix, for the matrices that llama.cpp reorders; else None."""
        reordered = _REORDERED.fullmatch(name)
        if self.architecture != "llama" or not reordered:
            return None
        heads = self._heads() if reordered[1] == "q" else self._kv_heads()
        # In each head the file has the dimensions in the order 0, H/2, 1, H/2 + 1, ...
        return np.arange(self.shapes[name][0]).reshape(heads, -1, 2).swapaxes(1, 2).ravel()

    def config(self, dtype: str) -> StudentConfig:
        """Reads the student's config from the header; an unsupported feature or malformed field raises ValueError."""
        fields = self._header
        rows = self.shapes.get(EMBEDDING.gguf, (0,))[0]
        tokens = self._fields.get("tokenizer.ggml.tokens")
        if isinstance(tokens, list) and rows and len(tokens) != rows:
            raise ValueError(
                f"{self.where}: tokenizer.ggml.tokens: found {len(tokens)} tokens, expected {rows}, the rows of "
                f"{EMBEDDING.gguf}"
            )
        try:
            return StudentConfig(
                # A missing embedding is reported as a missing tensor.
                vocab_size=rows or 1,
                hidden_dim=fields["embedding_length"],
                num_layers=fields["block_count"],
                num_heads=self._heads(),
                num_kv_heads=self._kv_heads(),
                head_dim=self._head_dim(),
                mlp_dim=fields["feed_forward_length"],
                rope_theta=fields["rope.freq_base"],
                # The file holds 1e-5 as a float32; the intended number is the shortest one that rounds to it.
                norm_epsilon=float(str(np.float32(fields["attention.layer_norm_rms_epsilon"]))),
                qk_norm=self.architecture == "qwen3",
                tied=HEAD.gguf not in self.shapes,
                max_positions=fields["context_length"],
                dtype=dtype,
                param_dtype=dtype,
            )
        except ValueError as error:  # The student's own checks do not know the file.
            message = str(error)
            raise ValueError(message if message.startswith(self.where) else f"{self.where}: {message}") from None

    def _own_fields(self) -> dict[str, Any]:
        """Reads the architecture's own fields and refuses unsupported features."""
        prefix = f"{self.architecture}."
        fields = {name.removeprefix(prefix): self._scalar(name) for name in self._fields if name.startswith(prefix)}
        header: dict[str, Any] = decode(_HEADER, fields, f"{self.where}: {self.architecture}", ValueError)
        for name in _FACTORS if header.get("rope.scaling.type") is None else ():
            if fields.get(name, 1) not in (0, 1):
                raise ValueError(
                    f"{self.where}: {self.architecture}: {name}: found {reprlib.repr(fields[name])}, expected 1: the "
                    "student does not scale positions"
                )
        return header

    def _head_dim(self) -> int:
        """The width of a head, which must be the same for keys, values and rotary pairs."""
        fields, place = self._header, f"{self.where}: {self.architecture}"
        width, heads = fields["embedding_length"], self._heads()
        named = [fields[name] for name in ("attention.key_length", "rope.dimension_count") if name in fields]
        if not named and width % heads:
            raise ValueError(
                f"{place}: attention.key_length: found nothing, expected a number, as a width of {width} is no "
                f"multiple of {heads} heads"
            )
        head_dim: int = named[0] if named else width // heads
        for name in ("attention.value_length", "rope.dimension_count"):
            if fields.get(name, head_dim) != head_dim:
                raise ValueError(f"{place}: {name}: found {fields[name]}, expected {head_dim}, the width of a key")
        return head_dim

    def _heads(self) -> int:
        heads: int = self._header["attention.head_count"]
        return heads

    def _kv_heads(self) -> int:
        heads: int = self._header.get("attention.head_count_kv", self._heads())
        return heads

    def _scalar(self, name: str) -> Any:
        """The content of a field, arrays of numbers as lists; None where the field is absent."""
        value = self._fields.get(name)
        return value.tolist() if isinstance(value, np.ndarray) else value


def _check_package(path: pathlib.Path) -> None:
    """Refuses pickles and missing files by name, and says which package dequantises."""
    refuse_pickle(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, expected a GGUF file")
    if importlib.util.find_spec("gguf") is None:
        raise RuntimeError("gguf: the package isn't installed; pip install 'prism_jax[gguf]'")


def _kind(number: int) -> Any:
    """The package's name for a quantisation type; raises ValueError for an unknown number."""
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType(number)


def _dequantize(blocks: np.ndarray, number: int) -> np.ndarray:
    """Dequantises rows of blocks to float32; the blocks of several rows are joined first, which changes no number."""
    from gguf import GGML_QUANT_SIZES, dequantize

    kind = _kind(number)
    per_block, size = GGML_QUANT_SIZES[kind]
    shape = (*blocks.shape[:-1], blocks.shape[-1] // size * per_block)
    flat = np.ascontiguousarray(blocks).reshape(-1)
    joined = math.gcd(flat.size // max(1, blocks.shape[-1]), max(1, _BYTES_PER_ROW // max(1, blocks.shape[-1])))
    rows = flat.reshape(-1, joined * blocks.shape[-1]) if flat.size else blocks.reshape(shape[0], 0)
    return dequantize(rows, kind).reshape(shape)


@functools.lru_cache(maxsize=64)
def _readable(number: int) -> bool:
    """Whether the package can dequantise a type to floating-point numbers."""
    from gguf import GGML_QUANT_SIZES, dequantize

    kind = _kind(number)
    try:
        return dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind).dtype.kind == "f"
    except NotImplementedError:
        return False
