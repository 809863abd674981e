"""Compares several runs on one page: `python -m prism_jax.report --runs=RUN,RUN,... --out=index.html`.

Each RUN is a folder that holds evaluation.json and report.html, from a training run or from `prism_jax.evaluate`. The
page links to the reports by paths relative to its own folder.
"""

from __future__ import annotations

from absl import flags

from prism_jax.report.index import write_index
from prism_jax.report.table import print_all
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list("runs", None, "Folders of the runs to compare, separated by commas.")
    flags.DEFINE_string("out", "index.html", "Page to write.")
    flags.mark_flag_as_required("runs")
    refuse_empty("out")


def main() -> None:
    """Runs what the flags say."""
    print_all([write_index(flags.FLAGS.out, flags.FLAGS.runs)])
    print(f"index: {flags.FLAGS.out}")


if __name__ == "__main__":
    define_flags()
    command.start(main)
