"""Loading Qwen3 and Llama-shaped models from GGUF files, with the dequantisers of the `gguf` package.

llama.cpp rotates neighbouring pairs of query and key dimensions of Llama models, while Hugging Face pairs dimension i
with i + H/2. Its converter therefore reorders the rows of these two matrices, for this architecture only; here the
original order is restored.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath
from jax.sharding import Mesh
from jax.typing import DTypeLike

from prism_jax.student.config import StudentConfig, dtype_name
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights.architecture import Fields
from prism_jax.student.weights.files import refuse_pickle
from prism_jax.student.weights.names import EMBEDDING, HEAD, Format
from prism_jax.student.weights.placing import Index, place
from prism_jax.student.weights.pretrained import Pretrained

ARCHITECTURES = ("qwen3", "llama")

_REORDERED = re.compile(r"blk\.\d+\.attn_([qk])\.weight")

# Exceptions of the reader on bytes that are not GGUF; it checks little.
_CORRUPT = (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError, MemoryError)


def load_gguf(path: epath.PathLike, dtype: DTypeLike, mesh: Mesh | None = None) -> Pretrained:
    """Loads and dequantises a Qwen3 or Llama-shaped model from a GGUF file; needs the extra `gguf`.

    Matrices are dequantised layer by layer, in the piece that a device holds; the host never holds the whole model.

    Args:
      path: Path of the file.
      dtype: Dtype of the parameters and activations: float32, bfloat16 or float16.
      mesh: Mesh over which parameters are sharded (`prism_jax.student.sharding`); None uses the default device.

    Raises:
      OSError: when the file is missing or cannot be read.
      ValueError: when it is corrupt or describes another model; the message names all tensors that are missing,
        unexpected or mis-shaped.
      RuntimeError: when the `gguf` package is not installed.
    """
    name, file = dtype_name(dtype), GGUFFile(pathlib.Path(path))
    model = Qwen3(file.config(name))
    return Pretrained(model, place(file, model, mesh))


class GGUFFile:
    """The tensors of a GGUF file, memory-mapped; see `placing.TensorFile`.

    Raises:
      OSError, ValueError, RuntimeError: as `load_gguf` does.
    """

    form: Format = "gguf"

    def __init__(self, path: pathlib.Path):
        self.where = str(path)
        reader = _open(path)
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.architecture = self._scalar("general.architecture")
        if self.architecture not in ARCHITECTURES:
            expected = " or ".join(ARCHITECTURES)
            raise ValueError(f"{path}: general.architecture: found {self.architecture!r}, expected {expected}")
        self._header = self._own_fields()
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(int(size) for size in reversed(tensor.shape)) for name, tensor in self._tensors.items()
        }
        self.unreadable: Mapping[str, str] = {
            name: f"{tensor.tensor_type.name}, which gguf doesn't dequantise"
            for name, tensor in self._tensors.items()
            if not _readable(tensor)
        }

    def read(self, name: str, index: Index) -> np.ndarray:
        """Reads and dequantises a part of one tensor to float32, with rows in Hugging Face's order."""
        from gguf import dequantize

        tensor = self._tensors[name]
        rows = self._rows(name)
        part = tensor.data[index[0]] if rows is None else tensor.data[rows[index[0]]]
        values = dequantize(part, tensor.tensor_type)
        return values[:, index[1]] if len(index) > 1 else values

    def _rows(self, name: str) -> np.ndarray | None:
        """The file's row for each row of Hugging Face's matrix, for the matrices that llama.cpp reorders; else None."""
        reordered = _REORDERED.fullmatch(name)
        if self.architecture != "llama" or not reordered:
            return None
        heads = self._heads() if reordered[1] == "q" else self._kv_heads()
        # In each head the file has the dimensions in the order 0, H/2, 1, H/2 + 1, ...
        return np.arange(self.shapes[name][0]).reshape(heads, -1, 2).swapaxes(1, 2).ravel()

    def config(self, dtype: str) -> StudentConfig:
        """Reads the student's config from the header.

        Args:
          dtype: Dtype of parameters and activations.

        Raises:
          ValueError: for an unsupported feature, or a field that is missing or malformed.
        """
        fields = self._header
        rows = self.shapes.get(EMBEDDING.gguf, (0,))[0]
        tokens = self._fields.get("tokenizer.ggml.tokens")
        if tokens is not None and rows and len(tokens.data) != rows:
            raise ValueError(
                f"{self.where}: tokenizer.ggml.tokens: found {len(tokens.data)} tokens, expected {rows}, the rows of "
                f"{EMBEDDING.gguf}"
            )
        try:
            return StudentConfig(
                # A missing embedding is reported as a missing tensor.
                vocab_size=rows or 1,
                hidden_dim=fields.count("embedding_length"),
                num_layers=fields.count("block_count"),
                num_heads=self._heads(),
                num_kv_heads=self._kv_heads(),
                head_dim=self._head_dim(),
                mlp_dim=fields.count("feed_forward_length"),
                rope_theta=fields.number("rope.freq_base"),
                # The file holds 1e-5 as a float32; the intended number is the shortest one that rounds to it.
                norm_epsilon=float(str(np.float32(fields.number("attention.layer_norm_rms_epsilon")))),
                qk_norm=self.architecture == "qwen3",
                tied=HEAD.gguf not in self.shapes,
                max_positions=fields.count("context_length"),
                dtype=dtype,
                param_dtype=dtype,
            )
        except ValueError as error:  # The student's own checks do not know the file.
            message = str(error)
            raise ValueError(message if message.startswith(self.where) else f"{self.where}: {message}") from None

    def _own_fields(self) -> Fields:
        """Reads the architecture's own fields and refuses unsupported features."""
        prefix = f"{self.architecture}."
        fields = {name.removeprefix(prefix): self._scalar(name) for name in self._fields if name.startswith(prefix)}
        header = Fields(fields, f"{self.where}: {self.architecture}")
        if fields.get("rope.scaling.type", "none") != "none":
            raise header.error("rope.scaling.type", "'none': the student doesn't scale RoPE")
        for name in ("expert_count", "attention.sliding_window"):
            if fields.get(name):
                raise header.error(name, "0: the student supports no other value")
        return header

    def _head_dim(self) -> int:
        """The width of a head, which must be the same for keys, values and rotary pairs."""
        fields = self._header
        width, heads = fields.count("embedding_length"), self._heads()
        named = [name for name in ("attention.key_length", "rope.dimension_count") if name in fields.fields]
        if not named and width % heads:
            raise fields.error(
                "attention.key_length", f"a number, as a width of {width} is no multiple of {heads} heads"
            )
        head_dim = fields.count(named[0]) if named else width // heads
        for name in ("attention.value_length", "rope.dimension_count"):
            if fields.count(name, head_dim) != head_dim:
                raise fields.error(name, f"{head_dim}, the width of a key")
        return head_dim

    def _heads(self) -> int:
        return self._header.count("attention.head_count")

    def _kv_heads(self) -> int:
        return self._header.count("attention.head_count_kv", self._heads())

    def _scalar(self, name: str) -> Any:
        """The content of a field, arrays as lists; None where the field is absent."""
        try:
            return self._fields[name].contents() if name in self._fields else None
        except _CORRUPT as error:
            raise ValueError(f"{self.where}: {name}: found a corrupt field ({error}), expected a GGUF value") from None


def _open(path: pathlib.Path) -> Any:
    """Opens the memory-mapped file with the package's reader."""
    refuse_pickle(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: found no such file, expected a GGUF file")
    try:
        import gguf
    except ImportError:
        raise RuntimeError("gguf: the package isn't installed; pip install 'prism_jax[gguf]'") from None
    try:
        return gguf.GGUFReader(path)
    except _CORRUPT as error:
        raise ValueError(f"{path}: found a truncated or corrupt GGUF file ({error}), expected a whole one") from None


def _readable(tensor: Any) -> bool:
    """Whether the package can dequantise the tensor to floating-point numbers."""
    from gguf import dequantize

    try:
        return dequantize(tensor.data[:1], tensor.tensor_type).dtype.kind == "f"
    except NotImplementedError:
        return False
