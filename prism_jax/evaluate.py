"""Calibrates and evaluates, without training: a trained run, or a scores file of any agent.

    python -m prism_jax.evaluate --workdir=RUN
    python -m prism_jax.evaluate --scores=FILE --workdir=DIR [--c_fa=1 --c_fn=2 --margin=0.1 --policy=dynamic]

The first reads the run's config.json, tokenizer.json and checkpoint, and writes scores.parquet, calibration.json,
evaluation.json and report.html beside them. The second reads FILE (docs/scores.md), needs no model and loads no Flax;
it writes the last three into DIR. Both print the tables.
"""

from __future__ import annotations

from typing import Any

from absl import flags
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.policies import DEPLOYABLE
from prism_jax.recipes.scores_files import evaluate_scores
from prism_jax.runtime import command

POINT = {
    "c_fa": "C_FA, the cost of an offer that is not accepted.",
    "c_fn": "C_FN, the cost of silence where help was needed and would have been accepted.",
    "margin": "The slow margin around the threshold, a probability.",
    "policy": "The rule that decides.",
    "fixed_threshold": "The threshold of the policy fixed.",
}


def define_flags() -> None:
    """Defines the flags; those of an operating point have its own defaults."""
    flags.DEFINE_string("workdir", None, "Folder of a run; with --scores, the folder to write to.", required=True)
    flags.DEFINE_string("scores", None, "Scores file to evaluate instead of a run, .parquet or .jsonl.")
    for name in sorted(POINT.keys() - {"policy"}):
        flags.DEFINE_float(name, getattr(OperatingPoint, name), POINT[name])
    flags.DEFINE_enum("policy", OperatingPoint.policy, DEPLOYABLE, POINT["policy"])
    flags.register_multi_flags_validator(
        ["scores", *POINT],
        lambda given: given["scores"] is not None or not any(flags.FLAGS[name].present for name in POINT),
        f"expected {', '.join(f'--{name}' for name in POINT)} with --scores only; a run's config.json says its own",
    )


def main() -> None:
    """Runs what the flags say."""
    given: dict[str, Any] = flags.FLAGS.flag_values_dict()
    if given["scores"] is not None:
        point = OperatingPoint(**{name: given[name] for name in POINT})
        return evaluate_scores(given["scores"], epath.Path(given["workdir"]), point)
    from prism_jax.recipes.runs import evaluate_workdir  # loads a language model and all that it needs

    evaluate_workdir(given["workdir"])


if __name__ == "__main__":
    define_flags()
    command.start(main)
