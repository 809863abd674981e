"""Exports a trained run as a directory that transformers and serving engines load, with a `prism.json`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from prism_jax.decision.calibration import Map, Temperature, map_to_dict
from prism_jax.evaluation.fits import SIGNALS, Calibration, read_calibration
from prism_jax.runtime.digests import write_digests
from prism_jax.runtime.files import check_absent, new_folder, on_disk, write_json, write_text
from prism_jax.scores import read_scores
from prism_jax.streams import Candidate, Event
from prism_jax.student.prompting.template import Template
from prism_jax.student.prompting.tokenizer import CHAT_TEMPLATE, Tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import Pretrained, load, save_hf
from prism_jax.student.weights.peft import save_adapters
from prism_jax.training import fingerprints
from prism_jax.training.run import checkpoint_in_words, restore_trained
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

_SCORES = "scores.parquet"
_TURN = "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
_OPENING = "{{- '<|im_start|>assistant\\n' -}}"
_NOT_THINKING = (
    "{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}"
)
TURN_END = "<|im_end|>"
SAMPLE = (
    Event(time=0.0, text="The user opens a file and reads an error message."),
    Event(time=300.0, text="The user searches for the message and finds no answer."),
)
"""A stream whose log-odds tell a student from another."""
RULE = "intervene where p_accept * p_need > 0 and (1 - p_accept) * c_fa <= p_accept * p_need * c_fn"
"""The gate's comparison (`prism_jax.decision.gate.intervene`) in words."""

_AT = "with z = z_yes - z_no, the next-token logits at a slot's last token"
PROBABILITY = {
    "temperature": "sigmoid((z_yes - z_no) / temperature), with the next-token logits at a slot's last token",
    "platt": f"sigmoid(scale * z + bias) with z kept between -bound and bound where there is one, {_AT}",
    "isotonic": f"linear interpolation of y over x at sigmoid(z), constant beyond the ends, {_AT}",
    "grouped": f"sigmoid(z / T), T = temperatures[the stream's domain], pooled for any other, {_AT}",
}
"""The calibrated probability of a signal in words, by calibrator; its numbers are under `calibration`."""


def export_run(
    run: epath.PathLike,
    output: epath.Path,
    *,
    calibration: epath.PathLike | None = None,
    dtype: str | None = None,
    adapter: bool = False,
) -> tuple[str, bool]:
    """Writes the newest checkpoint of a run (or the best, `training.keep_best`) as a model directory.

    The run was trained and evaluated, and `output` does not exist yet; if the export fails, nothing is left behind.
    `calibration` is a calibration.json to take over instead of the run's own. A run that was scored without labels has
    none, and is exported with its probabilities as they are. Without `dtype`, tensors keep the dtype of the parameters.
    Adapters are merged into their base; with `adapter` they are written alone, as PEFT loads them on that base.

    Returns:
      A description of the exported checkpoint with the SHA-256 of its `digests.json`, which says so where it is not
      calibrated, and whether it is the trained result: a damaged one is passed over.

    Raises:
      FileExistsError: if `output` already exists.
      FileNotFoundError: if the run has no checkpoint or no calibration.json.
      ValueError, RuntimeError: naming a file or checkpoint of the run that cannot be used.
    """
    check_absent(output)
    workdir = Workdir(run)
    config = workdir.load_config()
    lora, base = config.lora, config.training.start
    if adapter and not (lora.rank and lora.targets):  # a head alone is nothing that PEFT loads
        without = "lora.targets = ()" if lora.rank else "lora.rank = 0"
        raise ValueError(f"--adapter: found {workdir}, a run with {without}, expected one that trained adapters")
    if adapter and config.training.start_blocks:
        raise ValueError(
            f"--adapter: found {workdir}, whose base is the lowest {config.training.start_blocks} blocks of {base}, "
            "expected training.start_blocks = 0: adapters are loaded onto the whole base"
        )
    template = Template(Tokenizer.load(workdir.tokenizer), config.prompt)
    fingerprints.check_prompt(workdir, template)
    calibrated = calibration is not None or workdir.calibration.exists() or not (workdir.path / _SCORES).exists()
    thinking = None
    if calibrated:
        path = epath.Path(workdir.calibration if calibration is None else calibration)
        fits = calibration_of(path, config.loss.need_target)
        maps: dict[str, Map] = {name: fit.map for name in SIGNALS if (fit := getattr(fits, name)) is not None}
        thinking = None if fits.thinking is None else fits.thinking.to_dict()
    else:
        known = read_scores(workdir.path / _SCORES).columns()
        maps = {name: Temperature(1.0) for name in SIGNALS if f"p_{name}" in known}
    trained = restore_trained(config, workdir, merge=not adapter)
    model = Qwen3(dataclasses.replace(config.student, compute="float32"))  # whoever loads it chooses
    prism = _prism(template, config, maps, thinking)
    prism |= {"checkpoint": trained.step, "responses": _writes_responses(workdir, config)}
    with new_folder(output) as folder:
        if adapter:
            absolute = str(epath.Path(base).resolve())  # PEFT takes a relative path for a name on a hub
            save_adapters(folder, Qwen3(model.config, lora), trained.params, base=absolute, dtype=dtype)
            prism["base_sha256"] = config.training.start_sha256
        else:
            _save_student(folder, template, Pretrained(model, trained.params), prism, dtype)
        digest = _finish(folder, template, config, prism)
    words = checkpoint_in_words(config, trained.step, trained.damaged)
    words += "" if calibrated else ", not calibrated (all temperatures are 1)"
    return f"{words}, SHA-256 of digests.json: {digest}", not trained.damaged


def export_base(weights: epath.PathLike, output: epath.Path, *, dtype: str | None = None) -> str:
    """Writes a language model that was not trained here as a model directory, with its probabilities as they are.

    Slots, costs and policy are the defaults; `python -m prism_jax calibrate` fits maps where the model serves. The
    result describes what was exported, with the SHA-256 of its `digests.json`.

    Args:
      weights: GGUF file or Hugging Face directory, with a tokenizer of ChatML.
      output: Folder to create; if the export fails, nothing is left behind.
      dtype: Dtype in which the tensors are read, computed for the sample, and written; default: float32.

    Raises:
      FileExistsError: if `output` already exists.
      FileNotFoundError, ValueError: naming what `weights` lacks.
    """
    check_absent(output)
    config = RunConfig()
    template = Template(Tokenizer.load(weights), config.prompt)
    maps = {name: Temperature(1.0) for name in ("need_fast", "accept_fast")}
    prism = _prism(template, config, maps, None) | {"checkpoint": 0, "responses": False}
    with new_folder(output) as folder:
        _save_student(folder, template, load(weights, dtype or "float32"), prism, dtype)
        digest = _finish(folder, template, config, prism)
    return f"a language model without training, SHA-256 of digests.json: {digest}"


def _save_student(
    folder: epath.Path, template: Template, student: Pretrained, prism: dict[str, Any], dtype: str | None
) -> None:
    """Writes the weights, and into `prism` by what an agent recognises them."""
    special = {"eos_token_id": template.tokenizer.special(TURN_END), "pad_token_id": template.tokenizer.pad}
    save_hf(folder, student.model, student.params, dtype=dtype, **special)
    prism["sample"] = sample_of(template, student)


def _finish(folder: epath.Path, template: Template, config: RunConfig, prism: Mapping[str, Any]) -> str:
    """Writes what stands beside the weights; returns the SHA-256 of digests.json."""
    write_tokenizer(folder, template.tokenizer, config.packing.context)
    write_json(folder / "prism.json", prism)
    digest = write_digests(folder)
    _same_mode(folder)
    return digest


def sample_of(template: Template, student: Pretrained) -> list[dict[str, Any]]:
    """Prompts of the template and the log-odds that a student gives them, by which one that is served is recognised."""
    trunk, before, prompts = template.system(), None, []
    for event in SAMPLE:
        trunk = [*trunk, *template.event(event, before)]
        need = [*trunk, *template.head()]
        prompts += [need, [*need, *template.leaf(Candidate())]]
        before = event
    rows = np.zeros((len(prompts), max(map(len, prompts))), np.int32)
    for row, prompt in zip(rows, prompts, strict=True):
        row[: len(prompt)] = prompt
    logits = student.logits(rows)
    ends = [logits[row, len(prompt) - 1] for row, prompt in enumerate(prompts)]
    return [
        {"ids": prompt, "log_odds": float(end[template.yes] - end[template.no])}
        for prompt, end in zip(prompts, ends, strict=True)
    ]


def calibration_of(path: epath.Path, need_target: str) -> Calibration:
    """The map of each signal, as evaluation wrote it, on the p_need that the model states; errors name the file."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file, expected what `python -m prism_jax evaluate` writes")
    calibration = read_calibration(path)
    if calibration.need_fast is None:
        raise ValueError(f"{path}, need_fast: found None, expected an object with the fit's keys")
    if calibration.need_target != need_target:
        raise ValueError(
            f"{path}, need_target: found {calibration.need_target} (or no such key), expected {need_target}, which the "
            "model was trained for: evaluate it again"
        )
    return calibration


def _writes_responses(workdir: Workdir, config: RunConfig) -> bool:
    """Whether evaluation wrote responses, as of a student that was trained on them; without its scores, the config."""
    path = workdir.path / _SCORES
    return read_scores(path).tokens_response is not None if path.exists() else config.loss.response > 0


def _same_mode(folder: epath.Path) -> None:
    """Gives all files the mode of a new file: the libraries that write them choose different ones."""
    if not on_disk(folder):
        return
    mode = (folder / "prism.json").stat().mode
    for path in folder.iterdir():
        pathlib.Path(path).chmod(mode & 0o777)


def _prism(
    template: Template, config: RunConfig, maps: Mapping[str, Map], thinking: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The content of prism.json that does not depend on weights."""
    fitted = {name: map_to_dict(one) for name, one in maps.items()}
    prism: dict[str, Any] = {
        "format": 1,
        "slots": template.describe(),
        "probability": PROBABILITY[fitted["need_fast"]["calibrator"]],
        "calibration": fitted | ({} if thinking is None else {"thinking": thinking}),
        "decision": dataclasses.asdict(config.decision.triggered(thinking is not None)),
        "writing": dataclasses.asdict(config.writing),
        "dynamic": RULE,
        "need_target": config.loss.need_target,
    }
    temperatures = {name: one.temperature for name, one in maps.items() if isinstance(one, Temperature)}
    if len(temperatures) == len(maps):
        prism["temperatures"] = temperatures
    return prism


def write_tokenizer(directory: epath.PathLike, tokenizer: Tokenizer, context: int) -> None:
    """Writes or replaces tokenizer.json, tokenizer_config.json and chat_template.jinja.

    Where the tokenizer has no chat template of its own, a ChatML template is written. The context is the maximum length
    of the input in tokens.
    """
    folder = epath.Path(directory)
    tokenizer.save(folder / "tokenizer.json")
    write_text(folder / CHAT_TEMPLATE, tokenizer.chat_template or _chat_ml(tokenizer.thinks))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
    }
    write_json(folder / "tokenizer_config.json", config)


def _chat_ml(thinks: bool) -> str:
    """A ChatML template that renders messages as `Template` does."""
    turns = "{%- for message in messages -%}" + _TURN + "{%- endfor -%}"
    opening = "{%- if add_generation_prompt -%}" + _OPENING + (_NOT_THINKING if thinks else "") + "{%- endif -%}"
    return turns + opening
