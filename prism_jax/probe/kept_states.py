"""States of streams, kept in a folder under a digest of everything that they depend on.

A stream is read once; the weights are loaded only where some stream was not read before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from etils import epath
from jaxtyping import Float

from prism_jax.probe.probe_config import StatesConfig
from prism_jax.probe.states import Reader
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.runtime.files import open_regular, read_bounded, write_bytes
from prism_jax.streams import Stream
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import encode_stream
from prism_jax.student import weights
from prism_jax.student.prompting.template import PromptConfig, Template
from prism_jax.student.prompting.tokenizer import Tokenizer

_READ = ("*.safetensors", "*.json", "*.txt", "*.jinja")
"""The files of a model directory that its states depend on."""
DTYPE = "float32"
"""Dtype in which the language model is read."""
_CHUNK = 2**22
_MOST_BYTES = 2**32
"""Largest file of one stream's states."""
_FILE, _FOLDER = "model.gguf", "model"
"""Name of a copied file, and of a folder with the copied files of a model directory."""


def describe_states(config: StatesConfig) -> dict[str, Any]:
    """Everything that the states of a stream depend on beside the stream, as plain data."""
    return {
        "weights_sha256": _digest(epath.Path(config.weights)),
        "blocks": list(config.blocks),
        "system": config.system,
        "context": config.context,
    }


def reading_of(weights: epath.PathLike, about: Mapping[str, Any], place: str) -> StatesConfig:
    """The settings with which a saved probe reads its language model, whose weights are now at `weights`.

    `about` is what `describe_states` wrote, at `place`.

    Raises:
      FileNotFoundError: if there are no such weights.
      ValueError: naming place and key, for anything but what `describe_states` writes, or for other weights.
    """
    settings = {name: value for name, value in about.items() if name != "weights_sha256"}
    config = from_config_dict(StatesConfig, {**settings, "weights": str(weights)}, place)
    actual, expected = _digest(epath.Path(weights)), about.get("weights_sha256")
    if actual != expected:
        raise ConfigError(
            f"{weights}: found the SHA-256 {actual[:12]}…, expected {str(expected)[:12]}… as in {place}: "
            "the probe was trained on other weights"
        )
    return config


def copy_weights(source: epath.PathLike, folder: epath.Path) -> None:
    """Copies all that a digest of weights covers into a folder, where `copied_weights` finds it."""
    path = epath.Path(source)
    if not path.is_dir():
        path.copy(folder / _FILE)
        return
    (folder / _FOLDER).mkdir()
    for file in _files(path):
        file.copy(folder / _FOLDER / file.name)


def copied_weights(folder: epath.PathLike) -> epath.Path:
    """The path of weights that `copy_weights` wrote; it need not exist."""
    file = epath.Path(folder) / _FILE
    return file if file.exists() else epath.Path(folder) / _FOLDER


def states_of(
    streams: Sequence[Stream], config: StatesConfig, folder: epath.PathLike
) -> list[Float[np.ndarray, "offers width"]]:
    """Returns the states of every stream's offers, from files of an earlier call where there are any.

    The folder has one file per stream. Labels are not read. A call that was interrupted, once repeated, gives the same.

    Raises:
      ValueError, OSError, RuntimeError: for weights or streams that cannot be read; what was read until then is kept.
    """
    about = json.dumps(describe_states(config), sort_keys=True)
    paths = [epath.Path(folder) / f"{_key(about, stream)}.safetensors" for stream in streams]
    missing = [place for place, path in enumerate(paths) if not _has_states(path)]
    if missing:
        epath.Path(folder).mkdir(parents=True, exist_ok=True)
        reader = load_reader(config)
        for place, states in zip(missing, reader.read(streams, missing), strict=True):
            write_bytes(paths[place], safetensors.numpy.save({"states": states}))
    return [safetensors.numpy.load(_read(path))["states"] for path in paths]


def load_reader(config: StatesConfig) -> Reader:
    """Loads the language model of a config; raises ValueError if it has fewer blocks than are to be read."""
    model = weights.read_config(config.weights, DTYPE)
    if config.blocks[-1] > model.num_layers:
        raise ValueError(
            f"states.blocks: found {config.blocks}, expected at most the {model.num_layers} blocks of {config.weights}"
        )
    loaded = weights.load(config.weights, DTYPE)
    return Reader(loaded.model, loaded.params, template_of(config), config.blocks, config.context)


def template_of(config: StatesConfig) -> Template:
    """The prompt over the tokenizer of the language model."""
    return Template(Tokenizer.load(config.weights), PromptConfig(system=config.system))


def _key(about: str, stream: Stream) -> str:
    shown = encode_stream(without_answers(stream))
    return hashlib.sha256(f"{about}\n{shown}".encode("utf-8", "surrogatepass")).hexdigest()


def _has_states(path: epath.Path) -> bool:
    """Whether there are whole states in a file; a damaged one is read again."""
    if not path.exists():
        return False
    try:
        return "states" in safetensors.numpy.load(_read(path))
    except safetensors.SafetensorError:
        return False


def _read(path: epath.Path) -> bytes:
    return read_bounded(path, ValueError, _MOST_BYTES, "states of a stream")


def _digest(path: epath.Path) -> str:
    """SHA-256 of a file, or of the files of a model directory in the order of their names."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected in states.weights a GGUF file or a model directory")
    total = hashlib.sha256()
    for file in _files(path) if path.is_dir() else [path]:
        total.update(f"{file.name if path.is_dir() else ''}\n".encode())
        with open_regular(file, ValueError, "weights") as opened:
            while block := opened.read(_CHUNK):
                total.update(block)
    return total.hexdigest()


def _files(folder: epath.Path) -> list[epath.Path]:
    """The files of a model directory that its states depend on, in the order of their names."""
    return sorted({file for pattern in _READ for file in folder.glob(pattern)})
