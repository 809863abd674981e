"""Loading and saving the student's weights: Hugging Face directories in both directions, GGUF files in.

Belongs here: the table of tensor names, reading a checkpoint's architecture, placing tensors on devices, writing them.
Does not belong here: tokenizers, prompts, training state; downloading. Pickle files are never opened.
"""

from __future__ import annotations

import pathlib

from etils import epath
from jax.sharding import Mesh
from jax.typing import DTypeLike

from prism_jax.student.lora import joined
from prism_jax.student.model_config import StudentConfig, dtype_name
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights.gguf_in import GGUFFile, load_gguf
from prism_jax.student.weights.hf_out import save_hf
from prism_jax.student.weights.peft import base_of, is_adapter, read_adapters
from prism_jax.student.weights.pretrained import Pretrained
from prism_jax.student.weights.safetensors_in import load_hf, read_hf_config

__all__ = ["Pretrained", "base_of", "load", "load_gguf", "load_hf", "read_config", "save_hf"]


def load(path: epath.PathLike, dtype: DTypeLike, mesh: Mesh | None = None, blocks: int = 0) -> Pretrained:
    """Calls `load_gguf` for a path that ends in .gguf, else `load_hf`, which describe arguments and errors.

    A directory of PEFT adapters gives their base with the adapters merged into it.
    """
    if is_adapter(path):
        base = load(base_of(path), dtype, mesh)
        lora, part = read_adapters(path, base.model.config, base.params)
        if blocks:
            raise ValueError(f"blocks: found {blocks} for the adapters in {path}, expected 0")
        return Pretrained(base.model, Qwen3(base.model.config, lora).plain(joined(base.params, part)))
    return (load_gguf if pathlib.Path(path).suffix == ".gguf" else load_hf)(path, dtype, mesh, blocks)


def read_config(path: epath.PathLike, dtype: DTypeLike) -> StudentConfig:
    """Reads the config of the whole model, without reading tensors; arguments and errors are those of `load`."""
    if is_adapter(path):
        return read_config(base_of(path), dtype)
    file = pathlib.Path(path)
    return GGUFFile(file).config(dtype_name(dtype)) if file.suffix == ".gguf" else read_hf_config(path, dtype)
