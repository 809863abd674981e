"""The paper's tables and figures, by name or all of them.

    python -m prism_jax.experiments all --workdir=DIR
    python -m prism_jax.experiments NAME --workdir=DIR
    python -m prism_jax.experiments all --scores=FILE --workdir=DIR

Each experiment prints its tables and writes them into DIR as CSV, Markdown and LaTeX, and its figure as SVG and PNG
where matplotlib is installed (`pip install 'prism_jax[figures]'`). docs/paper_tables.md lists the names.

Without --scores, tiny students are trained on the built-in simulator. Trainings are kept in DIR/trainings: a call that
was interrupted resumes them, and a later one computes tables without training again. With --scores, the tables are
computed on a scores file of any agent (docs/scores.md), and those that need a training are skipped.

`all` makes the paper's tables. The studies thinking, distillation, propensities, proactivebench, human_labels and
official_scores are run by name alone: they take longer, or need --source (ProactiveBench's repository) and --weights.
"""

from __future__ import annotations

import contextlib
import dataclasses

from absl import flags
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments.paper import registry, runner
from prism_jax.experiments.paper.study import PAPER, Files, Settings
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.recipes.store import Store
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("workdir", None, "Folder to write to.", required=True)
    flags.DEFINE_string(
        "scores", None, "Scores file of any agent, .parquet or .jsonl; by default students are trained."
    )
    flags.DEFINE_string("source", "", "Folder with ProactiveBench's repository, for studies of people's votes.")
    flags.DEFINE_string("weights", "", "Weights of the pretrained student of `proactivebench`.")
    flags.DEFINE_integer("seeds", 1, "Number of seeds to train with; tables show means over them.", 1)
    flags.DEFINE_integer("resamples", Settings.resamples, "Number of bootstrap resamples of each interval.", 1)
    for name, what in {"c_fa": "Cost C_FA", "c_fn": "Cost C_FN", "margin": "Slow margin"}.items():
        flags.DEFINE_float(name, getattr(OperatingPoint, name), f"{what} of the tables that do not vary it.")
    refuse_empty("workdir", "scores")


def main(arguments: list[str]) -> None:
    """Runs the experiments of a name."""
    if len(arguments) > 1:
        raise ValueError(f"found arguments {', '.join(map(repr, arguments))}, expected one name and flags (see --help)")
    options, names, folder = flags.FLAGS, registry.chosen(arguments[0]), epath.Path(flags.FLAGS.workdir)
    if options.scores is not None and options.seeds > 1:
        raise ValueError(
            f"--seeds: found {options.seeds} beside --scores, expected 1: nothing is trained on a scores file"
        )
    for flag in ("source", "weights"):
        if options[flag].value:
            registry.check_flag(flag, names)
    store = Store(folder / "trainings")
    call = runner.Given(
        scores=options.scores,
        trainings=() if options.scores else tuple(Trainings(store, seed) for seed in range(options.seeds)),
        point=dataclasses.replace(PAPER, c_fa=options.c_fa, c_fn=options.c_fn, margin=options.margin),
        settings=Settings(resamples=options.resamples, seeds=options.seeds),
        files=Files(folder, options.source, options.weights),
    )
    with contextlib.nullcontext() if options.scores else store.claimed():
        runner.run(names, call, folder)


if __name__ == "__main__":
    define_flags()
    command.start(main, arguments=f"all or one of {', '.join(registry.EXPERIMENTS)}")
