"""The folder of a saved probe: plain files, which are checked and never executed.

probe.json            format, names of the columns, the window that they see, intercepts, maps, what p_need
                      estimates, the language model
ngrams.json           number of training texts, and how many of them hold each n-gram
weights.safetensors   mean, scale and weight of every column of each regression
digests.json          SHA-256 of the other three (`prism_jax.runtime.digests`)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import safetensors
import safetensors.numpy
from etils import epath

from prism_jax.decision.calibration import Platt
from prism_jax.probe.fitting import Acceptance, Probe
from prism_jax.probe.logistic import Linear
from prism_jax.probe.ngrams import Idf
from prism_jax.probe.probe_config import NeedTarget
from prism_jax.probe.window import WINDOW
from prism_jax.probe.words import ACCEPT_COLUMNS, NEED_COLUMNS
from prism_jax.runtime.digests import check_contents, write_digests
from prism_jax.runtime.files import check_absent, check_keys, encode_json, new_folder, parse_json, read_bounded

FORMAT = 1
SOURCE = "`python -m prism_jax probe`"
_COLUMNS = {"accept": ACCEPT_COLUMNS, "need": NEED_COLUMNS}
_PARTS = ("mean", "scale", "weight")
_KEYS = ("format", "columns", "window", "intercepts", "maps", "need_target", "states")
FILES = ("probe.json", "ngrams.json", "weights.safetensors")
"""The files of a saved probe."""
_MOST_BYTES = 2**30


class SavedProbeError(ValueError):
    """A folder that holds no usable probe; the message names file and key, what was found and what was expected."""


@dataclasses.dataclass(frozen=True)
class SavedProbe:
    """A probe as it is on disk."""

    probe: Probe
    states: Mapping[str, Any] | None = None  # which language model is read and how; None for words alone


def save_probe(folder: epath.PathLike, saved: SavedProbe) -> None:
    """Writes a probe into a new folder, which appears once it is complete; raises FileExistsError if it exists."""
    check_absent(folder)
    probe = saved.probe
    linear = {"accept": probe.acceptance.words, "need": probe.words}
    if probe.acceptance.states is not None:
        linear["states"] = probe.acceptance.states
    tensors = {
        f"{name}.{part}": np.ascontiguousarray(getattr(fitted, part))
        for name, fitted in linear.items()
        for part in _PARTS
    }
    idf = probe.acceptance.idf
    contents = {
        "ngrams.json": encode_json({"documents": idf.documents, "frequency": dict(idf.frequency)}),
        "weights.safetensors": safetensors.numpy.save(tensors),
    }
    head = {
        "format": FORMAT,
        "columns": {name: list(columns) for name, columns in _COLUMNS.items()},
        "window": WINDOW._asdict(),
        "intercepts": {name: fitted.intercept for name, fitted in linear.items()},
        "maps": {name: _numbers(getattr(probe, name)) for name in _COLUMNS},
        "need_target": probe.need_target,
        "states": saved.states,
    }
    with new_folder(folder) as partial:
        for name, content in {**contents, "probe.json": encode_json(head)}.items():
            (partial / name).write_bytes(content)
        write_digests(partial)


def load_probe(folder: epath.PathLike) -> SavedProbe:
    """Reads a probe.

    Raises:
      SavedProbeError: naming file and key, for another format, columns that this version does not compute, or a number
        that is not finite.
      FileNotFoundError, DigestError: naming the file that is missing or was changed.
    """
    folder = epath.Path(folder)
    path = folder / "probe.json"
    contents = {
        name: read_bounded(folder / name, SavedProbeError, _MOST_BYTES, f"what {SOURCE} writes") for name in FILES
    }
    check_contents(folder, contents, source=SOURCE)
    head = parse_json(contents["probe.json"], str(path), SavedProbeError)
    if not isinstance(head, dict):
        raise SavedProbeError(f"{path}: found no object with keys, expected what {SOURCE} writes")
    _check_keys(path, head)
    tensors = _tensors(folder / "weights.safetensors", contents["weights.safetensors"])
    names = [*_COLUMNS, *(["states"] if head["states"] is not None else [])]
    linear = {name: _regression(path, name, tensors, head["intercepts"]) for name in names}
    idf = _idf(folder / "ngrams.json", contents["ngrams.json"])
    acceptance = Acceptance(idf, linear["accept"], linear.get("states"))
    maps = {name: _platt(path, name, head["maps"]) for name in _COLUMNS}
    probe = Probe(acceptance, linear["need"], maps["accept"], maps["need"], _need_target(path, head))
    return SavedProbe(probe, head["states"])


def _check_keys(path: epath.Path, head: Mapping[str, Any]) -> None:
    if head.get("format") != FORMAT or isinstance(head.get("format"), bool):
        raise SavedProbeError(
            f"{path}: format: found {head.get('format')!r:.40}, expected {FORMAT}: train the probe again"
        )
    check_keys(head, _KEYS, str(path), SavedProbeError, source=SOURCE)
    for key in ("columns", "intercepts", "maps"):
        if not isinstance(head[key], dict):
            raise SavedProbeError(f"{path}: {key}: found {head[key]!r:.40}, expected an object with keys")
    if head["states"] is not None and not isinstance(head["states"], dict):
        raise SavedProbeError(f"{path}: states: found {head['states']!r:.40}, expected an object with keys or null")
    for name, columns in _COLUMNS.items():
        if head["columns"].get(name) != list(columns):
            raise SavedProbeError(
                f"{path}: columns.{name}: found other columns than the {len(columns)} that this version computes, "
                "expected the same: train the probe again"
            )
    if head["window"] != (window := WINDOW._asdict()):
        raise SavedProbeError(
            f"{path}: window: found {head['window']!r:.80}, expected {window}, as this version sees a stream: "
            "train the probe again"
        )


def _tensors(path: epath.Path, content: bytes) -> dict[str, np.ndarray]:
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise SavedProbeError(f"{path}: found no safetensors ({error}), expected what {SOURCE} writes") from error


def _regression(
    path: epath.Path, name: str, tensors: Mapping[str, np.ndarray], intercepts: Mapping[str, Any]
) -> Linear:
    parts: dict[str, np.ndarray] = {}
    width = len(_COLUMNS[name]) if name in _COLUMNS else None
    for part in _PARTS:
        tensor = tensors.get(f"{name}.{part}")
        place = f"{path.parent / 'weights.safetensors'}: {name}.{part}"
        if tensor is None:
            raise SavedProbeError(f"{place}: found no such tensor, expected it")
        width = width or len(tensor)
        if tensor.shape != (width,) or tensor.dtype != np.float64:
            raise SavedProbeError(f"{place}: found {tensor.dtype} {tensor.shape}, expected float64 ({width},)")
        if not np.isfinite(tensor).all() or (part == "scale" and (tensor <= 0).any()):
            raise SavedProbeError(f"{place}: found a value out of range, expected finite numbers (a scale above 0)")
        parts[part] = tensor
    return Linear(**parts, intercept=_number(path, f"intercepts.{name}", intercepts.get(name)))


def _platt(path: epath.Path, name: str, maps: Mapping[str, Any]) -> Platt:
    numbers = maps.get(name)
    if not isinstance(numbers, dict) or set(numbers) != {"a", "b"}:
        raise SavedProbeError(f"{path}: maps.{name}: found {numbers!r:.40}, expected numbers named a and b")
    bias, scale = (_number(path, f"maps.{name}.{key}", numbers[key]) for key in ("a", "b"))
    return Platt(scale, bias)


def _numbers(fitted: Platt) -> dict[str, float]:
    """The map a + b · z, which `_platt` reads."""
    return {"a": fitted.bias, "b": fitted.scale}


def _need_target(path: epath.Path, head: Mapping[str, Any]) -> NeedTarget:
    target, known = head["need_target"], get_args(NeedTarget)
    if target not in known:
        raise SavedProbeError(f"{path}: need_target: found {target!r:.40}, expected one of {', '.join(known)}")
    return target


def _number(path: epath.Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise SavedProbeError(f"{path}: {key}: found {value!r:.40}, expected a finite number")
    return float(value)


def _idf(path: epath.Path, content: bytes) -> Idf:
    tree = parse_json(content, str(path), SavedProbeError)
    documents = tree.get("documents") if isinstance(tree, dict) else None
    frequency = tree.get("frequency") if isinstance(tree, dict) else None
    if type(documents) is not int or not isinstance(frequency, dict):
        raise SavedProbeError(f"{path}: found other keys, expected documents (a number) and frequency (an object)")
    for name, count in frequency.items():
        if type(count) is not int or not 0 < count <= documents:
            raise SavedProbeError(f"{path}: frequency.{name!a}: found {count!r:.40}, expected 1 to {documents}")
    return Idf(documents, frequency)
