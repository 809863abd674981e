"""Decides on live streams.

    python -m prism_jax agent --model=exported --input=events.jsonl [--state=DIR [--records=FILE]]

The model is what `export` wrote; --expect_digest=SHA256 says which export it must be (docs/export.md). Each line of the
input (- is standard input) is an event or the outcome of an offer; each event leads to one decision record, on standard
output or in FILE (docs/agent.md). With a state, a restart resumes where it ended, and people are known. With
--replay=RECORDS, decisions are computed again from a log, without a model.
"""

from __future__ import annotations

from absl import flags

from prism_jax.agent.loading import define_number_flags
from prism_jax.agent.serving import (
    define_asking_flags,
    define_reading_flags,
    define_settings_flags,
    replay_records,
    serve,
)
from prism_jax.runtime import command, digests, distributed
from prism_jax.runtime.command import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("model", None, "Directory of an exported model, or workdir of a trained run.")
    flags.DEFINE_string("input", None, "File of JSON lines with events and outcomes; - is standard input.")
    flags.DEFINE_string("state", None, "Folder of streams, people and records; it is made where it is missing.")
    flags.DEFINE_string(
        "records", None, "With --state: file of its records; by default new ones go to standard output."
    )
    flags.DEFINE_string("replay", None, "File of decision records to decide on again, without a model.")
    flags.DEFINE_string("calibration", None, "With --replay: calibration.json to apply.")
    define_settings_flags()
    flags.DEFINE_string(
        "population", None, "Parameters of the person layer, for a new state (`state --population_out`)."
    )
    flags.DEFINE_bool("recalibrate", False, "Let everybody's answers move the map to personal probabilities.")
    flags.DEFINE_bool("skip_bad", False, "Report and skip bad lines instead of stopping at the first.")
    flags.DEFINE_integer("batch", 256, "Most lines to decide on together.", lower_bound=1)
    define_asking_flags()
    define_reading_flags()
    define_number_flags()
    flags.DEFINE_string("gate", None, "With --engine or --decisions: gate.json with maps, costs and policy.")
    flags.DEFINE_bool("jitter", None, "Print what cache and slot move at the engine, and decide on nothing.")
    distributed.define_cache_flag()
    digests.define_flag("--model")
    refuse_empty("model", "input", "records", "replay", "calibration", "state", "population", "engine", "decisions")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS.flag_values_dict()
    (serve if options["replay"] is None else replay_records)(options)


if __name__ == "__main__":
    define_flags()
    command.start(main)
