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
from typing import Annotated, Any, Literal, NamedTuple

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
from prism_jax.runtime.files import check_absent, encode_json, new_folder, parse_json, read_bounded
from prism_jax.runtime.schema import decode

FORMAT = 1
SOURCE = "`python -m prism_jax probe`"
_COLUMNS = {"accept": ACCEPT_COLUMNS, "need": NEED_COLUMNS}
_PARTS = ("mean", "scale", "weight")
_AGAIN = "the same: train the probe again"
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
    head = _decoded(_Head, path, contents["probe.json"])
    tensors = _tensors(folder / "weights.safetensors", contents["weights.safetensors"])
    names = [*_COLUMNS, *(["states"] if head.states is not None else [])]
    linear = {name: _regression(path, name, tensors, head.intercepts) for name in names}
    idf = _decoded(_Counts, folder / "ngrams.json", contents["ngrams.json"])
    acceptance = Acceptance(Idf(idf.documents, idf.frequency), linear["accept"], linear.get("states"))
    accept, need = (Platt(head.maps[name].b, head.maps[name].a) for name in ("accept", "need"))
    return SavedProbe(Probe(acceptance, linear["need"], accept, need, head.need_target), head.states)


class _Line(NamedTuple):
    """The map a + b · z."""

    a: float
    b: float


def _columns(of_parts: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, columns in _COLUMNS.items():
        if of_parts.get(name) != list(columns):
            raise ValueError(f"{name}: found other columns than the {len(columns)} of this version, expected {_AGAIN}")
    return of_parts


def _window(window: Any) -> Any:
    if window != (expected := WINDOW._asdict()):
        raise ValueError(
            f"found {window!r:.80}, expected {expected}, as this version sees a stream: train the probe again"
        )
    return window


def _both(of_parts: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _COLUMNS:
        if name not in of_parts:
            raise ValueError(f"{name}: found nothing, expected this key")
    return of_parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Head:
    """The keys of probe.json."""

    format: Annotated[Literal[1], "1: train the probe again"]
    columns: Annotated[Mapping[str, Any], _columns]
    window: Annotated[Any, _window]
    intercepts: Annotated[Mapping[str, float], _both]
    maps: Annotated[Mapping[str, _Line], _both]
    need_target: NeedTarget
    states: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if self.states is not None and "states" not in self.intercepts:
            raise ValueError("intercepts.states: found nothing, expected that of the states")


@dataclasses.dataclass(frozen=True)
class _Counts:
    """The keys of ngrams.json."""

    documents: int
    frequency: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, count in self.frequency.items():
            if not 0 < count <= self.documents:
                raise ValueError(
                    f"frequency.{name!a:.40}: found {count}, expected from 1 to the {self.documents} documents"
                )


def _decoded(kind: type, path: epath.Path, data: bytes) -> Any:
    return decode(kind, parse_json(data, str(path), SavedProbeError), str(path), SavedProbeError)


def _tensors(path: epath.Path, content: bytes) -> dict[str, np.ndarray]:
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise SavedProbeError(f"{path}: found no safetensors ({error}), expected what {SOURCE} writes") from error


def _regression(
    path: epath.Path, name: str, tensors: Mapping[str, np.ndarray], intercepts: Mapping[str, float]
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
    return Linear(**parts, intercept=intercepts[name])


def _numbers(fitted: Platt) -> dict[str, float]:
    """The map a + b · z, which `_Line` reads."""
    return {"a": fitted.bias, "b": fitted.scale}
