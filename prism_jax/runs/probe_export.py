"""Exports a probe as a directory that the agent serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from etils import epath

from prism_jax.decision.calibration import map_to_dict
from prism_jax.probe.kept_states import copy_weights, reading_of, template_of
from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.probe.saved import FILES, SavedProbe, load_probe
from prism_jax.runs.export import PROBABILITY, RULE, calibration_of
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.runtime.digests import write_digests
from prism_jax.runtime.files import check_absent, new_folder, read_object, write_json


def is_probe(workdir: epath.PathLike) -> bool:
    """Whether a folder is the workdir of a probe."""
    return (epath.Path(workdir) / "probe" / "probe.json").exists()


def export_probe(workdir: epath.PathLike, output: epath.Path) -> str:
    """Writes the files of a probe, with the prism.json by which the agent decides.

    The language model of a probe on states is copied, so that the directory is complete. The result describes what was
    exported, with the SHA-256 of its `digests.json`.

    Raises:
      FileExistsError: if `output` already exists.
      FileNotFoundError: if the run was not evaluated, or its language model is gone.
      ValueError: naming a file that cannot be used, or for other weights than those that the probe was trained on.
    """
    workdir = epath.Path(workdir)
    check_absent(output)
    path = workdir / "config.json"
    config = from_config_dict(ProbeConfig, read_object(path, "prism_jax.probe", ConfigError), f"{path}: config")
    saved = load_probe(workdir / "probe")
    slots: dict[str, Any] = {}
    if saved.states is not None:
        reading = reading_of(config.states.weights, saved.states, f"{workdir / 'probe' / 'probe.json'}: states")
        slots = template_of(reading).describe()
    prism = _prism(config, saved, _maps(workdir / "calibration.json", saved.probe.need_target), slots)
    with new_folder(output) as folder:
        for name in FILES:
            (workdir / "probe" / name).copy(folder / name)
        if saved.states is not None:
            copy_weights(config.states.weights, folder)
        write_json(folder / "prism.json", prism)
        digest = write_digests(folder)
    exported = "a probe on words" if saved.states is None else "a probe on words and states, with its language model"
    return f"{exported}, SHA-256 of digests.json: {digest}"


def _maps(path: epath.Path, need_target: str) -> dict[str, dict[str, Any]]:
    """The map of each signal, as evaluation wrote it."""
    calibration = calibration_of(path, need_target)
    fits = {name: getattr(calibration, name) for name in ("need_fast", "accept_fast")}
    return {name: map_to_dict(fit.map) for name, fit in fits.items()}


def _prism(
    config: ProbeConfig, saved: SavedProbe, maps: Mapping[str, Mapping[str, Any]], slots: Mapping[str, Any]
) -> dict[str, Any]:
    formula = PROBABILITY[maps["need_fast"]["calibrator"]].partition(", with")[0]
    return {
        "format": 1,
        "slots": slots,
        "probe": True,
        "probability": f"{formula}, z the probe's log-odds",
        "calibration": maps,
        "decision": dataclasses.asdict(config.decision.triggered(False)),
        "dynamic": RULE,
        "need_target": saved.probe.need_target,
        "responses": False,
        "checkpoint": 0,
    }
