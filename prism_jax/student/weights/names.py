"""The table of names: a parameter's path in our tree, its tensor in a Hugging Face checkpoint and in a GGUF file.

The kernel of a Linear is [in, out] here, while the weight is [out, in] in both formats. Layers are stacked along a
leading axis here and are separate tensors in the files. Import and export use the same table.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.student.qwen3 import Params
from prism_jax.student.sharding import path_of

Format = Literal["hf", "gguf"]

# Maximum number of names in an error, because the file of another model has hundreds.
_SPELLED_OUT = 12


@dataclasses.dataclass(frozen=True)
class Name:
    """One row of the table; `{}` is replaced by the layer's number.

    With `transposed`, the file's tensor is the transpose of a layer's parameter.
    """

    ours: str
    hf: str
    gguf: str
    transposed: bool = False


def _block(ours: str, hf: str, gguf: str, transposed: bool = False) -> Name:
    return Name(f"layers/{ours}", f"model.layers.{{}}.{hf}.weight", f"blk.{{}}.{gguf}.weight", transposed)


EMBEDDING = Name("embedding", "model.embed_tokens.weight", "token_embd.weight")
HEAD = Name("head/kernel", "lm_head.weight", "output.weight", transposed=True)

NAMES = (
    EMBEDDING,
    _block("input_norm/weight", "input_layernorm", "attn_norm"),
    _block("attention/q_proj/kernel", "self_attn.q_proj", "attn_q", transposed=True),
    _block("attention/k_proj/kernel", "self_attn.k_proj", "attn_k", transposed=True),
    _block("attention/v_proj/kernel", "self_attn.v_proj", "attn_v", transposed=True),
    _block("attention/o_proj/kernel", "self_attn.o_proj", "attn_output", transposed=True),
    _block("attention/q_norm/weight", "self_attn.q_norm", "attn_q_norm"),
    _block("attention/k_norm/weight", "self_attn.k_norm", "attn_k_norm"),
    _block("post_norm/weight", "post_attention_layernorm", "ffn_norm"),
    _block("mlp/gate_proj/kernel", "mlp.gate_proj", "ffn_gate", transposed=True),
    _block("mlp/up_proj/kernel", "mlp.up_proj", "ffn_up", transposed=True),
    _block("mlp/down_proj/kernel", "mlp.down_proj", "ffn_down", transposed=True),
    Name("final_norm/weight", "model.norm.weight", "output_norm.weight"),
    HEAD,
)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter and the names of the tensors of a file that hold it: one per layer if the parameter is stacked.

    With `stacked`, the leading axis indexes layers. With `transposed`, each tensor is the transpose of a layer's
    parameter.
    """

    path: str
    leaf: jax.Array | np.ndarray | jax.ShapeDtypeStruct
    tensors: tuple[str, ...]
    stacked: bool
    transposed: bool

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of each tensor."""
        shape = self.leaf.shape[1:] if self.stacked else self.leaf.shape
        return shape[::-1] if self.transposed else shape


def parameters(params: Params, form: Format) -> list[Parameter]:
    """Lists the parameters (or their shapes) with their tensors in a format, in the order of the table."""
    leaves = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    if unknown := leaves.keys() - {name.ours for name in NAMES}:
        raise ValueError(f"weights: found parameters {', '.join(sorted(unknown))}, expected those that NAMES lists")
    rows = []
    for name in NAMES:
        if name.ours in leaves:
            leaf, pattern = leaves[name.ours], getattr(name, form)
            stacked = "{}" in pattern
            tensors = tuple(pattern.format(i) for i in range(leaf.shape[0])) if stacked else (pattern,)
            rows.append(Parameter(name.ours, leaf, tensors, stacked, name.transposed))
    return rows


def listed(names: Collection[str]) -> str:
    """Formats names for an error: the first ones, and the number of the others."""
    shown = ", ".join(list(names)[:_SPELLED_OUT])
    return shown if len(names) <= _SPELLED_OUT else f"{shown} and {len(names) - _SPELLED_OUT} more"


def not_finite(placed: Sequence[Parameter], dtype: str) -> list[str]:
    """The names of the tensors that are not finite everywhere in a dtype.

    NumPy finds them in the host's memory, which one CPU works in, too; elsewhere the devices do, by one program.
    """
    leaves, stacked = [parameter.leaf for parameter in placed], tuple(parameter.stacked for parameter in placed)
    names = [name for parameter in placed for name in parameter.tensors]
    if all(map(_on_host, leaves)):
        arrays = [
            np.asarray(leaf) if layers else np.asarray(leaf)[None] for leaf, layers in zip(leaves, stacked, strict=True)
        ]
        with np.errstate(over="ignore"):
            finite = [np.isfinite(part.astype(dtype, copy=False)).all() for array in arrays for part in array]
    else:
        finite = [*np.concatenate([np.atleast_1d(own) for own in _all_finite(leaves, dtype, stacked)])]
    return [name for name, good in zip(names, finite, strict=True) if not good]


def _on_host(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) or [device.platform for device in leaf.devices()] == ["cpu"]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _all_finite(leaves: Sequence[jax.Array], dtype: str, stacked: tuple[bool, ...]) -> list[jax.Array]:
    """Whether all numbers of each array are finite: one value, or one per layer where layers are stacked."""
    pairs = zip(leaves, stacked, strict=True)
    return [jnp.isfinite(leaf.astype(dtype)).all(axis=tuple(range(layers, leaf.ndim))) for leaf, layers in pairs]
