"""The paper's tables and figures, by name or all of them.

    python -m prism_jax.experiments all --scores=FILE --workdir=DIR
    python -m prism_jax.experiments NAME --scores=FILE --workdir=DIR

Each experiment prints its tables and writes them into DIR as CSV, Markdown and LaTeX, and its figure as SVG and PNG
where matplotlib is installed (`pip install 'prism_jax[figures]'`). docs/paper_tables.md lists the names. The
tables are computed on a scores file of any agent (docs/scores.md).
"""

from __future__ import annotations

from absl import flags
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments.paper import registry, runner
from prism_jax.experiments.paper.study import Settings
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("workdir", None, "Folder to write to.", required=True)
    flags.DEFINE_string("scores", None, "Scores file of any agent, .parquet or .jsonl.", required=True)
    flags.DEFINE_integer("resamples", Settings.resamples, "Number of bootstrap resamples of each interval.", 1)
    for name, what in {"c_fa": "Cost C_FA", "c_fn": "Cost C_FN", "margin": "Slow margin"}.items():
        flags.DEFINE_float(name, getattr(OperatingPoint, name), f"{what} of the tables that do not vary it.")
    refuse_empty("workdir", "scores")


def main(arguments: list[str]) -> None:
    """Runs the experiments of a name."""
    if len(arguments) > 1:
        raise ValueError(f"found arguments {', '.join(map(repr, arguments))}, expected one name and flags (see --help)")
    given, names = flags.FLAGS, registry.chosen(arguments[0])
    point = OperatingPoint(c_fa=given.c_fa, c_fn=given.c_fn, margin=given.margin)
    study, facts = runner.study_of_scores(given.scores, point=point, settings=Settings(resamples=given.resamples))
    runner.run(names, study, epath.Path(given.workdir), facts)


if __name__ == "__main__":
    define_flags()
    command.start(main, arguments=f"all or one of {', '.join(registry.EXPERIMENTS)}")
