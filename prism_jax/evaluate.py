"""Calibrates and evaluates, without training: a trained run, or anybody's scores file.

    python -m prism_jax.evaluate --workdir=RUN
    python -m prism_jax.evaluate --scores=FILE --workdir=DIR [--c_fa=1 --c_fn=2 --margin=0.1 --policy=dynamic]

The first reads the run's config.json, tokenizer.json and checkpoint, and writes scores.parquet, calibration.json,
evaluation.json and report.html beside them. The second reads FILE (docs/scores.md), needs no model and loads no Flax;
it writes the last three into DIR. Both print the tables.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from absl import flags
from etils import epath

from prism_jax import command
from prism_jax.decision.operating_point import OperatingPoint, Policy
from prism_jax.evaluation.outputs import evaluate_into
from prism_jax.provenance import as_facts, provenance
from prism_jax.scores import ScoresError, read_scores

POINT = {
    "c_fa": "C_FA, the cost of an offer that is not accepted.",
    "c_fn": "C_FN, the cost of silence where help was needed and would have been accepted.",
    "margin": "The slow margin around the threshold, a probability.",
    "policy": "The rule that decides.",
    "fixed_threshold": "The threshold of the policy fixed.",
}


def evaluate_scores(path: str, folder: epath.Path, point: OperatingPoint) -> None:
    """Evaluates a scores file into a folder that holds no run."""
    if (folder / "config.json").exists():
        raise ValueError(
            f"--scores, --workdir: found both a scores file and a run ({folder}/config.json), expected one of them; "
            "give --scores another folder to write to"
        )
    scores = read_scores(path)
    facts = as_facts(provenance()) | {"scores": path}
    try:
        evaluate_into(folder, scores, point, facts=facts, keep_scores=False)
    except ScoresError as error:
        raise ScoresError(error.found, error.column, error.row, place=path) from None


def evaluate_workdir(workdir: epath.Path) -> None:
    """Evaluates the run in a folder; only this needs a language model and loads what it takes."""
    from prism_jax.prompting.tokenizer import Tokenizer
    from prism_jax.trained import evaluate_run
    from prism_jax.training.run import open_run
    from prism_jax.training.workdir import load_config

    config = load_config(workdir)
    evaluate_run(open_run(config, Tokenizer.load(workdir / "tokenizer.json")), workdir)


def main() -> None:
    """Runs what the flags say."""
    values = flags.FLAGS
    workdir = epath.Path(values.workdir)
    if values.scores is None:
        evaluate_workdir(workdir)
    else:
        given: dict[str, Any] = {name: values[name].value for name in POINT}
        evaluate_scores(values.scores, workdir, OperatingPoint(**given))


def define_flags() -> None:
    """Defines the flags, an operating point's with its own defaults."""
    flags.DEFINE_string("workdir", None, "Folder of a run that trained; with --scores, the folder to write to.")
    flags.DEFINE_string("scores", None, "A scores file, .parquet or .jsonl, instead of a run.")
    for field in dataclasses.fields(OperatingPoint):
        default: Any = field.default
        if field.name == "policy":
            flags.DEFINE_enum(field.name, default, typing.get_args(Policy), POINT[field.name])
        else:
            flags.DEFINE_float(field.name, default, POINT[field.name])
    flags.mark_flags_as_required(["workdir"])
    flags.register_multi_flags_validator(
        ["scores", *POINT],
        lambda given: given["scores"] is not None or not any(flags.FLAGS[name].present for name in POINT),
        f"expected {', '.join(f'--{name}' for name in POINT)} with --scores only; a run's config.json says its own",
    )


if __name__ == "__main__":
    define_flags()
    command.start(main)
