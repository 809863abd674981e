"""Loading and saving the student's weights: Hugging Face directories in both directions, GGUF files in.

Belongs here: the table of tensor names, reading a checkpoint's architecture, placing tensors on devices, writing them.
Does not belong here: tokenizers, prompts, training state; downloading. Pickle files are never opened.
"""

from __future__ import annotations

import pathlib

from etils import epath
from jax.sharding import Mesh
from jax.typing import DTypeLike

from prism_jax.student.model_config import StudentConfig, dtype_name
from prism_jax.student.weights.gguf_in import GGUFFile, load_gguf
from prism_jax.student.weights.hf_out import save_hf
from prism_jax.student.weights.pretrained import Pretrained
from prism_jax.student.weights.safetensors_in import load_hf, read_hf_config

__all__ = ["Pretrained", "load", "load_gguf", "load_hf", "read_config", "save_hf"]


def load(path: epath.PathLike, dtype: DTypeLike, mesh: Mesh | None = None, blocks: int = 0) -> Pretrained:
    """Calls `load_gguf` for a path that ends in .gguf, else `load_hf`, which describe arguments and errors."""
    return load_gguf(path, dtype, mesh, blocks) if _is_gguf(path) else load_hf(path, dtype, mesh, blocks)


def read_config(path: epath.PathLike, dtype: DTypeLike) -> StudentConfig:
    """Reads the config of the whole model, without reading tensors; arguments and errors are those of `load`."""
    return GGUFFile(pathlib.Path(path)).config(dtype_name(dtype)) if _is_gguf(path) else read_hf_config(path, dtype)


def _is_gguf(path: epath.PathLike) -> bool:
    return pathlib.Path(path).suffix == ".gguf"
