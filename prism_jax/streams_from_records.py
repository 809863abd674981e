"""Turns an agent's records into streams to train on.

    python -m prism_jax.streams_from_records --records=records.jsonl --out=streams.jsonl

The file goes to `--config.data.train_source`. Texts of events are there where the agent ran with --keep_texts
(docs/agent.md).
"""

from __future__ import annotations

from absl import flags

from prism_jax.recipes.records_streams import streams_from_records
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("records", None, "Decision records of prism_jax.agent.")
    flags.DEFINE_string("out", None, "File of streams to write; there may be nothing yet.")
    flags.mark_flags_as_required(["records", "out"])
    refuse_empty("records", "out")


def main() -> None:
    """Runs what the flags say."""
    print(streams_from_records(flags.FLAGS.records, flags.FLAGS.out))


if __name__ == "__main__":
    define_flags()
    command.start(main)
