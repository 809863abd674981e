"""Exports a probe on words as a directory that the agent serves."""

from __future__ import annotations

import dataclasses

from etils import epath

from prism_jax.decision.calibration import map_to_dict
from prism_jax.evaluation.fits import read_calibration
from prism_jax.policy.words_reader import WordsReader
from prism_jax.probe.config import ProbeConfig
from prism_jax.probe.saved import FILES, load_probe
from prism_jax.recipes.export import PROBABILITY, RULE
from prism_jax.runtime.config import ConfigError, from_config_dict
from prism_jax.runtime.files import check_absent, new_folder, read_object, write_json
from prism_jax.training.checkpoints.digests import write_digests


def is_probe(workdir: epath.PathLike) -> bool:
    """Whether a folder is the workdir of a probe."""
    return (epath.Path(workdir) / "probe" / "probe.json").exists()


def export_probe(workdir: epath.PathLike, output: epath.Path) -> str:
    """Writes the files of a probe, with the prism.json by which the agent decides.

    Args:
      workdir: Folder of a run of `prism_jax.probe`.
      output: A path that does not exist yet.

    Returns:
      A description of what was exported.

    Raises:
      FileExistsError: if `output` already exists.
      FileNotFoundError: if the run was not evaluated.
      ValueError: naming a file that cannot be used, or for a probe on states, which cannot be served.
    """
    workdir = epath.Path(workdir)
    check_absent(output)
    path = workdir / "config.json"
    config = from_config_dict(ProbeConfig, read_object(path, "prism_jax.probe", ConfigError), f"{path}: config")
    saved = load_probe(workdir / "probe")
    WordsReader(saved.probe)  # raises for one that the agent cannot serve
    calibration = read_calibration(workdir / "calibration.json")
    if calibration.need_fast is None:
        raise ValueError(f"{workdir / 'calibration.json'}: need_fast: found none, expected the map of this signal")
    fits = {"need_fast": calibration.need_fast, "accept_fast": calibration.accept_fast}
    maps = {name: map_to_dict(fit.map) for name, fit in fits.items()}
    with new_folder(output) as folder:
        for name in FILES:
            (folder / name).write_bytes((workdir / "probe" / name).read_bytes())
        prism = {
            "format": 1,
            "slots": {},
            "probe": True,
            "probability": PROBABILITY[maps["need_fast"]["calibrator"]].partition(", with")[0]
            + ", z the probe's log-odds",
            "calibration": maps,
            "decision": dataclasses.asdict(config.decision),
            "dynamic": RULE,
            "need_target": saved.probe.need_target,
            "responses": False,
            "checkpoint": 0,
        }
        write_json(folder / "prism.json", prism)
        write_digests(folder)
    return "a probe on words"
