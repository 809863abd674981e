"""Exports a trained run as a plain causal language model: `python -m prism_jax.export --workdir=RUN --output=DIR`.

DIR holds what transformers and serving engines load (config.json, safetensors, tokenizer, chat template) and
prism.json, which says where the two probabilities are read and how the gate decides (docs/export.md).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from absl import flags
from etils import epath

from prism_jax import command
from prism_jax.prompting.hub_files import TURN_END, write_tokenizer
from prism_jax.prompting.template import Template
from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.student import Qwen3
from prism_jax.student.weights import save_hf
from prism_jax.training.config import RunConfig
from prism_jax.training.run import chosen, trained_params
from prism_jax.training.workdir import load_config, read_object, write_json

RULE = "intervene where (1 - p_accept) * c_fa <= p_accept * p_need * c_fn"


def export_run(workdir: epath.Path, output: epath.Path, *, dtype: str | None = None) -> str:
    """Writes the newest (or best, `training.keep_best`) checkpoint of a run as a model directory, whole or not at all.

    Args:
      workdir: Of a run that trained and was evaluated.
      output: A path that doesn't exist yet.
      dtype: Of the tensors; None keeps the parameters' own.

    Returns:
      Which checkpoint it was, in words.

    Raises:
      FileExistsError: when there is something at `output`.
      FileNotFoundError: when the run has no checkpoint or no calibration.json.
      ValueError, RuntimeError: for a file or checkpoint of the run that cannot be used, naming it.
    """
    if output.exists():
        raise FileExistsError(f"{output}: found something there, expected a path that does not exist yet")
    config = load_config(workdir)
    template = Template(Tokenizer.load(workdir / "tokenizer.json"), config.prompt)
    temperatures = _temperatures(workdir / "calibration.json")
    model = Qwen3(config.student)
    step, params = trained_params(model, config, workdir)
    partial = output.parent / f"{output.name}.partial"
    if partial.exists():
        partial.rmtree()  # what an export that was killed left behind
    partial.mkdir(parents=True)
    try:
        special = template.tokenizer.special(TURN_END)
        save_hf(partial, model, params, dtype=dtype, eos_token_id=special, pad_token_id=template.tokenizer.pad)
        write_tokenizer(partial, template.tokenizer, config.data.context)
        write_json(partial / "prism.json", _prism(template, config, temperatures, step))
        partial.rename(output)
    except BaseException:
        partial.rmtree(missing_ok=True)
        raise
    return chosen(config, step)


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


def main() -> None:
    """Runs what the flags say."""
    output = epath.Path(flags.FLAGS.output)
    checkpoint = export_run(epath.Path(flags.FLAGS.workdir), output, dtype=flags.FLAGS.dtype)
    print(f"exported: {output}, checkpoint: {checkpoint}")


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "Folder of a run that trained.")
    flags.DEFINE_string("output", None, "Folder to make.")
    flags.DEFINE_enum("dtype", None, ["float32", "bfloat16", "float16"], "Of the tensors; by default the parameters'.")
    flags.mark_flags_as_required(["workdir", "output"])
    command.start(main)
