"""Trains, calibrates and evaluates a probe.

    python -m prism_jax probe --config=configs/probe_simulator.py --workdir=DIR

A probe predicts acceptance and need from words, and with --config.states.weights=PATH also from a frozen model's
states, without fine-tuning. The workdir gets the files of a student's run and the probe itself, as plain files
(docs/probe.md). Streams with offers that were not made need propensities or --shown_only, as `evaluate` on
their scores.parquet does. Started again on the same workdir, it evaluates the probe that is there.
"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from prism_jax.runtime import command, digests
from prism_jax.runtime.command import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("workdir", None, "Folder for everything that the run leaves behind.", required=True)
    digests.define_flag("--config.states.weights")
    flags.DEFINE_bool("texts", True, "Whether report.html may show events' texts; --notexts leaves them out.")
    flags.DEFINE_bool("shown_only", False, "Evaluate without the offers that were not made, and say so.")
    flags.mark_flag_as_required("config")
    refuse_empty("workdir")


def main() -> None:
    """Runs what the flags say."""
    # Neither help nor a refused flag needs what trains.
    from prism_jax.commands.probing import train_and_evaluate_probe
    from prism_jax.probe.probe_config import ProbeConfig
    from prism_jax.runtime.dataclass_config import from_config_dict

    options = flags.FLAGS
    config = from_config_dict(ProbeConfig, options.config)
    train_and_evaluate_probe(
        config,
        options.workdir,
        texts=options.texts,
        shown_only=options.shown_only,
        expect_digest=options.expect_digest,
    )


if __name__ == "__main__":
    define_flags()
    command.start(main)
