"""Keeps the rows of highest R_DC.

    python -m prism_jax curate --streams=TEACHER.jsonl --out=CURATED.jsonl

`--keep` and `--count` are `--config.pathway.keep` and `count` of a training run that filters its own streams, and
`--method=paper` its `score=paper` and `stratify=False`. A curated file is for training only: give it as
`--config.data.train_source` with `--config.pathway.filter=off`, and whole streams otherwise (docs/distillation.md).
"""

from __future__ import annotations

from typing import get_args

from absl import flags

from prism_jax.report.table import print_all
from prism_jax.runs.curation import curate_file, summary_path, table_of
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.training.pathway_config import Method, PathwayConfig


def define_flags() -> None:
    """Defines the flags."""
    default = PathwayConfig()
    flags.DEFINE_string("streams", None, "File of streams with labels and a teacher's probabilities.")
    flags.DEFINE_string("out", None, "File to write; its summary goes beside it.")
    flags.DEFINE_float("keep", default.keep, "Share of the rows to keep; read where --count is 0.")
    flags.DEFINE_integer("count", default.count, "Number of rows to keep; 0 leaves it to --keep.")
    flags.DEFINE_enum("method", "corrected", get_args(Method), "R_DC as corrected, or the paper's Eq. 2 with one cut.")
    flags.mark_flags_as_required(["streams", "out"])
    refuse_empty("streams", "out")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    try:
        pathway = PathwayConfig(name="rdc_sft", keep=options.keep, count=options.count).curated_by(options.method)
    except ValueError as error:
        raise ValueError(f"--{error}") from error
    curated = curate_file(options.streams, options.out, pathway)
    print_all([table_of(curated)])
    print(f"curated: {options.out}, summary: {summary_path(options.out)}")


if __name__ == "__main__":
    define_flags()
    command.start(main)
