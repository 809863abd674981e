"""Exports a trained run as a directory that transformers and serving engines load, with a `prism.json`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from etils import epath

from prism_jax.prompting.hub_files import TURN_END, write_tokenizer
from prism_jax.prompting.template import Template
from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.runtime.files import check_absent, new_folder, read_object, write_json
from prism_jax.student import Qwen3
from prism_jax.student.weights import save_hf
from prism_jax.training.config import RunConfig
from prism_jax.training.run import checkpoint_in_words, trained_params
from prism_jax.training.workdir import Workdir

RULE = "intervene where p_accept * p_need > 0 and (1 - p_accept) * c_fa <= p_accept * p_need * c_fn"
"""The gate's comparison (`prism_jax.decision.gate.intervene`) in words."""


def export_run(workdir: Workdir, output: epath.Path, *, dtype: str | None = None) -> str:
    """Writes the newest checkpoint of a run (or the best, `training.keep_best`) as a model directory.

    If the export fails, nothing is left behind.

    Args:
      workdir: Folder of a run that was trained and evaluated.
      output: A path that does not exist yet.
      dtype: Dtype of the written tensors; None keeps that of the parameters.

    Returns:
      A description of the exported checkpoint.

    Raises:
      FileExistsError: if `output` already exists.
      FileNotFoundError: if the run has no checkpoint or no calibration.json.
      ValueError, RuntimeError: naming a file or checkpoint of the run that cannot be used.
    """
    check_absent(output)
    config = workdir.load_config()
    template = Template(Tokenizer.load(workdir.tokenizer), config.prompt)
    temperatures = _temperatures(workdir.calibration)
    model = Qwen3(config.student)
    step, params = trained_params(model, config, workdir)
    with new_folder(output) as folder:
        special = template.tokenizer.special(TURN_END)
        save_hf(folder, model, params, dtype=dtype, eos_token_id=special, pad_token_id=template.tokenizer.pad)
        write_tokenizer(folder, template.tokenizer, config.packing.context)
        write_json(folder / "prism.json", _prism(template, config, temperatures, step))
    return checkpoint_in_words(config, step)


def _temperatures(path: epath.Path) -> dict[str, Any]:
    """The temperature of each calibrated signal."""
    temperatures = {}
    for name, fit in read_object(path, "`python -m prism_jax.evaluate`").items():
        if fit is None:
            continue
        found = fit.get("temperature") if isinstance(fit, dict) else None
        if not isinstance(found, float | int) or not 0 < found < math.inf:
            raise ValueError(f"{path}: {name}.temperature: found {found!r}, expected a finite number above 0")
        temperatures[name] = found
    return temperatures


def _prism(template: Template, config: RunConfig, temperatures: dict[str, Any], step: int) -> dict[str, Any]:
    """The content of prism.json."""
    return {
        "format": 1,
        "slots": template.describe(),
        "probability": "sigmoid((z_yes - z_no) / temperature), with the next-token logits at a slot's last token",
        "temperatures": temperatures,
        "decision": dataclasses.asdict(config.decision),
        "dynamic": RULE,
        "checkpoint": step,
    }
