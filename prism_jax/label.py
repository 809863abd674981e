"""Labels streams by a teacher: `python -m prism_jax.label --config=configs/teacher.py --streams=IN --out=OUT`.

IN has one stream per line (JSONL), without labels; OUT has the same streams with the teacher's probabilities, fields of
the slow pass and responses (docs/distillation.md). --dry_run says what it would cost.
"""

from __future__ import annotations

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax.recipes import labelling
from prism_jax.runtime import command
from prism_jax.runtime.config import from_config_dict
from prism_jax.runtime.flag_checks import refuse_empty
from prism_jax.teacher.config import TeacherConfig


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("streams", None, "Streams to label, one per line (JSONL).")
    flags.DEFINE_string("out", None, "File of labelled streams to write.")
    flags.DEFINE_string("rows", None, "File of questions and answers to write; by default beside the output.")
    flags.DEFINE_bool("dry_run", False, "Send nothing, and say how much would be sent and what it would cost.")
    flags.mark_flags_as_required(["config", "streams", "out"])
    refuse_empty("streams", "out", "rows")


def main() -> None:
    """Runs what the flags say."""
    config = from_config_dict(TeacherConfig, flags.FLAGS.config)
    source, output = epath.Path(flags.FLAGS.streams), epath.Path(flags.FLAGS.out)
    rows = epath.Path(flags.FLAGS.rows or output.with_suffix(".rows.jsonl"))
    if flags.FLAGS.dry_run:
        done = labelling.estimate(config, source)
    else:
        done = labelling.label_file(config, source, output, rows)
        print(f"labelled {done.streams:,} streams, {done.steps:,} questions: {output}; answers: {rows}")
        for problem, count in sorted(done.missing.items(), key=lambda one: -one[1])[:5]:
            print(f"  missing {count:,}: {problem}")
    for line in done.lines:
        print(line)


if __name__ == "__main__":
    define_flags()
    command.start(main)
