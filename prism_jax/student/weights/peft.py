"""Adapters in the format of PEFT: a directory with `adapter_config.json` and `adapter_model.safetensors`.

Its tensors are those of Hugging Face's names (`prism_jax.student.weights.names`) with `lora_A` [r, in] and `lora_B`
[out, r] in place of the weight. Rows of the head for some tokens are stored as they are, not as differences, and a
whole head like any other weight.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from etils import epath
from flax import traverse_util
from jax.typing import DTypeLike
from safetensors.numpy import save_file

from prism_jax.runtime.files import write_json
from prism_jax.runtime.model_files import inside, model_directory, read_json
from prism_jax.runtime.schema import Loose, decode
from prism_jax.student.lora import ROWS, TARGETS, LoraConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.weights.architecture import Above, Count
from prism_jax.student.weights.names import EMBEDDING, HEAD, NAMES, listed
from prism_jax.student.weights.safetensors_in import open_tensors

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"

_PREFIX = "base_model.model."
# What PEFT saves of the embedding and the head beside what trains, such as with `save_embedding_layers`.
_COPY = re.compile(
    rf"{re.escape(_PREFIX)}(model\.embed_tokens|lm_head)"
    r"(\.original_module|\.modules_to_save|\.token_adapter(\.base_layer)?)?\.(weight|trainable_tokens_delta)"
)
# Keys of the config that change nothing in what saved adapters compute; any other key that is set would.
_HARMLESS = {
    "auto_mapping",
    "base_model_name_or_path",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "lora_dropout",
    "loftq_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config(Loose):
    """The keys of the config that are read."""

    peft_type: Literal["LORA"]
    r: Count
    lora_alpha: Above
    bias: Literal["none"] = "none"
    init_lora_weights: Annotated[
        Literal[True, False, None, "gaussian", "eva", "orthogonal"], "one that leaves the base as it is"
    ] = True
    use_rslora: Any = False
    trainable_token_indices: Any = None
    modules_to_save: tuple[Any, ...] | None = None
    ensure_weight_tying: Any = False


def is_adapter(path: epath.PathLike) -> bool:
    """Whether a path is a directory of adapters."""
    return (pathlib.Path(path) / CONFIG).exists()


def base_of(directory: epath.PathLike) -> pathlib.Path:
    """The base that adapters name, which must be a directory or a file here; FileNotFoundError otherwise."""
    folder = pathlib.Path(directory)
    config = read_json(model_directory(folder), CONFIG)
    name = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not isinstance(name, str) or not name or not pathlib.Path(name).exists():
        raise FileNotFoundError(
            f"{folder / CONFIG}: base_model_name_or_path: found {name!r}, expected the path of weights on this machine"
        )
    return pathlib.Path(name)


def save_adapters(
    directory: epath.PathLike, model: Qwen3, params: Params, *, base: str, dtype: DTypeLike | None = None
) -> None:
    """Writes the adapters of a model, without `dtype` in float32, into a folder that has none.

    `base` is the path or name of the base for PEFT.
    """
    folder, lora, tied = pathlib.Path(directory), model.lora, model.config.tied
    leaves = traverse_util.flatten_dict(model.own(params), sep="/")
    tensors: dict[str, np.ndarray] = {}
    for part in _parts(model):
        values = np.asarray(jax.device_get(leaves[part.path])).astype("float32" if dtype is None else dtype)
        for name, tensor in zip(part.tensors, values if part.stacked else [values] * len(part.tensors), strict=True):
            tensors[name] = np.ascontiguousarray(tensor.T if part.transposed else tensor)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS, metadata={"format": "pt"})
    tokens = list(lora.tokens)
    config: dict[str, Any] = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": sorted(lora.targets),
        "task_type": "CAUSAL_LM",
        "use_rslora": False,
    }
    if tokens:
        config["trainable_token_indices"] = tokens if tied else {"lm_head": tokens}
    if lora.trains_head:
        config |= {"modules_to_save": ["embed_tokens" if tied else "lm_head"], "ensure_weight_tying": tied}
    write_json(folder / CONFIG, config)


def adapters_as_in(config: LoraConfig, student: StudentConfig) -> LoraConfig:
    """The config with alpha, targets and head of the adapters in `config.start`; ValueError for another rank."""
    lora, _ = _described(pathlib.Path(config.start), student)
    if lora.rank != config.rank:
        raise ValueError(f"lora.rank: found {config.rank}, expected {lora.rank} as in {config.start}")
    return dataclasses.replace(lora, dropout=config.dropout, start=config.start)


def read_adapters(directory: epath.PathLike, student: StudentConfig, base: Params) -> tuple[LoraConfig, Params]:
    """Reads adapters, on the host in float32, and what they are; `base` holds the parameters that they belong to.

    Raises:
      OSError: when a file is missing. ValueError: naming the file, and the key of a variant of LoRA that is not known
        here, or all tensors that are missing, unexpected, mis-shaped for this student or not finite, or an embedding or
        head that is saved with the adapters and is not the base's.
    """
    folder = pathlib.Path(directory)
    lora, slices = _described(folder, student)
    parts = _parts(Qwen3(student, lora))
    _check_copies(f"{folder / TENSORS}", slices, parts, student.tied, base)
    leaves: dict[str, np.ndarray] = {}
    broken: list[str] = []
    for part in parts:
        names = part.tensors if part.stacked else part.tensors[:1]
        tensors = [np.asarray(slices[name][:], np.float32) for name in names]
        broken += [name for name, tensor in zip(names, tensors, strict=True) if not np.isfinite(tensor).all()]
        tensors = [tensor.T if part.transposed else tensor for tensor in tensors]
        leaves[part.path] = np.stack(tensors) if part.stacked else tensors[0]
    if broken:
        raise ValueError(f"{folder / TENSORS}: {listed(broken)}: found NaN or infinity, expected finite numbers")
    return lora, traverse_util.unflatten_dict(leaves, sep="/")


def _check_copies(place: str, slices: Mapping[str, Any], parts: list[_Part], tied: bool, base: Params) -> None:
    """Compares each embedding or head in a file with the one that trains, or else with the base's."""
    trains = {part.tensors[0] for part in parts}
    for name, match in ((name, _COPY.fullmatch(name)) for name in slices):
        if match is None or name in trains:
            continue
        table = EMBEDDING.hf if tied else f"{match[1]}.weight"
        kept = ".token_adapter.trainable_tokens_delta" if match[4] == "trainable_tokens_delta" else ".weight"
        own = _PREFIX + table.replace(".weight", kept)
        if own in trains and not name.endswith((".original_module.weight", ".base_layer.weight")):
            words, expected = own, np.asarray(slices[own][:])
        else:
            words = "the base's"
            expected = np.asarray(base["embedding"] if table == EMBEDDING.hf else base["head"]["kernel"].T)
        found = np.asarray(slices[name][:])  # one of the two may be rounded to the precision of the other
        if not (found.astype(expected.dtype) == expected).all() and not (found == expected.astype(found.dtype)).all():
            raise ValueError(
                f"{place}: {name}: found other numbers than {words}, expected the same: merge the adapters into their "
                "base with PEFT (merge_and_unload), save that model and load it"
            )


class _Part(NamedTuple):
    """A parameter that trains, and the tensors of a file that hold it."""

    path: str
    tensors: tuple[str, ...]  # one per layer of a stack; of a tied head two, of which the second is a copy
    shape: tuple[int, ...]  # of each tensor
    stacked: bool
    transposed: bool


def _parts(model: Qwen3) -> list[_Part]:
    weights = {name.ours: name.hf for name in NAMES}
    head = (EMBEDDING if model.config.tied else HEAD).hf
    parts = []
    for path, leaf in traverse_util.flatten_dict(model.own(model.abstract_params()), sep="/").items():
        stacked, transposed = "/lora/" in path, path != ROWS and path != EMBEDDING.ours
        if stacked:
            folder, factor = path.split("/lora/")
            pattern = weights[f"{folder}/kernel"].replace(".weight", f".lora_{factor.upper()}.weight")
            tensors = tuple(_PREFIX + pattern.format(layer) for layer in range(leaf.shape[0]))
        elif path == ROWS:
            tensors = (_PREFIX + head.replace(".weight", ".token_adapter.trainable_tokens_delta"),)
        else:
            tensors = (_PREFIX + head, *([_PREFIX + HEAD.hf] if model.config.tied else []))
        shape = leaf.shape[1:] if stacked else leaf.shape
        parts.append(_Part(path, tensors, shape[::-1] if transposed else shape, stacked, transposed))
    return parts


def _described(folder: pathlib.Path, student: StudentConfig) -> tuple[LoraConfig, Mapping[str, Any]]:
    """What the adapters in a folder are, and their tensors, which are those that the student must have."""
    directory = model_directory(folder)
    config, place = read_json(directory, CONFIG), str(folder / CONFIG)
    slices = open_tensors(inside(directory, TENSORS), None)
    lora = _settings(config, place, student.tied, tuple(slices))
    parts = _parts(Qwen3(student, lora))
    shapes = {name: list(part.shape) for part in parts for name in part.tensors[: None if part.stacked else 1]}
    problems = []
    if missing := [name for name in shapes if name not in slices]:
        problems.append(f"missing {listed(missing)}")
    for copy in filter(None, map(_COPY.fullmatch, slices)):
        rows = len(lora.tokens) if copy[4] == "trainable_tokens_delta" else student.vocab_size
        shapes[copy[0]] = [rows, student.hidden_dim]
    if unexpected := [name for name in slices if name not in shapes]:
        problems.append(f"unexpected {listed(unexpected)}")
    found = {name: slices[name].get_shape() for name in shapes if name in slices}
    if misshaped := [
        f"{name} {shape} (expected {shapes[name]})" for name, shape in found.items() if shape != shapes[name]
    ]:
        problems.append(f"mis-shaped {listed(misshaped)}")
    if problems:
        raise ValueError(f"{folder / TENSORS}: found tensors that don't fit the student: {'; '.join(problems)}")
    return lora, slices


def _settings(config: Any, place: str, tied: bool, names: tuple[str, ...]) -> LoraConfig:
    """The settings of a PEFT config, with the targets by the names of the tensors; a pattern may have chosen them."""

    def refuse(key: str, expected: str) -> ValueError:
        return ValueError(f"{place}: {key}: found {config.get(key)!r}, expected {expected}")

    read: _Config = decode(_Config, config, place, ValueError)
    for key, value in config.items():
        if value and key not in _HARMLESS and key not in vars(read):
            raise refuse(key, "it unset: this variant of LoRA is not known here")
    tokens = read.trainable_token_indices or []
    if isinstance(tokens, dict):
        if set(tokens) != {"embed_tokens" if tied else "lm_head"}:
            raise refuse("trainable_token_indices", "those of the head, on a tied head those of the embedding")
        tokens = next(iter(tokens.values()))
    elif tokens and not tied:
        raise refuse("trainable_token_indices", "those of the head: {'lm_head': [...]}")
    if not isinstance(tokens, list) or not all(isinstance(token, int) and token >= 0 for token in tokens):
        raise refuse("trainable_token_indices", "a list of token ids")
    saved = {str(module).rpartition(".")[2] for module in read.modules_to_save or ()}
    if saved - {"embed_tokens", "lm_head"}:
        raise refuse("modules_to_save", "the embedding and the head ('embed_tokens', 'lm_head') alone")
    if tied and saved == {"embed_tokens"} and not read.ensure_weight_tying:
        raise refuse("ensure_weight_tying", "true, so that the head is the saved embedding")
    present = {match[1] for name in names if (match := re.search(r"\.(\w+)\.lora_A\.weight$", name))}
    return LoraConfig(
        rank=read.r,
        alpha=read.lora_alpha * (math.sqrt(read.r) if read.use_rslora else 1.0),
        targets=tuple(target for target in TARGETS if target in present),
        head="all" if ("embed_tokens" if tied else "lm_head") in saved else "slots" if tokens else "frozen",
        tokens=tuple(tokens),
    )
